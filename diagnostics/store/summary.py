"""The summary of a run: its headline numbers, its rows, and what went wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from diagnostics.errors import DamagedRunError
from diagnostics.store.atomic import write_text
from diagnostics.store.canonical import plain
from diagnostics.store.records import Record

__all__ = ["SUMMARY_SCHEMA", "Metric", "Occurrences", "Row", "Summary", "read_summary", "write_summary"]

SUMMARY_SCHEMA = 1
"""Version of the summary's layout."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number with its confidence interval; None where it is undefined."""

    mean: float | None
    ci_low: float | None
    ci_high: float | None
    n: int
    """How many pairs (or items) it was averaged over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One value of the tidy table, and what it is the value of."""

    measure: str
    value: float | None
    ci_low: float | None = None
    ci_high: float | None = None
    n: int
    task: str = "all"
    condition: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Occurrences:
    """How often a kind of error or warning occurred, with one example."""

    n: int
    item_id: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What `summary.json` holds."""

    experiment: str
    n_items: int
    """Different items that have a record."""
    n_pairs: int
    """Records: pairs (item, condition)."""
    n_failed: int
    """Pairs whose last record holds an error."""
    errors: Mapping[str, Occurrences] = field(default_factory=dict)
    """Failed pairs by the error's class name."""
    warnings: Mapping[str, Occurrences] = field(default_factory=dict)
    """Warnings of all pairs by kind, which is the text before the colon."""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    """The headline numbers by name."""
    rows: list[Row] = field(default_factory=list)
    """Every number, tidy: one value a row."""
    schema: int = SUMMARY_SCHEMA

    @classmethod
    def of(
        cls,
        experiment: str,
        records: Iterable[Record],
        metrics: Mapping[str, Metric],
        rows: Iterable[Row] = (),
    ) -> Summary:
        """The summary of a run's records (`read_records`: one a pair), with the numbers made from them."""
        records = list(records)
        failures = [(r.error.type, r.item_id, r.error.message) for r in records if r.error is not None]
        warnings = [(text.partition(":")[0], r.item_id, text) for r in records for text in r.warnings]
        return cls(
            experiment=experiment,
            n_items=len({record.item_id for record in records}),
            n_pairs=len(records),
            n_failed=len(failures),
            errors=_occurrences(failures),
            warnings=_occurrences(warnings),
            metrics=dict(metrics),
            rows=list(rows),
        )

    @property
    def all_failed(self) -> bool:
        """No pair was finished: the run as a whole failed."""
        return self.n_failed == self.n_pairs

    def table(self) -> pd.DataFrame:
        """The rows as a table: a column for each key of their conditions, then task, measure and numbers."""
        numbers = [{k: v for k, v in asdict(row).items() if k != "condition"} for row in self.rows]
        told = [dict(row.condition) | entry for row, entry in zip(self.rows, numbers, strict=True)]
        keys = sorted({key for row in self.rows for key in row.condition})
        columns = [*keys, "task", "measure", "value", "ci_low", "ci_high", "n"]
        return pd.DataFrame(told, columns=columns)


def _occurrences(found: list[tuple[str, str, str]]) -> dict[str, Occurrences]:
    groups: dict[str, list[tuple[str, str]]] = {}
    for kind, item_id, message in found:
        groups.setdefault(kind, []).append((item_id, message))
    return {kind: Occurrences(len(group), *group[0]) for kind, group in sorted(groups.items())}


def write_summary(run_dir: Path, summary: Summary, *, shard: int = 0) -> Path:
    """Write `summary.json`: strict JSON, undefined is null."""
    path = run_dir / "summary.json"
    write_text(path, json.dumps(plain(summary), indent=2, allow_nan=False) + "\n", shard=shard)
    return path


def read_summary(run_dir: Path) -> Summary:
    """The summary that `write_summary` wrote.

    Raises:
        FileNotFoundError: the run has none yet.
        DamagedRunError: it is no summary.
    """
    path = run_dir / "summary.json"
    try:
        return TypeAdapter(Summary).validate_json(path.read_bytes())
    except ValueError as error:
        raise DamagedRunError(
            f"This is no summary of a run: {error}.", remedy="Run the same command again.", path=path
        ) from error
