"""LongVideoBench (arXiv 2407.15754; released as longvideobench/LongVideoBench): `data=longvideobench`.

A JSON array, one record a question: `id, video_path, question, candidates` (3 to 5)`, correct_choice` (from
0; not in the test file)`, question_category` (17)`, level, duration, duration_group, position, subtitle_path,
starting_timestamp_for_subtitles`. As in the released loader only the first `duration` seconds of a file are
shown.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Evidence, Item
from diagnostics.data.paths import existing_file, existing_folder, inside_root
from diagnostics.data.rows import collect, read_rows
from diagnostics.data.subtitles import read_subtitles, with_subtitles
from diagnostics.data.validation import Loaded, resolve_answer, resolve_evidence, resolve_options
from diagnostics.data.written import (
    STATED_SECONDS,
    candidates_of,
    number_of,
    resolve_clip,
    rest_of,
    text_of,
    wrong,
)
from diagnostics.errors import DataFileError
from diagnostics.strict import STRICT

__all__ = ["FAMILIES", "TASKS", "Config", "load"]

TASKS = (
    *("S2E", "S2O", "S2A", "E2O", "O2E", "T2E", "T2O", "T2A"),
    *("E3E", "O3O", "SSS", "SOS", "SAA", "T3E", "T3O", "TOS", "TAA"),
)
"""Perception first, then relation; S, E, O, A, T: scene, event, object, attribute, text."""
FAMILIES = ("L1-Perception", "L2-Relation")

_USED = (
    "id",
    "question",
    "candidates",
    "correct_choice",
    "question_category",
    "level",
    "video_path",
    "duration",
)
_MOST_FPS = 60
"""A position past this many frames a second is no frame of the video: one record of the release has such."""


@dataclass(frozen=True, config=STRICT)
class Config:
    """Where the benchmark is.

    Attributes:
        root: the folder of the release, its archives unpacked.
        path: the question file, relative to the root or absolute.
        videos: the folder of the videos below the root.
        subtitles: put the subtitles of the shown part before the question.
        subtitle_folder: the folder of the subtitles below the root.
        position_frames: make proxy evidence of `position`: each frame named there and so many before it. None
            for no evidence: the release does not say what the positions mean.
    """

    root: str
    path: str = "lvb_val.json"
    videos: str = "videos"
    subtitles: bool = False
    subtitle_folder: str = "subtitles"
    position_frames: NonNegativeInt | None = None


def load(config: Config) -> Loaded:
    """The items of the question file.

    Raises:
        DataFileError: a file or folder is missing, the file is no JSON array or holds no question.
    """
    root = existing_folder(Path(config.root), what="root of LongVideoBench")
    path = existing_file(root / Path(config.path).expanduser(), what="question file")
    loaded = collect(read_rows(path), partial(text_of, key="id"), partial(_item, config, root))
    if not loaded.items and not loaded.rejected:
        raise DataFileError("The file holds no question.", remedy="Download it again.", path=path)
    return loaded


def _item(config: Config, root: Path, record: dict[str, Any], item_id: str, where: str) -> Item:
    written = f"{config.videos}/{text_of(record, 'video_path')}"
    video = inside_root(root, written, where=where, item_id=item_id)
    options = resolve_options(candidates_of(record, "candidates"))
    seconds = number_of(record, "duration")
    clip = None if seconds is None else resolve_clip([0.0, seconds])
    metadata = rest_of(record, _USED)
    if seconds is not None:
        metadata[STATED_SECONDS] = seconds
    question = text_of(record, "question")
    if config.subtitles:
        question = _subtitled(config, root, record, question, seconds, where, item_id)
    evidence, left_out = _evidence(record, config.position_frames, seconds)
    if left_out:
        metadata["evidence_left_out"] = left_out
    choice = record.get("correct_choice")
    return Item(
        id=item_id,
        video=video,
        video_id=video.relative_to(root.resolve()).as_posix(),
        question=question,
        options=options,
        answer=None if choice in (None, -1) else resolve_answer(choice, options, index_base=0),
        task=text_of(record, "question_category", required=False),
        task_family=text_of(record, "level", required=False),
        evidence=evidence,
        clip=clip,
        metadata=metadata,
    )


def _evidence(
    record: dict[str, Any], before: int | None, seconds: float | None
) -> tuple[Evidence | None, list[int]]:
    """Proxy windows of the positions, and those that no video of this length holds."""
    if before is None:
        return None, []
    positions = record.get("position")
    if not isinstance(positions, list) or not all(type(place) is int and place >= 0 for place in positions):
        raise wrong("position", positions, "a list of frame numbers")
    outside = [place for place in positions if seconds is not None and place > seconds * _MOST_FPS]
    # The frame itself ends its window, so that no window leaves a video that holds its frame.
    frames = [[max(0, place - before), place + 1] for place in positions if place not in outside]
    return resolve_evidence({"kind": "proxy", "frames": frames}) if frames else None, outside


def _subtitled(
    config: Config,
    root: Path,
    record: dict[str, Any],
    question: str,
    seconds: float | None,
    where: str,
    item_id: str,
) -> str:
    """The question below the subtitles of the video's part of its source."""
    written = f"{config.subtitle_folder}/{text_of(record, 'subtitle_path')}"
    first = number_of(record, "starting_timestamp_for_subtitles") or 0.0
    last = first + (seconds if seconds is not None else float("inf"))
    lines = read_subtitles(inside_root(root, written, where=where, item_id=item_id))
    return with_subtitles(question, [line for line in lines if line.end > first and line.start < last])
