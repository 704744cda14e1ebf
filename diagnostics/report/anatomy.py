"""The figure of `attention_anatomy`: outcomes by frame budget, and all that is called attention drift."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.marks import budget_axis, errors_of
from diagnostics.report.style import STEP_COLORS, counted, run_style, styled

__all__ = ["anatomy_figure"]

_OUTCOMES = {
    "not_sampled": "not sampled",
    "unattended": "sampled, unattended",
    "without_effect": "attended, without effect",
    "effective": "attended and effective",
}
_WHISKERS = ("#8a8a8a", *STEP_COLORS[1:])
"""As the parts; the first one's own grey is too pale for a line."""

_MOST_NAMED = 6
"""With more budgets than this, bars have no room for their shares in figures."""

_WIDTH, _LEFT = 0.62, 0.12
_BESIDE, _SIDE = 0.24, 0.075
"""Bars leave room at their right for the whiskers of their parts, each beside the last one's."""

_PANELS = (
    (
        "Concentration",
        "share of units for 80%",
        {"unit_fraction_80": "attention", "unit_fraction_80_uniform": "if spread evenly"},
    ),
    (
        "Redundancy",
        "mean cosine",
        {"unit_similarity": "between units", "patch_similarity": "patches to keyframes"},
    ),
    (
        "Evidence log-lift",
        "log-lift (nats)",
        {
            "evidence_log_lift": "all heads",
            "evidence_log_lift_without_sinks": "without sinks",
            "attended_log_lift": "best heads",
        },
    ),
    (
        "Effect of blocking",
        "change (0 to 1)",
        {
            "effect_evidence": "evidence units",
            "effect_attended": "most attended",
            "effect_random": "random units",
        },
    ),
)
"""Title, label, and lines of each panel of drift."""


def anatomy_figure(outcomes: pd.DataFrame, drift: pd.DataFrame) -> Figure:
    """Stacked shares of the four outcomes, then four panels of drift, all against the number of frames.

    Args:
        outcomes, drift: `diagnostics.experiments.anatomy_tables.anatomy_table` and `drift_table`.
    """
    shown = outcomes[outcomes["task"] == "all"]
    with styled():
        footer = Footer([], _caption(shown))
        figure = footer.figure(panel_inches=4.6)
        grid = figure.add_gridspec(2, 3, width_ratios=(1.15, 1, 1))
        _stack(figure.add_subplot(grid[:, 0]), shown)
        for place, (title, label, lines) in enumerate(_PANELS):
            axes = figure.add_subplot(grid[place // 2, 1 + place % 2])
            _lines(axes, drift, lines)
            axes.set_title(title)
            axes.set_ylabel(label)
        footer.draw(figure)
    return figure


def _stack(axes: Axes, shown: pd.DataFrame) -> None:
    budgets = sorted(shown["budget"].unique().tolist())
    below = np.zeros(len(budgets))
    for part, ((outcome, label), shade) in enumerate(zip(_OUTCOMES.items(), STEP_COLORS, strict=True)):
        rows = shown[shown["outcome"] == outcome].set_index("budget").loc[budgets]
        height = rows["share"].to_numpy(dtype=float)
        height = np.where(np.isfinite(height), height, 0.0)
        axes.bar(
            np.arange(len(budgets)) - _LEFT, height, bottom=below, color=shade, label=label, width=_WIDTH,
            edgecolor="white", linewidth=0.6, gid=outcome,
        )  # fmt: skip
        _whiskers(axes, part, rows, below)
        for place, (share, start) in enumerate(zip(height, below, strict=True)):
            if share >= 0.1 and len(budgets) <= _MOST_NAMED:
                dark = outcome in ("without_effect", "effective")
                axes.text(
                    place - _LEFT, start + share / 2, f"{share:.0%}", ha="center", va="center", fontsize=7,
                    color="white" if dark else "black",
                )  # fmt: skip
        below += height
    crowded = len(budgets) > _MOST_NAMED
    axes.set_xticks(range(len(budgets)), [str(budget) for budget in budgets], rotation=90 if crowded else 0)
    axes.set_xlabel("frames")
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("items (%)")
    axes.set_title("What becomes of the evidence")
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.18 if crowded else -0.14), fontsize=7, reverse=True
    )


def _whiskers(axes: Axes, part: int, rows: pd.DataFrame, below: np.ndarray) -> None:
    """The interval of a part of the bars at its upper edge, of the last one at its lower edge."""
    share, low, high = (rows[name].to_numpy(dtype=float) for name in ("share", "ci_low", "ci_high"))
    last = part == len(_OUTCOMES) - 1
    edge = below if last else below + share
    errors = errors_of(share, low, high)
    axes.errorbar(
        np.arange(len(share)) + _BESIDE + part * _SIDE,
        edge,
        yerr=errors[::-1] if last else errors,
        fmt="none",
        ecolor=_WHISKERS[part],
        elinewidth=1.2,
    )


def _lines(axes: Axes, drift: pd.DataFrame, lines: dict[str, str]) -> None:
    for place, (measure, label) in enumerate(lines.items()):
        rows = drift[drift["measure"] == measure].sort_values("budget")
        x, mean, low, high = (
            rows[name].to_numpy(dtype=float) for name in ("budget", "mean", "ci_low", "ci_high")
        )
        style = run_style(place)
        # What is drawn first is drawn wider: lines that coincide show round one another.
        wide = 1.2 + 0.9 * (len(lines) - 1 - place)
        axes.plot(
            x, mean, color=style.color, marker=style.marker, markersize=3 + wide, linewidth=wide, label=label,
            gid=measure,
        )  # fmt: skip
        axes.fill_between(x, low, high, color=style.color, alpha=0.15, linewidth=0)
    budget_axis(axes, drift["budget"].unique())
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, top + 0.45 * (top - bottom))  # room for the legend
    axes.legend(fontsize=7, frameon=False, loc="upper left", borderaxespad=0.2)


def _caption(shown: pd.DataFrame) -> str:
    largest = shown[shown["budget"] == shown["budget"].max()].set_index("outcome")
    share, n = largest["share"], int(largest.loc["effective", "n"])
    parts = {
        "effective_wrong": "wrong although the answer rests on the evidence",
        "unattended_effective": "unattended by the test, yet the answer rests on the evidence",
        "undecided": "undecided",
    }
    told = [f"{share[name]:.0%} {text}" for name, text in parts.items() if share[name] > 0]
    return (
        f"At {counted(int(shown['budget'].max()), 'frame')}: {'; '.join([counted(n, 'item'), *told])}. "
        "Change of the answer: total variation of the options' probabilities when the roads out of the units "
        "are blocked. Shaded, and lines beside bars (at the upper edge of a part, of the last one at its "
        "lower edge): 95% interval, videos resampled."
    )
