"""Benchmarks of MVBench's layout: a JSON array a task below `json/`, its videos in a folder below `video/`.

A record has `video, question, candidates, answer` (the text of a candidate), and in some tasks `start` and
`end` in seconds: the stretch of the video that is shown. They are no evidence: the question is about
the whole stretch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass as configured

from diagnostics.data.items import Item
from diagnostics.data.paths import existing_file, existing_folder, inside_root
from diagnostics.data.rows import collect, read_rows
from diagnostics.data.validation import Collector, Loaded, resolve_options
from diagnostics.data.written import candidates_of, resolve_answer_text, resolve_clip, rest_of, text_of
from diagnostics.errors import ConfigError, DataFileError
from diagnostics.strict import STRICT, near_match

__all__ = ["Config", "TaskFile", "load_tasks"]

_USED = ("video", "question", "candidates", "answer")


@configured(frozen=True, config=STRICT)
class Config:
    """Where a benchmark of this layout is.

    Attributes:
        root: the folder of the release, its archives unpacked: `json/` and `video/`.
        folders: other folders of videos, by task, below `video/`.
    """

    root: str
    folders: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskFile:
    """One task: its name, its file's stem, its folder of videos, whether records bound a clip, its family."""

    task: str
    stem: str
    folder: str
    bounded: bool = False
    family: str = ""


def load_tasks(root: Path, tasks: Sequence[TaskFile], folders: Mapping[str, str], *, what: str) -> Loaded:
    """The items of all tasks, in order; an item's id is `<stem>/<place in its file, from 0>`.

    Args:
        root: the folder that has `json/` and `video/`.
        folders: another folder of videos, below `video/`, for tasks by name.
        what: the benchmark's name, for messages.

    Raises:
        DataFileError: the root or a task's file is missing or no JSON array, or there is no question.
        ConfigError: `folders` names a task that does not exist.
    """
    root = existing_folder(root, what=f"root of {what}")
    names = [entry.task for entry in tasks]
    for name in folders:
        if name not in names:
            raise ConfigError(
                f"data.folders names {name!r}, no task of {what}.", remedy=near_match(name, names)
            )
    collector = Collector()
    for entry in tasks:
        path = existing_file(root / "json" / f"{entry.stem}.json", what=f"file of the task {entry.task!r}")
        folder = folders.get(entry.task, entry.folder)
        rows = [
            (where, record if not isinstance(record, dict) else {**record, "_place": place})
            for place, (where, record) in enumerate(read_rows(path))
        ]
        collect(rows, partial(_id, entry), partial(_item, entry, root, folder), collector)
    if not collector.items and not collector.rejected:
        raise DataFileError("The files hold no question.", remedy="Download them again.", path=root / "json")
    return collector.loaded()


def _id(entry: TaskFile, record: Mapping[str, Any]) -> str:
    return f"{entry.stem}/{record['_place']}"


def _item(entry: TaskFile, root: Path, folder: str, record: dict[str, Any], item_id: str, where: str) -> Item:
    written = f"video/{folder}/{text_of(record, 'video')}"
    video = inside_root(root, written, where=where, item_id=item_id)
    candidates = candidates_of(record, "candidates")
    answer = resolve_answer_text(text_of(record, "answer"), candidates)
    clip = resolve_clip([record.get("start"), record.get("end")]) if entry.bounded else None
    return Item(
        id=item_id,
        video=video,
        video_id=video.relative_to(root.resolve()).as_posix(),
        question=text_of(record, "question"),
        options=resolve_options(candidates),
        answer=answer,
        task=entry.task,
        task_family=entry.family,
        clip=clip,
        metadata=rest_of(record, (*_USED, "_place")),
    )
