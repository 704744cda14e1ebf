"""The list of measurements that the page's browser filters and sorts: a column a field."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from diagnostics.data.items import Item
from diagnostics.report.page.answers import in_words
from diagnostics.store import Record

__all__ = ["LIFT", "MOST_NUMBERS", "listing_of", "outcome_of"]

LIFT = ("evidence_log_lift", "evidence_lift")
"""Measures that the filter of evidence lift reads, the first that a run has."""

MOST_NUMBERS = 400_000
"""Numbers of the list up to which measures of other definitions than the headline's are in it."""

_VARIANT = "@"
_TRUTH = "probability_of_the_truth"


def listing_of(records: Sequence[Record], items: Mapping[str, Item]) -> dict[str, Any]:
    """One entry a measurement, in the order of the records.

    Returns:
        `item`, `condition`, `task`, `outcome`, `answer`, `target`, `question` (a text or null each), and
        `measures`: by name a number, or null, for each; those of another definition than the headline's
        (`name@...`), which are named by `variants` too, are left out where the list would have more than
        `MOST_NUMBERS` numbers. `lift` names the measure of evidence lift, `lift_even` the value
        at which the evidence gets no more than its share, or both are null.
    """
    every = dict.fromkeys(name for record in records for name in record.measures)
    names = [name for name in every if _VARIANT not in name]
    variants = [name for name in every if _VARIANT in name]
    if len(records) * len(every) > MOST_NUMBERS:
        variants = []
    lift = next((name for name in LIFT if name in names), None)
    columns = {
        name: [_rounded(record.measures.get(name)) for record in records] for name in [*names, *variants]
    }
    if any(record.n_visual_tokens for record in records):
        columns["visual_tokens"] = [_rounded(record.n_visual_tokens) for record in records]
    if any(record.option_logprobs for record in records):
        columns[_TRUTH] = [_rounded(_of_truth(record)) for record in records]
    return {
        "item": [record.item_id for record in records],
        "condition": [_condition(record) for record in records],
        "task": [record.task for record in records],
        "outcome": [outcome_of(record) for record in records],
        "answer": [record.answer for record in records],
        "target": [record.target for record in records],
        "question": [_start(items.get(record.item_id)) for record in records],
        "measures": columns,
        "variants": variants,
        "words": {name: in_words(name) for name in columns},
        "lift": lift,
        "lift_even": None if lift is None else 0.0 if "log" in lift else 1.0,
    }


def outcome_of(record: Record) -> str:
    """`right`, `wrong`, `none` (wrong, for want of a letter), `unscored` or `failed`."""
    if record.error is not None:
        return "failed"
    if record.correct is None:
        return "unscored"
    if record.correct:
        return "right"
    return "none" if record.answer is None else "wrong"


def _of_truth(record: Record) -> float | None:
    """Probability of the right option's letter as the reply's first token."""
    logprob = None if record.target is None else record.option_logprobs.get(record.target)
    return None if logprob is None else math.exp(logprob)


def _condition(record: Record) -> str:
    return ", ".join(f"{key} {value}" for key, value in record.condition.items())


def _start(item: Item | None) -> str | None:
    """The beginning of the question, for the list and its search."""
    if item is None:
        return None
    text = " ".join(item.question.split())
    return text if len(text) <= 160 else f"{text[:159]}…"


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
