"""Accuracy of a trained model on a split it has not seen, by task, with and without the video."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from transformers import Qwen3VLForConditionalGeneration

from diagnostics.data.items import Item
from diagnostics.data.minihorizon.files import content
from diagnostics.testbed.batches import make_batch
from diagnostics.testbed.checkpoint import processor
from diagnostics.testbed.footage import Footage
from diagnostics.testbed.lessons import Form, Lesson, with_options
from diagnostics.testbed.training import first_token_logits
from diagnostics.video.sampling.uniform_plus_evidence import Config as Sampling
from diagnostics.video.sampling.uniform_plus_evidence import select

__all__ = ["Score", "held_out"]

_BATCH = 32


@dataclass(frozen=True, slots=True)
class Score:
    """Items of one task answered rightly, of how many.

    Attributes:
        form: `choice` (the likeliest letter of the options) or `open` (the likeliest first token).
    """

    task: str
    form: Form
    right: int
    n: int

    @property
    def share(self) -> float:
        """Accuracy; NaN without items."""
        return self.right / self.n if self.n else float("nan")


def held_out(
    model: Qwen3VLForConditionalGeneration,
    footage: Footage,
    sampling: Sampling,
    *,
    per_task: int | None = None,
    forms: Sequence[Form] = ("choice", "open"),
) -> list[Score]:
    """Accuracy on the split's own items, task by task, in each form.

    Args:
        footage: the split, decoded.
        sampling: the frames that are shown: an even budget.
        per_task: the first items of each task; None for all.
    """
    items = content(footage.config, footage.folder)[1]
    scores = []
    for task in dict.fromkeys(item.task for item in items):
        asked = [item for item in items if item.task == task][:per_task]
        for form in forms:
            right = 0
            for start in range(0, len(asked), _BATCH):
                part = asked[start : start + _BATCH]
                right += _right(model, footage, [_lesson(footage, item, sampling, form) for item in part])
            scores.append(Score(task, form, right, len(asked)))
    return scores


def _lesson(footage: Footage, item: Item, sampling: Sampling, form: Form) -> Lesson:
    video = next(p.index for p in footage.procedures if item.video_id == f"{p.name}.mp4")
    frames = select(sampling, footage.indices[video], item)
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
