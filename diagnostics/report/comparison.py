"""Several runs beside each other on the screen, and the door to what single experiments draw of them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from rich.table import Table
from rich.text import Text

from diagnostics.report.closing import number
from diagnostics.report.curves import BandKind, Pooling, has_interval
from diagnostics.report.style import plain_text
from diagnostics.store import Metric, Row

__all__ = ["Drawing", "Drawn", "comparison_table", "drawer"]

_MOST_COLUMNS = 3
"""With more runs, a screen has no room for intervals and differences: the table's files have them."""


@dataclass(frozen=True)
class Drawing:
    """How to draw.

    Attributes:
        pooling: rank units in each head and average the curves, or rank them by the pooled attention.
        band: shade the 95% interval of the mean, or the middle 95% of the items.
        condition: the condition to draw, where runs have several.
    """

    pooling: Pooling = "per_head"
    band: BandKind = "mean"
    condition: str | None = None


@dataclass(frozen=True)
class Drawn:
    """What was drawn: sentences made from the numbers, and where the figures lie."""

    sentences: Sequence[str]
    paths: Mapping[str, Path]


def drawer(experiment: str) -> ModuleType | None:
    """The module that draws runs of an experiment together; None where there is none."""
    name = f"diagnostics.report.compare_{experiment}"
    if "." in experiment or importlib.util.find_spec(name) is None:
        return None
    return importlib.import_module(name)


def comparison_table(names: Sequence[str], rows: Sequence[Row], measures: Sequence[str]) -> Table:
    """Means of the measures by run; up to three runs with intervals and differences from the first."""
    wide = len(names) <= _MOST_COLUMNS
    table = Table(title=Text("mean [95% interval], videos resampled"), title_justify="left")
    table.add_column("measure", overflow="fold")
    for name in names:
        table.add_column(Text(plain_text(name)), justify="right")
    if wide:
        for name in names[1:]:
            table.add_column(
                Text(f"{plain_text(name)} \N{MINUS SIGN} {plain_text(names[0])}"), justify="right"
            )
    means = {(row.measure, row.condition["run"]): row for row in rows if not row.condition["against"]}
    differences = {
        (row.measure, row.condition["run"]): row
        for row in rows
        if row.condition["against"] and "condition" not in row.condition
    }
    for measure in measures:
        cells = [_cell(means.get((measure, name)), interval=wide) for name in names]
        if wide:
            cells += [_cell(differences.get((measure, name)), sign="+") for name in names[1:]]
        table.add_row(Text(measure), *cells)
    return table


def _cell(row: Row | None, *, interval: bool = True, sign: str = "") -> Text:
    if row is None:
        return Text("–", style="dim")
    if row.value is None or row.value != row.value:
        return Text(f"undefined (n={row.n})", style="dim")
    text = f"{sign if row.value > 0 else ''}{number(row.value)}"
    metric = Metric(row.value, row.ci_low, row.ci_high, row.n)
    if interval and row.ci_low is not None and row.ci_high is not None and has_interval(metric):
        text += f"\n[{number(row.ci_low)}, {number(row.ci_high)}]"
    return Text(text)
