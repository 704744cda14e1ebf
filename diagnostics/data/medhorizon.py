"""MedHorizon (arXiv 2605.06537; released as DBD123/MLV-Bench): `data=medhorizon data.root=FOLDER`.

The released file has one record a video, with a list `qa` of questions, and no evidence; windows come
from a sidecar file of our own format (docs/data.md). The questions carry no ids, so an item's id is
`<key>/<place in qa>`, from 0: the sidecar may repeat the question's text to be safe against another
order. Videos are not opened here: a missing one is an error of its items when they are measured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Evidence, Item
from diagnostics.data.lines import read_lines
from diagnostics.data.paths import existing_file, existing_folder, inside_root
from diagnostics.data.validation import Collector, Loaded, resolve_answer, resolve_evidence, resolve_options
from diagnostics.errors import DataFileError, ItemError, RecordError
from diagnostics.strict import STRICT, near_match

__all__ = ["TASKS", "TASK_FLAGS", "Config", "load"]

TASKS = ("PR", "SD", "RL", "IR", "WR", "RSR", "CPR", "BPQ", "LLS", "Site", "Hist", "Size", "LA")
"""In the order of the paper's Table 2, as it abbreviates them."""

TASK_FLAGS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("PR", "SD", "RL"), frozenset({"time_addressed"})),
    "RSR": frozenset({"order_dependent"}),
    **dict.fromkeys(("BPQ", "LLS", "SITE", "HIST", "SIZE", "LA"), frozenset({"order_free"})),
}
"""By `task_id`, in capitals: PR, SD and RL ask about a time window, RSR ranks steps, and what a lesion
or the whole examination looks like is the same in any order. The other tasks are left unmarked."""

_VIDEO_KEYS = (
    "dataset",
    "organ",
    "scene_type",
    "duration_tier",
    "num_frames",
    "fps",
    "duration_seconds",
    "split",
)
_QA_KEYS = ("question", "options", "answer")
_SIDECAR_KEYS = ("id", "question", "kind", "seconds", "frames", "alternatives", "source", "rule", "reason")

Kind = Literal["exact", "approx", "proxy", "global", "label-run"]
"""Kinds of evidence that a sidecar tells apart; its rows may also be `missing`, with a reason."""

_AS_EVIDENCE: Mapping[str, str] = {
    "exact": "exact",
    "approx": "proxy",
    "proxy": "proxy",
    "global": "global",
    "label-run": "proxy",
}
"""The sidecar's kinds as those of `Evidence`: what is not exact is near the evidence, not at it."""


@dataclass(frozen=True, config=STRICT)
class Config:
    """Where the benchmark is.

    Attributes:
        root: the folder that `video_path` starts from.
        path: the question file, relative to the root or absolute.
        evidence: the sidecar of evidence windows, relative to the root or absolute; None for none.
        evidence_kinds: the kinds of its rows that count as evidence; items of other kinds have none.
            `label-run` stands alone: it was found by looking at the right answer, so no statistic mixes it
            with the others.
    """

    root: str
    path: str = "mlvbench_test.jsonl"
    evidence: str | None = None
    evidence_kinds: tuple[Kind, ...] = ("exact", "approx", "proxy", "global")

    @field_validator("evidence_kinds")
    @classmethod
    def _label_runs_apart(cls, value: tuple[Kind, ...]) -> tuple[Kind, ...]:
        if not value:
            raise ValueError("name at least one kind")
        if "label-run" in value and set(value) != {"label-run"}:
            raise ValueError(
                "label-run is found by the right answer and is never mixed with windows that are not: run "
                "data.evidence_kinds=[label-run] apart"
            )
        return value


@dataclasses.dataclass(frozen=True)
class _SidecarRow:
    """Evidence of one item, or why its row cannot be used."""

    where: str
    question: str | None
    evidence: Evidence | None
    origin: Mapping[str, Any]
    error: ItemError | None = None


def load(config: Config) -> Loaded:
    """The items of the released file, with the evidence of the sidecar.

    Raises:
        DataFileError: a file is missing or not JSON Lines, there is no record, or the sidecar speaks
            of items the question file does not hold.
    """
    root = existing_folder(Path(config.root), what="root of MedHorizon")
    path = existing_file(root / Path(config.path).expanduser(), what="question file")
    sidecar: dict[str, _SidecarRow] = {}
    if config.evidence:
        sidecar = _sidecar(root / Path(config.evidence).expanduser(), config.evidence_kinds)
    collector = Collector()
    for where, record in read_lines(path):
        if isinstance(record, RecordError):
            collector.reject(record, where=where)
        else:
            _add_video(collector, record, where, root, sidecar)
    if not collector.items and not collector.rejected:
        raise DataFileError("The file holds no question.", remedy="Download it again.", path=path)
    strangers = [item_id for item_id in sidecar if item_id not in collector.seen]
    if strangers:
        near = near_match(strangers[0], list(collector.seen)[:2000])
        raise DataFileError(
            f"The evidence of {len(strangers)} items belongs to no question, first {strangers[0]!r}.",
            remedy=f"It was written for another file. {near}",
            path=sidecar[strangers[0]].where,
        )
    return collector.loaded()


def _add_video(
    collector: Collector,
    record: Mapping[str, Any],
    where: str,
    root: Path,
    sidecar: Mapping[str, _SidecarRow],
) -> None:
    key = record.get("key")
    key = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
    questions = record.get("qa")
    if not isinstance(key, str) or not key:
        collector.reject(_wrong("key", key, "the video's name"), where=where)
    elif not isinstance(questions, list):
        collector.reject(_wrong("qa", questions, "a list of questions"), where=where, item_id=key)
    else:
        for place, qa in enumerate(questions):
            item_id = f"{key}/{place}"
            build = partial(_item, record, qa, item_id, root, where, sidecar.get(item_id))
            collector.add(item_id, where, build)


