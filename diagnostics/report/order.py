"""The figure of temporal order: accuracy under each order, for items that need the order and that do not."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.marks import errors_of
from diagnostics.report.style import bar_look, styled

__all__ = ["order_figure"]

_NAMES = {
    "all": "all items",
    "order_dependent": "depends on the order",
    "order_free": "does not depend on it",
    "time_addressed": "names a time",
    "unflagged": "not flagged",
}
_ORDERS = ("original", "reversed", "blocks", "local", "full")


def order_figure(orders: pd.DataFrame) -> Figure:
    """Bars of accuracy by order, one panel a group of items, units moved, both clocks; diamonds of flips.

    Args:
        orders: `diagnostics.experiments.temporal_order.order_table`; where some rows move units, those that
            move single frames are not drawn.
    """
    by = "unit" if (orders["by"] == "unit").any() else "frame"
    drawn = orders[orders["by"].isin(["", by])]
    groups = [group for group in _NAMES if group in set(drawn["items"])]
    clocks = [clock for clock in ("slot", "carry") if clock in set(drawn["timestamps"])]
    names = {"slot": "shown times stay in place", "carry": "shown times travel with the pictures"}
    moved = "temporal units" if by == "unit" else "single frames"
    caption = (
        f"Moved: {moved}; drawn orders averaged over seeds. Whiskers, of bars and of diamonds: 95% interval "
        "of the mean, videos resampled. Dashed, its interval shaded: the frames in their own order. "
        "Diamonds: answers that changed beyond those that change when the same frames are re-encoded."
    )
    with styled():
        footer = Footer([names[clock] for clock in clocks], caption, bars=True)
        figure = footer.figure(panel_inches=2.4 * ((len(groups) + 1) // 2))
        panels = figure.subplots((len(groups) + 1) // 2, min(2, len(groups)), squeeze=False, sharey=True)
        for axes, group in zip(panels.flat, groups, strict=False):
            _panel(axes, drawn[drawn["items"] == group], clocks)
            n = int(drawn[drawn["items"] == group]["n"].max())
            axes.set_title(f"{_NAMES[group]} (n = {n})")
        for axes in list(panels.flat)[len(groups) :]:
            axes.remove()
        for axes in panels[:, 0]:
            axes.set_ylabel("accuracy, changed answers (%)")
        footer.draw(figure)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, clocks: list[str]) -> None:
    orders = [order for order in _ORDERS if order in set(rows["order"]) and order != "original"]
    original = rows[rows["order"] == "original"]
    if len(original):
        value = float(original["accuracy"].iloc[0])
        axes.axhline(value, color="black", linestyle="--", linewidth=1.0, gid="original")
        ends = original[["ci_low", "ci_high"]].iloc[0].to_numpy(dtype=float)
        if np.isfinite(ends).all():
            axes.axhspan(*ends, color="black", alpha=0.08, linewidth=0, zorder=0.5, gid="original interval")
    width = 0.8 / max(1, len(clocks))
    for place, clock in enumerate(clocks):
        some = rows[rows["timestamps"] == clock].set_index("order").reindex(orders)
        heights = some["accuracy"].to_numpy(dtype=float)
        x = np.arange(len(orders)) + (place - (len(clocks) - 1) / 2) * width
        flips = some["flips_beyond_floor"].to_numpy(dtype=float)
        axes.errorbar(
            x + width / 4,
            flips,
            yerr=errors_of(flips, some["beyond_low"], some["beyond_high"]),
            fmt="D",
            color="black",
            ecolor="black",
            elinewidth=0.8,
            markersize=4,
            markerfacecolor="white",
            markeredgecolor="black",
            zorder=5,
            gid=f"flips:{clock}",
        )
        axes.bar(
            x,
            heights,
            width,
            yerr=errors_of(heights, some["ci_low"], some["ci_high"]),
            **bar_look(place),
            error_kw={"elinewidth": 0.9, "capsize": 2},
            gid=clock,
        )
    axes.set_xticks(range(len(orders)), orders)
    lowest = np.nanmin([-0.03, *rows["flips_beyond_floor"], *rows["beyond_low"]])
    axes.set_ylim(1.1 * float(lowest), 1.05)
    axes.set_xlabel("order")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
