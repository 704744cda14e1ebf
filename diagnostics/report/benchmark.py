"""The figure of a benchmark's accuracy: one bar a task, chance beside it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.marks import errors_of
from diagnostics.report.style import run_style, styled, wrapped

__all__ = ["benchmark_figure"]

_ROW_INCHES = 0.24
_NAME_INCHES = 1.9


def benchmark_figure(tasks: pd.DataFrame) -> Figure:
    """Accuracy of each task and of all, the interval over videos, and chance.

    Args:
        tasks: `diagnostics.experiments.benchmark.task_table`.
    """
    scored = tasks[tasks["items"] > 0].reset_index(drop=True)
    caption = (
        "Accuracy by the letter of the reply; a reply without one counts as wrong. Whiskers: 95% interval, "
        "videos resampled; none where all items are of one video. Vertical strokes: chance. Brackets: items."
    )
    with styled():
        footer = Footer([], caption)
        labels = [
            f"{wrapped(task, _NAME_INCHES, 7.5, max_lines=2)} ({count})"
            for task, count in zip(scored["task"], scored["items"], strict=True)
        ]
        lines = sum(1 + 0.55 * label.count("\n") for label in labels)
        figure = footer.figure(panel_inches=0.9 + _ROW_INCHES * max(1, lines))
        axes = figure.subplots()
        heights = scored["accuracy"].to_numpy(dtype=float)
        rows = np.arange(len(scored))
        colours = [run_style(0).color if task == "all" else run_style(5).color for task in scored["task"]]
        axes.barh(rows, heights, 0.66, color=colours, gid="accuracy")
        axes.errorbar(
            heights,
            rows,
            xerr=errors_of(heights, scored["accuracy_low"], scored["accuracy_high"]),
            fmt="none",
            ecolor="black",
            elinewidth=0.9,
            capsize=2,
        )
        axes.plot(
            scored["chance"].to_numpy(dtype=float), rows, "|", color="black", markersize=11, gid="chance"
        )
        axes.set_yticks(rows, labels)
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.grid(visible=False, axis="y")
        axes.set_title("Accuracy by task")
        axes.set_xlabel("accuracy (%)")
        axes.set_ylabel("task (items)")
        footer.draw(figure)
    return figure
