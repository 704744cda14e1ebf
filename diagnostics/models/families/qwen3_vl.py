"""Qwen3-VL: times are told as text, `<3.2 seconds>`, before each temporal unit.

The processor computes a unit's time as the mean of its frames' `index / fps`. It must be told not to
sample again (`do_sample_frames=False`): seven pre-selected frames without metadata come back as four.
The indices are passed as an array because the processor pads a list of odd length in place.
`size` bounds time x height x width of the whole video, so frames shrink as their number grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from diagnostics.video.selection import Selection

__all__ = [
    "MODEL_TYPES",
    "TOLD_BY_METADATA",
    "frame_limit",
    "largest_position",
    "notices",
    "pixels_left",
    "positions",
    "size_limits",
    "video_arguments",
    "vision_pairs",
]

MODEL_TYPES = ("qwen3_vl", "qwen3_vl_moe")

TOLD_BY_METADATA = True

_CLOCK_TOLERANCE = 5e-4
"""Seconds within which `index / fps` counts as the shown time (container time bases round to 1 ms)."""


def video_arguments(selection: Selection) -> dict[str, Any]:
    """Metadata from which the processor writes the shown times into the prompt.

    Source indices and frame rate where they give the shown times, as every published pipeline passes
    them. Where they don't (variable frame rate, a start offset, a perturbed clock, blanks), the shown times
    themselves, in units of the source's frame period.
    """
    shown, fps = selection.shown_seconds, selection.source_fps
    indices: np.ndarray = selection.frame_indices
    if np.any(indices < 0) or np.max(np.abs(indices / fps - shown)) > _CLOCK_TOLERANCE:
        indices = shown * fps
    metadata = {
        "fps": fps,
        "frames_indices": indices,
        "total_num_frames": selection.source_frames,
        "duration": selection.source_seconds,
    }
    return {"video_metadata": [metadata], "do_sample_frames": False}


def size_limits(min_pixels: int | None, max_pixels: int | None, current: dict[str, int]) -> dict[str, int]:
    """The video processor's `size`: a budget of pixels over time x height x width."""
    limits = dict(current)
    if min_pixels is not None:
        limits["shortest_edge"] = min_pixels
    if max_pixels is not None:
        limits["longest_edge"] = max_pixels
    return limits


def frame_limit(frame_pixels: int, n_frames: int, current: dict[str, int]) -> dict[str, int]:
    """The video processor's `size` that gives each of `n_frames` frames at most `frame_pixels`.

    Nothing is enlarged either: the least pixels of a video (`shortest_edge`) would enlarge the frames of
    short ones alone. Of an odd number of frames the processor counts one more or one less: give an even one.
    """
    return {**current, "shortest_edge": 1, "longest_edge": frame_pixels * (n_frames + n_frames % 2)}


def pixels_left(n_frames: int, current: dict[str, int]) -> int:
    """Pixels of each of `n_frames` frames under a budget of time x height x width."""
    return int(current["longest_edge"]) // (n_frames + n_frames % 2)


def notices(selection: Selection, model: Any) -> list[str]:
    """Nothing: any sequence of times can be written as text."""
    del selection, model
    return []


def positions(model: Any, inputs: Mapping[str, Any]) -> None:
    """None: the library's own rotary positions are those the family was trained with."""
    del model, inputs


def largest_position(model: Any, inputs: Mapping[str, Any]) -> int:
    """The largest rotary position of the prompt, over time, height and width."""
    if "position_ids" in inputs:
        return int(inputs["position_ids"].max())
    names = (
        "input_ids",
        "mm_token_type_ids",
        "image_grid_thw",
        "video_grid_thw",
        "attention_mask",
    )
    found, _ = model.model.get_rope_index(**{name: inputs[name] for name in names if name in inputs})
    return int(found.max())


def vision_pairs(vision: Any, grid: tuple[int, int, int]) -> int:
    """Pairs of query and key in the vision tower, over its blocks: patches see those of their own unit.

    Args:
        vision: the vision tower's configuration.
        grid: units, rows and columns of patches.
    """
    units, rows, cols = grid
    return int(vision.depth) * units * (rows * cols) ** 2
