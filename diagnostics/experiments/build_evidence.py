"""Evidence windows for MedHorizon from the annotation files of its eight source data sets.

The released questions carry no evidence. Each question's window, lesion or phase is looked up in its source's
own annotation (docs/medhorizon.md); no video is opened and no model is loaded. `evidence.jsonl` is what
`data.evidence` takes, `audit.csv` and `audit.jsonl` say of every item what it rests on, or why there is none.

Derived anew each time: the command may be repeated when another source has arrived.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import Field, NonNegativeFloat
from pydantic.dataclasses import dataclass
from rich.markup import escape
from rich.table import Table

from diagnostics.data.build.counting import task_of
from diagnostics.data.medhorizon import TASKS
from diagnostics.data.medhorizon import Config as MedHorizon
from diagnostics.data.sources import all_sources
from diagnostics.data.sources.archives import Archive, find_archives
from diagnostics.data.sources.cases import LesionWindows
from diagnostics.data.sources.matching import KINDS, Derived, Matcher, Rules, style_of
from diagnostics.data.sources.sidecar import audit_row, audit_table, sidecar_row, write_lines
from diagnostics.errors import ConfigError
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome, record_rejected, records_of_run
from diagnostics.experiments.pairs import Pair
from diagnostics.store.atomic import write_text
from diagnostics.store.records import Record
from diagnostics.store.summary import Metric, Row, Summary
from diagnostics.strict import STRICT

__all__ = ["USES", "Config", "run"]

USES = ("exp", "data")
"""Groups of the configuration that this experiment reads."""

_HEADLINE = ("items", *(kind.replace("-", "_") for kind in KINDS), "unread_windows", "refused_durations")

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment; the others are those of `diagnostics.data.sources.matching.Rules`.

    Attributes:
        root: the folder that holds one folder a source.
        folders: those that lie elsewhere, by the name of their reader.
    """

    root: str | None = None
    folders: Mapping[str, str | None] = field(default_factory=dict)
    onset_seconds: Positive = 10.0
    lesion_windows: LesionWindows = "all"
    first_seconds: Positive = 10.0
    tolerance_seconds: NonNegativeFloat = 2.0
    tolerance_share: NonNegativeFloat = 0.002
    labelled_share: Share = 0.7
    instant_seconds: Positive | None = None
    label_runs: bool = True
    window_alone: bool = False

    @property
    def rules(self) -> Rules:
        """How evidence is derived."""
        return Rules(**{rule.name: getattr(self, rule.name) for rule in fields(Rules)})


def run(context: Context, config: Config) -> Outcome:
    """Derive every item's evidence, then write sidecar, audit, summary and tables.

    Raises:
        ConfigError, DataFileError: a folder is named that is not there, or none that could hold a source.
    """
    if context.config.data.loader != "medhorizon":
        raise ConfigError(
            f"build_evidence knows the sources of MedHorizon, not of {context.config.data.name}.",
            remedy="Choose data=medhorizon data.root=FOLDER.",
        )
    root = None if config.root is None else Path(config.root)
    archives = find_archives(all_sources(), root, config.folders)
    _tell_folders(context, archives)
    derived = _derive(context, Matcher(archives, config.rules, style_of(context.items)))
    record_rejected(context)
    records = records_of_run(context, [Pair(item) for item in context.items])
    folder = context.folder
    rows = [audit_row(one) for one in derived]
    sidecar = write_lines(folder.path / "evidence.jsonl", [sidecar_row(one) for one in derived])
    audit = folder.path / "audit.csv"
    write_text(audit, audit_table(rows).to_csv(index=False, lineterminator="\n"))
    summary = Summary.of(context.config.experiment, records, _totals(derived), _rows(derived))
    paths = {
        "summary": folder.write_summary(summary),
        "sidecar": sidecar,
        "audit": audit,
        "audit, as JSON": write_lines(folder.path / "audit.jsonl", rows),
        "kinds by task": folder.write_table("evidence_kinds", _counts(derived, "task"))[0],
        "kinds by source": folder.write_table("evidence_sources", _counts(derived, "source"))[0],
        "reasons": folder.write_table("evidence_reasons", _reasons(derived))[0],
    }
    context.console.print(_screen(_counts(derived, "source")))
    context.console.print(_next_command(context, sidecar), markup=False, soft_wrap=True)
    failure = None
    if not any(one.frames for one in derived):
        failure = f"No item has an evidence window; {paths['reasons']} says why."
    return Outcome(summary, paths, _HEADLINE, failure)


def _tell_folders(context: Context, archives: Mapping[str, Archive]) -> None:
    """Which sources are here, on the screen and in the manifest."""
    told = {
        key: str(archive.folder) if archive.folder else archive.absent for key, archive in archives.items()
    }
    context.folder.note("sources", told)
    for archive in archives.values():
        if archive.folder is None:
            context.console.print(escape(archive.absent), soft_wrap=True)


