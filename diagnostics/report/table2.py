"""Several runs on one benchmark as a paper prints them: a row a run, a column a task, overall last.

The layout of MedHorizon's Table 2 (arXiv 2605.06537): accuracy in percent with one decimal, the number of
items at the head of each task, the best run of each column in bold. The overall column is the mean over
items, so that it can be rebuilt from the tasks and their counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from diagnostics.store.atomic import write_text
from diagnostics.store.tables import to_latex, to_markdown

__all__ = ["Table2", "overall", "table2"]

OVERALL = "all"
_OPEN, _CLOSE = "\ue000", "\ue001"
"""Marks of what is bold: private characters, which no escaping touches."""
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Table2:
    """The table, in numbers and in print.

    Attributes:
        numbers: one row a run, columns run, then each task and "all", as shares from 0 to 1; tasks in order.
        counts: items of each column.
        cells: the same as printed, best ones marked.
    """

    numbers: pd.DataFrame
    counts: Mapping[str, int]
    cells: pd.DataFrame

    def csv(self) -> str:
        """All digits, no marks, with a first row of counts."""
        counts = pd.DataFrame([{"run": "items", **self.counts}])
        return pd.concat([counts, self.numbers]).to_csv(index=False, lineterminator="\n")

    def markdown(self) -> str:
        """GitHub's pipe syntax; the best in bold."""
        return to_markdown(self.cells).replace(_OPEN, "**").replace(_CLOSE, "**")

    def latex(self) -> str:
        """A booktabs `tabular`; the best in bold."""
        return to_latex(self.cells).replace(_OPEN, r"\textbf{").replace(_CLOSE, "}")

    def write(self, folder: Path, name: str = "table2") -> list[Path]:
        """Write `<name>.csv`, `.md` and `.tex` into a folder, and give their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        texts = {"csv": self.csv(), "md": self.markdown(), "tex": self.latex()}
        for extension, text in texts.items():
            write_text(folder / f"{name}.{extension}", text)
        return [folder / f"{name}.{extension}" for extension in texts]


def table2(
    runs: Mapping[str, pd.DataFrame],
    *,
    order: Sequence[str] = (),
    baselines: Mapping[str, Mapping[str, float]] | None = None,
    intervals: bool = False,
) -> Table2:
    """The table of several runs on the same items.

    Args:
        runs: by the name to print, each run's `diagnostics.experiments.benchmark.task_table`: columns task,
            accuracy, accuracy_low, accuracy_high, items, with a row "all".
        order: of the tasks, as in the paper; tasks it does not name come after, by name.
        baselines: rows by name, accuracy by task and "all" (chance, a constant letter); never the best.
        intervals: print the 95% interval behind each number.

    Raises:
        ValueError: no run, runs whose tasks have other counts, or a run whose "all" is not the mean over its
            items.
    """
    if not runs or set(runs) & set(baselines or {}):
        raise ValueError("there is no run to print, or a baseline has the name of a run")
    tables = {name: table[table["items"] > 0].set_index("task") for name, table in runs.items()}
    first_name, first = next(iter(tables.items()))
    for name, table in tables.items():
        if table["items"].to_dict() != first["items"].to_dict():
            raise ValueError(f"{name} and {first_name} were scored on other items: {_unlike(table, first)}")
        accuracies, scored = _column(table, "accuracy"), _column(table, "items")
        stated = accuracies.pop(OVERALL)
        rebuilt = overall(accuracies, {task: int(scored[task]) for task in accuracies})
        if abs(rebuilt - stated) > _ROUNDING:
            raise ValueError(f"the overall accuracy of {name} is not the mean over the items of its tasks")
    tasks = set(first.index) - {OVERALL}
    columns = [*(task for task in order if task in tasks), *sorted(tasks - set(order)), OVERALL]
    given: dict[str, Mapping[str, float]] = {**(baselines or {})}
    given |= {name: _column(table, "accuracy") for name, table in tables.items()}
    rows = [
        {"run": name} | {column: float(values.get(column, np.nan)) for column in columns}
        for name, values in given.items()
    ]
    numbers = pd.DataFrame(rows, columns=["run", *columns])
    items = {column: int(n) for column, n in _column(first, "items").items()}
    counts = {column: items[column] for column in columns}
    return Table2(numbers, counts, _cells(numbers, counts, tables, intervals=intervals))


def overall(accuracies: Mapping[str, float], counts: Mapping[str, int]) -> float:
    """Mean over items of per-task accuracies.

    Raises:
        ValueError: other tasks than counts, or no item.
    """
    if set(accuracies) != set(counts) or not sum(counts.values()):
        raise ValueError(f"accuracies of {sorted(accuracies)} for counts of {sorted(counts)}")
    tasks = list(counts)
    return float(np.average([accuracies[task] for task in tasks], weights=[counts[task] for task in tasks]))


def _column(table: pd.DataFrame, name: str) -> dict[str, float]:
    """A column of a run's table by task."""
    return {str(task): float(value) for task, value in zip(table.index, table[name].to_numpy(), strict=True)}


def _unlike(one: pd.DataFrame, other: pd.DataFrame) -> str:
    mine, theirs = one["items"].to_dict(), other["items"].to_dict()
    unlike = [task for task in dict.fromkeys([*mine, *theirs]) if mine.get(task, 0) != theirs.get(task, 0)]
    return ", ".join(f"{task} {mine.get(task, 0)} and {theirs.get(task, 0)}" for task in unlike)


def _cells(
    numbers: pd.DataFrame, counts: Mapping[str, int], tables: Mapping[str, pd.DataFrame], *, intervals: bool
) -> pd.DataFrame:
    """What is printed. Runs that round to the same number are best together."""
    is_run = numbers["run"].isin(list(tables))
    shown = pd.DataFrame({"run": numbers["run"]})
    for column, n in counts.items():
        percent = (100 * numbers[column]).round(1)
        best = percent[is_run].max()
        cells = []
        for name, value, run in zip(numbers["run"], percent, is_run, strict=True):
            text = "–" if np.isnan(value) else f"{value:.1f}"
            if run and value == best:
                text = f"{_OPEN}{text}{_CLOSE}"
            if run and intervals:
                low, high = (
                    100 * _column(tables[name], f"accuracy_{end}")[column] for end in ("low", "high")
                )
                text += f" [{low:.1f}, {high:.1f}]" if np.isfinite([low, high]).all() else ""
            cells.append(text)
        shown[f"{'Overall' if column == OVERALL else column} ({n})"] = cells
    return shown
