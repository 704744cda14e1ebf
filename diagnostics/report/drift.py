"""The attention-drift figures: Figure 9 of MedHorizon for one run, and attention over time for several.

Left panel: how much of the video's attention the most attended temporal units hold. Right panel:
how much the most attended patches repeat the nearest preceding keyframe, and whether attention
prefers repetition. Definitions are in `diagnostics.report.curves`; several runs beside each other are drawn
by `diagnostics.report.drift_comparison` from the same panels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter
from matplotlib.transforms import ScaledTranslation

from diagnostics.errors import RunError
from diagnostics.report.captions import MAX_TIME_BANDS, run_labels, time_caption, two_panel_caption
from diagnostics.report.curves import (
    UNDEFINED,
    BandKind,
    DriftCurves,
    band,
    has_interval,
    is_defined,
)
from diagnostics.report.footer import Footer
from diagnostics.report.style import (
    MAX_RUNS,
    RunStyle,
    run_style,
    save_figure,
    styled,
)
from diagnostics.store import Metric

__all__ = [
    "DriftCurves",
    "check_runs",
    "draw_cumulative",
    "draw_preference",
    "draw_redundancy",
    "interval_ends",
    "line_key",
    "save_figure",
    "time_figure",
    "two_panel_figure",
]

Dashes = Literal["--", "-.", ":"] | tuple[float, tuple[float, ...]]

_GREY, _DARK = "#555555", "#222222"


def two_panel_figure(run: DriftCurves, band_kind: BandKind = "mean") -> Figure:
    """Cumulative attention (left) and redundancy of the attended patches (right) of one run.

    Line data are the run's own arrays (fractions; the axes print percent). The lines carry gids
    (`cumulative-0`, `control-0`, `redundancy-0`...), so that they can be found again in an SVG or a test.

    Args:
        run: its curves.
        band_kind: what the shaded band shows.
    """
    runs = [run]
    with styled():
        footer = Footer(run_labels(runs), two_panel_caption(runs, band_kind))
        strip = 0.5
        figure = footer.figure(panel_inches=3.25 + strip)
        grid = GridSpec(2, 2, figure=figure, height_ratios=[2.5, strip])
        keys = draw_cumulative(figure.add_subplot(grid[0, 0]), runs, band_kind)
        right = figure.add_subplot(grid[0, 1])
        keys += _draw_levels(right, run)
        draw_redundancy(right, runs, band_kind)
        draw_preference(figure.add_subplot(grid[1, 1]), runs)
        _draw_keys(figure.add_subplot(grid[1, 0]), keys)
        footer.draw(figure)
    return figure


def time_figure(runs: Sequence[DriftCurves], band_kind: BandKind = "mean") -> Figure:
    """Attention over normalised time for several runs, with where evidence was shown below it.

    Raises:
        RunError: no run, too many, or runs whose time bins differ in number.
    """
    check_runs(runs)
    bins = {run.time_attention.shape[1] for run in runs}
    if len(bins) > 1:
        raise RunError(
            f"the runs cut time into different numbers of bins: {sorted(bins)}.",
            remedy="Gather all runs with the same time_bins.",
        )
    shown = [run for run in runs if run.evidence is not None]
    with styled():
        footer = Footer(run_labels(runs), time_caption(runs, band_kind))
        figure = footer.figure(panel_inches=3.1 if shown else 2.5)
        grid = GridSpec(2 if shown else 1, 1, figure=figure, height_ratios=[2.4, 0.7] if shown else [1])
        axes = figure.add_subplot(grid[0])
        edges = np.linspace(0.0, 1.0, bins.pop() + 1)
        for position, run in enumerate(runs):
            _draw_steps(axes, edges, run, position, band_kind if len(runs) <= MAX_TIME_BANDS else None)
        axes.axhline(1.0, color=_GREY, linestyle="--", linewidth=0.9, gid="uniform")
        axes.set(title="Attention over the video", ylabel="attention (multiple of uniform)")
        axes.set_ylim(bottom=0.0)
        _time_axis(axes)
        axes.legend(
            handles=[line_key("--", "uniform attention")],
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            borderaxespad=0.2,
        )
        if shown:
            axes.tick_params(labelbottom=False)
            _time_axis(_draw_evidence(figure.add_subplot(grid[1], sharex=axes), edges, runs))
        figure.axes[-1].set_xlabel("time in the video (% of its duration)")
        footer.draw(figure)
    return figure


def draw_cumulative(
    axes: Axes, runs: Sequence[DriftCurves], band_kind: BandKind, where: str = "left"
) -> list[Line2D]:
    """The left panel; returns the keys of its reference lines, which say `where` they are."""
    axes.plot([0, 1], [0, 1], color=_GREY, linestyle="--", linewidth=0.9, gid="uniform")
    keys = [line_key("--", f"uniform attention ({where})")]
    controls: list[str] = []
    for position, run in enumerate(runs):
        color, marker = run_style(position)
        _draw_banded(axes, run.unit_grid, run.cumulative, run, position, band_kind, "cumulative")
        if run.control is not None and np.isfinite(run.control).any():
            controls.append(run.control_kind)
            mean, _, _ = band(run.control, run.video_ids, "items")
            axes.plot(
                run.unit_grid, mean, color=color, linestyle=":", linewidth=1.2, gid=f"control-{position}"
            )
        for percent, fraction in sorted(run.unit_fraction.items()):
            if percent in (50, 80, 90) and is_defined(fraction):
                _draw_reached(axes, percent, fraction, color, marker)
    if controls:
        kinds = " or ".join(dict.fromkeys(controls))
        keys.append(line_key(":", f"position only: {kinds} video ({where})"))
    notes = _reached_notes(runs)
    # Below the diagonal no ranked curve can pass: the text there covers nothing.
    for row, (text, style) in enumerate(reversed(notes)):
        axes.annotate(
            text,
            (0.945 if len(runs) > 1 else 0.985, 0.02),
            xytext=(0, row * 10.0),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right",
            va="bottom",
            color=_DARK,
            size=7.5,
        )
        if len(runs) > 1:  # whose note it is, in colour and shape; pale colours make poor letters
            mark = ScaledTranslation(0.0, (row * 10.0 + 4.0) / 72, axes.figure.dpi_scale_trans)
            axes.plot(
                [0.97],
                [0.02],
                style.marker,
                color=style.color,
                markersize=3.5,
                transform=axes.transAxes + mark,
            )
    axes.set(
        title="Attention over ranked units",
        xlabel="temporal units, most attended first (%)",
        ylabel="cumulative share of video attention (%)",
        xlim=(0, 1),
        ylim=(0, 1.02),
    )
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    return keys


def _draw_reached(axes: Axes, percent: int, fraction: Metric, color: str, marker: str) -> None:
    """A marker where the share is reached, with the interval of the fraction as a bar."""
    if has_interval(fraction):
        axes.plot(interval_ends(fraction), [percent / 100] * 2, color=color, linewidth=0.9)
    axes.plot(
        np.array([fraction.mean], dtype=np.float64),
        [percent / 100],
        linestyle="none",
        marker=marker,
        markersize=4.5,
        color=color,
        markeredgecolor="white",
        markeredgewidth=0.6,
        zorder=4,
        clip_on=False,
        gid=f"reached-{percent}",
    )


def _reached_notes(runs: Sequence[DriftCurves]) -> list[tuple[str, RunStyle]]:
    """The lines "90% in 76.7% of units": all levels for a single run, 90% alone for several."""
    levels = (50, 80, 90) if len(runs) == 1 else (90,)
    notes = []
    for position, run in enumerate(runs):
        for percent in levels:
            fraction = run.unit_fraction.get(percent, UNDEFINED)
            told = f"undefined (n={fraction.n})"
            if is_defined(fraction):
                told = f"in {fraction.mean:.1%} of units"
            notes.append((f"{percent}% {told}", run_style(position)))
    return notes


def _draw_levels(axes: Axes, run: DriftCurves) -> list[Line2D]:
    """The run's mean similarities as levels across the panel; returns their keys."""
    kinds: tuple[tuple[str, Dashes, str], ...] = (
        ("patch_similarity", "--", "all patches"),
        ("unit_similarity", "-.", "random pairs of units"),
        ("unit_similarity_between", (0, (1, 3)), "units of different videos"),
    )
    keys = []
    for name, dashes, label in kinds:
        level: Metric = getattr(run, name)
        if level.mean is not None and is_defined(level):
            axes.axhline(
                level.mean, color=run_style(0).color, linestyle=dashes, linewidth=0.9, gid=f"{name}-0"
            )
            keys.append(line_key(dashes, f"mean cosine: {label} (right)"))
    return keys


