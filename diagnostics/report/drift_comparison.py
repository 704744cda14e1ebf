"""Several attention-drift runs in one figure, and the sentences that stand under it.

Upper row, the story: how concentrated attention is, and how alike what was shown is, each run with its
interval. Lower row, the detail: how redundant the most attended patches are, and whether attention prefers
redundancy. The measures are those of MedHorizon's Figure 9 (arXiv 2605.06537, section 4.4).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from diagnostics.report.captions import comparison_caption, run_labels
from diagnostics.report.claims import claims
from diagnostics.report.curves import BandKind, DriftCurves, has_interval, is_defined
from diagnostics.report.drift import (
    check_runs,
    draw_cumulative,
    draw_preference,
    draw_redundancy,
    interval_ends,
)
from diagnostics.report.footer import Footer
from diagnostics.report.style import run_style, styled
from diagnostics.store import Metric

__all__ = ["SIMILARITIES", "comparison_figure", "similarity_claims"]

SIMILARITIES = {"unit_similarity": "unit similarity", "patch_similarity": "patch similarity"}
"""The measures of redundancy that runs are compared by, and their names in words."""

_ROWS = {**SIMILARITIES, "unit_similarity_between": "units of\ndifferent videos"}
_GAP = 1.3
"""Between two measures in the similarity panel, in rows."""


def comparison_figure(runs: Sequence[DriftCurves], band_kind: BandKind = "mean") -> Figure:
    """Concentration, similarity, redundancy and preference of several runs.

    Markers of the similarity panel carry gids `unit_similarity-0`, `patch_similarity-1`... by run, their
    bars `unit_similarity-interval-0`...; the others are those of `two_panel_figure`.

    Args:
        runs: at least two, at most `MAX_RUNS`.
        band_kind: what the shaded bands show.

    Raises:
        RunError: too few or more runs than can be told apart.
    """
    check_runs(runs)
    with styled():
        upper = max(2.6, 0.8 + 0.11 * (len(runs) + 1) * len(_ROWS))
        lower = max(1.7, 0.6 + 0.15 * len(runs))
        measured = Figure()
        keys = draw_cumulative(measured.add_subplot(), runs, band_kind, "upper left")
        footer = Footer(
            run_labels(runs),
            comparison_caption(runs, band_kind),
            statement=" ".join(similarity_claims(runs)),
            keys=keys,
        )
        figure = footer.figure(panel_inches=upper + lower)
        grid = GridSpec(2, 2, figure=figure, height_ratios=[upper, lower])
        draw_cumulative(figure.add_subplot(grid[0, 0]), runs, band_kind)
        _draw_similarity(figure.add_subplot(grid[0, 1]), runs)
        draw_redundancy(figure.add_subplot(grid[1, 0]), runs, band_kind)
        preference = figure.add_subplot(grid[1, 1])
        draw_preference(preference, runs)
        preference.set_title("Preference for redundancy")
        footer.draw(figure)
    return figure


def similarity_claims(runs: Sequence[DriftCurves]) -> list[str]:
    """Sentences on unit and patch similarity; none for a single run."""
    if len(runs) < 2:
        return []
    measures = {words: [_metric(run, name) for run in runs] for name, words in SIMILARITIES.items()}
    return claims([run.name for run in runs], measures)


def _metric(run: DriftCurves, name: str) -> Metric:
    found: Metric = getattr(run, name)
    return found


def _draw_similarity(axes: Axes, runs: Sequence[DriftCurves]) -> None:
    """Each measure's mean in each run with its interval, the value written at the right edge."""
    height = len(runs) + _GAP
    centres = []
    for block, name in enumerate(_ROWS):
        top = -block * height
        centres.append(top - (len(runs) - 1) / 2)
        for position, run in enumerate(runs):
            _draw_value(axes, _metric(run, name), name, position, top - position)
    axes.set_yticks(centres, list(_ROWS.values()))
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(centres[-1] - height / 2, height / 2 - (len(runs) - 1) / 2)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.08)
    axes.autoscale_view(scaley=False)
    axes.locator_params(axis="x", nbins=5)
    axes.set(title="Similarity of what is shown", ylabel="measure", xlabel="mean cosine (bar: 95% interval)")


def _draw_value(axes: Axes, metric: Metric, name: str, position: int, row: float) -> None:
    color, marker = run_style(position)
    text = f"undefined (n={metric.n})"
    if metric.mean is not None and is_defined(metric):
        text = f"{metric.mean:.3f}".replace("-", "\N{MINUS SIGN}")
        if has_interval(metric):
            axes.plot(
                interval_ends(metric),
                [row, row],
                color=color,
                linewidth=1.6,
                gid=f"{name}-interval-{position}",
            )
        axes.plot(
            np.array([metric.mean]),
            [row],
            color=color,
            marker=marker,
            markersize=5.0,
            linestyle="none",
            # Hollow where there is no interval to be seen.
            markerfacecolor=color if has_interval(metric) else "white",
            gid=f"{name}-{position}",
        )
    axes.annotate(
        text,
        (1.0, row),
        xytext=(3, 0),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        va="center",
        ha="left",
        color="#222222",
        size=7.5,
    )
