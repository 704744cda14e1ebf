"""From lessons to the model's input tensors, equal to what the processor makes, only faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from diagnostics.testbed.checkpoint import processor
from diagnostics.testbed.footage import GRID, Footage, unit_pixels
from diagnostics.testbed.lessons import Lesson

__all__ = ["Batch", "make_batch"]

_TOKENS = (GRID // 2) ** 2
"""Tokens of one unit."""


@dataclass(frozen=True)
class Batch:
    """Lessons of one number of units, padded on the right.

    Padding needs no mask: attention is causal, and nothing after the answer is learnt.

    Attributes:
        ids: prompt, answer and end of turn.
        positions: rotary positions, over time, height and width.
        learnt: which tokens are to be predicted (answer and end of turn).
        pixels: patches of all videos; None for look-ups.
        grids: units and patches of each video; None for look-ups.
        asked_at: where the first answer token is predicted from.
    """

    ids: Int[Tensor, "row token"]
    positions: Int[Tensor, "3 row token"]
    learnt: Bool[Tensor, "row token"]
    pixels: Float[Tensor, "patch 1536"] | None
    grids: Int[Tensor, "row 3"] | None
    asked_at: Int[Tensor, " row"]


@cache
def _frame_of_prompt(*, video: bool) -> tuple[str, str]:
    """What the chat template puts before and after the text; the video stands at the end of the first."""
    content = [{"type": "video"}] if video else []
    messages: list[Any] = [{"role": "user", "content": [*content, {"type": "text", "text": "QUESTION"}]}]
    chat = processor().apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    before, after = chat.split("QUESTION")
    return before, after


def prompt(lesson: Lesson) -> str:
    """The prompt's text with every video token written out."""
    if lesson.seconds is None:
        before, after = _frame_of_prompt(video=False)
        return f"{before}{lesson.text}{after}"
    before, after = _frame_of_prompt(video=True)
    times = lesson.seconds.reshape(-1, 2).mean(axis=1)
    unit = f"<|vision_start|>{'<|video_pad|>' * _TOKENS}<|vision_end|>"
    video = "".join(f"<{time:.1f} seconds>{unit}" for time in times)
    return f"{before.replace('<|video_pad|>', video)}{lesson.text}{after}"


def make_batch(lessons: Sequence[Lesson], footage: Footage) -> Batch:
    """One batch of lessons that all have the same number of frames."""
    tokenizer = processor().tokenizer
    prompts = tokenizer([prompt(lesson) for lesson in lessons], add_special_tokens=False)["input_ids"]
    answers = tokenizer([f"{lesson.answer}<|im_end|>" for lesson in lessons], add_special_tokens=False)[
        "input_ids"
    ]
    length = max(len(asked) + len(said) for asked, said in zip(prompts, answers, strict=True))
    ids = np.full((len(lessons), length), tokenizer.pad_token_id, dtype=np.int64)
    learnt = np.zeros_like(ids, dtype=bool)
    for row, (asked, said) in enumerate(zip(prompts, answers, strict=True)):
        end = len(asked) + len(said)
        ids[row, :end] = [*asked, *said]
        learnt[row, len(asked) : end] = True
    pixels = grids = None
    if lessons[0].frames is not None:
        rows = np.concatenate([lesson.frames for lesson in lessons if lesson.frames is not None])
        pixels = unit_pixels(footage.patches[rows])
        grids = torch.tensor([[len(lessons[0].frames) // 2, GRID, GRID]] * len(lessons))
    video = ids == tokenizer.convert_tokens_to_ids("<|video_pad|>")
    return Batch(
        ids=torch.from_numpy(ids),
        positions=torch.from_numpy(rotary_positions(video)),
        learnt=torch.from_numpy(learnt),
        pixels=pixels,
        grids=grids,
        asked_at=torch.tensor([len(asked) - 1 for asked in prompts]),
    )


def rotary_positions(video: Bool[np.ndarray, "row token"]) -> Int[np.ndarray, "3 row token"]:
    """The library's `get_rope_index` for units of 3 x 3 tokens between text, for all rows at once.

    Text advances by one; a unit stands at one time, spans three rows and columns, and advances by three.
    """
    side = GRID // 2
    number = np.cumsum(video, axis=1) - 1  # of each video token, from the row's first
    inside = np.where(video, number % _TOKENS, 0)
    step = np.where(video, np.where(inside == _TOKENS - 1, side, 0), 1)
    base = np.cumsum(step, axis=1) - step
    return np.stack([base, base + inside // side, base + inside % side])
