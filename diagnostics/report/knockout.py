"""The figure of the knockouts: the flow of information by path and layer, and roads out of the video."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.lens import head_map
from diagnostics.report.marks import counting_axis, errors_of
from diagnostics.report.style import counted, most_items, run_style, styled, wrapped

__all__ = ["knockout_figure"]

_COLUMNS = 4
_NAME_INCHES = 0.92


def knockout_figure(flow: pd.DataFrame, roads: pd.DataFrame, heads: pd.DataFrame | None = None) -> Figure:
    """A small panel a path, with its random control, one of the roads out of the video, one of the heads.

    Args:
        flow, roads: `diagnostics.experiments.knockout_tables`: `flow_table` and `arm_table`.
        heads: `head_table`; None or empty where no path was blocked head by head.
    """
    by_head = heads is not None and len(heads) > 0
    shown = flow[(flow["of"] == "correct") & (flow["task"] == "all")]
    paths = list(dict.fromkeys(shown["path"]))
    panels = len(paths) + 1 + by_head
    n_rows = -(-panels // _COLUMNS)
    n = int(shown["n"].max()) if len(shown) else 0
    caption = (
        f"Paths: percent change of the right answer's probability when the path is blocked in a window of "
        f"layers around the one named; {counted(n, 'item')} answered right with nothing blocked. Random: "
        f"as many edges anywhere in the prompt. Roads: accuracy with all layers blocked, "
        f"{most_items(roads['n'] if len(roads) else [])}. Bars: 95% interval, videos resampled."
    )
    if heads is not None and by_head:
        caption += (
            f" Heads: change when {str(heads['path'].iloc[0]).replace('_', ' ')} is blocked in that head "
            f"alone{_less(heads)}, % ({most_items(heads['n'])})."
        )
    with styled():
        footer = Footer(["path blocked", "as many random edges blocked"], caption)
        figure = footer.figure(panel_inches=1.9 * n_rows)
        axes = np.atleast_1d(figure.subplots(n_rows, _COLUMNS, squeeze=False)).ravel()
        low = float(np.nanmin([*shown["ci_low"].dropna(), *shown["change"].dropna(), -5.0]))
        high = float(np.nanmax([*shown["ci_high"].dropna(), *shown["change"].dropna(), 5.0]))
        for place, path in enumerate(paths):
            _path(axes[place], shown[shown["path"] == path], path)
            axes[place].set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
            if place % _COLUMNS == 0:
                axes[place].set_ylabel("change (%)")
        _roads(axes[len(paths)], roads)
        if heads is not None and by_head:
            # At the right edge, where the room for its colours parts no columns.
            head_map(axes[-1], _as_map(heads), "single heads", "change (%)", figure)
            axes[-1].set_title("single heads", fontsize=8)
        for empty in axes[len(paths) + 1 : len(axes) - by_head]:
            empty.set_axis_off()
        footer.draw(figure)
    return figure


def _path(axes: Any, table: pd.DataFrame, path: str) -> None:
    for place, control in enumerate(("no", "random")):
        rows = table[(table["control"] == control) & (table["layer"] != "all")]
        if rows.empty:
            continue
        style = run_style(place)
        values = rows["change"].to_numpy(dtype=float)
        axes.errorbar(
            rows["layer"].to_numpy(dtype=float) + (place - 0.5) * 0.1,
            values,
            yerr=errors_of(values, rows["ci_low"], rows["ci_high"]),
            fmt=f"{style.marker}-",
            color=style.color,
            markersize=3.5,
            elinewidth=0.8,
            capsize=1.5,
            gid=f"{path}:{control}",
        )
    axes.axhline(0.0, color="black", linestyle=":", linewidth=0.8)
    # A panel is narrow: a long name stands on several lines.
    axes.set_title(wrapped(path.replace("_", " "), _NAME_INCHES, 8.0, max_lines=3), fontsize=8)
    axes.set_xlabel("layer")
    counting_axis(axes.xaxis, 5)


def _controlled(heads: pd.DataFrame) -> bool:
    """Whether the run blocked random edges in the same heads."""
    return bool(heads["difference"].notna().any())


def _less(heads: pd.DataFrame) -> str:
    if not _controlled(heads):
        return ""
    return " less that of as many random edges, framed where it differs from none (5%, adjusted over heads)"


def _as_map(heads: pd.DataFrame) -> pd.DataFrame:
    """What `head_map` draws: a value a head, and which are framed."""
    controlled = _controlled(heads)
    value = heads["difference" if controlled else "change"]
    framed = heads["p_holm"] < 0.05 if controlled else pd.Series(False, index=heads.index)
    return heads[["layer", "head"]].assign(value=value, above_null=framed)


def _roads(axes: Any, roads: pd.DataFrame) -> None:
    rows = roads[roads["task"] == "all"] if len(roads) else roads
    places = np.arange(len(rows))
    if len(rows):
        values = rows["accuracy"].to_numpy(dtype=float)
        axes.errorbar(
            values,
            places,
            xerr=errors_of(values, rows["ci_low"], rows["ci_high"]),
            fmt="o",
            color="black",
            markersize=4,
            elinewidth=0.9,
            capsize=2,
            gid="roads",
        )
        axes.set_yticks(places, [str(name).replace("_", " ") for name in rows["road"]])
    axes.invert_yaxis()
    axes.set_xlim(-0.05, 1.05)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_title("roads blocked", fontsize=8)
    axes.set_xlabel("accuracy (%)")
    axes.set_ylabel("road")
