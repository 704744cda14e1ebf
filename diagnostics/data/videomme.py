"""Video-MME (arXiv 2405.21075; released as lmms-lab/Video-MME): `data=videomme data.root=FOLDER`.

One row a question: `question_id, videoID, duration (short, medium, long), domain, sub_category, task_type,
question, options ["A. ...", ...], answer "C"`. The paper's main table is by `duration`, which is the task
family here; `task_type` is the task.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.data.paths import existing_file, existing_folder, inside_root
from diagnostics.data.rows import collect, read_rows
from diagnostics.data.subtitles import read_subtitles, with_subtitles
from diagnostics.data.validation import Loaded, resolve_options
from diagnostics.data.written import candidates_of, film, resolve_answer_letter, rest_of, text_of
from diagnostics.errors import DataFileError
from diagnostics.strict import STRICT

__all__ = ["FAMILIES", "TASKS", "Config", "load"]

TASKS = (
    "Temporal Perception",
    "Spatial Perception",
    "Attribute Perception",
    "Action Recognition",
    "Object Recognition",
    "OCR Problems",
    "Counting Problem",
    "Temporal Reasoning",
    "Spatial Reasoning",
    "Action Reasoning",
    "Object Reasoning",
    "Information Synopsis",
)
FAMILIES = ("short", "medium", "long")

_USED = ("question_id", "question", "options", "answer", "task_type")


@dataclass(frozen=True, config=STRICT)
class Config:
    """Where the benchmark is.

    Attributes:
        root: the folder of the release.
        path: the question file, relative to the root or absolute; Parquet as released, or JSON of the rows.
        videos: the folder of the videos below the root.
        subtitles: put all subtitles before the question (the published "w/ subs" setting gives those of the
            frames that are shown).
        subtitle_folder: the folder of the `.srt` files below the root.
    """

    root: str
    path: str = "videomme/test-00000-of-00001.parquet"
    videos: str = "data"
    subtitles: bool = False
    subtitle_folder: str = "subtitle"


def load(config: Config) -> Loaded:
    """The items of the question file.

    Raises:
        DataFileError: a file or folder is missing, or the file holds no question.
        ConfigError: it is Parquet, and pyarrow is not installed.
    """
    root = existing_folder(Path(config.root), what="root of Video-MME")
    path = existing_file(root / Path(config.path).expanduser(), what="question file")
    if config.subtitles:
        existing_folder(root / config.subtitle_folder, what="folder of subtitles")
    loaded = collect(read_rows(path), partial(text_of, key="question_id"), partial(_item, config, root))
    if not loaded.items and not loaded.rejected:
        raise DataFileError("The file holds no question.", remedy="Download it again.", path=path)
    return loaded


def _item(config: Config, root: Path, record: dict[str, Any], item_id: str, where: str) -> Item:
    stem = text_of(record, "videoID")
    video = film(root, config.videos, stem, where=where, item_id=item_id)
    options = resolve_options(candidates_of(record, "options"))
    question, metadata = text_of(record, "question"), rest_of(record, _USED)
    if config.subtitles:
        written = f"{config.subtitle_folder}/{stem}.srt"
        path = inside_root(root, written, where=where, item_id=item_id)
        lines = read_subtitles(path) if path.is_file() else []
        question = with_subtitles(question, lines)
        metadata["subtitles"] = len(lines)  # a part of the videos has none
    return Item(
        id=item_id,
        video=video,
        video_id=video.relative_to(root.resolve()).as_posix(),
        question=question,
        options=options,
        answer=resolve_answer_letter(record.get("answer"), options),
        task=text_of(record, "task_type", required=False),
        task_family=text_of(record, "duration", required=False),
        metadata=metadata,
    )
