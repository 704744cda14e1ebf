"""Frames that a model is shown twice, whole and in slices: one map of both on the picture.

Such a unit's tokens lie in one grid, the whole frame's rows first and the slices' rows below
(`hooks.families.minicpmv4_6`); its notice says where they part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

__all__ = ["on_one_picture"]

_NOTICE = re.compile(r"in_slices: the first (\d+) rows and (\d+) columns of a frame's tokens show it whole.*")


def on_one_picture(
    heat: Float[np.ndarray, "row col"], notices: Iterable[str]
) -> Float[np.ndarray, "fine_row fine_col"]:
    """What the slices have, and on top of it the whole frame's, spread evenly over the places it covers.

    Args:
        heat: of one unit, NaN where it has no token. Sums are kept.
        notices: of the item's record. Without one about slices the heat is given back as it is.
    """
    match = next((found for one in notices if (found := _NOTICE.match(one))), None)
    if match is None:
        return heat
    rows, cols = int(match[1]), int(match[2])
    fine, whole = heat[rows:], heat[:rows, :cols]
    return fine + _shares(len(fine), rows) @ whole @ _shares(fine.shape[1], cols).T


def _shares(fine: int, coarse: int) -> Float[np.ndarray, "fine coarse"]:
    """How much of each of `coarse` equal parts of a length lies in each of `fine` equal parts."""
    starts, ends = np.arange(fine)[:, None] / fine, np.arange(1, fine + 1)[:, None] / fine
    first, last = np.arange(coarse) / coarse, np.arange(1, coarse + 1) / coarse
    return coarse * np.clip(np.minimum(ends, last) - np.maximum(starts, first), 0, None)
