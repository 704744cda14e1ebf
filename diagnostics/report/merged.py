"""Several runs of an experiment in one figure: accuracy by condition, in all and by task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.marks import errors_of
from diagnostics.report.style import counted, plain_text, run_style, styled, wrapped

__all__ = ["MORE", "MOST_TASKS", "merged_figure"]

MOST_TASKS = 24
"""Panels that one figure by task has room for."""

MORE = (
    "Conditions that differ in their seed are averaged. Paired differences and their tests: tables/accuracy."
)
"""The end of the caption of several runs."""

_COLUMNS = 3
_ROW_INCHES = 0.19
_NAME_INCHES, _NAME_POINTS = 1.6, 7.0
_TITLE_INCHES = 1.45


def merged_figure(
    table: pd.DataFrame,
    runs: Sequence[str],
    *,
    by_task: bool = False,
    rows: str = "condition",
    more: str = MORE,
) -> Figure:
    """Points with 95% intervals: a row a condition, a colour a run, a panel a task.

    Args:
        table: `diagnostics.experiments.compare_answers.accuracy_table`.
        runs: their names, in order.
        by_task: the tasks instead of all items together.
        rows: what a row is called.
        more: the end of the caption: what else is known, and where.
    """
    tasks = [task for task in dict.fromkeys(table["task"]) if (task != "all") == by_task]
    conditions = list(dict.fromkeys(table["condition"]))
    n_rows = -(-len(tasks) // _COLUMNS)
    caption = (
        f"{_counts(table, tasks, runs)} Points: mean over items; bars: 95% interval, videos resampled. {more}"
    )
    with styled():
        footer = Footer([plain_text(name) for name in runs], caption)
        titles = {task: wrapped(task, _TITLE_INCHES, 9.0, max_lines=2) for task in tasks}
        tall = 0.16 * any("\n" in title for title in titles.values())
        height = max(_ROW_INCHES, 0.075 * len(runs)) * len(conditions) + 0.75 + tall
        figure = footer.figure(panel_inches=height * n_rows)
        panels = figure.subplots(n_rows, min(_COLUMNS, len(tasks)), sharey=True, squeeze=False)
        for axes, task in zip(panels.flat, tasks, strict=False):
            _panel(axes, table[table["task"] == task], conditions, runs)
            axes.set_title("Accuracy" if task == "all" else titles[task])
        for axes in panels.flat[len(tasks) :]:
            axes.set_visible(False)
        panels[0, 0].set_yticks(
            range(len(conditions)), [wrapped(name, _NAME_INCHES, _NAME_POINTS, 1) for name in conditions]
        )
        panels[0, 0].set_ylim(len(conditions) - 0.4, -0.6)
        for axes in panels[:, 0]:
            axes.tick_params(axis="y", labelsize=_NAME_POINTS)
            axes.set_ylabel(rows)
        footer.draw(figure)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, conditions: list[str], runs: Sequence[str]) -> None:
    spread = min(0.22, 0.7 / len(runs))
    for place, run in enumerate(runs):
        own = rows[rows["run"] == run].set_index("condition").reindex(conditions)
        values = own["accuracy"].to_numpy(dtype=float)
        style = run_style(place)
        axes.errorbar(
            values,
            np.arange(len(conditions)) + (place - (len(runs) - 1) / 2) * spread,
            xerr=errors_of(values, own["ci_low"], own["ci_high"]),
            fmt=style.marker,
            color=style.color,
            markersize=3.5,
            elinewidth=0.9,
            capsize=1.5,
            gid=f"accuracy:{place}",
        )
    axes.set_xlim(-0.03, 1.03)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("accuracy (%)")


def _counts(table: pd.DataFrame, tasks: Sequence[str], runs: Sequence[str]) -> str:
    some = table[table["task"].isin(tasks)]
    most = [int(some.loc[some["run"] == run, "n"].max()) for run in runs if (some["run"] == run).any()]
    each = "" if tasks == ["all"] else " a task"
    low, high = min(most), max(most)
    told = counted(high, "item") if low == high else f"{low} to {counted(high, 'item')}"
    return f"{told}{each} at most."
