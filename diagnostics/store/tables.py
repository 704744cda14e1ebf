"""One tidy table as CSV for programs, Markdown for people, LaTeX for papers.

Cells may hold text from models and data sets. In Markdown and LaTeX it is escaped, so that it shows
as it is and cannot become markup; CSV holds it unchanged, quoted by pandas.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd

from diagnostics.store.atomic import write_text

__all__ = ["to_latex", "to_markdown", "write_table"]

_UNDEFINED = "–"
_DIGITS = 4
_MARKUP = re.compile(r"[\\`*\[\]<>|&~$#!]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_SPACES = re.compile(r"\s+")


def write_table(run_dir: Path, name: str, table: pd.DataFrame, *, shard: int = 0) -> list[Path]:
    """Write `tables/<name>.csv`, `.md` and `.tex`; the index is left out.

    CSV has all digits, the other two four significant ones. Undefined is an empty cell in CSV and a
    dash in the others.

    Returns:
        The three paths.

    Raises:
        ValueError: `name` is not made of letters, digits, `_` and `-`.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ValueError(f"a table's name is made of letters, digits, _ and -, not {name!r}")
    folder = run_dir / "tables"
    folder.mkdir(exist_ok=True)
    texts = {
        "csv": table.to_csv(index=False, lineterminator="\n"),
        "md": to_markdown(table),
        "tex": to_latex(table),
    }
    for extension, text in texts.items():
        write_text(folder / f"{name}.{extension}", text, shard=shard)
    return [folder / f"{name}.{extension}" for extension in texts]


def to_markdown(table: pd.DataFrame) -> str:
    """The table in GitHub's pipe syntax, numbers to the right; what could be markup is escaped."""
    numeric = [
        pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind) for kind in table.dtypes
    ]
    lines = [
        [_escape_markdown(str(column)) for column in table.columns],
        ["---:" if right else "---" for right in numeric],
        *([_escape_markdown(_cell(value)) for value in row] for row in table.itertuples(index=False)),
    ]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def to_latex(table: pd.DataFrame) -> str:
    """The table as a booktabs `tabular`; what could be a command is escaped."""
    shown = table.map(_cell).rename(columns=str)
    return shown.to_latex(index=False, escape=True)


def _cell(value: object) -> str:
    if value is None or value is pd.NA or (isinstance(value, float | np.floating) and np.isnan(value)):
        return _UNDEFINED
    if isinstance(value, float | np.floating):
        return f"{value:.{_DIGITS}g}"
    return _SPACES.sub(" ", str(value)).strip()


def _escape_markdown(text: str) -> str:
    return _MARKUP.sub(lambda match: "\\" + match[0], text)