def draw_redundancy(axes: Axes, runs: Sequence[DriftCurves], band_kind: BandKind) -> None:
    """The right panel: running mean cosine of the most attended patches to their keyframe."""
    for position, run in enumerate(runs):
        _draw_banded(
            axes, run.patch_grid, run.redundancy, run, position, band_kind, "redundancy", marked=len(runs) > 1
        )
    if not any(np.isfinite(run.redundancy).any() for run in runs):
        axes.text(0.5, 0.5, "undefined", transform=axes.transAxes, ha="center", color=_GREY)
        axes.set_yticks([])
    axes.margins(y=0.08)
    axes.set(
        title="Redundancy of attended patches",
        xlabel="non-keyframe patches, most attended first (%)",
        ylabel="mean cosine to last keyframe",
        xlim=(0, 1),
    )
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))


def draw_preference(axes: Axes, runs: Sequence[DriftCurves]) -> None:
    """The strip below: redundancy preference of each run with its interval, its null as a grey bar."""
    axes.axvline(0.0, color=_GREY, linewidth=0.7)
    has_null = False
    for position, run in enumerate(runs):
        color, marker = run_style(position)
        row, preference = len(runs) - 1 - position, run.redundancy_preference
        if run.preference_null is not None:
            has_null = True
            low, high = run.preference_null
            axes.barh(row, high - low, left=low, height=0.7, color="#cccccc", gid=f"null-{position}")
        text = f"undefined (n={preference.n})"
        if is_defined(preference):
            if has_interval(preference):
                axes.plot(interval_ends(preference), [row, row], color=color, linewidth=1.2)
            axes.plot(
                np.array([preference.mean], dtype=np.float64),
                [row],
                color=color,
                marker=marker,
                markersize=4.5,
                gid=f"preference-{position}",
            )
            text = f"{preference.mean:+.3f}".replace("-", "\N{MINUS SIGN}")
        axes.annotate(
            text,
            (1.0, row),
            xytext=(3, 0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            va="center",
            ha="left",
            color=_DARK,
            size=7.5,
        )
    axes.set(ylim=(-0.6, len(runs) - 0.4), yticks=[])
    axes.use_sticky_edges = False
    axes.margins(x=0.1)
    axes.autoscale_view(scaley=False)
    axes.locator_params(axis="x", nbins=5)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"redundancy preference (cosine{'; grey: 95% null' if has_null else ''})")


