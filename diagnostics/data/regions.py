"""Where in the picture the evidence is: boxes in some frames, where the data set has them.

They are told in an item's metadata as `evidence_regions`, a list of

    {"frames": [first, end], "box": [top, left, bottom, right]}

with source frames half-open and the box in parts of height and width, 0 to 1. Most data sets have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from diagnostics.data.items import Item
from diagnostics.errors import ItemError

__all__ = ["EVIDENCE_REGIONS", "Region", "evidence_regions", "patches_on"]

EVIDENCE_REGIONS = "evidence_regions"
"""The key of the metadata."""


@dataclass(frozen=True, slots=True)
class Region:
    """A box that holds evidence in source frames [first, end)."""

    first: int
    end: int
    top: float
    left: float
    bottom: float
    right: float


def evidence_regions(item: Item) -> tuple[Region, ...]:
    """The boxes of an item's evidence; none where the data set tells none.

    Raises:
        ItemError: they are not written as they should be.
    """
    written = item.metadata.get(EVIDENCE_REGIONS, ())
    try:
        if isinstance(written, str | Mapping) or not isinstance(written, Sequence):
            raise ValueError(f"a list is expected, not {written!r}")
        return tuple(_region(one) for one in written)
    except (TypeError, ValueError, KeyError) as error:
        raise ItemError(
            f"{EVIDENCE_REGIONS} cannot be read: {error}.",
            remedy='Write {"frames": [first, end], "box": [top, left, bottom, right]}, in parts from 0 to 1.',
            item_id=item.id,
        ) from error


def _region(written: Mapping[str, Any]) -> Region:
    first, end = (index(value) for value in written["frames"])
    top, left, bottom, right = (float(value) for value in written["box"])
    if not (0 <= first < end and 0 <= top < bottom <= 1 and 0 <= left < right <= 1):
        raise ValueError(f"{dict(written)!r} is no box in some frames")
    return Region(first, end, top, left, bottom, right)


def patches_on(
    regions: Sequence[Region], frames: Int[np.ndarray, " slot"], rows: int, columns: int
) -> Bool[np.ndarray, "row column"]:
    """Which patches of a picture of `rows` x `columns` overlap a region in any of these frames.

    Args:
        frames: source frames that are shown there; -1 for none.
    """
    found = np.zeros((rows, columns), dtype=bool)
    down, across = np.arange(rows) / rows, np.arange(columns) / columns
    for one in regions:
        if ((frames >= one.first) & (frames < one.end)).any():
            vertical = (down < one.bottom) & (down + 1 / rows > one.top)
            found |= vertical[:, None] & ((across < one.right) & (across + 1 / columns > one.left))[None, :]
    return found
