"""What happened to every row, procedure and candidate: the audit file and the funnel.

Nothing is dropped but through `Audit.drop`, with a typed reason; the funnel is counted from the same
entries, so that the two cannot disagree.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from diagnostics.data.build.annotations import Place
from diagnostics.errors import DiagnosticsError

__all__ = ["STAGES", "Audit", "Entry", "funnel_table"]

STAGES: Mapping[str, str] = {
    "rows": "annotation rows",
    "procedures": "source normalisation: procedures",
    "evidence": "evidence retrieval",
    "candidates": "candidate generation",
    "filter": "automatic filter: window, labels, answer",
    "quota": "quotas",
    "distractors": "wrong options",
    "checks": "automatic filter: options, duplicates, text",
    "rewriting": "rewriting",
    "review": "review",
    "letters": "shuffled options",
}
"""Stages in order, and what the funnel calls them."""


@dataclass(frozen=True)
class Entry:
    """One line of the audit file.

    Attributes:
        stage: one of `STAGES`.
        reason: the type's name.
        dropped: False where it is a remark, and what it is about goes on.
        file, row, within: where the row is written; `row` is a line of a CSV, a place from 1 in a JSON list.
        candidate: the question as far as it was made.
    """

    stage: str
    reason: str
    message: str
    remedy: str
    dropped: bool = True
    procedure: str | None = None
    task: str | None = None
    file: str | None = None
    row: int | None = None
    within: str | None = None
    track: str | None = None
    candidate: Mapping[str, Any] | None = None


@dataclass
class Audit:
    """Collects entries and counts.

    Attributes:
        entries: in the order of events.
        entered: how many entered each stage, by stage and task (`""` where there is no task yet).
    """

    entries: list[Entry] = field(default_factory=list)
    entered: Counter[tuple[str, str]] = field(default_factory=Counter)

    def count(self, stage: str, entered: int, task: str = "") -> None:
        """Note that so many entered a stage."""
        self.entered[stage, task] += entered

    def count_tasks(self, stage: str, tasks: Iterable[str]) -> None:
        """Note that candidates of these tasks entered a stage."""
        for task in tasks:
            self.entered[stage, task] += 1

    def drop(
        self,
        stage: str,
        error: DiagnosticsError,
        *,
        dropped: bool = True,
        procedure: str | None = None,
        task: str | None = None,
        place: Place | None = None,
        track: str | None = None,
        candidate: Mapping[str, Any] | None = None,
    ) -> None:
        """Note that something was dropped, or with `dropped=False` that it is remarkable, and why."""
        self.entries.append(
            Entry(
                stage=stage,
                reason=type(error).__name__,
                message=error.problem,
                remedy=error.remedy,
                dropped=dropped,
                procedure=procedure,
                task=task,
                file=None if place is None else place.file,
                row=None if place is None else place.row,
                within=None if place is None else place.within or None,
                track=track,
                candidate=candidate,
            )
        )

    def funnel(self) -> pd.DataFrame:
        """One row a stage, task and reason: entered, dropped for that reason; reason `""` has the totals.

        Columns: stage, task, reason, entered, dropped, kept; the last is empty in the rows of reasons.
        """
        reasons = Counter((e.stage, e.task or "", e.reason) for e in self.entries if e.dropped)
        rows: list[tuple[str, str, str, int, int, int | None]] = []
        for stage in STAGES:
            for task in dict.fromkeys(task for name, task in self.entered if name == stage):
                entered = self.entered[stage, task]
                own = {r: n for (s, t, r), n in reasons.items() if (s, t) == (stage, task)}
                lost = sum(own.values())
                rows.append((stage, task, "", entered, lost, entered - lost))
                rows += [(stage, task, reason, entered, n, None) for reason, n in sorted(own.items())]
        table = pd.DataFrame(rows, columns=["stage", "task", "reason", "entered", "dropped", "kept"])
        return table.astype({"kept": "Int64"})

    def write(self, path: Path) -> None:
        """The entries as JSON Lines, without empty fields."""
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for entry in self.entries:
                told = {key: value for key, value in vars(entry).items() if value is not None}
                file.write(json.dumps(told, ensure_ascii=False, default=str) + "\n")


def funnel_table(audit: Audit) -> Table:
    """The funnel for the screen: a line a stage, its reasons below it."""
    table = Table(title="From annotations to questions", title_justify="left")
    table.add_column("stage")
    for heading in ("in", "dropped", "kept"):
        table.add_column(heading, justify="right")
    funnel = audit.funnel()
    totals = funnel[funnel["reason"] == ""]
    for stage, title in STAGES.items():
        rows = totals[totals["stage"] == stage]
        if rows.empty:
            continue
        numbers = (int(rows[column].sum()) for column in ("entered", "dropped", "kept"))
        table.add_row(Text(title), *(str(number) for number in numbers))
        own = funnel[(funnel["stage"] == stage) & (funnel["reason"] != "")]
        for reason, n in own.groupby("reason")["dropped"].sum().items():
            table.add_row(Text(f"  {reason}", style="dim"), "", Text(str(n), style="dim"), "")
    return table
