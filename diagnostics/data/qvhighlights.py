"""QVHighlights (arXiv 2107.09609; released with jayleicn/moment_detr): `data=qvhighlights data.root=FOLDER`.

JSON Lines, one record a query: `qid, query, duration, vid`, and but for the test split `relevant_windows`
(`[[start, end], ...]` in seconds), `relevant_clip_ids` (clips of two seconds, from 0) and `saliency_scores`
(three ratings a clip, 0 to 4). There are no options: items are measured, not scored. Their
evidence is exact.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Evidence, Item
from diagnostics.data.paths import existing_file, existing_folder
from diagnostics.data.rows import collect, read_rows
from diagnostics.data.validation import Loaded, resolve_evidence
from diagnostics.data.written import STATED_SECONDS, film, number_of, rest_of, text_of, wrong
from diagnostics.errors import DataFileError
from diagnostics.strict import STRICT

__all__ = ["CLIP_SECONDS", "TASKS", "Config", "load"]

TASKS = ("moment",)
CLIP_SECONDS = 2.0
"""Length of an annotated clip."""

_RATERS = 3
_USED = ("qid", "query", "duration", "relevant_windows")


@dataclass(frozen=True, config=STRICT)
class Config:
    """Where the benchmark is.

    Attributes:
        root: the folder that holds the annotation file and the folder of videos.
        path: the annotation file, relative to the root or absolute.
        videos: the folder of the videos, `<vid>.mp4`, below the root.
        question: how a query is asked; `{query}` stands for it.
        saliency: evidence is not the annotated windows but the clips whose mean rating is at least this.
    """

    root: str
    path: str = "highlight_val_release.jsonl"
    videos: str = "videos"
    question: str = "When does this happen in the video: {query}"
    saliency: Annotated[float, Field(ge=0, le=4)] | None = None

    @field_validator("question")
    @classmethod
    def _asks(cls, value: str) -> str:
        if "{query}" not in value:
            raise ValueError("it must hold {query}")
        return value


def load(config: Config) -> Loaded:
    """The items of the annotation file.

    Raises:
        DataFileError: the file or the root is missing, or there is no record.
    """
    root = existing_folder(Path(config.root), what="root of QVHighlights")
    path = existing_file(root / Path(config.path).expanduser(), what="annotation file")
    loaded = collect(read_rows(path), partial(text_of, key="qid"), partial(_item, config, root))
    if not loaded.items and not loaded.rejected:
        raise DataFileError("The file holds no record.", remedy="Download it again.", path=path)
    return loaded


def _item(config: Config, root: Path, record: dict[str, Any], item_id: str, where: str) -> Item:
    video = film(root, config.videos, text_of(record, "vid"), where=where, item_id=item_id)
    query, metadata = text_of(record, "query"), rest_of(record, _USED)
    seconds = number_of(record, "duration")
    if seconds is not None:
        metadata[STATED_SECONDS] = seconds
    return Item(
        id=item_id,
        video=video,
        video_id=video.relative_to(root.resolve()).as_posix(),
        question=config.question.replace("{query}", query),
        task=TASKS[0],
        evidence=_evidence(record, config.saliency),
        metadata={"query": query, **metadata},
    )


def _evidence(record: dict[str, Any], least: float | None) -> Evidence | None:
    if least is None or "saliency_scores" not in record:
        windows = record.get("relevant_windows")
        return resolve_evidence(windows) if windows else None
    clips, scores = record.get("relevant_clip_ids"), record["saliency_scores"]
    if not isinstance(clips, list) or not all(type(clip) is int and clip >= 0 for clip in clips):
        raise wrong("relevant_clip_ids", clips, "a list of clip numbers")
    if not _rated(scores, len(clips)):
        raise wrong("saliency_scores", scores, f"three ratings for each of {len(clips)} clips")
    salient = sorted(
        {clip for clip, ratings in zip(clips, scores, strict=True) if sum(ratings) >= least * _RATERS}
    )
    windows = []
    for clip in salient:  # clips that touch are one window
        start, end = clip * CLIP_SECONDS, (clip + 1) * CLIP_SECONDS
        if windows and windows[-1][1] == start:
            windows[-1][1] = end
        else:
            windows.append([start, end])
    return resolve_evidence(windows) if windows else None


def _rated(scores: Any, clips: int) -> bool:
    return (
        isinstance(scores, list)
        and len(scores) == clips
        and all(
            isinstance(ratings, list)
            and len(ratings) == _RATERS
            and all(type(rating) in (int, float) for rating in ratings)
            for ratings in scores
        )
    )
