"""VideoLLaMA3: units of one frame, of which only the tokens that changed since the frame before are kept.

A video of U frames reads

    Time 0.0s:<video> x n_0,Time 1.5s:<video> x n_1, ... ,Time t.ts:<video> x n_U

with no delimiter around it; the comma is part of what stands before the next unit. With token compression
(`use_token_compression`, on in the checkpoints) a token is kept where its patch differs from the same patch
of the frame before by more than 0.1 of 255 steps of the normalised picture, on average; the first frame is
kept whole and every frame keeps at least one token (its first, where all are alike). So n_u varies, and a
token's place in its frame comes from `video_compression_mask`, which counts all rows x columns of all frames
in row-major order. Videos are merged 2x2, by averaging; images are not (`image_merge_sizes` is 1).

Two videos that differ in a frame therefore have prompts of other tokens: states of one cannot be put into the
other (`+exp=patching`), unless compression is off, which is not how the checkpoint is used by default:
`model.family=hooks.families.video_llama_3.UNCOMPRESSED`.

The encoder returns every token; the mask is applied afterwards. `size` bounds time x height x width of the
whole video, the upper limit only, so frames shrink as their number grows. Times are rounded to 0.1 s.
Positions are plain: one per token.

Source: transformers' `video_llama_3`; VideoLLaMA 3 (arXiv 2501.13106).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.errors import TokenMapError
from hooks.families._family import Family, Shown
from hooks.families._grid import check_types, counted_off
from hooks.families._runs import split_runs, text_before
from hooks.families._sources import (
    REPORT,
    Kind,
    Mark,
    Source,
    Unit,
    array,
    frames_given,
    full_grid,
    sequence,
)

__all__ = ["FAMILY", "UNCOMPRESSED"]

_TIME = re.compile(r",?Time (\d+\.\d)s:$")
_LONGEST_TIME = 24  # tokens; ",Time 133200.0s:" is 14 where every digit is one


@dataclass(frozen=True)
class _VideoLlama3(Family):
    """The family, with token compression as the checkpoint has it or off."""

    compressed: bool = True

    def vision(self, model: Any) -> Any:
        """The vision tower, without the projector."""
        return self.base(model).vision_model

    def sources(
        self,
        model: Any,
        processor: Any,
        inputs: Mapping[str, Any],
        row: int,
        n_frames: int | Sequence[int] | None,
    ) -> list[Source]:
        """As in the base class; which tokens of a video were kept is read from the compression mask."""
        tokenizer = getattr(processor, "tokenizer", processor)
        ids, padding = sequence(inputs, row)
        found: list[Source] = []
        for kind, token in self.placeholders(model).items():
            merged = _merged(inputs, kind)
            kept = np.split(_kept(inputs, kind, merged), np.cumsum(merged.prod(axis=1))[:-1])
            sizes = np.array([int(one.sum()) for one in kept], dtype=np.int64)[: len(merged)]
            here = (ids == token) & ~padding
            blocks = counted_off(here, sizes, row, f"{kind.name.lower()}s")
            check_types(inputs, row, kind, np.flatnonzero(here[row]))
            frames = frames_given(n_frames, len(blocks)) if kind is Kind.VIDEO else [1] * len(blocks)
            starts = np.cumsum(merged.prod(axis=1)) - merged.prod(axis=1)
            for (number, block), given in zip(blocks.items(), frames, strict=True):
                grid = (int(merged[number][0]), int(merged[number][1]), int(merged[number][2]))
                _check_frames(grid[0], given)
                units = _units(grid, kept[number], block, int(starts[number]))
                found.append(
                    _timed(tokenizer, ids[row], units) if kind is Kind.VIDEO else Source(kind, units)
                )
        return sorted(found, key=lambda source: int(source.units[0].positions[0]))

    def video_arguments(self, shown: Shown) -> dict[str, Any]:
        """As in the base class, and that all tokens are kept where compression is off."""
        arguments = super().video_arguments(shown)
        return arguments if self.compressed else {**arguments, "use_token_compression": False}

    def size_limits(
        self, min_pixels: int | None, max_pixels: int | None, current: Mapping[str, int]
    ) -> dict[str, int]:
        """The video processor's `size`: least pixels of a frame, and a budget over time x height x width."""
        limits = dict(current)
        if min_pixels is not None:
            limits["shortest_edge"] = min_pixels
        if max_pixels is not None:
            limits["longest_edge"] = max_pixels
        return limits

    def frame_limit(self, frame_pixels: int, n_frames: int, current: Mapping[str, int]) -> dict[str, int]:
        """The video processor's `size` that gives each of `n_frames` frames at most `frame_pixels`."""
        return {**current, "shortest_edge": 1, "longest_edge": frame_pixels * n_frames}

    def pixels_left(self, n_frames: int, current: Mapping[str, int]) -> int:
        """Pixels of each of `n_frames` frames under a budget of time x height x width."""
        return int(current["longest_edge"]) // n_frames

    def shown_size(self, processor: Any, inputs: Mapping[str, Any]) -> tuple[int, int] | None:
        """Height and width in pixels that the first video's frames were resized to."""
        if inputs.get("video_grid_thw") is None:
            return None
        _, rows, cols = (int(size) for size in array(inputs["video_grid_thw"])[0])
        patch = int(processor.video_processor.patch_size)
        return rows * patch, cols * patch

    def notices(self, shown: Shown, model: Any, inputs: Mapping[str, Any] | None = None) -> list[str]:
        """How many tokens were dropped."""
        del shown, model
        mask = None if inputs is None else inputs.get("video_compression_mask")
        kept = np.ones(0, dtype=bool) if mask is None else array(mask).astype(bool)
        if kept.all():
            return []
        return [
            f"tokens_dropped: {int((~kept).sum())} of {kept.size} visual tokens were alike in the frame"
            " before and left out by token compression"
        ]

    def vit_tokens(self, model: Any, output: Any, arguments: Mapping[str, Any]) -> Float[Tensor, "token dim"]:
        """The tower itself averages merge windows and returns tokens in prompt order, none dropped."""
        del model, arguments
        return output.last_hidden_state.float()


