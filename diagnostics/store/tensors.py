"""The tensor file of one pair (item, condition): plain, immutable HDF5, schema 1.

Written whole under a temporary name and renamed, since an HDF5 file whose writer was killed may not
open again. Dimension scales lie at the root and the default file format is used, so that xarray
opens it with both of its engines: `xarray.open_datatree(path, engine="h5netcdf")` or `"netcdf4"`
gives all groups with their coordinates. No variable is called as an axis is: in such a tree the scale at
the root would hide it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from diagnostics.errors import DamagedRunError
from diagnostics.store.atomic import publish
from diagnostics.store.canonical import condition_id, plain
from diagnostics.store.tensor_parts import AXES, PARTS, PairTensors, schema_of

__all__ = ["TENSOR_SCHEMA", "opened_tensors", "read_layer", "read_tensors", "tensor_fault", "write_tensors"]

TENSOR_SCHEMA = 1
"""Version of the file's layout, in its attribute `schema`."""

_TEXT = h5py.string_dtype()


def write_tensors(path: Path, tensors: PairTensors, *, shard: int = 0, durable: bool = True) -> None:
    """Write the file, or replace the one that is there.

    Text that HDF5 cannot hold (a NUL character, half a surrogate pair) is kept as a backslash escape;
    the record holds it exactly.

    Args:
        path: where it is to appear; its folder exists.
        tensors: what to write.
        shard, durable: see `atomic.publish`.

    Raises:
        InconsistentTensorsError: see `PairTensors.check`.
        OSError: the disk is full...
    """
    tensors.check()
    axes = tensors.axes
    # In memory first: on a full disk HDF5 leaves a file that it cannot finish half open, and the interpreter
    # crashes at its end. A write of our own fails with an error.
    with h5py.File(path.name, "w", driver="core", backing_store=False) as file:
        file.attrs.update(_attributes(tensors))
        _write_scales(file, tensors, axes)
        for name in PARTS:
            if getattr(tensors, name) is not None:
                file.create_group(name)
        for location, variable, array in tensors.arrays():
            dataset = _write_array(file, location, array.astype(variable.dtype, copy=False), variable.axes)
            for position, axis in enumerate(variable.axes):
                dataset.dims[position].attach_scale(file[axis])
        if tensors.answer is not None:
            file["answer"].create_dataset("text", data=_storable(tensors.answer.text), dtype=_TEXT)
        if tensors.control is not None:
            file["control"].attrs["kind"] = _storable(tensors.control.kind)
        file.flush()
        image = file.id.get_file_image()
    with publish(path, shard=shard, durable=durable) as temporary:
        temporary.write_bytes(image)


def _attributes(tensors: PairTensors) -> dict[str, Any]:
    return {
        "schema": TENSOR_SCHEMA,
        "item_id": _storable(tensors.item_id),
        "condition_id": condition_id(tensors.condition),
        "condition": json.dumps(plain(tensors.condition), sort_keys=True),
        "definitions": json.dumps(plain(tensors.definitions), sort_keys=True),
        "versions": json.dumps(plain(tensors.versions), sort_keys=True),
    }


def _write_scales(file: h5py.File, tensors: PairTensors, axes: Mapping[str, int]) -> None:
    named: dict[str, Any] = {"layer": np.asarray(tensors.layer, np.int32)}
    named |= {"role": list(tensors.role), "option": list(tensors.option)}
    for axis in AXES:
        values = named.get(axis, np.arange(axes[axis], dtype=np.int32))
        if isinstance(values, list):
            texts = np.array([_storable(text) for text in values], dtype=object)
            scale = file.create_dataset(axis, data=texts, dtype=_TEXT)
        else:
            scale = file.create_dataset(axis, data=values)
        scale.make_scale(axis)


def _write_array(file: h5py.File, location: str, array: np.ndarray, axes: tuple[str, ...]) -> h5py.Dataset:
    if array.size == 0:  # an axis of length 0 has no chunks
        return file.create_dataset(location, data=array)
    # Cut along layer and head only, so that one head of one layer is one read in every file of a run.
    chunks = tuple(
        1 if axis in ("layer", "head") else length for axis, length in zip(axes, array.shape, strict=True)
    )
    return file.create_dataset(
        location, data=array, chunks=chunks, compression="gzip", compression_opts=1, shuffle=True
    )


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def read_tensors(path: Path, only: Collection[str] | None = None) -> PairTensors:
    """The arrays in a tensor file.

    Args:
        path: the file.
        only: parts to read, `units` and `tokens` among them; None for all that it has.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedRunError: it is no tensor file of this schema, or cannot be read.
    """
    with opened_tensors(path) as file:
        return _read(file, PARTS if only is None else only)


def read_layer(path: Path, location: str, place: int) -> np.ndarray:
    """One layer of one array, such as `states/unit_state`: one read, whatever the file holds besides.

    Args:
        path: the file.
        location: of an array whose first axis is `layer`.
        place: along that axis.

    Raises:
        FileNotFoundError, DamagedRunError: as `read_tensors`.
    """
    with opened_tensors(path) as file:
        found: np.ndarray = file[location][place]
        return found


@contextmanager
def opened_tensors(path: Path) -> Iterator[h5py.File]:
    """A tensor file of this schema, open for reading.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedRunError: it is no tensor file of this schema, or cannot be read.
    """
    try:
        with h5py.File(path, "r", locking=False) as file:
            _require_schema(file)
            yield file
    except FileNotFoundError:
        raise
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise DamagedRunError(
            f"This is no readable tensor file: {error}.",
            remedy="Delete it and run the same command again: its pair is then measured again.",
            path=path,
        ) from error


def _read(file: h5py.File, wanted: Collection[str]) -> PairTensors:
    parts: dict[str, Any] = {}
    for name, kind in PARTS.items():
        if name in file and name in wanted:
            group = file[name]
            present = [v.name for v in schema_of(kind) if not v.optional or v.name in group]
            values = {variable: group[variable][...] for variable in present}
            if name == "answer":
                values["text"] = group["text"].asstr()[()]
            if name == "control":
                values["kind"] = str(group.attrs["kind"])
            parts[name] = kind(**values)
    return PairTensors(
        item_id=str(file.attrs["item_id"]),
        condition=json.loads(file.attrs["condition"]),
        layer=file["layer"][...],
        role=tuple(file["role"].asstr()[...].tolist()),
        option=tuple(file["option"].asstr()[...].tolist()),
        definitions=json.loads(file.attrs["definitions"]),
        versions=json.loads(file.attrs["versions"]),
        **parts,
    )


def _require_schema(file: h5py.File) -> None:
    if (schema := file.attrs.get("schema")) != TENSOR_SCHEMA:
        raise ValueError(f"its schema is {schema}, this program reads {TENSOR_SCHEMA}")


def tensor_fault(path: Path, axes: Mapping[str, int]) -> str | None:
    """Why the file at `path` cannot serve as a finished pair's tensors; None where it can.

    Opens the file and compares the lengths of its axes; a file cut short does not open. The numbers
    themselves are not read, so that thousands of files are checked in seconds.
    """
    try:
        with h5py.File(path, "r", locking=False) as file:
            _require_schema(file)
            found = {axis: file[axis].shape[0] for axis in AXES}
    except (OSError, KeyError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return None if found == dict(axes) else f"its axes are {found}, the record says {dict(axes)}"
