"""Marks that several figures are drawn with, and axes that they share."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from diagnostics.report.style import run_style

__all__ = ["budget_axis", "counting_axis", "errors_of", "interval_line"]

_NEAREST_LABELS = 0.11
"""Of an axis's length: labels of budgets nearer than this would touch."""


def errors_of(
    values: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike
) -> Float[np.ndarray, "end point"]:
    """How far the ends of intervals lie from the values, as error bars take them.

    NaN where there is no interval: nothing is drawn then, not even caps, which would say that it is narrow.
    """
    ends = np.stack([np.asarray(low, dtype=float), np.asarray(high, dtype=float)])
    return np.abs(ends - np.asarray(values, dtype=float))


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
    axes.errorbar(
        np.asarray(x, dtype=float),
        middle,
        yerr=errors_of(middle, *interval),
        fmt=f"{style.marker}-",
        color=style.color,
        markersize=4,
        elinewidth=0.9,
        capsize=2,
        gid=gid,
    )


def budget_axis(axes: Axes, budgets: Iterable[float]) -> None:
    """Numbers of frames on a logarithmic axis: a tick for each, and labels as far as they do not touch."""
    places = np.array(sorted(budgets), dtype=float)
    at = np.log2(places)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(places.tolist()))
    axes.xaxis.set_minor_locator(NullLocator())
    # The same for all panels, whichever budgets they have numbers of.
    axes.set_xlim(places[0] / 1.2, places[-1] * 1.2)
    labelled: list[int] = []
    for place in range(len(places))[::-1]:  # the largest budget always has its label
        if not labelled or at[labelled[-1]] - at[place] >= _NEAREST_LABELS * (at[-1] - at[0]):
            labelled.append(place)
    told = {float(places[place]) for place in labelled}
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value in told else ""))
    axes.set_xlabel("frames")


def counting_axis(axis: Axis, most: int = 6) -> None:
    """Ticks at no more than about `most` whole numbers: layers, heads, rows."""
    axis.set_major_locator(MaxNLocator(nbins=most, integer=True, min_n_ticks=1))
