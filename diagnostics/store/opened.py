"""A run as a script wants it: records as a table, tensors as lazy arrays with named axes.

    run = diagnostics.open_run("outputs/attention_drift/tiny-a1b2c3")
    run.records[["item_id", "correct", "measures.evidence_log_lift"]]
    run.tensors("attention").unit_mass.sel(role="last").mean("head")

Nothing is read before it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from diagnostics.errors import ForeignFolderError, IncompleteRunError, RunError
from diagnostics.store.canonical import plain
from diagnostics.store.finished import load_summary
from diagnostics.store.manifest import Manifest, read_manifests
from diagnostics.store.record_log import read_records
from diagnostics.store.records import Record
from diagnostics.store.run_folder import tensor_path
from diagnostics.store.summary import Summary
from diagnostics.store.tensor_parts import AXES, PARTS, Variable, schema_of
from diagnostics.store.tensors import opened_tensors
from diagnostics.strict import near_match

if TYPE_CHECKING:
    import xarray as xr

    from diagnostics.store.stacked import Labels

__all__ = ["OpenRun", "open_run"]

_NESTED = ("condition", "measures", "seconds", "option_logprobs", "error")
"""Fields of a record that become a column an entry, named `field.entry`."""


def open_run(path: str | Path) -> OpenRun:
    """A run by its folder, finished or not.

    Raises:
        ForeignFolderError: there is no such folder, or it holds no records.
    """
    return OpenRun(Path(path))


class OpenRun:
    """One run's records, numbers and tensors; each is read when first asked for.

    Attributes:
        path: the run's folder.
    """

    def __init__(self, path: Path) -> None:
        """Not for callers: use `open_run`."""
        if not (path.is_dir() and any(path.glob("samples.*.jsonl"))):
            raise ForeignFolderError(
                "This folder holds no run." if path.is_dir() else "There is no such folder.",
                remedy="Give the folder that holds samples.0.jsonl, such as outputs/attention_drift/<run>.",
                path=path,
            )
        self.path = path

    def __repr__(self) -> str:
        return f"open_run({str(self.path)!r})"

    @cached_property
    def manifest(self) -> Manifest:
        """What was run: experiment, configuration, versions, machine.

        Raises:
            IncompleteRunError: the folder has records and no manifest.
        """
        manifests = read_manifests(self.path)
        if not manifests:
            raise IncompleteRunError(
                "The folder has records but no manifest.",
                remedy="Give a folder that the program wrote, whole.",
                path=self.path,
            )
        return manifests[0]

    @cached_property
    def summary(self) -> Summary:
        """The run's numbers; raises as `load_summary` where it has not finished."""
        return load_summary(self.path)

    @cached_property
    def _records(self) -> tuple[Record, ...]:
        return tuple(read_records(self.path))

    @cached_property
    def records(self) -> pd.DataFrame:
        """One row a pair (item, condition), the record that counts, failed ones too.

        What a record nests is a column an entry: `measures.evidence_log_lift`, `condition.budget`,
        `seconds.decode`, `option_logprobs.A`, `error.kind`. Fields are described at
        `diagnostics.store.Record`. An undefined number is NaN.
        """
        rows = []
        for record in self._records:
            row = {entry.name: getattr(record, entry.name) for entry in fields(Record)}
            for name in _NESTED:
                nested = row.pop(name)
                row |= {f"{name}.{key}": value for key, value in (plain(nested) or {}).items()}
            rows.append(row)
        return pd.DataFrame(rows).infer_objects()

    def tensors(self, part: str, *, item: str | None = None, **condition: Any) -> xr.Dataset:
        """One part of the tensor files of all pairs that have one, along a first dimension `pair`.

        Shorter pairs are padded with NaN (-1 for whole numbers, False for truths); the coordinates `n_unit`,
        `n_token`... say how long each is. Arrays are lazy: a number is read when its value is asked for.
        Coordinates along `pair` are the item, the condition and each of its entries.

        Args:
            part: such as `attention`, `units`, `similarity`; see `diagnostics.store.tensor_parts.PARTS`.
            item: of this item only.
            condition: of pairs with these entries only, such as `budget=64`.

        Raises:
            RunError: no such part, or no pair with tensors among the asked-for ones; the pairs do not name
                their roles, options or layers alike.
        """
        # Not at the top: xarray takes a second to import, and most readers of a run want its records.
        import xarray as xr
        from xarray.core.indexing import LazilyIndexedArray

        from diagnostics.store.stacked import StackedArray

        if part not in PARTS:
            raise RunError(
                f"There is no part {part!r}.", remedy=near_match(part, list(PARTS)), path=self.path
            )
        chosen = self._with_tensors(item, condition)
        files = [self._file(record) for record in chosen]
        lengths = np.array([[record.axes[axis] for axis in AXES] for record in chosen])
        labels = _labels(files, lengths)
        variables = {}
        for variable in _present(files[0], part):
            own = lengths[:, [AXES.index(axis) for axis in variable.axes]]
            stacked = StackedArray(files, f"{part}/{variable.name}", variable, own, labels)
            variables[variable.name] = xr.Variable(("pair", *variable.axes), LazilyIndexedArray(stacked))
        used = {axis for variable in variables.values() for axis in variable.dims}
        coordinates = _coordinates(chosen, lengths)
        for axis in ("layer", "role", "option"):
            if axis in used:
                coordinates[axis] = (axis, list(getattr(labels, axis)))
        return xr.Dataset(variables, coordinates, {"run": str(self.path), "part": part})

    def _with_tensors(self, item: str | None, condition: dict[str, Any]) -> list[Record]:
        found = [record for record in self._records if record.error is None and record.tensor_file]
        chosen = [
            record
            for record in found
            if item in (None, record.item_id)
            and all(
                key in record.condition and record.condition[key] == plain(value)
                for key, value in condition.items()
            )
        ]
        if not chosen:
            told = {**({} if item is None else {"item": item}), **condition}
            raise RunError(
                f"None of the {len(found)} pairs with tensors has {told}."
                if told
                else "The run has no tensors.",
                remedy="See `records` for the items and conditions there are.",
                path=self.path,
            )
        return chosen

    def _file(self, record: Record) -> Path:
        path = tensor_path(self.path, record)
        assert path is not None
        return path