def _item(
    record: Mapping[str, Any], qa: Any, item_id: str, root: Path, where: str, row: _SidecarRow | None
) -> Item:
    if not isinstance(qa, dict):
        raise _wrong("qa", qa, "an object")
    question, video_path = qa.get("question"), record.get("video_path")
    if not isinstance(question, str) or not question.strip():
        raise _wrong("question", question, "a text")
    if not isinstance(video_path, str):
        raise _wrong("video_path", video_path, "a path below the root")
    video = inside_root(root, video_path, where=where, item_id=item_id)
    options = resolve_options(qa.get("options"))
    evidence, origin = (None, {}) if row is None else _evidence(row, question)
    return Item(
        id=item_id,
        video=video,
        video_id=video.relative_to(root.resolve()).as_posix(),
        question=question,
        options=options,
        answer=resolve_answer(qa.get("answer"), options),
        task=_task(qa),
        task_family=str(qa.get("category") or ""),
        evidence=evidence,
        flags=TASK_FLAGS.get(str(qa.get("task_id", "")).upper(), frozenset()),
        metadata={
            "key": record["key"],
            **{name: record[name] for name in _VIDEO_KEYS if name in record},
            **{name: value for name, value in qa.items() if name not in _QA_KEYS},
            **origin,
        },
    )


def _task(qa: Mapping[str, Any]) -> str:
    """The table's abbreviation where `task_id` is one, however it is written; else the record's own name."""
    abbreviated = {task.casefold(): task for task in TASKS}
    found = abbreviated.get(str(qa.get("task_id", "")).casefold())
    return found or str(qa.get("task_name") or qa.get("task_id") or "")


def _wrong(key: str, value: object, wanted: str) -> RecordError:
    return RecordError(
        f"{key!r} is {value!r}, not {wanted}.", remedy="Compare the record with the released file."
    )


def _evidence(row: _SidecarRow, question: str) -> tuple[Evidence | None, Mapping[str, Any]]:
    if row.error is not None:
        raise row.error
    if row.question is not None and row.question.strip() != question.strip():
        raise RecordError(
            f"The evidence was written for another question, {row.question!r}.",
            remedy="Derive the evidence again from this question file.",
            path=row.where,
        )
    return row.evidence, row.origin


def _sidecar(path: Path, kinds: Sequence[str]) -> dict[str, _SidecarRow]:
    """Rows by item id.

    Raises:
        DataFileError: the file is missing, a line is no object, or a row names no item.
    """
    rows: dict[str, _SidecarRow] = {}
    for where, item_id, row in _sidecar_rows(existing_file(path, what="evidence file"), kinds):
        if item_id in rows:
            error = RecordError("There are two rows of evidence.", remedy="Keep one.", path=where)
            row = dataclasses.replace(row, error=error)
        rows[item_id] = row
    return rows


def _sidecar_rows(path: Path, kinds: Sequence[str]) -> Iterator[tuple[str, str, _SidecarRow]]:
    for where, record in read_lines(path):
        if isinstance(record, RecordError):
            raise DataFileError(record.problem, remedy=record.remedy, path=where)
        item_id = record.get("id")
        if not isinstance(item_id, str):
            raise DataFileError(f"'id' is {item_id!r}.", remedy="Each row names its item.", path=where)
        yield where, item_id, _sidecar_row(record, where, kinds)


def _sidecar_row(record: Mapping[str, Any], where: str, kinds: Sequence[str]) -> _SidecarRow:
    told = ("kind", "source", "rule", "reason", "alternatives")
    origin = {f"evidence_{name}": record[name] for name in told if name in record}
    question = record.get("question")
    try:
        for key in record:
            if key not in _SIDECAR_KEYS:
                raise RecordError(
                    f"Evidence has an unknown key {key!r}.", remedy=near_match(key, _SIDECAR_KEYS)
                )
        if question is not None and not isinstance(question, str):
            raise RecordError(
                f"'question' is {question!r}.", remedy="Write the question's text, or leave it out."
            )
        evidence = _resolved(record)
        _check_alternatives(record.get("alternatives", {}))
    except ItemError as error:
        error.path = where
        return _SidecarRow(where, question, None, origin, error)
    origin["evidence_kind"] = kind = record.get("kind", "exact")
    return _SidecarRow(where, question, evidence if kind in kinds else None, origin)


def _resolved(record: Mapping[str, Any]) -> Evidence | None:
    """The windows of a row, whatever its kind.

    Raises:
        ItemError: they are not written as they should be.
    """
    kind = record.get("kind", "exact")
    windows = {key: record[key] for key in ("seconds", "frames") if key in record}
    if kind == "missing":
        if any(windows.values()):
            raise RecordError("Missing evidence has windows.", remedy="Correct its kind, or leave them out.")
        return None
    if not isinstance(kind, str) or kind not in _AS_EVIDENCE:
        raise RecordError(
            f"Evidence has the kind {kind!r}.", remedy=near_match(str(kind), [*_AS_EVIDENCE, "missing"])
        )
    return resolve_evidence({**windows, "kind": _AS_EVIDENCE[kind]})


def _check_alternatives(written: object) -> None:
    """Other windows that could stand for the same, by name, in frames: as windows are written."""
    if not isinstance(written, dict):
        raise RecordError(f"'alternatives' is {written!r}.", remedy='Write {"longest": [[96, 140]]}.')
    for frames in written.values():
        resolve_evidence({"frames": frames, "kind": "proxy"})
