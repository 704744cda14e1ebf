"""The run's tables as the page shows them: short ones whole, long ones by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from diagnostics.errors import DamagedRunError
from diagnostics.report.closing import number
from diagnostics.report.page.answers import in_words

__all__ = ["LONGEST", "ShownTable", "read_table", "shown_table", "tables_of"]

LONGEST = 120
"""Rows of a table up to which the page shows it."""

_ELSEWHERE = frozenset({"left_out"})
"""Tables that the page tells in its own way."""


@dataclass(frozen=True)
class ShownTable:
    """One table: its file, its columns and its cells as texts; no cells where it is too long.

    Attributes:
        numeric: of each column, whether all it holds are numbers.
        n_rows: of the file.
    """

    file: str
    words: str
    columns: Sequence[str]
    numeric: Sequence[bool]
    rows: Sequence[Sequence[str]]
    n_rows: int


def tables_of(run_dir: Path) -> list[ShownTable]:
    """The tables of `tables/*.csv`, by name.

    Raises:
        DamagedRunError: one cannot be read.
    """
    return [
        shown_table(path, read_table(path))
        for path in sorted((run_dir / "tables").glob("*.csv"))
        if path.stem not in _ELSEWHERE
    ]


def read_table(path: Path, **how: Any) -> pd.DataFrame:
    """A table of the run; empty for an empty file.

    Raises:
        DamagedRunError: it is missing, or no table.
    """
    try:
        return pd.read_csv(path, **how)
    except pd.errors.EmptyDataError:
        return pd.DataFrame()
    except FileNotFoundError as error:  # a comparison was killed before it wrote its own
        raise DamagedRunError(
            "This table is missing.", remedy="Run the same command again: it is written anew.", path=path
        ) from error
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise DamagedRunError(
            f"This is no table: {error}.", remedy="Run the same command again: it is written anew.", path=path
        ) from error


def shown_table(path: Path, table: pd.DataFrame, *, rename: bool = True) -> ShownTable:
    """A table as the page shows it.

    Args:
        path: its file.
        rename: columns are named by measures, which are told as words.
    """
    columns = [str(column) for column in table.columns]
    numeric = [bool(pd.api.types.is_numeric_dtype(table[column])) for column in table.columns]
    rows = (
        []
        if len(table) > LONGEST
        else [[_cell(value) for value in row] for row in table.itertuples(index=False)]
    )
    return ShownTable(
        f"tables/{path.name}",
        in_words(path.stem),
        [in_words(name) for name in columns] if rename else columns,
        numeric,
        rows,
        len(table),
    )


def _cell(value: Any) -> str:
    """A cell as it is read; undefined ones are empty."""
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        return str(int(value)) if value.is_integer() and abs(value) < 1e9 else number(value)
    return str(value)
