"""The figure: what was planted against what was measured, one panel a check.

Rows that arithmetic fixes lie on the diagonal of a scatter, if they are right. The others stand below each
other: the band of their tolerance in grey, the planted number as a tick, the measured one as a point with
its interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from diagnostics.report.footer import Footer
from diagnostics.report.style import run_style, styled, wrapped
from diagnostics.validation.rows import Row

__all__ = ["validation_figure"]

_PASSED, _FAILED = run_style(2), run_style(1)
_BAND, _TICK = "#dcdcdc", "#222222"
_LINE_INCHES = 0.135
_LABEL_INCHES, _LABEL_POINTS = 3.5, 6.5
_FEW = 4
"""Fewer rows by hand than this get no panel of their own."""

_HAND = 1e-3
"""A row whose tolerance is below this part of its target (or of one) is arithmetic."""


def validation_figure(rows: Sequence[Row]) -> Figure:
    """Panels of all rows, in their order; at least one row."""
    panels: list[tuple[str, bool, list[Row]]] = []
    for group, members in groupby(rows, key=lambda row: row.group):
        listed = list(members)
        fixed = [row for row in listed if _by_hand(row)]
        if len(fixed) < _FEW:
            panels.append((group, False, listed))
            continue
        panels.append((group, True, fixed))
        if others := [row for row in listed if not _by_hand(row)]:
            panels.append((group, False, others))
    # Scatters share one row of panels at the top.
    scatters = [panel for panel in panels if panel[1]]
    forests = [panel for panel in panels if not panel[1]]
    heights = [_forest_inches(part) for _, _, part in forests]
    failed = sum(not row.passed for row in rows)
    caption = (
        f"{len(rows)} rows, {failed} out of tolerance. Grey: where the value (or, for claims about a mean, "
        "the whole interval) has to lie; tick: the planted number; bars: interval, videos resampled (95%, or "
        "90% for equivalence). Scatters: rows that arithmetic fixes; they have to lie on the diagonal."
    )
    with styled():
        footer = Footer([], caption)
        top = [2.2] if scatters else []
        figure = footer.figure(panel_inches=sum(top) + sum(heights))
        parts = figure.subfigures(len(top) + len(heights), 1, height_ratios=[*top, *heights], squeeze=False)[
            :, 0
        ]
        if scatters:
            axes = parts[0].subplots(1, max(len(scatters), 3), squeeze=False)[0]
            for place, (group, _, part) in zip(axes, scatters, strict=False):
                _scatter(place, group, part)
            for unused in axes[len(scatters) :]:
                unused.axis("off")
        for part_figure, (group, _, part) in zip(parts[len(top) :], forests, strict=True):
            _forest(part_figure.subplots(), group, part)
        footer.draw(figure)
    return figure


def _by_hand(row: Row) -> bool:
    if row.target is None or row.low is None or row.high is None or row.judged != "value":
        return False
    return row.high - row.low <= 2 * _HAND * max(1.0, abs(row.target))


def _scatter(axes: Axes, group: str, rows: Sequence[Row]) -> None:
    """Planted across, measured up; both on one symmetric-log scale, since lifts and fractions stand side by
    side."""
    values = [value for row in rows for value in (row.target, row.measured) if value is not None]
    finite = [value for value in values if math.isfinite(value)]
    low, high = min([*finite, 0.0]), max([*finite, 1.0])
    reach = 0.15 * max(abs(low), abs(high))
    ends = (low - min(reach, 0.3), high + reach)
    for scale, limit in ((axes.set_xscale, axes.set_xlim), (axes.set_yscale, axes.set_ylim)):
        scale("symlog", linthresh=1.0)
        limit(*ends)
    axes.axline((0, 0), (1, 1), color=_BAND, linewidth=2.5, zorder=0)
    for passed, style in ((True, _PASSED), (False, _FAILED)):
        chosen = [row for row in rows if row.passed == passed and math.isfinite(row.measured)]
        axes.plot(
            [row.target for row in chosen if row.target is not None],
            [row.measured for row in chosen],
            linestyle="none",
            marker=style.marker if passed else "X",
            markersize=4.0 if passed else 6.0,
            color=style.color,
            alpha=0.75,
            gid=f"{group} {'passed' if passed else 'failed'}",
        )
    axes.set_title(f"{group}: {len(rows)} rows")
    axes.set_xlabel("planted")
    axes.set_ylabel("measured")
    ticks = [tick for tick in (-1, 0, 0.5, 1, 2, 4, 8, 16) if ends[0] <= tick <= ends[1]]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_ticks([], minor=True)


def _forest_inches(rows: Sequence[Row]) -> float:
    return 0.8 + sum(_LINE_INCHES * (_label(row).count("\n") + 1) + 0.05 for row in rows)


def _label(row: Row) -> str:
    return wrapped(row.name, _LABEL_INCHES, _LABEL_POINTS)


def _forest(axes: Axes, group: str, rows: Sequence[Row]) -> None:
    told = [(row.target, row.measured, row.low, row.high, row.ci_low, row.ci_high) for row in rows]
    finite = [value for values in told for value in values if value is not None and math.isfinite(value)]
    low, high = min(finite), max(finite)
    pad = 0.06 * ((high - low) or 1.0)
    left, right = low - pad, high + pad
    edge, middles = 0.0, []
    for row in rows:
        tall = _LINE_INCHES * (_label(row).count("\n") + 1) + 0.05
        middle = edge + tall / 2
        middles.append(middle)
        _draw_row(axes, row, middle, 0.8 * tall, (left, right))
        edge += tall
    axes.set_xlim(left, right)
    axes.set_ylim(edge, 0)
    axes.set_yticks(middles, [_label(row) for row in rows], size=_LABEL_POINTS)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_title(group)
    axes.set_xlabel("value (unit of its row)")
    axes.set_ylabel("row of the table")


def _draw_row(axes: Axes, row: Row, middle: float, tall: float, ends: tuple[float, float]) -> None:
    low = ends[0] if row.low is None else row.low
    high = ends[1] if row.high is None else row.high
    axes.add_patch(Rectangle((low, middle - tall / 2), high - low, tall, color=_BAND, linewidth=0))
    if row.target is not None:
        axes.plot([row.target] * 2, [middle - tall / 2, middle + tall / 2], color=_TICK, linewidth=1.0)
    style = _PASSED if row.passed else _FAILED
    if row.ci_low is not None and row.ci_high is not None and math.isfinite(row.ci_low + row.ci_high):
        axes.plot([row.ci_low, row.ci_high], [middle] * 2, color=style.color, linewidth=1.3)
    if math.isfinite(row.measured):
        marker, size = (style.marker, 4.0) if row.passed else ("X", 6.0)
        axes.plot(
            [row.measured], [middle], marker=marker, markersize=size, color=style.color, linestyle="none"
        )
