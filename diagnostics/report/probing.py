"""The figure of probing: each target's score by layer, beside its controls."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from diagnostics.report.footer import Footer
from diagnostics.report.marks import counting_axis
from diagnostics.report.style import run_style, styled, wrapped

__all__ = ["probing_figure"]

_LINES = {"score": "probe", "shuffled": "labels exchanged", "position_only": "place in the prompt alone"}
_COLUMNS = 4
_TITLE_INCHES = 1.2


def probing_figure(table: pd.DataFrame) -> Figure:
    """A panel a target: the score by layer with its band, the two controls, and chance as a dotted line.

    Args:
        table: `diagnostics.experiments.probe_fits.Fits.table`; without rows the figure says so.
    """
    targets = list(dict.fromkeys(table["target"])) if len(table) else []
    caption = (
        "Balanced accuracy, or R2 for time and place, of linear probes on states averaged over each unit's "
        "tokens as they enter a layer; videos held out. Bands: 95% interval, videos resampled."
        if targets
        else "No target could be fitted: tables/unfit.csv says why."
    )
    columns = min(_COLUMNS, max(1, len(targets)))
    rows = max(1, -(-len(targets) // columns))
    with styled():
        footer = Footer(list(_LINES.values()) if targets else [], caption)
        figure = footer.figure(panel_inches=1.8 * rows)
        panels = figure.subplots(rows, columns, squeeze=False)
        for axes, target in zip(panels.flat, targets, strict=False):
            _panel(axes, table[table["target"] == target].sort_values("layer"))
            axes.set_xlabel("layer it enters")
            axes.set_title(wrapped(target, _TITLE_INCHES, 8.0, max_lines=2), fontsize=8)
        for axes in list(panels.flat)[len(targets) :]:
            axes.set_axis_off()
        for axes in panels[:, 0]:
            axes.set_ylabel("score on other videos")
        footer.draw(figure)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame) -> None:
    layers = rows["layer"].to_numpy(dtype=int)
    for place, name in enumerate(_LINES):
        style = run_style(place)
        values = rows[name].to_numpy(dtype=float)
        low, high = (rows[f"{name}_{end}"].to_numpy(dtype=float) for end in ("low", "high"))
        axes.fill_between(layers, low, high, color=style.color, alpha=0.15, linewidth=0)
        axes.plot(
            layers,
            values,
            f"{style.marker}-",
            color=style.color,
            markersize=3,
            gid=f"{rows['target'].iloc[0]}:{name}",
        )
    chance = float(rows["chance"].iloc[0])
    axes.axhline(chance, color="#7a7a7a", linewidth=0.8, linestyle=":")
    # A position-only ridge can lie far below 0; the panel keeps to where the probe and chance are.
    lowest = np.nanmin(
        [chance, *(rows[name].min() for name in ("score", "score_low", "shuffled", "shuffled_low"))]
    )
    axes.set_ylim(float(lowest) - 0.08, 1.04)
    counting_axis(axes.xaxis, 5)
