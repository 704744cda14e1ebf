"""Validation: every measurement of this project against a truth that was planted for it.

Each check (`diagnostics.validation.checks`) plants something, an attention map, a video, a lesion painted
out, a model changed by surgery, and measures it with the code that the experiments use. The result is a
table: measurement, planted value, measured value, tolerance, verdict. A row out of tolerance makes the
command fail, after everything is written.

A check is one record of the run, and its rows are one file, written before it: a run that was stopped goes
on with the checks that are left. Unlike elsewhere, a finished check is done again where the code of the
three packages or the model's weights are not what they were: a verdict about other code is none.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import field_validator
from pydantic.dataclasses import dataclass

import hooks
import probes
from diagnostics.errors import DiagnosticsError, RunError
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome
from diagnostics.report.style import save_figure
from diagnostics.store.atomic import write_text
from diagnostics.store.canonical import plain
from diagnostics.store.records import Failure, Record
from diagnostics.store.summary import Metric, Summary
from diagnostics.store.summary import Row as SummaryRow
from diagnostics.strict import STRICT, near_match
from diagnostics.validation.bench import Bench
from diagnostics.validation.checks import check_names, load_check
from diagnostics.validation.figure import validation_figure
from diagnostics.validation.rows import Row
from diagnostics.validation.table import screen_table, tidy_table

__all__ = ["USES", "Config", "run"]

USES = ("exp", "model", "data", "backend", "reading", "threads")
"""Groups of the configuration that this reads: each check samples as it has to."""

_NAMED = 8
"""Failed rows that the closing message names."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        checks: names of the checks to run, in that order; None for all.
    """

    checks: tuple[str, ...] | None = None

    @field_validator("checks")
    @classmethod
    def _known(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in value or ():
            if name not in check_names():
                raise ValueError(f"there is no check {name!r}. {near_match(name, check_names())}")
        return None if value is None else tuple(dict.fromkeys(value))

    @property
    def names(self) -> tuple[str, ...]:
        """The checks to run."""
        return self.checks if self.checks is not None else check_names()


def run(context: Context, config: Config) -> Outcome:
    """Run the checks that are left, then write summary, table and figure."""
    _run_checks(context, config.names)
    records = {record.item_id: record for record in context.folder.records()}
    done = [records[name] for name in config.names if name in records]
    broken = [record for record in done if record.error is not None]
    rows = [row for record in done if record.error is None for row in _read(context, record.item_id)]
    metrics = {
        "rows": Metric(float(len(rows)), None, None, len(done)),
        "rows_failed": Metric(float(sum(not row.passed for row in rows)), None, None, len(rows)),
        "checks_broken": Metric(float(len(broken)), None, None, len(done)),
    }
    summary = Summary.of(context.config.experiment, done, metrics, [_summary_row(row) for row in rows])
    folder = context.folder
    paths = {"summary": folder.write_summary(summary)}
    if rows:
        paths["table"] = folder.write_table("validation", tidy_table(rows))[0]
        paths["figure"] = save_figure(validation_figure(rows), folder.path / "figures" / "validation")[0]
        context.console.print(screen_table(rows))
    return Outcome(summary, paths, tuple(metrics), _failure(rows, broken))


def _failure(rows: Sequence[Row], broken: Sequence[Record]) -> str | None:
    """What makes the command fail, naming the rows; None where nothing does."""
    failed = [f"{row.group}: {row.name}" for row in rows if not row.passed]
    told = []
    if failed:
        more = f"; and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
        told.append(
            f"{len(failed)} of {len(rows)} rows are out of tolerance: {'; '.join(failed[:_NAMED])}{more}."
        )
    if broken:
        names = ", ".join(record.item_id for record in broken)
        told.append(f"{len(broken)} checks could not be run: {names}.")
    return " ".join(told) or None


# -- checks, one record each


def _run_checks(context: Context, names: Sequence[str]) -> None:
    folder = context.folder
    folder.expect(len(names))
    stamp = _stamp(context)
    known = {record.item_id: record for record in folder.records()}
    for name in names:
        pair = (name, "-")
        if pair in folder.finished and (
            known[name].item_sha256 != stamp or not _file(context, name).exists()
        ):
            folder.reopen(pair, "the code or the weights are others than they were")
            context.say(f"{name}: the code or the weights are not what they were: checked again.")
    left = [name for name in names if (name, "-") not in folder.finished]
    with context.progress("Validating", total=len(names), done=len(names) - len(left)) as advance:
        if not left:
            return
        with Bench(context, lambda text: advance(text, 0)) as bench:
            for name in left:
                advance(name, 0)
                folder.append(_check(context, bench, name, stamp))
                advance()


def _check(context: Context, bench: Bench, name: str, stamp: str) -> Record:
    """Run one check and keep its rows; what goes wrong is its record's error, and the others go on."""
    started = time.perf_counter()
    fields: dict[str, Any] = {"item_id": name, "video_id": "", "task": "validation", "item_sha256": stamp}
    try:
        rows = [replace(row, group=name) for row in load_check(name)(bench)]
        if not rows:
            raise RunError(
                f"The check {name} gave no row.", remedy="A check that measures nothing proves nothing."
            )
    except (DiagnosticsError, hooks.HooksError) as error:
        return Record(**fields, error=Failure.of(error))
    except Exception as error:
        if isinstance(error, OSError):
            raise  # a full disk is not the check's fault
        _log.exception("the check %s could not be run", name)
        summary = traceback.format_exception_only(error)[-1].strip()
        return Record(
            **fields,
            error=Failure(
                type=type(error).__name__, message=f"{summary} (its traceback is in the run's log)"
            ),
        )
    path = _file(context, name)
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(plain([row.as_json() for row in rows]), indent=1, allow_nan=False)
    write_text(path, text + "\n", shard=context.folder.shard)
    counts: dict[str, float | None] = {
        "rows": float(len(rows)),
        "rows_failed": float(sum(not row.passed for row in rows)),
    }
    return Record(**fields, measures=counts, seconds={"check": time.perf_counter() - started})


def _file(context: Context, name: str) -> Path:
    return context.folder.path / "checks" / f"{name}.json"


def _read(context: Context, name: str) -> list[Row]:
    return [Row.from_json(values) for values in json.loads(_file(context, name).read_text(encoding="utf-8"))]


def _stamp(context: Context) -> str:
    """Hash of the source of the three packages and of the model's weights: what a verdict is about."""
    digest = hashlib.sha256()
    packages = [Path(__file__).resolve().parents[1], *(Path(str(p.__file__)).parent for p in (hooks, probes))]
    for package in packages:
        for source in sorted(package.rglob("*.py")):
            digest.update(source.relative_to(package).as_posix().encode() + b"\0" + source.read_bytes())
    for weights in sorted(Path(context.model.provenance["path"]).glob("*.safetensors")):
        digest.update(weights.read_bytes())
    return digest.hexdigest()


def _summary_row(row: Row) -> SummaryRow:
    return SummaryRow(
        measure=row.name,
        value=row.measured,
        ci_low=row.ci_low,
        ci_high=row.ci_high,
        n=row.n,
        task=row.group,
        condition={
            "planted": row.planted,
            "tolerance": row.tolerance,
            "verdict": "ok" if row.passed else "failed",
        },
    )
