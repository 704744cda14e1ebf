"""Accuracy of a trained model on a split it has not seen, by task, with and without the video."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from transformers import Qwen3VLForConditionalGeneration

from diagnostics.data.items import Item
from diagnostics.data.minihorizon.files import content
from diagnostics.testbed.batches import make_batch
from diagnostics.testbed.checkpoint import processor
from diagnostics.testbed.footage import Footage
from diagnostics.testbed.lessons import Form, Lesson, with_options
from diagnostics.testbed.training import first_token_logits
from diagnostics.video.sampling import select_frames, uniform, uniform_plus_evidence
from diagnostics.video.selection import Selection

__all__ = ["FLOORS", "MEASURED", "Score", "Shown", "below_floor", "held_out"]

FLOORS: Mapping[str, float] = MappingProxyType(
    {"Hist": 0.95, "Site": 0.85, "Size": 0.85, "PR": 0.85, "RSR": 0.85}
)
"""Accuracy with options that the first five tasks must reach on enriched frames."""

_BATCH = 32


@dataclass(frozen=True, slots=True)
class Shown:
    """Which frames of a test video are shown.

    Attributes:
        frames: `enriched`: uniform, half of the slots given to the evidence. `uniform`: evenly spaced over
            the video; of the items, those whose every evidence window is hit.
        budget: how many, an even number.
    """

    frames: Literal["enriched", "uniform"]
    budget: int

    def select(self, footage: Footage, video: int, item: Item) -> Selection | None:
        """The frames of an item; None where they miss a window of its evidence."""
        index = footage.indices[video]
        if self.frames == "enriched":
            enriched = uniform_plus_evidence.Config(budget=self.budget, evidence_frames=self.budget // 2)
            return select_frames(uniform_plus_evidence, enriched, index, item)
        selection = select_frames(uniform, uniform.Config(budget=self.budget), index, item)
        windows = item.evidence.windows if item.evidence is not None else ()
        shown = selection.frame_indices
        for window in windows:
            assert window.start_frame is not None  # MiniHorizon knows its frames
            assert window.end_frame is not None
            if not ((shown >= window.start_frame) & (shown < window.end_frame)).any():
                return None
        return selection


MEASURED = (Shown("enriched", 16), Shown("uniform", 24), Shown("uniform", 32))
"""What the card tells: all at trained lengths."""


@dataclass(frozen=True, slots=True)
class Score:
    """Items of one task answered rightly, of how many.

    Attributes:
        form: `choice` (the likeliest letter of the options) or `open` (the likeliest first token).
        frames, budget: what was shown (`Shown`).
    """

    task: str
    form: Form
    frames: str
    budget: int
    right: int
    n: int

    @property
    def share(self) -> float:
        """Accuracy; NaN without items."""
        return self.right / self.n if self.n else float("nan")


def below_floor(scores: Sequence[Score]) -> list[Score]:
    """Scores with options, on enriched frames, that miss their task's floor (`FLOORS`)."""
    asked = [s for s in scores if s.form == "choice" and s.frames == "enriched" and s.task in FLOORS]
    return [score for score in asked if not score.share >= FLOORS[score.task]]


def held_out(
    model: Qwen3VLForConditionalGeneration,
    footage: Footage,
    shown: Shown,
    *,
    per_task: int | None = None,
    forms: Sequence[Form] = ("choice", "open"),
) -> list[Score]:
    """Accuracy on the split's own items, task by task, in each form.

    Args:
        footage: the split, decoded.
        shown: which frames.
        per_task: the first items of each task; None for all.
    """
    items = content(footage.config, footage.folder)[1]
    videos = {f"{procedure.name}.mp4": procedure.index for procedure in footage.procedures}
    scores = []
    for task in dict.fromkeys(item.task for item in items):
        asked = [item for item in items if item.task == task][:per_task]
        selections = [shown.select(footage, videos[item.video_id], item) for item in asked]
        for form in forms:
            lessons = [
                _lesson(footage, videos[item.video_id], item, selection, form)
                for item, selection in zip(asked, selections, strict=True)
                if selection is not None
            ]
            right = sum(
                _right(model, footage, lessons[start : start + _BATCH])
                for start in range(0, len(lessons), _BATCH)
            )
            scores.append(Score(task, form, shown.frames, shown.budget, right, len(lessons)))
    return scores


def _lesson(footage: Footage, video: int, item: Item, frames: Selection, form: Form) -> Lesson:
    rows = footage.first[video] + frames.frame_indices
    assert item.answer is not None
    truth = item.options[item.letters.index(item.answer)]
    if form == "open":
        return Lesson(item.task, form, item.question, truth, (), rows, frames.shown_seconds)
    text = with_options(item.question, item.options)
    return Lesson(item.task, form, text, item.answer, item.letters, rows, frames.shown_seconds)


def _right(model: Qwen3VLForConditionalGeneration, footage: Footage, lessons: Sequence[Lesson]) -> int:
    """How many first answer tokens are right: among the letters where there are options."""
    tokenizer = processor().tokenizer
    logits = first_token_logits(model, make_batch(lessons, footage)).numpy()
    right = 0
    for row, lesson in zip(logits, lessons, strict=True):
        wanted = tokenizer.encode(lesson.answer)[0]
        among = [tokenizer.encode(letter)[0] for letter in lesson.letters] or list(range(len(row)))
        right += among[int(np.argmax(row[among]))] == wanted
    return right
