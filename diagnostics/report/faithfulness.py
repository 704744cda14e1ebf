"""The figure of faithfulness: deletion and insertion curves, and where each map lies between its ends."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.style import run_style, styled

__all__ = ["faithfulness_figure"]

_ENDS: dict[str, Literal[":", "--"]] = {"random": ":", "oracle": "--"}
_DRAWN = ("occlusion", "attention", "relevancy", "rollout", "token_activation")
"""Maps whose curves are drawn, so that they can be told apart; all are in the third panel."""


def faithfulness_figure(curves: pd.DataFrame, areas: pd.DataFrame, level: str = "units") -> Figure:
    """Left and middle, the outcome along both curves; right, the normalised areas of every map.

    Args:
        curves, areas: `diagnostics.experiments.faithfulness_tables.mean_curves` and `area_table`.
        level: what was removed, in the plural.
    """
    areas = areas[areas["task"] == "all"]
    drawn = [name for name in _DRAWN if name in set(curves["map"])]
    caption = (
        f"{int(areas['n'].max())} items. {level.capitalize()} are removed, the most important first "
        "(deletion), or come back in that order (insertion). Right: area between random orderings (0) and "
        "evidence first (1). Bands and bars: 95% interval, videos resampled."
    )
    keys = [
        Line2D([], [], color="black", linestyle=style, linewidth=1.2, label=name)
        for name, style in _ENDS.items()
    ]
    with styled():
        footer = Footer([name.replace("_", " ") for name in drawn], caption, keys=keys)
        figure = footer.figure(panel_inches=2.8)
        deletion, insertion, right = figure.subplots(1, 3)
        for axes, direction in ((deletion, "deletion"), (insertion, "insertion")):
            _curves(axes, curves[curves["direction"] == direction], drawn)
            axes.set_title(direction.capitalize())
            axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        deletion.set_xlabel(f"{level} removed")
        insertion.set_xlabel(f"{level} put back")
        deletion.set_ylabel("right option, outcome")
        _areas(right, areas)
        footer.draw(figure)
    return figure


def _curves(axes: Axes, curves: pd.DataFrame, drawn: list[str]) -> None:
    for place, name in enumerate(drawn):
        rows = curves[curves["map"] == name].sort_values("fraction")
        style = run_style(place)
        axes.plot(
            rows["fraction"],
            rows["outcome"],
            f"{style.marker}-",
            color=style.color,
            markersize=3,
            gid=f"{rows['direction'].iloc[0]}:{name}",
        )
        axes.fill_between(
            rows["fraction"], rows["ci_low"], rows["ci_high"], color=style.color, alpha=0.12, linewidth=0
        )
    for name, line in _ENDS.items():
        rows = curves[curves["map"] == name].sort_values("fraction")
        axes.plot(rows["fraction"], rows["outcome"], color="black", linestyle=line, linewidth=1.2)


def _areas(axes: Axes, areas: pd.DataFrame) -> None:
    maps = [name for name in dict.fromkeys(areas["map"]) if name not in _ENDS]
    places = np.arange(len(maps))
    for number, (direction, marker) in enumerate((("deletion", "o"), ("insertion", "s"))):
        rows = areas[areas["direction"] == direction].set_index("map").loc[maps]
        values = rows["normalised"].to_numpy(dtype=float)
        interval = np.abs(rows[["ci_low", "ci_high"]].to_numpy(dtype=float).T - values)
        axes.errorbar(
            values,
            places + (number - 0.5) * 0.28,
            xerr=np.nan_to_num(interval),
            fmt=marker,
            color="black" if number == 0 else "#8a8a8a",
            markersize=3.5,
            elinewidth=0.9,
            capsize=2,
            label=direction,
        )
    for end in (0.0, 1.0):
        axes.axvline(end, color="#9a9a9a", linewidth=0.8, linestyle=":" if end == 0 else "--")
    axes.set_yticks(places, [name.replace("_", " ") for name in maps])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_title("Normalised area")
    axes.legend(loc="best", fontsize=6.5)
