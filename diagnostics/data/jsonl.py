"""A person's own videos and questions: `data=jsonl data.path=FILE.jsonl`. The format is in docs/data.md."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic.dataclasses import dataclass

from diagnostics.data.items import Criterion, Evidence, Item, Turn
from diagnostics.data.lines import read_lines
from diagnostics.data.paths import existing_file, existing_folder, inside_root
from diagnostics.data.validation import (
    Collector,
    Loaded,
    resolve_answer,
    resolve_evidence,
    resolve_flags,
    resolve_options,
)
from diagnostics.data.written import resolve_clip
from diagnostics.errors import DataFileError, RecordError
from diagnostics.strict import STRICT

__all__ = ["KEYS", "Config", "load", "to_record", "write_records"]

T = TypeVar("T")

KEYS = (
    "id",
    "video",
    "question",
    "options",
    "answer",
    "task",
    "task_family",
    "evidence",
    "flags",
    "turns",
    "rubric",
    "audio",
    "clip",
    "metadata",
)
"""Keys of a record that have a meaning here; any other goes to the item's metadata."""


@dataclass(frozen=True, config=STRICT)
class Config:
    """Where the questions and the videos are.

    Attributes:
        path: the JSON Lines file.
        root: the folder that video paths start from; the file's own folder by default.
    """

    path: str
    root: str | None = None


def load(config: Config) -> Loaded:
    """The items of the file.

    Raises:
        DataFileError: the file or the root is missing, the file is no JSON Lines or holds no record.
    """
    path = existing_file(Path(config.path), what="data file")
    root = (
        path.parent if config.root is None else existing_folder(Path(config.root), what="root of the videos")
    )
    collector = Collector()
    empty = True
    for where, record in read_lines(path):
        empty = False
        if isinstance(record, RecordError):
            collector.reject(record, where=where)
            continue
        try:
            item_id = _item_id(record)
        except RecordError as error:
            collector.reject(error, where=where)
            continue
        collector.add(item_id, where, partial(_item, record, item_id, root, where))
    if empty:
        raise DataFileError("The file holds no record.", remedy="Write one JSON object a line.", path=path)
    return collector.loaded()


def _item_id(record: Mapping[str, Any]) -> str:
    written = record.get("id")
    if isinstance(written, int) and not isinstance(written, bool):
        return str(written)
    if not isinstance(written, str) or not written.strip():
        raise _missing("id", record)
    return written


def _item(record: Mapping[str, Any], item_id: str, root: Path, where: str) -> Item:
    _refuse_misspelt(record)
    written = _text(record, "video", required=True)
    video = inside_root(root, written, where=where, item_id=item_id)
    audio = _text(record, "audio")
    options = resolve_options(record.get("options"))
    metadata = {key: value for key, value in record.items() if key not in KEYS}
    return Item(
        id=item_id,
        video=video,
        video_id=video.relative_to(root.resolve()).as_posix(),
        question=_text(record, "question", required=True),
        options=options,
        answer=resolve_answer(record.get("answer"), options),
        task=_text(record, "task"),
        task_family=_text(record, "task_family"),
        evidence=resolve_evidence(record.get("evidence")),
        flags=resolve_flags(record.get("flags")),
        turns=_entries(record, "turns", '{"role": "user", "text": "..."}', _turn),
        rubric=_entries(record, "rubric", '{"text": "...", "points": 2}', _criterion),
        audio=inside_root(root, audio, where=where, item_id=item_id) if audio else None,
        clip=resolve_clip(record.get("clip")),
        metadata={**metadata, **_metadata(record)},
    )


def _text(record: Mapping[str, Any], key: str, *, required: bool = False) -> str:
    written = record.get(key)
    if written is None and not required:
        return ""
    if written is None:
        raise _missing(key, record)
    if not isinstance(written, str) or (required and not written.strip()):
        raise RecordError(f"{key!r} is {written!r}, not a text.", remedy="Write it as a text in quotes.")
    return written


def _missing(key: str, record: Mapping[str, Any]) -> RecordError:
    _refuse_misspelt(record)
    near = difflib.get_close_matches(key, [name for name in record if name not in KEYS], n=1, cutoff=0.6)
    remedy = f"Rename {near[0]!r}." if near else f"Keys of a record: {', '.join(KEYS)}."
    return RecordError(f"{key!r} is missing or empty.", remedy=remedy)


