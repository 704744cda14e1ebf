"""The figure of evidence grounding: accuracy by what is shown, and the chain that closes."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.marks import errors_of
from diagnostics.report.style import most_items, run_style, styled

__all__ = ["grounding_figure"]

_SHOWN = {
    "chance": "chance",
    "text": "text alone",
    "blank": "blank video",
    "uniform": "uniform",
    "swapped": "evidence swapped in",
    "oracle_matched": "oracle, matched",
    "oracle_images": "oracle images",
}


def grounding_figure(levels: pd.DataFrame, steps: pd.DataFrame) -> Figure:
    """Left, accuracy of every setting over all items; right, the chain's steps as a waterfall to 1.

    Args:
        levels, steps: `diagnostics.experiments.evidence_grounding.chain_table`.
    """
    levels, steps = levels[levels["of"] == "all"], steps[steps["of"] == "all"]
    start = 1 - float(steps["difference"].sum(skipna=False))
    right = "no item has every setting, so that there is no chain"
    if np.isfinite(start):
        right = (
            f"from chance ({start:.0%}) to all right, on the {most_items(steps['n'])} that every setting "
            f"has; the steps sum to {1 - start:.3f}"
        )
    caption = f"Left: {most_items(levels['n'])}. Right: {right}. Bars: 95% interval, videos resampled."
    with styled():
        footer = Footer([], caption)
        figure = footer.figure(panel_inches=2.5)
        every, chain = figure.subplots(1, 2)
        _levels(every, levels)
        every.set_xlim(0, 1.12)
        _waterfall(chain, steps, start)
        for axes in (every, chain):
            low, high = axes.get_xlim()
            axes.set_xticks(np.linspace(0, 1, 6 if high - low < 1.4 else 3))
            axes.xaxis.set_major_formatter(PercentFormatter(1.0))
            axes.set_xlabel("accuracy (%)")
            axes.invert_yaxis()
            axes.grid(visible=False, axis="y")
        footer.draw(figure)
    return figure


def _levels(axes: Axes, levels: pd.DataFrame) -> None:
    rows = levels.set_index("shown").reindex([name for name in _SHOWN if name in set(levels["shown"])])
    lengths = rows["accuracy"].to_numpy(dtype=float)
    axes.barh(
        range(len(rows)),
        lengths,
        height=0.62,
        color=["#9a9a9a" if name == "chance" else run_style(0).color for name in rows.index],
    )
    axes.errorbar(
        lengths,
        range(len(rows)),
        xerr=errors_of(lengths, rows["ci_low"], rows["ci_high"]),
        fmt="none",
        ecolor="black",
        elinewidth=0.9,
        capsize=2,
    )
    axes.set_yticks(range(len(rows)), [_SHOWN[name] for name in rows.index])
    axes.set_title("What is shown")
    axes.set_ylabel("setting")


def _waterfall(axes: Axes, steps: pd.DataFrame, start: float) -> None:
    """Each step from where the last one ended; its number stands beyond its bar and its interval."""
    ends = start + np.cumsum(steps["difference"].to_numpy(dtype=float))
    starts = np.concatenate([[start], ends[:-1]])
    for place, (low, high) in enumerate(zip(starts, ends, strict=True)):
        row = steps.iloc[place]
        if not np.isfinite(high):
            continue
        points = round(100 * float(row["difference"]))
        style = run_style(1 if high < low else 2)
        axes.barh(place, high - low, left=low, height=0.62, color=style.color)
        interval = errors_of([row["difference"]], [row["ci_low"]], [row["ci_high"]])
        axes.errorbar(high, place, xerr=interval, fmt="none", ecolor="black", elinewidth=0.9, capsize=2)
        axes.annotate(
            f"{points:+d}".replace("-", "\N{MINUS SIGN}") if points else "0",
            (np.fmax(low, np.fmax(high, high + float(interval[1, 0]))), place),
            textcoords="offset points",
            xytext=(4, 0),
            va="center",
            fontsize=7,
        )
        if place:
            axes.plot([low, low], [place - 0.69, place - 0.31], color="#7a7a7a", linewidth=0.7)
    # An interval may pass either end of the scale; the number beyond it has its room too.
    reach = np.stack([starts + steps[end].to_numpy(dtype=float) for end in ("ci_low", "ci_high")])
    low, high = np.nanmin([0.0, *reach[0], *ends]), np.nanmax([1.0, *reach[1], *ends])
    axes.set_xlim(low - 0.02, high + 0.14 * (high - low))
    axes.axvline(start, color="#9a9a9a", linewidth=0.9, linestyle=":")
    axes.set_yticks(range(len(steps)), steps["step"].tolist())
    axes.set_title("What limits it (points)")
    axes.set_ylabel("step of the chain")