def _merged(inputs: Mapping[str, Any], kind: Kind) -> Int[np.ndarray, "source 3"]:
    """Frames, rows and columns in tokens of each video or image of the batch, before any token is dropped."""
    name = kind.name.lower()
    if inputs.get(f"{name}_grid_thw") is None:
        return np.empty((0, 3), dtype=np.int64)
    grids = np.array(array(inputs[f"{name}_grid_thw"]), dtype=np.int64)
    merge = array(inputs[f"{name}_merge_sizes"]).astype(np.int64)[:, None]
    if (grids[:, 1:] % merge).any():
        raise TokenMapError(
            f"{name}_grid_thw {grids.tolist()} does not divide by the merge sizes {merge.ravel().tolist()}.",
            remedy=REPORT,
        )
    grids[:, 1:] //= merge
    return grids


def _kept(
    inputs: Mapping[str, Any], kind: Kind, merged: Int[np.ndarray, "source 3"]
) -> Bool[np.ndarray, " place"]:
    """Which places of all grids of a kind have a token in the prompt."""
    places = int(merged.prod(axis=1).sum())
    mask = inputs.get("video_compression_mask") if kind is Kind.VIDEO else None
    if mask is None:
        return np.ones(places, dtype=bool)
    kept = array(mask).astype(bool).reshape(-1)
    if len(kept) != places:
        raise TokenMapError(
            f"video_compression_mask has {len(kept)} entries for {places} places of the grids.", remedy=REPORT
        )
    return kept


def _check_frames(units: int, given: int | None) -> None:
    if given is not None and given != units:
        raise TokenMapError(
            f"{given} frames make as many units, the grid has {units}.",
            remedy="The processor sampled frames again: pass do_sample_frames=False and full video metadata.",
        )


def _units(
    grid: tuple[int, int, int],
    kept: Bool[np.ndarray, " place"],
    positions: Int[np.ndarray, " token"],
    feature_start: int,
) -> list[Unit]:
    """The frames of one video, or the one of an image."""
    units, rows, cols = grid
    place_row, place_col = full_grid(rows, cols)
    by_frame = kept.reshape(units, rows * cols)
    blocks = np.split(positions, np.cumsum(by_frame.sum(axis=1))[:-1])
    return [
        Unit(
            positions=block,
            row=place_row[places],
            col=place_col[places],
            grid=(rows, cols),
            slots=(index,),
            feature_start=feature_start + index * rows * cols,
            features=np.flatnonzero(places),
        )
        for index, (block, places) in enumerate(zip(blocks, by_frame, strict=True))
    ]


def _timed(tokenizer: Any, ids: Int[np.ndarray, " position"], units: Sequence[Unit]) -> Source:
    """A video with the time before each frame.

    Raises:
        TokenMapError: a frame's tokens are spread, or no time stands before them.
    """
    marks: list[Mark] = []
    told: list[Unit] = []
    for index, unit in enumerate(units):
        if len(split_runs(unit.positions)) != 1:
            raise TokenMapError(
                f"The {len(unit.positions)} tokens of frame {index} do not follow one another.", remedy=REPORT
            )
        after = int(units[index - 1].positions[-1]) + 1 if index else 0
        found = text_before(tokenizer, ids, int(unit.positions[0]), _TIME, _LONGEST_TIME, after)
        if found is None:
            raise TokenMapError(
                f"No time stands before frame {index} at position {int(unit.positions[0])}.",
                remedy="Build the prompt with the checkpoint's own processor and video metadata.",
            )
        match, positions = found
        marks.append(Mark(Kind.TIMESTAMP, index, positions))
        told.append(replace(unit, shown_seconds=float(match.group(1))))
    return Source(Kind.VIDEO, told, marks)


FAMILY = _VideoLlama3(
    name="video_llama_3",
    model_types=("video_llama_3",),
    tells_time=True,
    units_alone=True,
)
UNCOMPRESSED = replace(FAMILY, name="video_llama_3_uncompressed", compressed=False)
