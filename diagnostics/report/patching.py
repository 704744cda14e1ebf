"""The figure of the patching experiment: a heat map aligned on the evidence, and the course by layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from diagnostics.report.footer import Footer
from diagnostics.report.marks import interval_line
from diagnostics.report.style import styled

__all__ = ["patching_figure"]

_LINES = ("evidence", "others", "question", "options", "last")


def patching_figure(
    grid: pd.DataFrame, course: pd.DataFrame, corruption: str, direction: str, full: int
) -> Figure:
    """Two panels: effect of single units by layer and place, and of whole groups of positions by layer.

    Args:
        grid, course: `diagnostics.experiments.patching_tables`: `grid_table` and `course_table`.
        corruption, direction: as in the experiment's configuration.
        full: the first layer whose input holds all that DeepStack adds; 0 where it adds nothing.
    """
    shown = course[(course["of"] == "right") & (course["task"] == "all")]
    done = "restored" if direction == "denoising" else "destroyed"
    n = int(shown["n"].max()) if len(shown) else 0
    caption = (
        "Share of the logit difference between the clean and the corrupt video "
        f"({corruption.replace('_', ' ')}) that is {done} when states at the input of a layer are patched "
        f"({direction}); {n} items right with the clean video alone. "
        "Left: single units, 0 is a unit of evidence. Right: all units with evidence, all others, tokens of "
        "the prompt. Bars: 95% interval, videos resampled."
    )
    if full:
        caption += f" Dotted: from layer {full} on all of DeepStack's features are in the state."
    with styled():
        footer = Footer([name for name in _LINES if (shown["set"] == name).any()], caption)
        figure = footer.figure(panel_inches=2.6)
        left, right = figure.subplots(1, 2)
        _heat(left, grid, figure)
        for place, name in enumerate(name for name in _LINES if (shown["set"] == name).any()):
            _line(right, shown[shown["set"] == name], place, name)
        if full:
            right.axvline(full - 0.5, color="black", linestyle=":", linewidth=0.9, gid="full")
        right.set_title("Groups of positions")
        right.set_xlabel("layer")
        right.set_ylabel(f"share {done}")
        right.xaxis.set_major_locator(MaxNLocator(integer=True))
        footer.draw(figure)
    return figure


def _heat(axes: Any, grid: pd.DataFrame, figure: Figure) -> None:
    axes.set_title("Single units")
    axes.set_xlabel("units from the evidence")
    axes.set_ylabel("layer")
    if grid.empty:
        axes.text(0.5, 0.5, "no item to show", ha="center", va="center", transform=axes.transAxes)
        return
    table = grid.pivot_table(index="layer", columns="place", values="effect")
    table = table.reindex(columns=range(int(table.columns.min()), int(table.columns.max()) + 1))
    image = axes.imshow(
        table.to_numpy(dtype=float), cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", origin="lower",
        interpolation="nearest",
    )  # fmt: skip
    axes.set_xticks(np.arange(len(table.columns))[::2], table.columns[::2].tolist())
    axes.set_yticks(np.arange(len(table.index)), table.index.tolist())
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=9))
    axes.grid(False)
    figure.colorbar(image, ax=axes, shrink=0.9)


def _line(axes: Any, rows: pd.DataFrame, place: int, name: str) -> None:
    rows = rows.sort_values("layer")
    interval_line(
        axes,
        rows["layer"] + (place - 2) * 0.05,
        rows["effect"],
        (rows["ci_low"], rows["ci_high"]),
        place=place,
        gid=f"set:{name}",
    )
