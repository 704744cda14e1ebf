"""The figure of frame sampling: accuracy against recall of the evidence, and both by sampler."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.marks import errors_of
from diagnostics.report.merged import merged_figure
from diagnostics.report.style import counted, most_items, run_style, styled, wrapped

__all__ = ["samplers_by_task_figure", "samplers_figure"]

_NAME_INCHES = 1.7
_PANELS = (
    ("accuracy", "Accuracy", "accuracy (%)"),
    ("any_window_hit", "Evidence shown", "items (%)"),
    ("temporal_coverage", "Time covered", "stretches (%)"),
)


def samplers_figure(samplers: pd.DataFrame) -> Figure:
    """Points with 95% intervals by sampler, one panel a measure, one colour a budget.

    Args:
        samplers: `diagnostics.experiments.sampling.sampler_table`.
    """
    labels = list(dict.fromkeys(samplers["sampler"]))
    names = [wrapped(label, _NAME_INCHES, 7.5, max_lines=2) for label in labels]
    budgets = list(dict.fromkeys(samplers["budget"]))
    caption = (
        f"{most_items(samplers['n'])}. Points: mean over items; bars: 95% interval, videos resampled. "
        "Evidence: items with evidence of which at least one frame is shown. Time covered: equal stretches "
        "of the video, as many as frames, that a frame falls into."
    )
    with styled():
        footer = Footer([counted(budget, "frame") for budget in budgets], caption)
        spread = min(0.22, 0.75 / len(budgets))
        row = max(0.34 if any("\n" in name for name in names) else 0.24, 0.075 * len(budgets))
        figure = footer.figure(panel_inches=0.8 + row * len(labels))
        panels = figure.subplots(1, len(_PANELS), sharey=True)
        for axes, (measure, title, label) in zip(panels, _PANELS, strict=True):
            for place, budget in enumerate(budgets):
                rows = samplers[samplers["budget"] == budget].set_index("sampler").reindex(labels)
                style = run_style(place)
                values = rows[measure].to_numpy(dtype=float)
                axes.errorbar(
                    values,
                    np.arange(len(labels)) + (place - (len(budgets) - 1) / 2) * spread,
                    xerr=errors_of(values, rows[f"{measure}_low"], rows[f"{measure}_high"]),
                    fmt=style.marker,
                    color=style.color,
                    markersize=4,
                    elinewidth=0.9,
                    capsize=2,
                    gid=f"{measure}:{budget}",
                )
            axes.set_title(title)
            axes.set_xlabel(label)
            axes.set_xlim(-0.03, 1.03)
            axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        panels[0].set_yticks(range(len(labels)), names)
        panels[0].set_ylabel("sampler")
        panels[0].invert_yaxis()
        footer.draw(figure)
    return figure


def samplers_by_task_figure(tasks: pd.DataFrame) -> Figure:
    """Accuracy by sampler, one panel a task, one colour a budget.

    Args:
        tasks: `diagnostics.experiments.sampling.task_table`, of two tasks or more.
    """
    runs = [counted(budget, "frame") for budget in tasks["budget"]]
    shown = tasks.assign(run=runs, condition=tasks["sampler"])
    return merged_figure(
        shown,
        list(dict.fromkeys(runs)),
        by_task=True,
        rows="sampler",
        more="Paired differences from the reference: tables/differences.",
    )
