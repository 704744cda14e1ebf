"""Several runs of an experiment in one figure: accuracy by condition, in all and by task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.style import plain_text, run_style, styled, wrapped

__all__ = ["MOST_TASKS", "merged_figure"]

MOST_TASKS = 24
"""Panels that one figure by task has room for."""

_COLUMNS = 3
_ROW_INCHES = 0.19
_NAME_INCHES, _NAME_POINTS = 1.6, 7.0
_TITLE_INCHES = 1.6


def merged_figure(table: pd.DataFrame, runs: Sequence[str], *, by_task: bool = False) -> Figure:
    """Points with 95% intervals: a row a condition, a colour a run, a panel a task.

    Args:
        table: `diagnostics.experiments.compare_answers.accuracy_table`.
        runs: their names, in order.
        by_task: the tasks instead of all items together.
    """
    tasks = [task for task in dict.fromkeys(table["task"]) if (task != "all") == by_task]
    conditions = list(dict.fromkeys(table["condition"]))
    n_rows = -(-len(tasks) // _COLUMNS)
    caption = (
        f"{_counts(table, tasks, runs)} Points: mean over items, conditions that differ in their seed "
        "averaged; bars: 95% interval, videos resampled. Paired differences and their tests: tables/accuracy."
    )
    with styled():
        footer = Footer([plain_text(name) for name in runs], caption)
        height = max(_ROW_INCHES, 0.075 * len(runs)) * len(conditions) + 0.6
        figure = footer.figure(panel_inches=height * n_rows)
        panels = figure.subplots(n_rows, min(_COLUMNS, len(tasks)), sharey=True, squeeze=False)
        for axes, task in zip(panels.flat, tasks, strict=False):
            _panel(axes, table[table["task"] == task], conditions, runs)
            axes.set_title("Accuracy" if task == "all" else wrapped(task, _TITLE_INCHES, 9.0, max_lines=1))
        for axes in panels.flat[len(tasks) :]:
            axes.set_visible(False)
        panels[0, 0].set_yticks(
            range(len(conditions)), [wrapped(name, _NAME_INCHES, _NAME_POINTS, 1) for name in conditions]
        )
        panels[0, 0].set_ylim(len(conditions) - 0.4, -0.6)
        for axes in panels[:, 0]:
            axes.tick_params(axis="y", labelsize=_NAME_POINTS)
        footer.draw(figure)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, conditions: list[str], runs: Sequence[str]) -> None:
    spread = min(0.22, 0.7 / len(runs))
    for place, run in enumerate(runs):
        own = rows[rows["run"] == run].set_index("condition").reindex(conditions)
        values = own["accuracy"].to_numpy(dtype=float)
        interval = own[["ci_low", "ci_high"]].to_numpy(dtype=float).T
        style = run_style(place)
        axes.errorbar(
            values,
            np.arange(len(conditions)) + (place - (len(runs) - 1) / 2) * spread,
            xerr=np.nan_to_num(np.abs(interval - values)),
            fmt=style.marker,
            color=style.color,
            markersize=3.5,
            elinewidth=0.9,
            capsize=1.5,
            gid=f"accuracy:{place}",
        )
    axes.set_xlim(-0.03, 1.03)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))


def _counts(table: pd.DataFrame, tasks: Sequence[str], runs: Sequence[str]) -> str:
    some = table[table["task"].isin(tasks)]
    most = [int(some.loc[some["run"] == run, "n"].max()) for run in runs if (some["run"] == run).any()]
    each = "" if tasks == ["all"] else " a task"
    low, high = min(most), max(most)
    return f"{low if low == high else f'{low} to {high}'} items{each} at most."