def _metadata(record: Mapping[str, Any]) -> Mapping[str, Any]:
    written = record.get("metadata")
    if written is not None and not isinstance(written, dict):
        raise RecordError(f"'metadata' is {written!r}, not an object.", remedy="Write it as {...}.")
    return written or {}


def _entries(record: Mapping[str, Any], key: str, form: str, read: Callable[[Any], T]) -> tuple[T, ...]:
    """A list of objects, each read by `read`, which raises KeyError or TypeError on another form."""
    written = record.get(key)
    try:
        return tuple(read(entry) for entry in (() if written is None else _list(written)))
    except (KeyError, TypeError) as error:
        raise RecordError(f"{key!r} is {written!r}.", remedy=f"Write a list of {form}.") from error


def _list(written: Any) -> list[Any]:
    if not isinstance(written, list):
        raise TypeError(written)
    return written


def _turn(entry: Any) -> Turn:
    if set(entry) != {"role", "text"} or entry["role"] not in ("user", "assistant"):
        raise TypeError(entry)
    if not isinstance(entry["text"], str):
        raise TypeError(entry)
    return Turn(entry["role"], entry["text"])


def _criterion(entry: Any) -> Criterion:
    points = entry["points"]
    if set(entry) != {"text", "points"} or isinstance(points, bool) or not isinstance(points, int | float):
        raise TypeError(entry)
    if not isinstance(entry["text"], str) or not math.isfinite(points):
        raise TypeError(entry)
    return Criterion(entry["text"], float(points))


def _plain(key: str) -> str:
    return re.sub(r"[^a-z0-9]", "", key.lower())


def _refuse_misspelt(record: Mapping[str, Any]) -> None:
    """Unknown keys are metadata, unless they look like a slip for a known one."""
    for key in record:
        known = None if key in KEYS else _slip_for(key)
        if known is not None:
            raise RecordError(
                f"Unknown key {key!r}: did you mean {known!r}?",
                remedy='Rename it, or keep it as it is inside "metadata": {...}.',
            )


@lru_cache(maxsize=4096)
def _slip_for(key: str) -> str | None:
    """The known key that `key` is a slip for: the same letters in another order or case, or a difflib
    ratio above 0.8 (`answr`, `videos`). Compounds of a known key (`question_id`) are other words."""
    written = _plain(key)
    for known in KEYS:
        compound = key.startswith(f"{known}_") or key.endswith(f"_{known}")
        wanted = _plain(known)
        ratio = difflib.SequenceMatcher(None, written, wanted).ratio()
        if not compound and (sorted(written) == sorted(wanted) or ratio > 0.8):
            return known
    return None


def to_record(item: Item, root: Path) -> dict[str, Any]:
    """The item as a record of this format; `load` gives the same item back.

    Args:
        item: its video lies below `root`.
        root: what the video's path is written relative to.
    """
    record: dict[str, Any] = {
        "id": item.id,
        "video": item.video.relative_to(root.resolve()).as_posix(),
        "question": item.question,
        "options": list(item.options) or None,
        "answer": item.answer,
        "task": item.task,
        "task_family": item.task_family,
        "evidence": None if item.evidence is None else _evidence_record(item.evidence),
        "flags": sorted(item.flags),
        "turns": [{"role": turn.role, "text": turn.text} for turn in item.turns],
        "rubric": [{"text": line.text, "points": line.points} for line in item.rubric],
        "audio": None if item.audio is None else item.audio.relative_to(root.resolve()).as_posix(),
        "clip": None if item.clip is None else list(item.clip),
        "metadata": dict(item.metadata),
    }
    return {key: value for key, value in record.items() if value not in (None, "", [], {})}


def _evidence_record(evidence: Evidence) -> dict[str, Any]:
    record: dict[str, Any] = {"kind": evidence.kind}
    windows = evidence.windows
    if windows and not math.isnan(windows[0].start_seconds):
        record["seconds"] = [[window.start_seconds, window.end_seconds] for window in windows]
    if windows and windows[0].start_frame is not None:
        record["frames"] = [[window.start_frame, window.end_frame] for window in windows]
    return record


def write_records(path: Path, items: Iterable[Item], root: Path) -> None:
    """Write `items` as a file of this format."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for item in items:
            file.write(json.dumps(to_record(item, root), ensure_ascii=False) + "\n")