def _draw_keys(axes: Axes, keys: list[Line2D]) -> None:
    """What the grey-keyed line styles mean, in the room beside the strip."""
    axes.set_axis_off()
    legend = axes.legend(
        handles=keys,
        loc="upper left",
        bbox_to_anchor=(-0.1, 1.0),
        borderaxespad=0.0,
        labelspacing=0.3,
        handlelength=2.2,
    )
    # The room is there already; the layout engine must not shrink the panels to make more.
    legend.set_in_layout(False)


def interval_ends(metric: Metric) -> Float[np.ndarray, " end"]:
    """Both ends of an interval that has them, low then high."""
    return np.array([metric.ci_low, metric.ci_high], dtype=np.float64)


def line_key(dashes: Dashes, label: str) -> Line2D:
    """What a line style means, in grey: the entry of a legend."""
    return Line2D([], [], color=_GREY, linestyle=dashes, linewidth=1.0, label=label)


def _draw_banded(
    axes: Axes,
    grid: np.ndarray,
    values: np.ndarray,
    run: DriftCurves,
    position: int,
    band_kind: BandKind,
    gid: str,
    *,
    marked: bool = False,
) -> None:
    """A run's mean line with its band, with marks where runs have to be told apart."""
    color, marker = run_style(position)
    mean, low, high = band(values, run.video_ids, band_kind)
    axes.fill_between(grid, low, high, color=color, alpha=0.18, linewidth=0, gid=f"{gid}-band-{position}")
    axes.plot(
        grid,
        mean,
        color=color,
        # Marks repeat what colours say, each run's at other places of the grid.
        marker=marker if marked else "",
        markersize=4.0,
        markevery=(len(grid) // 20 + position * len(grid) // 60, max(1, len(grid) // 6)),
        gid=f"{gid}-{position}",
        zorder=3,
    )


def _draw_steps(
    axes: Axes, edges: np.ndarray, run: DriftCurves, position: int, band_kind: BandKind | None
) -> None:
    """A run's attention over time, constant within each bin; no band where `band_kind` is None."""
    color = run_style(position).color
    mean, low, high = band(run.time_attention, run.video_ids, band_kind or "items")
    if band_kind is not None:
        gid = f"time-band-{position}"
        axes.stairs(high, edges, baseline=low, fill=True, color=color, alpha=0.18, linewidth=0, gid=gid)
    axes.stairs(mean, edges, baseline=None, color=color, linewidth=1.4, gid=f"time-{position}")
    _mark_steps(axes, edges, mean, position)


def _mark_steps(axes: Axes, edges: np.ndarray, heights: np.ndarray, position: int) -> None:
    """A run's marks in the middle of some of its bins, each run's in other bins."""
    color, marker = run_style(position)
    bins = np.arange(position, len(heights), MAX_RUNS)
    middles = (edges[:-1] + edges[1:]) / 2
    axes.plot(middles[bins], heights[bins], marker, color=color, markersize=3.5, zorder=4)


def _draw_evidence(axes: Axes, edges: np.ndarray, runs: Sequence[DriftCurves]) -> Axes:
    """The strip of where evidence was shown; one area when all runs were shown the same."""
    densities = [
        (position, np.nan_to_num(band(run.evidence, run.video_ids, "items")[0]))
        for position, run in enumerate(runs)
        if run.evidence is not None
    ]
    first = densities[0][1]
    if all(np.allclose(density, first) for _, density in densities):
        axes.stairs(first, edges, fill=True, color="#999999", gid="evidence")
    else:
        for position, density in densities:
            axes.stairs(density, edges, color=run_style(position).color, gid=f"evidence-{position}")
            _mark_steps(axes, edges, density, position)
    axes.set_ylabel("evidence\n(% of items)")
    axes.set_ylim(0.0, max(0.01, 1.1 * max(density.max() for _, density in densities)))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes.locator_params(axis="y", nbins=3)
    return axes


def _time_axis(axes: Axes) -> None:
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))


def check_runs(runs: Sequence[DriftCurves]) -> None:
    """Refuse no run, and more than can be told apart.

    Raises:
        RunError: says how many there are.
    """
    if not 1 <= len(runs) <= MAX_RUNS:
        raise RunError(
            f"{len(runs)} runs were given to one figure.", remedy=f"Give between 1 and {MAX_RUNS} runs."
        )