def _derive(context: Context, matcher: Matcher) -> list[Derived]:
    """Each item's evidence, with a record; a record of an older derivation that differs is written again."""
    folder = context.folder
    folder.expect(len(context.items) + len(context.rejected))
    known = {record.pair: record.item_sha256 for record in folder.records()}
    derived, records = [], []
    with context.progress("Deriving", total=len(context.items)) as advance:
        for item in context.items:
            one = matcher.derive(item)
            record = _record(one)
            if known.get(record.pair, record.item_sha256) != record.item_sha256:
                folder.reopen(record.pair, "the sources say something else now")
            if record.pair not in folder.finished:
                records.append(record)
            derived.append(one)
            advance()
    folder.append_all(records)
    return derived


def _record(one: Derived) -> Record:
    """The item's record; what it is about is its line of the audit."""
    item = one.item
    told = json.dumps([audit_row(one), item.answer], sort_keys=True, default=str)
    frames, n_frames = sum(end - start for start, end in one.frames), item.metadata.get("num_frames")
    ratio = frames / n_frames if one.frames and isinstance(n_frames, int | float) else None
    missing = (f"missing, {one.reason_kind}: {one.reason}",) if one.kind == "missing" else ()
    return Record(
        item_id=item.id,
        video_id=item.video_id,
        item_sha256=hashlib.sha256(told.encode()).hexdigest(),
        task=item.task,
        task_family=item.task_family,
        target=item.answer,
        selection_rule=one.rule,
        # found by the answer: under a name of its own, so that no mean takes both
        measures={"label_run_ratio" if one.kind == "label-run" else "evidence_ratio": ratio},
        warnings=(*one.warnings, *missing),
    )


# -- numbers


def _totals(derived: Sequence[Derived]) -> dict[str, Metric]:
    """How many items of each kind, and how many that could not be read or were refused."""
    kinds = Counter(one.kind for one in derived)
    unread = sum(
        one.reason_kind == "window unread" or any(w.startswith("window unread") for w in one.warnings)
        for one in derived
    )
    totals: dict[str, int] = {
        "items": len(derived),
        **{kind.replace("-", "_"): kinds[kind] for kind in KINDS},
        "unread_windows": unread,
        "unread_subjects": sum(one.reason_kind == "subject unread" for one in derived),
        "refused_durations": sum(one.reason_kind == "durations disagree" for one in derived),
    }
    return {name: Metric(float(value), None, None, len(derived)) for name, value in totals.items()}


def _rows(derived: Sequence[Derived]) -> list[Row]:
    counts = Counter((one.task, one.source, one.kind) for one in derived)
    return [
        Row(measure="items", value=float(n), n=n, task=task, condition={"source": source, "kind": kind})
        for (task, source, kind), n in sorted(counts.items())
    ]


def _counts(derived: Sequence[Derived], by: str) -> pd.DataFrame:
    """How many items of each kind, by task or by source; the last row is of all."""

    def group(one: Derived) -> str:
        return (task_of(one.item) if by == "task" else one.source) or "(none)"

    names = sorted({group(one) for one in derived}, key=lambda name: (_place(name), name))
    counts = Counter((group(one), one.kind) for one in derived)
    rows: list[dict[str, Any]] = [
        {by: name, "items": sum(counts[name, kind] for kind in KINDS)}
        | {kind: counts[name, kind] for kind in KINDS}
        for name in names
    ]
    every = {kind: sum(row[kind] for row in rows) for kind in KINDS}
    return pd.DataFrame([*rows, {by: "all", "items": len(derived), **every}], columns=[by, "items", *KINDS])


def _place(name: str) -> int:
    return TASKS.index(name) if name in TASKS else len(TASKS)


def _reasons(derived: Sequence[Derived]) -> pd.DataFrame:
    """Why items are missing, and what was doubtful: how often, by source, with an example."""
    told: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for one in derived:
        if one.kind == "missing":
            told.setdefault(("missing", one.reason_kind, one.source), []).append((one.item.id, one.reason))
        for warning in one.warnings:
            kind = warning.partition(":")[0]
            told.setdefault(("warning", kind, one.source), []).append((one.item.id, warning))
    rows = [(*key, len(found), *found[0]) for key, found in sorted(told.items())]
    return pd.DataFrame(rows, columns=["what", "kind", "source", "items", "item", "example"])


def _screen(counts: pd.DataFrame) -> Table:
    table = Table(title="Evidence by source", title_justify="left")
    for name in counts.columns:
        table.add_column(str(name), justify="left" if name == "source" else "right")
    for row in counts.itertuples(index=False):
        table.add_row(*(escape(str(value)) for value in row))
    return table


def _next_command(context: Context, sidecar: Path) -> str:
    """How the sidecar is used."""
    parameters = context.config.data.parameters
    given = {"root": parameters.get("root"), "path": parameters.get("path"), "evidence": sidecar.resolve()}
    if given["path"] == MedHorizon.path:
        del given["path"]
    told = " ".join(f"data.{name}={shlex.quote(str(value))}" for name, value in given.items())
    return f"Use it: python -m diagnostics +exp=check data={context.config.data.name} {told}"
