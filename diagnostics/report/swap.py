"""The figure of the evidence swap: accuracy and log-odds against dose, and accuracy by place in the input."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.marks import errors_of, interval_line
from diagnostics.report.style import counted, most_items, run_style, styled

__all__ = ["swap_figure"]

_ENDS = {"uniform": ":", "oracle": "--", "text": "-."}


def swap_figure(doses: pd.DataFrame, places: pd.DataFrame, bias: pd.DataFrame) -> Figure:
    """Three panels: shares of answers, log-odds, and accuracy by tenth of the input.

    Args:
        doses, places, bias: `diagnostics.experiments.evidence_swap.dose_table` and `place_table`.
    """
    told = bias.iloc[0]
    caption = _caption(doses, told)
    labels = ["true evidence: the right option", "foil evidence: the right option"]
    with styled():
        footer = Footer([*labels, "foil evidence: the foil's option"], caption)
        figure = footer.figure(panel_inches=2.4)
        shares, odds, where = figure.subplots(1, 3)
        true, foil = doses[doses["arm"] == "evidence"], doses[doses["arm"] == "foil"]
        _points(shares, true, "accuracy", 0)
        _points(shares, foil, "accuracy", 1)
        _points(shares, foil, "foil_answered", 2)
        _points(odds, true, "gold_log_odds", 0)
        _points(odds, foil, "gold_log_odds", 1)
        _points(odds, foil, "foil_log_odds", 2)
        for axes, measure in ((shares, "accuracy"), (odds, "gold_log_odds")):
            for arm, line in _ENDS.items():
                value = float(doses.loc[doses["arm"] == arm, measure].iloc[0])
                if np.isfinite(value):
                    axes.axhline(value, color="#7a7a7a", linestyle=line, linewidth=1, gid=f"{measure}:{arm}")
            axes.set_xlabel("evidence put in (units)")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        shares.set_title("Answers with the option")
        shares.set_ylabel("items (%)")
        odds.set_title("Log-odds")
        odds.set_ylabel("log-odds among the options (nats)")
        _places(where, places, float(told["evidence_alone"]))
        for axes in (shares, where):
            axes.set_ylim(-0.02, 1.04)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        footer.draw(figure)
    return figure


def _caption(doses: pd.DataFrame, told: pd.Series) -> str:
    foils = doses.loc[doses["arm"] == "foil", "n"]
    caption = (
        f"{most_items(doses['n'])}, {int(foils.max()) if len(foils) else 0} with a foil. Dose 0: the "
        "evidence removed; an item of shorter evidence gets what it has. Points: mean; bars: 95% interval, "
        "videos resampled. Grey: uniform frames (dotted), evidence in every slot (dashed), text alone "
        "(dash-dot). "
    )
    if not told["n"]:
        return f"{caption}Right: no order-free item was answered in every place."
    alone = f"dotted: the evidence alone ({told['evidence_alone']:.0%})"
    caption += f"Right: {counted(int(told['n']), 'order-free item')}, {alone}"
    if np.isfinite(told["range"]):
        caption += (
            f"; the places range over {told['range']:.0f}% of that, Video-LevelGauge {told['composite']:.0f} "
            f"({told['shape'].replace('_', '-')})"
        )
    return f"{caption}."


def _points(axes: Axes, rows: pd.DataFrame, measure: str, place: int) -> None:
    interval_line(
        axes,
        rows["units"],
        rows[measure],
        (rows[f"{measure}_low"], rows[f"{measure}_high"]),
        place=place,
        gid=f"{measure}:{place}",
    )


def _places(axes: Axes, places: pd.DataFrame, alone: float) -> None:
    values = places["accuracy"].to_numpy(dtype=float)
    axes.errorbar(
        places["tenth"].to_numpy(dtype=float) + 1,
        values,
        yerr=errors_of(values, places["ci_low"], places["ci_high"]),
        fmt=f"{run_style(0).marker}-",
        color=run_style(0).color,
        markersize=4,
        elinewidth=0.9,
        capsize=2,
        gid="places",
    )
    if np.isfinite(alone):
        axes.axhline(alone, color="#7a7a7a", linestyle=":", linewidth=1, gid="alone")
    axes.set_title("Accuracy by place")
    axes.set_ylabel("accuracy (%)")
    axes.set_xlabel("place in the input (tenths)")
    axes.set_xticks(range(1, len(places) + 1))
