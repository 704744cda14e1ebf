"""The figure of frame scaling: accuracy, evidence shown and tokens of a unit against the number of frames."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.marks import budget_axis
from diagnostics.report.style import between, counted, estimated, most_items, run_style, styled

__all__ = ["scaling_figure"]

_FRAMES = {"uniform": "uniform frames", "nested": "nested frames"}
_RESOLUTIONS = {"budget": "the checkpoint's pixel budget", "fixed": "tokens of a unit held"}


def scaling_figure(ladders: pd.DataFrame, trends: pd.DataFrame) -> Figure:
    """One line a ladder in each of three panels, with 95% intervals where there are any; all tasks together.

    Args:
        ladders, trends: `diagnostics.experiments.frame_scaling.ladder_table` and `trend_table`.
    """
    ladders, trends = (table[table["task"] == "all"] for table in (ladders, trends))
    kinds = list(dict.fromkeys(zip(ladders["frames"], ladders["resolution"], strict=True)))
    names = [f"{_FRAMES[frames]}, {_RESOLUTIONS[resolution]}" for frames, resolution in kinds]
    with styled():
        footer = Footer(names, _caption(ladders, trends, kinds[0]))
        figure = footer.figure(panel_inches=2.4)
        accuracy, shown, tokens = figure.subplots(1, 3)
        for place, (frames, resolution) in enumerate(kinds):
            rows = ladders[(ladders["frames"] == frames) & (ladders["resolution"] == resolution)]
            # What is drawn first is drawn wider: ladders that coincide show round one another.
            wide = 1.0 + 0.7 * (len(kinds) - 1 - place)
            _line(accuracy, rows, place, wide, "accuracy", ("ci_low", "ci_high"))
            _line(shown, rows, place, wide, "evidence_shown", ("shown_low", "shown_high"))
            _line(tokens, rows, place, wide, "tokens_per_unit", None)
        for axes, title, label in (
            (accuracy, "Accuracy", "accuracy (%)"),
            (shown, "Evidence among the frames", "items with evidence shown (%)"),
            (tokens, "Resolution", "tokens of a temporal unit"),
        ):
            axes.set_title(title)
            axes.set_ylabel(label)
            budget_axis(axes, ladders["budget"].unique())
        for axes in (accuracy, shown):
            axes.set_ylim(0, 1.03)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        tokens.set_ylim(bottom=0)
        footer.draw(figure)
    return figure


def _line(
    axes: Axes, rows: pd.DataFrame, place: int, wide: float, column: str, interval: tuple[str, str] | None
) -> None:
    style = run_style(place)
    x, y = rows["budget"].to_numpy(dtype=float), rows[column].to_numpy(dtype=float)
    axes.plot(
        x,
        y,
        color=style.color,
        marker=style.marker,
        markersize=2.5 + 1.8 * wide,
        linewidth=wide,
        gid=f"{column}:{place}",
    )
    if interval is not None:
        low, high = (rows[name].to_numpy(dtype=float) for name in interval)
        shade = axes.fill_between(x, low, high, color=style.color, alpha=0.12, linewidth=0)
        shade.set_gid(f"{column}-interval:{place}")


def _caption(ladders: pd.DataFrame, trends: pd.DataFrame, first: tuple[str, str]) -> str:
    rows = trends[(trends["frames"] == first[0]) & (trends["resolution"] == first[1])]
    return (
        f"{_FRAMES[first[0]].capitalize()}, {_RESOLUTIONS[first[1]]}: {_trend(rows.iloc[0])}; "
        f"{most_items(ladders['n'])}. Shaded: 95% interval of the mean, videos resampled."
        f"{_coincidence(ladders)}"
    )


def _trend(told: pd.Series) -> str:
    if not np.isfinite(told["slope"]):  # as where every item fails at the largest budget
        return "no item was answered at every budget, so that there is no trend"
    slope = estimated(
        *(100 * told[["slope", "slope_low", "slope_high"]].astype(float)), form="+.1f", unit=" points a rung"
    )
    ends = between(told["best_low"], told["best_high"], "g")
    return f"{slope}, best budget {counted(int(told['best_budget']), 'frame')} (95% interval: {ends})"


def _coincidence(ladders: pd.DataFrame) -> str:
    """Said where holding the resolution changed nothing, so that two lines lie on each other."""
    both = ladders.pivot_table(index=["frames", "budget"], columns="resolution", values="tokens_per_unit")
    if {"budget", "fixed"} <= set(both.columns) and (both["budget"] == both["fixed"]).all():
        return " Units have equally many tokens at every budget here: held and own resolution are the same."
    return ""
