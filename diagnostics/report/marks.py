"""Marks that several figures are drawn with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from diagnostics.report.style import run_style

__all__ = ["interval_line"]


def interval_line(
    axes: Axes,
    x: npt.ArrayLike,
    values: npt.ArrayLike,
    interval: tuple[npt.ArrayLike, npt.ArrayLike],
    *,
    place: int,
    gid: str,
) -> None:
    """A line through marks, each with its interval where it has one, in the style of its `place`."""
    style, middle = run_style(place), np.asarray(values, dtype=float)
    bounds = np.stack([np.asarray(bound, dtype=float) for bound in interval])
    axes.errorbar(
        np.asarray(x, dtype=float),
        middle,
        yerr=np.nan_to_num(np.abs(bounds - middle)),
        fmt=f"{style.marker}-",
        color=style.color,
        markersize=4,
        elinewidth=0.9,
        capsize=2,
        gid=gid,
    )
