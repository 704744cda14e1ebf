"""The figure of the logit lens: options by layer, words at units by layer, and the heads that write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from diagnostics.report.footer import Footer
from diagnostics.report.marks import counting_axis, interval_line
from diagnostics.report.style import most_items, styled

__all__ = ["head_map", "lens_figure"]

_MOST_NAMED = 8


def lens_figure(course: pd.DataFrame, units: pd.DataFrame, heads: pd.DataFrame) -> Figure:
    """Three panels: the right option's probability, the right word at units, and each head's own part.

    Args:
        course, units, heads: `diagnostics.experiments.lens`: `course_table`, `unit_table`, `head_table`.
    """
    options = course[course["task"] == "all"]
    said = units[(units["task"] == "all") & (units["measure"] == "word_share")]
    read = "word" if (heads["read"] == "word").any() else "letter"
    shown = heads[heads["read"] == read]
    named = _named(shown[shown["above_null"]])
    caption = (
        f"{most_items(options['n'])}. Layer k is what enters layer k; the last one is what the model "
        f"answers from. Right: part of the right option's {read} in the last position's logits, less the "
        f"mean of the other options', that each head writes itself; framed where above the null (layer.head: "
        f"{named}). Bars: 95% interval, videos resampled."
    )
    with styled():
        labels = ["right option's letter; units with evidence", "right option's word; other units"]
        footer = Footer(labels, caption)
        figure = footer.figure(panel_inches=2.4)
        left, middle, right = figure.subplots(1, 3)
        _lines(left, options, "read", ("letter", "word"))
        # Words and letters may have been read in different items, with another number of options.
        for chance in sorted(set(options["chance"].dropna().round(6))):
            left.axhline(chance, color="black", linestyle=":", linewidth=0.9, gid="chance")
        left.set_title("Right option")
        left.set_ylabel("probability among options")
        _lines(middle, said, "units", ("evidence", "other"))
        middle.set_title("Right word at units")
        middle.set_ylabel("share among options' words")
        for axes in (left, middle):
            axes.set_xlabel("layer")
            axes.set_ylim(0, 1)
            counting_axis(axes.xaxis)
        head_map(right, shown, f"Heads: {read}", "part of the logits (nats)", figure)
        footer.draw(figure)
    return figure


def _lines(axes: Any, table: pd.DataFrame, key: str, names: tuple[str, ...]) -> None:
    for place, name in enumerate(names):
        rows = table[(table[key] == name) & table["n"].gt(0)].sort_values("layer")
        if rows.empty:
            continue
        interval_line(
            axes,
            rows["layer"] + (place - 0.5) * 0.06,
            rows["value"],
            (rows["ci_low"], rows["ci_high"]),
            place=place,
            gid=f"{key}:{name}",
        )


def _named(heads: pd.DataFrame) -> str:
    """Layer and head of the strongest few."""
    strongest = heads.reindex(heads["value"].abs().sort_values(ascending=False, kind="stable").index)
    told = [f"{row.layer}.{row.head}" for row in strongest.head(_MOST_NAMED).itertuples()]
    more = len(heads) - len(told)
    return (", ".join(told) or "none") + (f" and {more} more" if more else "")


def head_map(axes: Any, heads: pd.DataFrame, title: str, scale: str, figure: Figure) -> None:
    """A heat map of `value` by layer and head, symmetric about zero; heads with `above_null` are framed.

    `scale` names the value and its unit beside the colours.
    """
    shown = heads.pivot_table(index="layer", columns="head", values="value")
    # Layers without heads, and heads without a value, keep their place.
    whole = shown.reindex(index=range(heads["layer"].max() + 1), columns=range(heads["head"].max() + 1))
    grid = whole.to_numpy(dtype=float)
    bound = max(float(np.nanmax(np.abs(grid), initial=0.0)), 1e-12)
    image = axes.imshow(
        grid, cmap="RdBu_r", vmin=-bound, vmax=bound, aspect="auto", origin="lower", interpolation="nearest"
    )
    for layer, head in heads.loc[heads["above_null"], ["layer", "head"]].to_numpy(dtype=float):
        corner = (head - 0.5, layer - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="black", linewidth=1.4, gid="above"))
    axes.grid(False)
    axes.set_title(title)
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    for axis in (axes.xaxis, axes.yaxis):
        counting_axis(axis)
    figure.colorbar(image, ax=axes, shrink=0.9, label=scale)
