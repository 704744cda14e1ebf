"""The rows as tables: for the screen, short and coloured; for the files, with everything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby

import pandas as pd
from rich.table import Table
from rich.text import Text

from diagnostics.report.closing import number
from diagnostics.store.canonical import plain
from diagnostics.validation.rows import Row

__all__ = ["screen_table", "tidy_table"]


def screen_table(rows: Sequence[Row]) -> Table:
    """Measurement, planted value, measured value with its interval, tolerance, verdict; check by check."""
    failed = sum(not row.passed for row in rows)
    verdict = f"{failed} out of tolerance" if failed else "all within tolerance"
    table = Table(title=Text(f"validation: {len(rows)} rows, {verdict}"), title_justify="left")
    table.add_column("measurement", overflow="fold")
    table.add_column("planted", overflow="fold")
    table.add_column("measured", justify="right")
    table.add_column("n", justify="right")
    table.add_column("tolerance", overflow="fold")
    table.add_column("verdict")
    for group, members in groupby(rows, key=lambda row: row.group):
        table.add_section()
        table.add_row(Text(group, style="bold"))
        for row in members:
            mark = Text("ok", style="green") if row.passed else Text("FAILED", style="bold red")
            cells = (row.name, row.planted, _measured(row), str(row.n), row.tolerance)
            table.add_row(*(Text(cell) for cell in cells), mark)
    return table


def _measured(row: Row) -> str:
    if row.ci_low is None or row.ci_high is None:
        return number(row.measured)
    return f"{number(row.measured)}\n[{number(row.ci_low)}, {number(row.ci_high)}]"


def tidy_table(rows: Sequence[Row]) -> pd.DataFrame:
    """One line a row, every field; `details` as JSON."""
    return pd.DataFrame(
        [
            {
                "check": row.group,
                "measurement": row.name,
                "planted": row.planted,
                "target": row.target,
                "measured": row.measured,
                "ci_low": row.ci_low,
                "ci_high": row.ci_high,
                "n": row.n,
                "tolerance": row.tolerance,
                "low": row.low,
                "high": row.high,
                "verdict": "ok" if row.passed else "failed",
                "why": row.why,
                "details": json.dumps(plain(row.details)),
            }
            for row in rows
        ]
    )
