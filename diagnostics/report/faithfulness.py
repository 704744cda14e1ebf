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
from diagnostics.report.marks import errors_of
from diagnostics.report.style import most_items, run_style, styled

__all__ = ["faithfulness_figure"]

_ENDS: dict[str, Literal[":", "--"]] = {"random": ":", "oracle": "--"}
_DIRECTIONS = {"deletion": ("black", "o"), "insertion": ("#8a8a8a", "s")}
_OUTCOMES = {"log_odds": "right option's log-odds (nats)", "probability": "right option's probability"}
_DRAWN = ("occlusion", "attention", "relevancy", "rollout", "token_activation")
"""Maps whose curves are drawn, so that they can be told apart; all are in the third panel."""


def faithfulness_figure(
    curves: pd.DataFrame, areas: pd.DataFrame, level: str = "units", outcome: str = "log_odds"
) -> Figure:
    """Left and middle, the outcome along both curves; right, the normalised areas of every map.

    Args:
        curves, areas: `diagnostics.experiments.faithfulness_tables.mean_curves` and `area_table`.
        level: what was removed, in the plural.
        outcome: what was followed: `log_odds` or `probability`.
    """
    areas = areas[areas["task"] == "all"]
    drawn = [name for name in _DRAWN if name in set(curves["map"])]
    caption = (
        f"{most_items(areas['n'])}. {level.capitalize()} are removed, the most important first "
        "(deletion), or come back in that order (insertion). Right: area between random orderings (0) and "
        "evidence first (1). Bands and bars: 95% interval, videos resampled."
    )
    keys = [
        Line2D([], [], color="black", linestyle=style, linewidth=1.2, label=name)
        for name, style in _ENDS.items()
    ]
    keys += [
        Line2D(
            [], [], color=color, marker=marker, markersize=3.5, linewidth=0.9, label=f"{direction} (right)"
        )
        for direction, (color, marker) in _DIRECTIONS.items()
    ]
    with styled():
        footer = Footer([name.replace("_", " ") for name in drawn], caption, keys=keys)
        figure = footer.figure(panel_inches=2.8)
        deletion, insertion, right = figure.subplots(1, 3)
        for axes, direction in ((deletion, "deletion"), (insertion, "insertion")):
            _curves(axes, curves[curves["direction"] == direction], drawn)
            axes.set_title(direction.capitalize())
            axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            axes.set_ylabel(_OUTCOMES.get(outcome, outcome.replace("_", " ")))
        deletion.set_xlabel(f"{level} removed (%)")
        insertion.set_xlabel(f"{level} put back (%)")
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
        axes.fill_between(
            rows["fraction"], rows["ci_low"], rows["ci_high"], color="black", alpha=0.08, linewidth=0
        )


def _areas(axes: Axes, areas: pd.DataFrame) -> None:
    maps = [name for name in dict.fromkeys(areas["map"]) if name not in _ENDS]
    places = np.arange(len(maps))
    for number, (direction, (color, marker)) in enumerate(_DIRECTIONS.items()):
        rows = areas[areas["direction"] == direction].set_index("map").loc[maps]
        values = rows["normalised"].to_numpy(dtype=float)
        axes.errorbar(
            values,
            places + (number - 0.5) * 0.28,
            xerr=errors_of(values, rows["ci_low"], rows["ci_high"]),
            fmt=marker,
            color=color,
            markersize=3.5,
            elinewidth=0.9,
            capsize=2,
        )
    for end in (0.0, 1.0):
        axes.axvline(end, color="#9a9a9a", linewidth=0.8, linestyle=":" if end == 0 else "--")
    axes.set_yticks(places, [name.replace("_", " ") for name in maps])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_title("Normalised area")
    axes.set_xlabel("normalised area (0 to 1)")
    axes.set_ylabel("map")