def _present(path: Path, part: str) -> list[Variable]:
    """The arrays of a part that the first file holds; a run measures the same of all pairs."""
    with opened_tensors(path) as file:
        held = set(file[part]) if part in file else set()
    if not held:
        raise RunError(
            f"This run did not measure {part!r}.",
            remedy="Take a part that its tensor files hold (h5ls shows them).",
            path=path,
        )
    return [variable for variable in schema_of(PARTS[part]) if variable.name in held]


def _labels(files: Sequence[Path], lengths: Int[np.ndarray, "pair axis"]) -> Labels:
    """The names along axes, each from the file where its axis is longest."""
    from diagnostics.store.stacked import Labels, read_labels

    longest = {axis: int(lengths[:, AXES.index(axis)].argmax()) for axis in ("layer", "role", "option")}
    return Labels(**{axis: getattr(read_labels(files[pair]), axis) for axis, pair in longest.items()})


def _coordinates(chosen: Sequence[Record], lengths: Int[np.ndarray, "pair axis"]) -> dict[str, Any]:
    """What is known of each pair: its item, its condition, and how long its ragged axes are."""
    found: dict[str, Any] = {
        "item_id": ("pair", [record.item_id for record in chosen]),
        "condition_id": ("pair", [record.condition_id for record in chosen]),
    }
    for key in dict.fromkeys(key for record in chosen for key in record.condition):
        found[key] = ("pair", [record.condition.get(key) for record in chosen])
    for place, axis in enumerate(AXES):
        if len(set(lengths[:, place].tolist())) > 1:
            found[f"n_{axis}"] = ("pair", lengths[:, place])
    return found
