"""What every experiment comes to: its summary, its paths, and the records it is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from diagnostics.data.items import Item
from diagnostics.experiments.context import Context
from diagnostics.experiments.pairs import Pair, rejection
from diagnostics.store.records import Record
from diagnostics.store.summary import Summary

__all__ = ["NO_EVIDENCE", "Outcome", "leave_out", "record_rejected", "records_of_run", "with_local_evidence"]

NO_EVIDENCE = "no local evidence"
"""Why an experiment on evidence leaves an item out: it has no windows, or they are the whole video."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        summary: its numbers. paths: what was written where, by a label for the person. headline: the
        measures worth a line on the screen. failure: why the command has to fail although everything was
        measured and written; None where it has not.
    """

    summary: Summary
    paths: Mapping[str, Path]
    headline: Sequence[str]
    failure: str | None = None


def with_local_evidence(items: Sequence[Item], *, scored: bool) -> tuple[list[Item], dict[str, str]]:
    """The items that an experiment on evidence can ask, and the others with why it cannot (`leave_out`).

    Args:
        scored: whether they must have options and a right one.
    """
    asked: list[Item] = []
    reasons: dict[str, str] = {}
    for item in items:
        if item.local_evidence is None:
            reasons[item.id] = NO_EVIDENCE
        elif scored and (not item.options or item.answer is None):
            reasons[item.id] = "no options or no answer"
        else:
            asked.append(item)
    return asked, reasons


def leave_out(context: Context, reasons: Mapping[str, str]) -> dict[str, Path]:
    """Name the items that an experiment is not about, and why: on the screen and in a table."""
    if not reasons:
        return {}
    counts = Counter(reasons.values())
    told = ", ".join(f"{count} ({reason})" for reason, count in counts.items())
    context.say(f"Left out: {told}. See tables/left_out.csv.")
    table = pd.DataFrame({"item": list(reasons), "reason": list(reasons.values())})
    return {"left out": context.folder.write_table("left_out", table)[0]}


def record_rejected(context: Context) -> None:
    """Items that could not be used as written get records too."""
    known = {record.pair for record in context.folder.records()}
    for error in context.rejected:
        record = rejection(error)
        if record.pair not in known:
            context.folder.append(record)
            known.add(record.pair)


def records_of_run(context: Context, pairs: Sequence[Pair]) -> list[Record]:
    """Records in the order of the pairs, then those of rejected items.

    Left out is what this run is not about any more: items outside its subset, lines that were mended.
    """
    known = {record.pair: record for record in context.folder.records()}
    keys = [pair.key for pair in pairs] + [rejection(error).pair for error in context.rejected]
    return [known[key] for key in dict.fromkeys(keys) if key in known]
