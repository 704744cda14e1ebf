"""LongShOTBench (arXiv 2512.16978; released as MBZUAI/longshot-bench): `data=longshotbench data.root=FOLDER`.

One row a conversation: `sample_id, video_id, duration, task, sample_type, conversations`. A user's turn has
`content, modalities, difficulty`; the assistant's turn after it the reference answer `content` and `criteria
[{description, weight, is_penalty...}]`. Each answer is one item, `<sample_id>/<place>` from 0. What was said
before it, reference answers included, are its earlier turns, as in the published evaluation. Items are
open-ended and carry their rubric.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from diagnostics.data.items import Criterion, Item, Turn
from diagnostics.data.paths import existing_file, existing_folder
from diagnostics.data.rows import read_rows
from diagnostics.data.validation import Collector, Loaded
from diagnostics.data.written import STATED_SECONDS, film, number_of, rest_of, text_of, wrong
from diagnostics.errors import DataFileError, ItemError, RecordError
from diagnostics.strict import STRICT

__all__ = ["FAMILIES", "TASKS", "Config", "load"]

_CORE, _REASONING, _INFORMATION, _MULTIMODAL = FAMILIES = (
    "core perception",
    "reasoning",
    "information",
    "multimodal",
)
_FAMILY: Mapping[str, str] = {
    **dict.fromkeys(
        ("entity_recognition", "event_understanding", "temporal_reasoning", "audio_understanding"), _CORE
    ),
    **dict.fromkeys(
        ("causal_reasoning", "quantitative_reasoning", "compositional_reasoning", "comparative_analysis"),
        _REASONING,
    ),
    **dict.fromkeys(
        ("information_retrieval", "summarization", "instruction_extraction", "sentiment_analysis"),
        _INFORMATION,
    ),
    **dict.fromkeys(
        ("multimodal_synthesis", "cross_modal_verification", "audio_visual_alignment", "motion_analysis"),
        _MULTIMODAL,
    ),
}
TASKS = tuple(_FAMILY)
_CANONICAL: Mapping[str, str] = {
    "ocr_text_extraction": "entity_recognition",
    "visual_scene_understanding": "event_understanding",
    "spatial_reasoning": "temporal_reasoning",
    "speech_transcription": "audio_understanding",
    "speaker_identification": "audio_understanding",
    "commonsense_reasoning": "causal_reasoning",
    "mathematical_reasoning": "quantitative_reasoning",
    "pattern_recognition": "quantitative_reasoning",
    "reasoning_tasks": "quantitative_reasoning",
    "counterfactual_reasoning": "compositional_reasoning",
    "question_answering": "summarization",
    "ethical_reasoning": "sentiment_analysis",
    "multimodal_translation": "motion_analysis",
}
"""Raw task names that the published evaluation counts with another."""

_USED = ("sample_id", "task", "conversations")


@dataclass(frozen=True, config=STRICT)
class Config:
    """Where the benchmark is.

    Attributes:
        root: the folder of the release.
        path: the question file, relative to the root or absolute; Parquet as released, or JSON Lines.
        videos: the folder of the videos, `<video_id>.mp4`, below the root.
    """

    root: str
    path: str = "postvalid_v1/test-00000-of-00001.parquet"
    videos: str = "videos"


def load(config: Config) -> Loaded:
    """The items of the question file.

    Raises:
        DataFileError: a file or folder is missing, or the file holds no conversation.
        ConfigError: it is Parquet, and pyarrow is not installed.
    """
    root = existing_folder(Path(config.root), what="root of LongShOTBench")
    path = existing_file(root / Path(config.path).expanduser(), what="question file")
    collector = Collector()
    for where, record in read_rows(path):
        if isinstance(record, RecordError):
            collector.reject(record, where=where)
        else:
            _add_conversation(collector, config, root, record, where)
    if not collector.items and not collector.rejected:
        raise DataFileError("The file holds no conversation.", remedy="Download it again.", path=path)
    return collector.loaded()


def _add_conversation(
    collector: Collector, config: Config, root: Path, record: dict[str, Any], where: str
) -> None:
    sample_id = None
    try:
        sample_id = text_of(record, "sample_id")
        turns = record.get("conversations")
        if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
            raise wrong("conversations", turns, "a list of turns")
        roles = [turn.get("role") for turn in turns]
        if not turns or roles != ["user", "assistant"] * (len(turns) // 2):
            raise wrong("conversations", roles, "turns of user and assistant by turns, ending with an answer")
    except ItemError as error:
        collector.reject(error, where=where, item_id=sample_id)
        return
    for place in range(len(turns) // 2):
        item_id = f"{sample_id}/{place}"
        collector.add(item_id, where, partial(_item, config, root, record, place, item_id, where))


def _item(config: Config, root: Path, record: dict[str, Any], place: int, item_id: str, where: str) -> Item:
    turns = record["conversations"]
    asked, answered = turns[2 * place : 2 * place + 2]
    video = film(root, config.videos, text_of(record, "video_id"), where=where, item_id=item_id)
    raw = text_of(record, "task", required=False)
    task = _CANONICAL.get(raw, raw)
    metadata = rest_of(record, _USED)
    seconds = record.get("duration")
    if isinstance(seconds, int | float):
        metadata[STATED_SECONDS] = number_of(record, "duration")
    return Item(
        id=item_id,
        video=video,
        video_id=video.relative_to(root.resolve()).as_posix(),
        question=text_of(asked, "content"),
        answer=text_of(answered, "content"),
        task=task,
        task_family=_FAMILY.get(task, ""),
        turns=tuple(Turn(turn["role"], text_of(turn, "content")) for turn in turns[: 2 * place]),
        rubric=_rubric(answered.get("criteria")),
        metadata={
            **metadata,
            "raw_task": raw,
            "turn": place,
            **{key: asked[key] for key in ("modalities", "difficulty") if asked.get(key) is not None},
        },
    )


def _rubric(criteria: Any) -> tuple[Criterion, ...]:
    """The criteria and their points, negative for penalties however the release writes their weight."""
    if not isinstance(criteria, list) or not all(isinstance(entry, dict) for entry in criteria):
        raise wrong("criteria", criteria, "a list of criteria")
    rubric = []
    for entry in criteria:
        weight = number_of(entry, "weight")
        if weight is None:
            raise wrong("weight", None, "a number")
        points = -abs(weight) if entry.get("is_penalty") else weight
        rubric.append(Criterion(text_of(entry, "description"), points))
    return tuple(rubric)
