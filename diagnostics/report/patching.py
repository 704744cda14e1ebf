"""The figure of the patching experiment: a heat map aligned on the evidence, and the course by layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from diagnostics.report.footer import Footer
from diagnostics.report.marks import counting_axis, interval_line
from diagnostics.report.style import counted, styled

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
        f"({direction}); {counted(n, 'item')} right with the clean video alone. "
        "Left: single units, 0 is a unit of evidence. Right: all units with evidence, all others, tokens of "
        "the prompt. Bars: 95% interval, videos resampled."
    )
    if full:
        caption += f" Dotted: from layer {full} on all of DeepStack's features are in the state."
    with styled():
        footer = Footer([name for name in _LINES if (shown["set"] == name).any()], caption)
        figure = footer.figure(panel_inches=2.6)
        left, right = figure.subplots(1, 2)
        _heat(left, grid, f"share {done} (0 to 1)", figure)
        for place, name in enumerate(name for name in _LINES if (shown["set"] == name).any()):
            _line(right, shown[shown["set"] == name], place, name)
        if full:
            right.axvline(full - 0.5, color="black", linestyle=":", linewidth=0.9, gid="full")
        right.set_title("Groups of positions")
        right.set_xlabel("layer")
        right.set_ylabel(f"share {done} (0 to 1)")
        counting_axis(right.xaxis)
        footer.draw(figure)
    return figure


def _heat(axes: Any, grid: pd.DataFrame, scale: str, figure: Figure) -> None:
    axes.set_title("Single units")
    axes.set_xlabel("distance from the evidence (units)")
    axes.set_ylabel("layer")
    grid = grid[grid["effect"].notna()]
    if grid.empty:
        axes.text(0.5, 0.5, "no item to show", ha="center", va="center", transform=axes.transAxes)
        return
    table = grid.pivot_table(index="layer", columns="place", values="effect")
    first, last = int(table.columns.min()), int(table.columns.max())
    lowest, highest = int(table.index.min()), int(table.index.max())
    table = table.reindex(index=range(lowest, highest + 1), columns=range(first, last + 1))
    beyond = float(np.nanmax(np.abs(table.to_numpy(dtype=float)))) > 1
    image = axes.imshow(
        table.to_numpy(dtype=float), cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", origin="lower",
        interpolation="nearest", extent=(first - 0.5, last + 0.5, lowest - 0.5, highest + 0.5),
    )  # fmt: skip
    counting_axis(axes.xaxis, 8)
    counting_axis(axes.yaxis, 8)
    axes.grid(False)
    figure.colorbar(image, ax=axes, shrink=0.9, label=scale, extend="both" if beyond else "neither")


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
