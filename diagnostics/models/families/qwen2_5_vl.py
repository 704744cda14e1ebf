"""Qwen2.5-VL and the checkpoints built on it (Lingshu, MedGRPO): times are positions, not text.

A video is one run of tokens. The temporal position of unit u is
`int(u * tokens_per_second * second_per_grid)`, with one `second_per_grid` for the whole video: evenly
spaced frames can be expressed, others cannot, and the record says so. `size` bounds height x width of
each frame, whatever their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from diagnostics.models.families import qwen3_vl
from diagnostics.video.selection import Selection

__all__ = ["MODEL_TYPES", "largest_position", "notices", "size_limits", "video_arguments"]

MODEL_TYPES = ("qwen2_5_vl",)

_UNEVEN = 0.25
"""Largest deviation of a spacing from the mean one, as a share of it, that passes as even: rounding
source indices to whole frames moves a spacing by up to one frame."""


def video_arguments(selection: Selection) -> dict[str, Any]:
    """Metadata whose sampled rate is the number of slots over the stretch of video they stand for."""
    return qwen3_vl.video_arguments(selection)


def size_limits(min_pixels: int | None, max_pixels: int | None, current: dict[str, int]) -> dict[str, int]:
    """The video processor's `size`: pixels of one frame."""
    return qwen3_vl.size_limits(min_pixels, max_pixels, current)


def notices(selection: Selection) -> list[str]:
    """A sentence where the slots' times are uneven or out of order, so positions misstate them."""
    gaps = np.diff(selection.shown_seconds)
    if len(gaps) < 2:
        return []
    frame = 1 / selection.source_fps
    if np.max(np.abs(gaps - gaps.mean())) <= max(frame, _UNEVEN * abs(gaps.mean())):
        return []
    return [
        f"uneven_spacing: frames lie {gaps.min():.2f} to {gaps.max():.2f} s apart; this family's temporal "
        f"positions assume {gaps.mean():.2f} s throughout"
    ]


def largest_position(model: Any, inputs: Mapping[str, Any]) -> int:
    """The largest rotary position of the prompt: for hours of video, that of its last unit's time."""
    return qwen3_vl.largest_position(model, inputs)
