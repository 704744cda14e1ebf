"""MedHorizon's evidence sparsity beside the paper's figures, with its lesions measured in three ways.

arXiv 2605.06537, section 6.4: 1,035 localisable questions, 894 exact and 141 by proxy; the mean ratio of them
is 0.166%, the median 0.051%. The proxies are the lesion questions. Were every other ratio zero, theirs could
average 1.2% at most under that mean; the boxes of REAL-Colon's lesions cover several times as much of their
videos. So the paper's windows are shorter, and it does not say which they are: all boxes, the longest run and
the first appearance of a lesion stand beside each other here. The nearest is named; none is claimed to be it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from diagnostics.data.build.counting import counted_as
from diagnostics.data.items import Item
from diagnostics.store.records import Record

__all__ = ["PAPER", "beside_paper", "nearest"]

PAPER: Mapping[str, float] = {
    "localisable": 1035,
    "exact": 894,
    "proxy": 141,
    "mean ratio": 0.00166,
    "median ratio": 0.00051,
}
"""Section 6.4."""

_LARGEST_LESION_MEAN = PAPER["mean ratio"] * PAPER["localisable"] / PAPER["proxy"]
"""What the proxies' mean ratio can be at most under the paper's mean: all others zero."""

_AS_THEY_ARE = "as in the data"


def _lesion_ratios(record: Record, item: Item) -> dict[str, float]:
    """The share of its video's frames that each way of taking the lesion gives; none of other questions."""
    told = item.metadata.get("evidence_alternatives")
    if not isinstance(told, Mapping) or counted_as(item) != "proxy":
        return {}
    if not record.source_fps or not record.source_seconds:
        return {}
    n_frames = round(record.source_fps * record.source_seconds)
    return {name: sum(end - start for start, end in frames) / n_frames for name, frames in told.items()}


def beside_paper(records: Sequence[Record], items: Mapping[str, Item]) -> pd.DataFrame:
    """One row a figure of the paper, or of a way of taking lesions; `difference` is ours less the paper's.

    The counts are of the questions that the paper's rule counts, whether or not they have evidence here, and
    then of those that do (`... with windows`).

    Columns: measure; lesions (how they were taken: as the data has them, `all`, `longest`, `first`); ours; n;
    paper; difference; paper_allows_at_most; nearest (whose mean comes nearest to the paper's).
    """
    counts = [counted_as(item) for item in items.values()]
    ours = {"exact": counts.count("exact"), "proxy": counts.count("proxy")}
    ours["localisable"] = ours["exact"] + ours["proxy"]
    rows = [_row(name, "", float(ours[name]), len(items)) for name in ("localisable", "exact", "proxy")]
    measured = [record for record in records if record.measures.get("evidence_ratio") is not None]
    lesions = {record.item_id: _lesion_ratios(record, items[record.item_id]) for record in measured}
    shown = [counted_as(items[record.item_id]) for record in measured]
    have = {"exact": shown.count("exact"), "proxy": shown.count("proxy"), "localisable": len(shown)}
    rows += [_row(f"{name} with windows", "", float(have[name]), len(items)) for name in ours]
    rows += _ratios(measured, _AS_THEY_ARE, {})
    for name in dict.fromkeys(name for told in lesions.values() for name in told):
        taken = {item_id: told[name] for item_id, told in lesions.items() if name in told}
        if taken:
            rows += _ratios(measured, name, taken)
            values = list(taken.values())
            rows.append(_row("mean ratio of lesion questions", name, _mean(values), len(values)))
    table = pd.DataFrame(rows)
    table["nearest"] = [row["lesions"] == nearest(table) and row["measure"] == "mean ratio" for row in rows]
    return table


def nearest(table: pd.DataFrame) -> str | None:
    """The way of taking lesions whose overall mean is nearest to the paper's; None where there are none."""
    means = table[(table["measure"] == "mean ratio") & (table["lesions"] != _AS_THEY_ARE)]
    means = means.dropna(subset="difference").sort_values("difference", key=abs, kind="stable")
    return None if means.empty else str(means["lesions"].iloc[0])


def _ratios(records: Sequence[Record], told: str, taken: Mapping[str, float]) -> list[dict[str, object]]:
    """Mean and median over the localisable questions, those in `taken` by their ratio there."""
    values = [taken.get(record.item_id, record.measures["evidence_ratio"]) for record in records]
    ratios = [value for value in values if value is not None]
    return [
        _row("mean ratio", told, _mean(ratios), len(ratios)),
        _row("median ratio", told, float(np.median(ratios)) if ratios else math.nan, len(ratios)),
    ]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _row(measure: str, lesions: str, ours: float, n: int) -> dict[str, object]:
    paper = PAPER.get(measure, math.nan)
    told = {"measure": measure, "lesions": lesions, "ours": ours, "n": n, "paper": paper}
    most = _LARGEST_LESION_MEAN if measure.endswith("lesion questions") else math.nan
    return told | {"difference": ours - paper, "paper_allows_at_most": most}
