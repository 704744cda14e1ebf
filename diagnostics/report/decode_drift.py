"""The figure of decode drift: attention on video and evidence along the reply, and by layer."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from diagnostics.report.footer import Footer
from diagnostics.report.marks import counting_axis, errors_of
from diagnostics.report.style import counted, run_style, styled

__all__ = ["decode_figure"]

_LABELS = {
    "prefill": "prefill's last row, which writes the first token",
    "reply": "rows of the reply",
    "reasoning": "rows that reason",
    "answer": "rows that answer, counted from the first",
    "forced": "rows past the reply's own end, counted from the first",
}
_PANELS = {"visual_mass": "Video", "evidence_share": "Evidence"}
_UNITS = {"visual_mass": "share of all attention", "evidence_share": "share of the video's attention"}


def decode_figure(rows: pd.DataFrame, layers: pd.DataFrame) -> Figure:
    """Three panels: attention on the video and on the evidence by row of the reply, and the first by layer.

    Args:
        rows, layers: `diagnostics.experiments.decode_tables.row_table` and `layer_table`.
    """
    present = set(rows.loc[rows["n"].gt(0), "phase"])
    # Reasoning and answer are parts of the reply: where there are any, they are drawn in its place.
    parts = ["reasoning", "answer"] if "reasoning" in present or "answer" in present else ["reply"]
    phases = ["prefill", *(name for name in [*parts, "forced"] if name in present)]
    with styled():
        footer = Footer([_LABELS[name] for name in phases], _caption(rows, phases))
        figure = footer.figure(panel_inches=2.4)
        *panels, right = figure.subplots(1, 3)
        for axes, (measure, title) in zip(panels, _PANELS.items(), strict=True):
            _along(axes, rows[rows["measure"] == measure], phases)
            axes.set_title(title)
            axes.set_ylabel(_UNITS[measure])
            axes.set_xlabel("row of the reply")
        _by_layer(right, layers[layers["measure"] == "visual_mass"], phases)
        footer.draw(figure)
    return figure


def _caption(rows: pd.DataFrame, phases: list[str]) -> str:
    video = rows[rows["measure"] == "visual_mass"]
    counts = []
    for phase in phases[1:]:
        own = video[(video["phase"] == phase) & video["n"].gt(0)]
        first, last = own.iloc[0], own.iloc[-1]
        counts.append(f"{phase}: {int(first['n'])} at row 1")
        if len(own) > 1:
            counts[-1] += f", {int(last['n'])} at row {int(last['from'])}"
    n = int(video.loc[video["phase"] == "prefill", "n"].max())
    told = f"{counted(n, 'item')}; replies differ in length, so that later rows are of fewer"
    told += f" ({'; '.join(counts)}). " if counts else ". "
    return told + (
        "Means over layers and heads; right: by layer, means over the rows. Bands and bars: 95% interval, "
        "videos resampled."
    )


def _along(axes: Axes, table: pd.DataFrame, phases: list[str]) -> None:
    for place, phase in enumerate(phases):
        own = table[(table["phase"] == phase) & table["n"].gt(0)].sort_values("from")
        if own.empty:
            continue
        style, gid = run_style(place), f"{table['measure'].iloc[0]}:{phase}"
        x = (own["from"].to_numpy(dtype=float) + own["to"].to_numpy(dtype=float)) / 2
        values = own["value"].to_numpy(dtype=float)
        low, high = own["ci_low"].to_numpy(dtype=float), own["ci_high"].to_numpy(dtype=float)
        if phase == "prefill":
            axes.axhline(float(values[0]), color=style.color, linestyle=":", linewidth=0.9)
        if len(own) == 1:  # no band to see
            axes.errorbar(
                x,
                values,
                yerr=errors_of(values, low, high),
                fmt=style.marker,
                color=style.color,
                markersize=5,
                capsize=2,
                gid=gid,
            )
            continue
        line = "--" if phase == "forced" else "-"
        axes.plot(x, values, f"{style.marker}{line}", color=style.color, markersize=3, gid=gid)
        axes.fill_between(x, low, high, color=style.color, alpha=0.15, linewidth=0)
    counting_axis(axes.xaxis)


def _by_layer(axes: Axes, table: pd.DataFrame, phases: list[str]) -> None:
    for place, phase in enumerate(phases):
        # The prefill's row of all items that wrote any more.
        own = table[table["phase"] == (phases[1] if phase == "prefill" and len(phases) > 1 else phase)]
        if own.empty:
            continue
        style = run_style(place)
        axes.plot(
            own["layer"].to_numpy(dtype=float),
            own["prefill" if phase == "prefill" else "decode"].to_numpy(dtype=float),
            f"{style.marker}{'--' if phase == 'forced' else '-'}",
            color=style.color,
            markersize=3.5,
            gid=f"layers:{phase}",
        )
    axes.set_title("Video by layer")
    axes.set_ylabel("share of all attention")
    axes.set_xlabel("layer")
    counting_axis(axes.xaxis)
