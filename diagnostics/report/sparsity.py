"""The figure of evidence sparsity: how the evidence ratio is spread over questions, on a log axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.style import bar_look, counted, styled

__all__ = ["sparsity_figure"]


def sparsity_figure(ratios: Mapping[str, Sequence[float]], *, n_items: int, bins: int) -> Figure:
    """A histogram of ratios above zero, stacked by kind, with the mean and the median of all ratios.

    Args:
        ratios: evidence frames over video frames, by kind of evidence; at least one above zero.
        n_items: questions in the data set, those without a ratio included.
        bins: equally wide in the logarithm, over all ratios.
    """
    kinds = [kind for kind, values in ratios.items() if len(values)]
    every = np.concatenate([np.asarray(ratios[kind], dtype=float) for kind in kinds])
    positive = every[every > 0]
    low, high = np.log10(positive.min()), np.log10(positive.max())
    if high - low < 0.5:  # nearly alike: a decade around them
        low, high = low - 0.5, high + 0.5
    edges = np.logspace(low, high, bins + 1)
    # Rounding must not push the extremes out of the histogram.
    edges[0], edges[-1] = min(edges[0], positive.min()), max(edges[-1], positive.max())
    mean, median = float(every.mean()), float(np.median(every))
    zeros = len(every) - len(positive)
    caption = (
        f"{len(every):,} of {n_items:,} questions have local evidence; it holds {mean:.3%} of their "
        f"video's frames on average (dashed) and {median:.3%} in the median (dotted)."
        + (f" {zeros} with a ratio of zero are not drawn." if zeros else "")
    )
    with styled():
        footer = Footer(
            [f"{kind} ({counted(len(ratios[kind]), 'question')})" for kind in kinds], caption, bars=True
        )
        figure = footer.figure(panel_inches=2.6)
        axes = figure.add_subplot()
        drawn = [[value for value in ratios[kind] if value > 0] for kind in kinds]
        axes.hist(drawn, bins=edges.tolist(), stacked=True)
        for place, stack in enumerate(axes.containers):
            for bar in stack:
                bar.set(**bar_look(place))
        axes.axvline(mean, color="black", linestyle="--", linewidth=1.0, gid="mean")
        axes.axvline(median, color="black", linestyle=":", linewidth=1.2, gid="median")
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("evidence ratio: evidence frames / frames of the video (%)")
        axes.set_ylabel("questions (number)")
        axes.set_title("How little of a video holds the answer")
        footer.draw(figure)
    return figure
