"""The figure of the heads experiment: their scores, and what silencing the top ones does."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.lens import head_map
from diagnostics.report.marks import interval_line
from diagnostics.report.style import estimated, most_items, styled

__all__ = ["heads_figure"]

_PANELS = {"choice_accuracy": "change of accuracy (0 to 1)", "gold_log_odds": "change of log-odds (nats)"}


def heads_figure(scores: pd.DataFrame, masking: pd.DataFrame) -> Figure:
    """Three panels: the scores by layer and head, and two outcomes against the share of heads silenced.

    Args:
        scores, masking: `diagnostics.experiments.head_tables.score_table` and `masking_table`.
    """
    every, shown = scores[scores["task"] == "all"], masking[masking["task"] == "all"]
    odds = shown[(shown["measure"] == "gold_log_odds") & (shown["contrast"] == "top less random")]
    against = ", ".join(
        f"{estimated(*row[['difference', 'ci_low', 'ci_high']], form='+.2f')} at {row['share']:.0%}"
        + (f" (n = {row['n']})" if row["n"] < odds["n"].max() else "")
        for _, row in odds.iterrows()
    )
    caption = (
        f"{most_items(shown['n'])}, each with heads chosen on the other half of the videos. Left: "
        "score of the evidence less that on a blank video, framed where above the largest of all heads "
        "with the evidence moved elsewhere (5%). Against random heads of the same layers, silencing the top "
        f"heads changes the right option's log-odds by {against} of all heads. Bars: 95% interval, videos "
        "resampled."
    )
    with styled():
        footer = Footer(["top heads silenced", "random heads of the same layers"], caption)
        figure = footer.figure(panel_inches=2.4)
        left, *panels = figure.subplots(1, 3)
        if len(every):  # none where no item has units with evidence and units without
            head_map(left, every, "Evidence score", "score less that on a blank video", figure)
        for axes, (measure, label) in zip(panels, _PANELS.items(), strict=True):
            for place, kind in enumerate(("top", "random")):
                picked = (shown["measure"] == measure) & (shown["contrast"] == f"{kind} less none")
                rows = shown[picked & shown["n"].gt(0)].sort_values("share")
                interval_line(
                    axes,
                    rows["share"] + (place - 0.5) * 0.004,
                    rows["difference"],
                    (rows["ci_low"], rows["ci_high"]),
                    place=place,
                    gid=f"{measure}:{kind}",
                )
            axes.axhline(0.0, color="black", linewidth=0.7)
            axes.set_title("Accuracy" if measure == "choice_accuracy" else "Right option")
            axes.set_ylabel(label)
            axes.set_xlabel("heads silenced (%)")
            axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        footer.draw(figure)
    return figure
