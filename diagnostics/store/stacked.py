"""One array of many tensor files as one lazy array, padded where the files differ in length.

The lengths of every file's axes are in its record, so that shapes are known without a file being opened; a
file is opened when one of its numbers is asked for, and only the asked-for chunks of it are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from jaxtyping import Int
from xarray.backends import BackendArray
from xarray.core import indexing

from diagnostics.errors import DamagedRunError, RunError
from diagnostics.store.tensor_parts import Variable
from diagnostics.store.tensors import opened_tensors

__all__ = ["Labels", "StackedArray", "read_labels"]


@dataclass(frozen=True)
class Labels:
    """The names along the axes that have some, as one tensor file tells them."""

    layer: tuple[int, ...]
    role: tuple[str, ...]
    option: tuple[str, ...]


def read_labels(path: Path) -> Labels:
    """The names along a tensor file's axes.

    Raises:
        FileNotFoundError, DamagedRunError: see `read_tensors`.
    """
    with opened_tensors(path) as file:
        return _labels(file)


def _labels(file: h5py.File) -> Labels:
    return Labels(
        layer=tuple(file["layer"][...].tolist()),
        role=tuple(file["role"].asstr()[...].tolist()),
        option=tuple(file["option"].asstr()[...].tolist()),
    )


class StackedArray(BackendArray):
    """`location` of every file along a new first axis. Padding is NaN, -1 or False.

    Args:
        files: one for each pair.
        location: of the array in the file, such as `attention/unit_mass`.
        variable: its entry in the schema.
        lengths: of the array's axes in each file.
        labels: the names along axes; those of a file must be the first of these.
    """

    def __init__(
        self,
        files: Sequence[Path],
        location: str,
        variable: Variable,
        lengths: Int[np.ndarray, "pair axis"],
        labels: Labels,
    ) -> None:
        self._files, self._location, self._lengths = tuple(files), location, lengths
        self._labels = {axis: getattr(labels, axis) for axis in variable.axes if hasattr(labels, axis)}
        self.shape = (len(files), *lengths.max(axis=0, initial=0).tolist())
        self.dtype = variable.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        """What xarray asks for; outer indexing is enough for all it can ask."""
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[int | slice | np.ndarray, ...]) -> np.ndarray:
        wanted = [np.atleast_1d(np.arange(size)[one]) for size, one in zip(self.shape, key, strict=True)]
        found = np.full([len(one) for one in wanted], _padding(self.dtype), dtype=self.dtype)
        for place, pair in enumerate(wanted[0].tolist()):
            inside = [one < length for one, length in zip(wanted[1:], self._lengths[pair], strict=True)]
            if all(some.any() for some in inside):
                places = [one[some] for one, some in zip(wanted[1:], inside, strict=True)]
                found[place][np.ix_(*inside)] = self._block(pair, places)
        scalars = tuple(0 if isinstance(one, int | np.integer) else slice(None) for one in key)
        return found[scalars]

    def _block(self, pair: int, places: list[Int[np.ndarray, " place"]]) -> np.ndarray:
        """Chosen places of one file's array: the smallest box that holds them is read."""
        with opened_tensors(self._files[pair]) as file:
            if self._location not in file:
                return np.full([len(one) for one in places], _padding(self.dtype), dtype=self.dtype)
            self._refuse_other_labels(file)
            array = file[self._location]
            if array.shape != tuple(self._lengths[pair]):
                raise DamagedRunError(
                    f"{self._location} has shape {array.shape}, its record says "
                    f"{tuple(self._lengths[pair].tolist())}.",
                    remedy="Delete the file and run the same command again: its pair is then measured again.",
                    path=self._files[pair],
                )
            box = array[tuple(slice(int(one.min()), int(one.max()) + 1) for one in places)]
        return box[np.ix_(*(one - one.min() for one in places))]

    def _refuse_other_labels(self, file: h5py.File) -> None:
        own = _labels(file) if self._labels else None
        for axis, names in self._labels.items():
            if (told := getattr(own, axis)) != names[: len(told)]:
                raise RunError(
                    f"Along {axis} this pair has {list(told)}, the others {list(names)}.",
                    remedy="Ask for one item at a time: tensors(part, item=...).",
                    path=file.filename,
                )


def _padding(dtype: np.dtype) -> Any:
    return {"f": np.nan, "b": False}.get(dtype.kind, -1)
