"""What a run says at its end: its measures, what went wrong, and where everything lies.

Text from data files (item ids, messages, measure names) is never parsed as console markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from rich.console import Group
from rich.table import Table
from rich.text import Text

from diagnostics.report.curves import UNDEFINED, has_interval, is_defined
from diagnostics.report.style import plain_text
from diagnostics.store import Occurrences, Summary

__all__ = ["closing_table", "errors_table", "number", "paths_list", "warnings_table"]


def closing_table(summary: Summary | Mapping[str, Any], measures: Sequence[str] | None = None) -> Table:
    """The measures of a run with their 95% intervals.

    An undefined measure is shown as "undefined (n=0)"; a mean without an interval (a single video)
    leaves the interval empty.

    Args:
        summary: of the run, or its `summary.json` as a mapping.
        measures: which to show, in this order; all, in the summary's order, where None. A name that
            the summary does not hold is shown as undefined.
    """
    if not isinstance(summary, Summary):
        summary = TypeAdapter(Summary).validate_python(summary)
    items = f"{summary.n_items} item{'' if summary.n_items == 1 else 's'}"
    table = Table(title=Text(f"{plain_text(summary.experiment)}: {items}"), title_justify="left")
    table.add_column("measure")
    for heading in ("mean", "95% interval", "n"):
        table.add_column(heading, justify="right")
    for name in summary.metrics if measures is None else measures:
        metric = summary.metrics.get(name, UNDEFINED)
        if metric.mean is None or not is_defined(metric):
            table.add_row(Text(name), Text(f"undefined (n={metric.n})", style="dim"), "", "")
            continue
        interval = ""
        if metric.ci_low is not None and metric.ci_high is not None and has_interval(metric):
            interval = f"{number(metric.ci_low)} to {number(metric.ci_high)}"
        table.add_row(Text(name), number(metric.mean), interval, str(metric.n))
    return table


def number(value: float) -> str:
    """Three decimals below ten, one from there on: 0.767, 41.2. Tiny values keep two digits: 3.2e-06."""
    if 0 < abs(value) < 5e-4:
        return f"{value:.1e}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def errors_table(errors: Mapping[str, Occurrences]) -> Table | None:
    """What went wrong (`Summary.errors`): how often, an example item, and its message with what to do.

    None where nothing did.
    """
    title = f"{sum(entry.n for entry in errors.values())} failed"
    return _occurrences(title, "error", "what was wrong, what to do", errors)


def warnings_table(warnings: Mapping[str, Occurrences]) -> Table | None:
    """What a reader of the results should know (`Summary.warnings`), by kind; None where there is nothing."""
    return _occurrences("Warnings", "warning", "for example", warnings)


def _occurrences(title: str, kind: str, told: str, found: Mapping[str, Occurrences]) -> Table | None:
    """A table of what occurred, most frequent first."""
    if not found:
        return None
    table = Table(title=Text(title), title_justify="left", show_lines=True)
    table.add_column(kind, overflow="fold")
    table.add_column("count", justify="right")
    table.add_column("item", overflow="fold", max_width=28)
    table.add_column(told, overflow="fold")
    for name, entry in sorted(found.items(), key=lambda pair: (-pair[1].n, pair[0])):
        item, message = Text(plain_text(entry.item_id)), Text(plain_text(entry.message))
        table.add_row(Text(plain_text(name)), str(entry.n), item, message)
    return table


def paths_list(paths: Mapping[str, Path | str]) -> Group:
    """Labelled paths, one a line. Print with `soft_wrap=True` to keep each on its line for copying;
    otherwise those wider than the console are folded, never cut."""
    width = max((len(label) for label in paths), default=0)
    return Group(*(Text(f"{label:<{width}}  {path}") for label, path in paths.items()))
