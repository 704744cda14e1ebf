"""The figure of option robustness: accuracy by form of the question, and letters answered against the key."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from diagnostics.report.footer import Footer
from diagnostics.report.marks import errors_of
from diagnostics.report.style import bar_look, estimated, most_items, run_style, styled

__all__ = ["robustness_figure"]

_FORMS = {
    "standard": "standard",
    "shuffled": "options\nshuffled",
    "open_ended": "open-ended,\nthen\nmapped",
    "none_of_the_above": "none of\nthe above\nadded",
    "all_of_the_above": "all of\nthe above\nadded",
}


def robustness_figure(forms: pd.DataFrame, positions: pd.DataFrame) -> Figure:
    """Left, accuracy of each form; right, how often each letter is right and is answered, standard form.

    Args:
        forms, positions: `diagnostics.experiments.mcq_robustness.form_table` and `position_table`.
    """
    changes = [
        f"{_FORMS[row['asked']].replace(chr(10), ' ')} "
        f"{estimated(*(100 * row[['change', 'change_low', 'change_high']]), form='+.1f', unit=' points')}"
        for _, row in forms.iterrows()
        if row["asked"] != "standard"
    ]
    caption = (
        f"{most_items(forms['n'])}. Whiskers: 95% interval of the mean, videos "
        f"resampled. Change from the standard form on the same items, 95% interval over "
        f"videos: {'; '.join(changes)}."
    )
    with styled():
        footer = Footer([], caption)
        figure = footer.figure(panel_inches=2.6)
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        heights = forms["accuracy"].to_numpy(dtype=float)
        colours = [
            run_style(0).color if name == "standard" else run_style(2).color for name in forms["asked"]
        ]
        left.bar(
            range(len(forms)),
            heights,
            yerr=errors_of(heights, forms["ci_low"], forms["ci_high"]),
            color=colours,
            error_kw={"elinewidth": 0.9, "capsize": 2},
            gid="accuracy",
        )
        left.set_xticks(range(len(forms)), [_FORMS[name] for name in forms["asked"]], fontsize=7)
        left.set_ylim(0, 1.05)
        left.set_ylabel("accuracy (%)")
        left.set_xlabel("form")
        left.set_title("Form of the question")
        rows = positions[positions["asked"] == "standard"]
        for place, (column, name) in enumerate((("right", "right"), ("answered", "answered"))):
            x = np.arange(len(rows)) + (place - 0.5) * 0.38
            right.bar(x, rows[column], 0.38, label=name, gid=column, **bar_look(place))
        right.set_xticks(range(len(rows)), rows["letter"].tolist())
        right.set_ylabel("items (%)")
        right.set_xlabel("letter")
        right.set_title("Letters, standard form")
        right.legend(loc="upper right", ncols=2)
        right.set_ylim(0, 1.35 * float(rows[["right", "answered"]].to_numpy(dtype=float).max(initial=0.1)))
        for axes in (left, right):
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            axes.grid(visible=False, axis="x")
        footer.draw(figure)
    return figure
