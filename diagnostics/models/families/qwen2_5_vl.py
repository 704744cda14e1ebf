"""Qwen2.5-VL and the checkpoints built on it (Lingshu, MedGRPO): times are positions, not text.

A video is one run of tokens. The temporal position of unit u is
`int(u * tokens_per_second * second_per_grid)`, with one `second_per_grid` for the whole video: evenly
spaced frames can be expressed, others cannot, and the record says so. `size` bounds height x width of
each frame, whatever their number.

The positions are made here and handed to the model. The family was trained with text that goes on after
the largest position of the video (so did transformers 4.49 to 5.2, and so does vLLM); transformers 5.3 to
5.24 lets it go on `max(rows, columns)` after the video's start, which puts the question of a long video
before most of its frames. Up to 5.16 `second_per_grid` was also cut to whole seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from diagnostics.models.families import qwen3_vl
from diagnostics.video.selection import Selection

__all__ = [
    "MODEL_TYPES",
    "frame_limit",
    "largest_position",
    "notices",
    "pixels_left",
    "positions",
    "size_limits",
    "video_arguments",
    "vision_pairs",
]

MODEL_TYPES = ("qwen2_5_vl",)

_UNEVEN = 0.25
"""Largest deviation of a spacing from the mean one, as a share of it, that passes as even: rounding
source indices to whole frames moves a spacing by up to one frame."""

_FRAMES_PER_UNIT = 2
_TEXT, _IMAGE, _VIDEO = 0, 1, 2
"""Values of the processor's `mm_token_type_ids`."""


def video_arguments(selection: Selection) -> dict[str, Any]:
    """Metadata from which the processor takes the spacing of the frames, and nothing else.

    It computes frames per second as slots over source frames times the source's rate; where the slots
    do not stand for the whole video, a rate is given from which the shown spacing comes out.
    """
    arguments = qwen3_vl.video_arguments(selection)
    (metadata,) = arguments["video_metadata"]
    metadata["fps"] = selection.source_frames / (len(selection) * _told_spacing(selection))
    return arguments


def size_limits(min_pixels: int | None, max_pixels: int | None, current: dict[str, int]) -> dict[str, int]:
    """The video processor's `size`: pixels of one frame."""
    return qwen3_vl.size_limits(min_pixels, max_pixels, current)


def frame_limit(frame_pixels: int, n_frames: int, current: dict[str, int]) -> dict[str, int]:
    """The video processor's `size` that gives each frame at most `frame_pixels`, whatever their number."""
    del n_frames
    return {**current, "longest_edge": frame_pixels}


def pixels_left(n_frames: int, current: dict[str, int]) -> None:
    """None: the budget is of each frame, whatever their number."""
    del n_frames, current


def notices(selection: Selection, model: Any) -> list[str]:
    """Where temporal positions misstate the slots' times, and where units share one."""
    told, frame = _told_spacing(selection), 1 / selection.source_fps
    found = []
    gaps = np.diff(selection.shown_seconds)
    mean = gaps.mean() if len(gaps) else told
    if len(gaps) and (mean <= 0 or np.max(np.abs(gaps - mean)) > max(frame, _UNEVEN * mean)):
        found.append(
            f"uneven_spacing: frames lie {gaps.min():.2f} to {gaps.max():.2f} s apart; this family's "
            f"temporal positions assume {told:.2f} s throughout"
        )
    step = _FRAMES_PER_UNIT * told * model.config.vision_config.tokens_per_second
    if len(selection) > _FRAMES_PER_UNIT and step < 1:
        found.append(
            f"shared_positions: temporal units lie {step:.2f} positions apart, so that neighbours share one"
        )
    return found


def positions(model: Any, inputs: Mapping[str, Any]) -> Int[Tensor, "axis one position"]:
    """Rotary positions over time, height and width of one unpadded prompt, as the family was trained.

    Qwen2.5-VL technical report (arXiv 2502.13923), section 2.1.2; layout of text after video as in the
    authors' own contribution to transformers (pull request 35569).
    """
    vision = model.config.vision_config
    grids = {
        kind: iter(inputs[name].tolist() if name in inputs else ())
        for kind, name in ((_IMAGE, "image_grid_thw"), (_VIDEO, "video_grid_thw"))
    }
    seconds = iter(inputs.get("second_per_grid_ts", ()))
    parts: list[Tensor] = []
    start = 0
    for kind, run in groupby(inputs["mm_token_type_ids"][0].tolist()):
        length = sum(1 for _ in run)
        if kind == _TEXT:
            part = torch.arange(length).expand(3, -1)
        else:
            units, rows, cols = next(grids[kind])
            step = vision.tokens_per_second * next(seconds) if kind == _VIDEO else 1
            axes = (
                (torch.arange(units) * step).long(),
                torch.arange(rows // vision.spatial_merge_size),
                torch.arange(cols // vision.spatial_merge_size),
            )
            part = torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1)
        parts.append(part + start)
        start = int(parts[-1].max()) + 1
    return torch.cat(parts, dim=1)[:, None]


def largest_position(model: Any, inputs: Mapping[str, Any]) -> int:
    """The largest rotary position of the prompt: the video's length in positions, and the text's."""
    return qwen3_vl.largest_position(model, inputs)


def vision_pairs(vision: Any, grid: tuple[int, int, int]) -> int:
    """Pairs of query and key in the vision tower, over its blocks: in most of them patches see those of their
    own window of `window_size` pixels, in `fullatt_block_indexes` those of their own unit.

    Windows are cut from the grid after merging, the last of a row or column taking what is left (technical
    report, arXiv 2502.13923, section 2.1.1).
    """
    units, rows, cols = grid
    merge = vision.spatial_merge_size
    side = vision.window_size // merge // vision.patch_size
    tall, wide = (_squares(length // merge, side) for length in (rows, cols))
    windowed, whole = tall * wide * merge**4, (rows * cols) ** 2
    full = len(vision.fullatt_block_indexes)
    return units * (full * whole + (int(vision.depth) - full) * windowed)


def _squares(length: int, side: int) -> int:
    """Sum of squared lengths of the pieces of `length`, `side` each and the rest."""
    return length // side * side**2 + (length % side) ** 2


def _told_spacing(selection: Selection) -> float:
    """Seconds from slot to slot that the positions express.

    Slots spread over the whole video: its duration over their number, as every published pipeline has it
    (their own spacing, duration over number minus one, differs by less than a slot in all). Slots over
    a part of it, or under another clock: their mean spacing.
    """
    whole = selection.source_frames / selection.source_fps / len(selection)
    intervals = len(selection) - 1
    if intervals == 0:
        return whole
    shown = selection.shown_seconds
    span = float(shown[-1] - shown[0])
    if span <= 0 or abs(span - whole * intervals) <= whole + 1 / selection.source_fps:
        return whole
    return span / intervals
