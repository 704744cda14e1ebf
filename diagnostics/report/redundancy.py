"""The figure of the redundancy dose: each outcome against the share of units replaced, by what."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.marks import interval_line
from diagnostics.report.style import estimated, most_items, styled

__all__ = ["redundancy_figure"]

_PANELS = {
    "accuracy": ("Accuracy", "accuracy (%)"),
    "gold_log_odds": ("Right option", "log-odds (nats)"),
    "evidence_log_lift": ("Attention on the evidence", "log-lift (nats)"),
    "unit_similarity": ("Redundancy", "mean cosine of units"),
}


def redundancy_figure(doses: pd.DataFrame, contrasts: pd.DataFrame) -> Figure:
    """Four panels, a line for near-duplicates and one for distinct units; both start at nothing replaced.

    Args:
        doses, contrasts: `diagnostics.experiments.redundancy_dose.dose_table` and `contrast_table`.
    """
    most = contrasts[contrasts["replaced"] == contrasts["replaced"].max()].set_index("measure")
    odds = most.loc["gold_log_odds"]
    caption = (
        f"{most_items(doses['n'])}; evidence, budget and clock held. At the largest dose near-"
        f"duplicates change the right option's log-odds by "
        f"{estimated(*odds[['difference', 'ci_low', 'ci_high']], form='+.2f')} against distinct units. "
        "Bars: 95% interval, videos resampled."
    )
    with styled():
        footer = Footer(["replaced by near-duplicates", "replaced by distinct units"], caption)
        figure = footer.figure(panel_inches=3.6)
        panels = figure.subplots(2, 2, sharex=True)
        for axes, (measure, (title, label)) in zip(panels.flat, _PANELS.items(), strict=True):
            for place, by in enumerate(("near_duplicates", "distinct")):
                rows = doses[doses["by"].isin(["", by])].sort_values("replaced")
                interval_line(
                    axes,
                    rows["replaced"] + (place - 0.5) * 0.012,
                    rows[measure],
                    (rows[f"{measure}_low"], rows[f"{measure}_high"]),
                    place=place,
                    gid=f"{measure}:{by}",
                )
            axes.set_title(title)
            axes.set_ylabel(label)
        panels[0, 0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        for axes in panels[1]:
            axes.set_xlabel("other units replaced (%)")
            axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        footer.draw(figure)
    return figure
