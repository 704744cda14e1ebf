"""The tables of a comparison, as its page shows them: runs side by side, and what was set differently."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from diagnostics.report.closing import number
from diagnostics.report.page.answers import in_words
from diagnostics.report.page.tables import ShownTable, read_table, shown_table

__all__ = ["SHOWN", "Compared", "compared_of"]

SHOWN = "measures_shown"
"""Among a comparison's checks: the measures that it printed."""

_MOST = 24


@dataclass(frozen=True)
class Compared:
    """What a comparison found.

    Attributes:
        first: the measures it printed, a row each: every run's mean, and differences from the first run.
        rest: the others.
        settings: what was set differently; no rows where nothing was.
        kinds: of differences, as the table names them: paired by item, or of means.
    """

    first: ShownTable
    rest: ShownTable
    settings: ShownTable
    kinds: Sequence[str]


def compared_of(run_dir: Path, shown: Sequence[str] | None) -> Compared:
    """A comparison's tables, from its folder.

    Args:
        shown: the measures it printed, in their order; the first ones where it noted none.

    Raises:
        DamagedRunError: a table cannot be read.
    """
    # Names of runs are texts, also one that is called None.
    undefined = {name: [""] for name in ("value", "ci_low", "ci_high", "n")}
    table = read_table(
        run_dir / "tables" / "comparison.csv",
        dtype={"run": str, "against": str},
        keep_default_na=False,
        na_values=undefined,
    )
    if "condition" in table:
        table = table[table["condition"] == ""]
    measures = list(dict.fromkeys(table["measure"]))
    first = [name for name in (shown or measures[:_MOST]) if name in measures]
    rest = [name for name in measures if name not in first]
    settings = read_table(run_dir / "tables" / "differences.csv", dtype=str, keep_default_na=False)
    return Compared(
        _side_by_side(table, first),
        _side_by_side(table, rest),
        shown_table(run_dir / "tables" / "differences.csv", settings, rename=False),
        sorted({str(kind) for kind in table["kind"][table["against"] != ""]}),
    )


def _side_by_side(table: pd.DataFrame, measures: Sequence[str]) -> ShownTable:
    runs = list(dict.fromkeys(table["run"]))
    means: dict[tuple[str, str], Mapping[Hashable, Any]] = {}
    differences: dict[tuple[str, str], Mapping[Hashable, Any]] = {}
    for row in table.to_dict("records"):
        where = differences if row["against"] else means
        where[row["measure"], row["run"]] = row
    rows = [
        [
            in_words(measure),
            *(_cell(means.get((measure, run))) for run in runs),
            *(_cell(differences.get((measure, run)), sign="+") for run in runs[1:]),
        ]
        for measure in measures
    ]
    columns = ["measure", *runs, *(f"{run} \N{MINUS SIGN} {runs[0]}" for run in runs[1:])]
    numeric = [False, *[True] * (len(columns) - 1)]
    return ShownTable("tables/comparison.csv", "measures", columns, numeric, rows, len(table))


def _cell(row: Mapping[Hashable, Any] | None, sign: str = "") -> str:
    """A mean with its interval; a dash where a run has no such measure."""
    if row is None:
        return "–"
    if pd.isna(row["value"]):
        return f"undefined (n = {row['n']:.0f})"
    told = f"{sign if row['value'] > 0 else ''}{number(row['value'])}"
    if pd.isna(row["ci_low"]) or pd.isna(row["ci_high"]):
        return told
    return f"{told} [{number(row['ci_low'])}, {number(row['ci_high'])}]"
