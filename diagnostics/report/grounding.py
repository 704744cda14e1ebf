"""The figure of evidence grounding: accuracy by what is shown, and the chain that closes."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.style import run_style, styled

__all__ = ["grounding_figure"]

_SHOWN = {
    "chance": "chance",
    "text": "text alone",
    "blank": "blank video",
    "uniform": "uniform",
    "swapped": "evidence\nswapped in",
    "oracle_matched": "oracle,\nmatched",
    "oracle_images": "oracle\nimages",
}


def grounding_figure(levels: pd.DataFrame, steps: pd.DataFrame) -> Figure:
    """Left, accuracy of every setting over all items; right, the chain's steps as a waterfall to 1.

    Args:
        levels, steps: `diagnostics.experiments.evidence_grounding.chain_table`.
    """
    levels, steps = levels[levels["of"] == "all"], steps[steps["of"] == "all"]
    start = 1 - float(steps["difference"].sum())
    caption = (
        f"Left: {int(levels['n'].max())} items. Right: from chance ({start:.0%}) to all right, on the "
        f"{int(steps['n'].max())} items that every setting has; the steps sum to {1 - start:.3f}. Bars: 95% "
        "interval, videos resampled."
    )
    with styled():
        footer = Footer([], caption)
        figure = footer.figure(panel_inches=2.7)
        left, right = figure.subplots(1, 2)
        _levels(left, levels)
        _waterfall(right, steps, start)
        for axes in (left, right):
            axes.set_ylim(0, 1.06)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            axes.grid(visible=False, axis="x")
        footer.draw(figure)
    return figure


def _levels(axes: Axes, levels: pd.DataFrame) -> None:
    rows = levels.set_index("shown").reindex([name for name in _SHOWN if name in set(levels["shown"])])
    heights = rows["accuracy"].to_numpy(dtype=float)
    errors = np.abs(rows[["ci_low", "ci_high"]].to_numpy(dtype=float).T - heights)
    axes.bar(
        range(len(rows)),
        heights,
        yerr=np.nan_to_num(errors),
        color=["#9a9a9a" if name == "chance" else run_style(0).color for name in rows.index],
        error_kw={"elinewidth": 0.9, "capsize": 2},
        gid="levels",
    )
    axes.set_xticks(range(len(rows)), [_SHOWN[name] for name in rows.index], rotation=40, ha="right")
    axes.set_ylabel("accuracy")
    axes.set_title("What is shown")


def _waterfall(axes: Axes, steps: pd.DataFrame, start: float) -> None:
    ends = start + np.cumsum(steps["difference"].to_numpy(dtype=float))
    starts = np.concatenate([[start], ends[:-1]])
    for place, (low, high) in enumerate(zip(starts, ends, strict=True)):
        row = steps.iloc[place]
        style = run_style(1 if high < low else 2)
        axes.bar(place, high - low, bottom=low, width=0.62, color=style.color, gid=f"step:{place}")
        interval = np.abs(np.array([[row["ci_low"]], [row["ci_high"]]], dtype=float) - row["difference"])
        axes.errorbar(place, high, yerr=interval, color="black", elinewidth=0.9, capsize=2)
        axes.annotate(
            f"{100 * row['difference']:+.0f}",
            (place, max(low, high)),
            textcoords="offset points",
            xytext=(9, 3),
            fontsize=7,
        )
        if place:
            axes.plot([place - 0.69, place - 0.31], [low, low], color="#7a7a7a", linewidth=0.7)
    axes.axhline(start, color="#9a9a9a", linewidth=0.9, linestyle=":")
    axes.set_xticks(range(len(steps)), steps["step"].tolist(), rotation=40, ha="right")
    axes.set_title("What limits it")
