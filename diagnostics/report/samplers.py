"""The figure of frame sampling: accuracy against recall of the evidence, and both by sampler."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.style import run_style, styled

__all__ = ["samplers_figure"]

_PANELS = (
    ("accuracy", "Accuracy"),
    ("any_window_hit", "Evidence shown"),
    ("temporal_coverage", "Time covered"),
)


def samplers_figure(samplers: pd.DataFrame) -> Figure:
    """Points with 95% intervals by sampler, one panel a measure, one colour a budget.

    Args:
        samplers: `diagnostics.experiments.sampling.sampler_table`.
    """
    labels = list(dict.fromkeys(samplers["sampler"]))
    budgets = list(dict.fromkeys(samplers["budget"]))
    caption = (
        f"{int(samplers['n'].max())} items. Points: mean over items; bars: 95% interval, videos resampled. "
        "Evidence: items with evidence of which at least one frame is shown. Time covered: equal stretches "
        "of the video, as many as frames, that a frame falls into."
    )
    with styled():
        footer = Footer([f"{budget} frames" for budget in budgets], caption)
        figure = footer.figure(panel_inches=0.8 + 0.24 * len(labels))
        panels = figure.subplots(1, len(_PANELS), sharey=True)
        for axes, (measure, title) in zip(panels, _PANELS, strict=True):
            for place, budget in enumerate(budgets):
                rows = samplers[samplers["budget"] == budget].set_index("sampler").reindex(labels)
                style = run_style(place)
                values = rows[measure].to_numpy(dtype=float)
                interval = rows[[f"{measure}_low", f"{measure}_high"]].to_numpy(dtype=float).T
                axes.errorbar(
                    values,
                    np.arange(len(labels)) + (place - (len(budgets) - 1) / 2) * 0.22,
                    xerr=np.nan_to_num(np.abs(interval - values)),
                    fmt=style.marker,
                    color=style.color,
                    markersize=4,
                    elinewidth=0.9,
                    capsize=2,
                    gid=f"{measure}:{budget}",
                )
            axes.set_title(title)
            axes.set_xlim(-0.03, 1.03)
            axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        panels[0].set_yticks(range(len(labels)), labels)
        panels[0].invert_yaxis()
        footer.draw(figure)
    return figure
