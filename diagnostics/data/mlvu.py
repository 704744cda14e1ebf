"""MLVU (arXiv 2406.04264; released as MLVU/MVLU and MLVU/MLVU_Test): `data=mlvu data.root=FOLDER`.

The dev release has a JSON array a task below `json/` (`1_plotQA.json, 2_needle.json...`) with `video,
duration, question, candidates, answer` (the text of a candidate) and `question_type`. One file for all tasks,
named by `data.path`, is read too: the test release's, or lmms-eval's `mlvu_dev.json`, which has the options
in the question, the answer as a letter, `video_name` for `video` and `task_type` for `question_type`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.data.paths import existing_file, existing_folder, inside_root
from diagnostics.data.rows import collect, read_rows
from diagnostics.data.validation import Collector, Loaded, resolve_options
from diagnostics.data.written import (
    STATED_SECONDS,
    candidates_of,
    number_of,
    resolve_answer_letter,
    resolve_answer_text,
    rest_of,
    text_of,
)
from diagnostics.errors import DataFileError
from diagnostics.strict import STRICT

__all__ = ["FAMILIES", "TASKS", "Config", "load"]

_HOLISTIC, _SINGLE, _MULTI = FAMILIES = ("holistic", "single detail", "multi detail")
_FAMILY: Mapping[str, str] = {
    **dict.fromkeys(("topic_reasoning", "anomaly_reco", "summary"), _HOLISTIC),
    **dict.fromkeys(("findNeedle", "ego", "plotQA", "sportsQA", "subPlot"), _SINGLE),
    **dict.fromkeys(("order", "count", "tutorialQA"), _MULTI),
}
TASKS = tuple(_FAMILY)
"""`question_type`, in the order of the paper's table: TR, AR, (summary), NQA, ER, PQA, SQA, (sub-scene
captioning), AO, AC, TQA. sportsQA and tutorialQA are in the test release only."""

_STEMS = ("1_plotQA", "2_needle", "3_ego", "4_count", "5_order", "6_anomaly_reco", "7_topic_reasoning")
_OPEN_ENDED = ("8_sub_scene", "9_summary")
_OTHER_NAMES = {
    "needle": "findNeedle",
    "needleQA": "findNeedle",
    "subscene": "subPlot",
    "sub_scene": "subPlot",
}
_OPTIONS_INSIDE = re.compile(r"\n\s*\(?A[.):]")
_USED = (
    "question_id",
    "video",
    "video_name",
    "question",
    "candidates",
    "answer",
    "question_type",
    "task_type",
    "duration",
)


@dataclass(frozen=True, config=STRICT)
class Config:
    """Where the benchmark is.

    Attributes:
        root: the folder of the release.
        path: one file with all questions, relative to the root or absolute; None for the dev release's
            folder of files.
        json: the folder of the dev release's files below the root.
        videos: the folder of the videos below the root: one folder a task in it, named like the task's file
            (`1_plotQA`) or without the number, or the videos themselves.
        open_ended: with the dev release's two tasks that have no options.
    """

    root: str
    path: str | None = None
    json: str = "json"
    videos: str = "video"
    open_ended: bool = False


def load(config: Config) -> Loaded:
    """The items of the file, or of all the files.

    Raises:
        DataFileError: a file or folder is missing, a file is no JSON array, or there is no question.
        ConfigError: it is Parquet, and pyarrow is not installed.
    """
    root = existing_folder(Path(config.root), what="root of MLVU")
    if config.path is not None:
        paths = [existing_file(root / Path(config.path).expanduser(), what="question file")]
    else:
        stems = [*_STEMS, *(_OPEN_ENDED if config.open_ended else ())]
        folder = existing_folder(root / config.json, what="folder of question files")
        paths = [existing_file(folder / f"{stem}.json", what="question file") for stem in stems]
    collector = Collector()
    for path in paths:
        rows = [
            (where, record if not isinstance(record, dict) else {**record, "_place": place})
            for place, (where, record) in enumerate(read_rows(path))
        ]
        collect(rows, partial(_id, path.stem), partial(_item, root, _folder(root, config, path)), collector)
    if not collector.items and not collector.rejected:
        raise DataFileError("There is no question.", remedy="Download it again.", path=paths[0])
    return collector.loaded()


def _folder(root: Path, config: Config, path: Path) -> str:
    """The folder of the videos of one file, below the root."""
    without_number = re.sub(r"^\d+_", "", path.stem)
    for name in (path.stem, without_number):
        if (root / config.videos / name).is_dir():
            return f"{config.videos}/{name}"
    return config.videos


def _id(stem: str, record: Mapping[str, Any]) -> str:
    """The record's own id, or the file and the place in it: most records of the dev release have none."""
    return text_of(record, "question_id", required=False) or f"{stem}/{record['_place']}"


def _item(root: Path, folder: str, record: dict[str, Any], item_id: str, where: str) -> Item:
    name = text_of(record, "video" if "video" in record else "video_name")
    video = inside_root(root, f"{folder}/{name}", where=where, item_id=item_id)
    question, written = text_of(record, "question"), text_of(record, "answer", required=False)
    options: tuple[str, ...] = ()
    answer: str | None = written or None
    if record.get("candidates"):
        candidates = candidates_of(record, "candidates")
        options = resolve_options(candidates)
        question = _OPTIONS_INSIDE.split(question)[0]
        if "task_type" in record and "question_type" not in record:
            answer = resolve_answer_letter(written or None, options)
        else:
            answer = resolve_answer_text(written, candidates) if written else None
    task = text_of(record, "question_type", required=False) or text_of(record, "task_type", required=False)
    task = _OTHER_NAMES.get(task, task)
    metadata = rest_of(record, (*_USED, "_place"))
    seconds = number_of(record, "duration")
    if seconds is not None:
        metadata[STATED_SECONDS] = seconds
    return Item(
        id=item_id,
        video=video,
        video_id=video.relative_to(root.resolve()).as_posix(),
        question=question,
        options=options,
        answer=answer,
        task=task,
        task_family=_FAMILY.get(task, ""),
        metadata=metadata,
    )
