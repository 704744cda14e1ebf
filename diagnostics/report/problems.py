"""Tables of what is wrong with a data set: for files, and for the screen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from rich.table import Table
from rich.text import Text

from diagnostics.data.items import Item
from diagnostics.data.verify import Problem
from diagnostics.report.style import plain_text

__all__ = ["Found", "counted", "counts_table", "evidence_table", "problems_table", "screen_table"]

_NAMED = 5
"""Files that the screen names of each problem; the tables name all."""


@dataclass(frozen=True, slots=True)
class Found:
    """A problem and the file it is in: a video's path below the root, or the data file and place."""

    file: str
    problem: Problem


def counted(count: int, noun: str) -> str:
    """`1 problem`, `2 problems`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def problems_table(found: Sequence[Found]) -> pd.DataFrame:
    """One row a problem: `problem, file, item, message`."""
    rows = [(entry.problem.kind, entry.file, entry.problem.item, entry.problem.message) for entry in found]
    return pd.DataFrame(rows, columns=["problem", "file", "item", "message"])


def counts_table(found: Sequence[Found]) -> pd.DataFrame:
    """One row a kind of problem, most frequent first: `problem, count, files, example`."""
    rows = [
        (kind, len(entries), len({entry.file for entry in entries}), entries[0].problem.message)
        for kind, entries in _by_kind(found)
    ]
    return pd.DataFrame(rows, columns=["problem", "count", "files", "example"])


def evidence_table(items: Sequence[Item]) -> pd.DataFrame | None:
    """How many items of each task have which kind of evidence: `task`, then a column a kind.

    None where nothing says what evidence the items have.
    """
    if not any(item.evidence_kind for item in items):
        return None
    tasks = pd.Series([item.task or "(none)" for item in items], name="task", dtype=object)
    kinds = pd.Series([item.evidence_kind or "(none)" for item in items], name="kind", dtype=object)
    return pd.crosstab(tasks, kinds).rename_axis(columns=None).reset_index()


def screen_table(found: Sequence[Found]) -> Table:
    """The counts by problem and the first files of each. Text of the data set is never read as markup."""
    table = Table(title=Text(counted(len(found), "problem")), title_justify="left", show_lines=True)
    table.add_column("problem", overflow="fold")
    table.add_column("count", justify="right")
    table.add_column("files", overflow="fold")
    table.add_column("for example", overflow="fold")
    for kind, entries in _by_kind(found):
        files = list(dict.fromkeys(entry.file for entry in entries))
        more = [f"and {len(files) - _NAMED} more"] if len(files) > _NAMED else []
        named = "\n".join([*map(plain_text, files[:_NAMED]), *more])
        table.add_row(
            Text(kind), str(len(entries)), Text(named), Text(plain_text(entries[0].problem.message))
        )
    return table


def _by_kind(found: Sequence[Found]) -> list[tuple[str, list[Found]]]:
    groups: dict[str, list[Found]] = defaultdict(list)
    for entry in found:
        groups[entry.problem.kind].append(entry)
    return sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
