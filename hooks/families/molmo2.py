"""Molmo2: frames of pooled tokens behind their times; pictures that see one another in both directions.

A video of F frames reads

    0.0 <frame_start><im_patch> x rows*cols<frame_end> 1.5 <frame_start>...<frame_end> ...

and an image, at low resolution and then at high,

    <low_res_im_start><im_patch> x rows*cols<im_end><im_start>(<im_patch> x cols<im_col>) x rows<im_end>

Quirks:

- Frames and images share the placeholder `<im_patch>`. One prompt holds one video, or images, never both,
  and whatever `video_grids` or `image_grids` says is there tells which.
- Placeholders *add* the picture's features to their own embedding; other families replace it.
- All tokens of pictures, delimiters among them, attend to one another in both directions, across frames:
  the first frame's states know the last frame. So a visual row attends to later positions, and states
  before a place in the prompt hang on visual tokens behind it (`two_way` positions). Text is causal.
- Frames are squeezed into a square of 378 pixels, whatever their shape, 27 x 27 patches, pooled 3 x 3 to 9
  x 9 tokens. Images are pooled 2 x 2, the high resolution from up to 8 overlapping crops whose margins are
  dropped; windows at the edge hold fewer patches. An image is one unit: the low resolution's rows, and
  below them the high resolution's, where they lie in the picture; the grid is that tall.
- Times are rounded to 0.1 s.
- The marks' embeddings lie behind the vocabulary, in a table of their own: they can be read, never
  predicted.
- The video processor's class neither rescales nor normalises unless its configuration says so.

Source: transformers' `molmo2`; Molmo2 (arXiv 2601.10611).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.errors import TokenMapError
from hooks.families._family import Family
from hooks.families._grid import counted_off
from hooks.families._runs import beside, split_runs, text_before
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

__all__ = ["FAMILY"]

_TIME = re.compile(r" ?(\d+\.\d) $")
_LONGEST_TIME = 24  # tokens; " 133200.0 " is 10 where every character is one
_POOLING = {Kind.VIDEO: "video_token_pooling", Kind.IMAGE: "image_token_pooling"}


@dataclass(frozen=True)
class _Marks:
    """Ids of the tokens around pictures."""

    opens: frozenset[int]
    closes: frozenset[int]
    column: int

    @classmethod
    def of(cls, model: Any, tokenizer: Any) -> _Marks:
        config = model.config
        return cls(
            opens=frozenset(
                (
                    config.image_start_token_id,
                    config.low_res_image_start_token_id,
                    config.frame_start_token_id,
                )
            ),
            closes=frozenset((config.image_end_token_id, config.frame_end_token_id)),
            column=int(tokenizer.convert_tokens_to_ids("<im_col>")),
        )


@dataclass(frozen=True)
class _Molmo2(Family):
    def sources(
        self,
        model: Any,
        processor: Any,
        inputs: Mapping[str, Any],
        row: int,
        n_frames: int | Sequence[int] | None,
    ) -> list[Source]:
        """As in the base class: which kind there is, is told by the grids the processor returned."""
        tokenizer = getattr(processor, "tokenizer", processor)
        ids, padding = sequence(inputs, row)
        token = self.placeholders(model)[Kind.VIDEO]
        kind, grids = _grids(inputs)
        sizes = _sizes(kind, grids)
        blocks = counted_off((ids == token) & ~padding, sizes, row, f"{kind.name.lower()}_grids")
        frames = frames_given(n_frames, len(blocks)) if kind is Kind.VIDEO else [None] * len(blocks)
        starts = np.cumsum(sizes) - sizes
        marks = _Marks.of(model, tokenizer)
        found: list[Source] = []
        for (number, block), given in zip(blocks.items(), frames, strict=True):
            grid = grids[number].tolist()
            if kind is Kind.IMAGE:
                found.append(_image(ids[row], block, grid, int(starts[number]), marks))
                continue
            if given is not None and given != grid[0]:
                raise TokenMapError(
                    f"{given} frames were given, the grid has {grid[0]}.",
                    remedy="Pass do_sample_frames=False and full video metadata to the processor.",
                )
            found.append(_video(tokenizer, ids[row], block, grid, int(starts[number]), marks))
        _check_types(inputs, row, found)
        return found

    def two_way(self, model: Any, inputs: Mapping[str, Any], row: int) -> Int[np.ndarray, " position"] | None:
        """All pictures and the delimiters around them are one block; without the processor's account of them
        the model makes none."""
        del model
        types = inputs.get("mm_token_type_ids")
        if types is None:
            return None
        return np.where(np.atleast_2d(array(types))[row] == 1, 0, -1)

    def joined(self, name: str, inputs: Sequence[Mapping[str, Any]]) -> Tensor:
        """As in the base class; what a token is pooled from is counted through all prompts' patches."""
        pixels = {"video_token_pooling": "pixel_values_videos", "image_token_pooling": "pixel_values"}.get(
            name
        )
        if pixels is None:
            return super().joined(name, inputs)
        before = np.cumsum([0, *(one[pixels].shape[0] * one[pixels].shape[1] for one in inputs)])
        return torch.cat(
            [
                torch.where(one[name] >= 0, one[name] + int(start), one[name])
                for one, start in zip(inputs, before, strict=False)
            ]
        )

    def grids(self, model: Any, inputs: Mapping[str, Any]) -> list[tuple[int, int, int]]:
        """One entry for all frames, or all crops of all images, of the batch."""
        side = int(model.config.vision_config.image_size[0]) // int(model.config.vision_config.patch_size)
        found = [
            inputs[name] for name in ("pixel_values_videos", "pixel_values") if inputs.get(name) is not None
        ]
        return [(int(pixels.shape[0]), side, side) for pixels in found]

    def vit_tokens(self, model: Any, output: Any, arguments: Mapping[str, Any]) -> Float[Tensor, "token dim"]:
        """The tower's last state averaged over the patches each token is pooled from.

        What the adapter pools is several layers' states side by side, the last among them in the checkpoints.
        """
        del model
        pooling = next(arguments[name] for name in _POOLING.values() if name in arguments)
        hidden = output.last_hidden_state.flatten(0, 1).float()
        there = (pooling >= 0).to(hidden.dtype)[..., None]
        return (hidden[pooling.clip(0)] * there).sum(dim=1) / there.sum(dim=1).clip(1)


def _grids(inputs: Mapping[str, Any]) -> tuple[Kind, Int[np.ndarray, "source axis"]]:
    """What the batch shows: videos of (frames, rows, columns), or images of two (rows, columns)."""
    videos, images = inputs.get("video_grids"), inputs.get("image_grids")
    if videos is not None and images is not None:
        raise TokenMapError(
            "The batch holds videos and images.", remedy="Molmo2 takes one kind a forward: split the batch."
        )
    if images is not None:
        return Kind.IMAGE, array(images).astype(np.int64)
    return Kind.VIDEO, np.empty((0, 3), np.int64) if videos is None else array(videos).astype(np.int64)


def _sizes(kind: Kind, grids: Int[np.ndarray, "source axis"]) -> Int[np.ndarray, " source"]:
    """Tokens of each video or image."""
    if kind is Kind.VIDEO:
        return grids.prod(axis=1)
    return grids[:, 0] * grids[:, 1] + grids[:, 2] * grids[:, 3]


def _video(
    tokenizer: Any,
    ids: Int[np.ndarray, " position"],
    positions: Int[np.ndarray, " token"],
    grid: Sequence[int],
    feature: int,
    marks: _Marks,
) -> Source:
    """One unit a frame, with the time before it.

    Raises:
        TokenMapError: no time stands before a frame, or other tokens around it.
    """
    frames, rows, cols = grid
    row, col = full_grid(rows, cols)
    units, found = [], []
    after = 0
    for index, block in enumerate(np.split(positions, frames)):
        name = f"frame {index}"
        found += _around(ids, block, index, name, marks)
        opening = int(block[0]) - 1
        time = text_before(tokenizer, ids, opening, _TIME, _LONGEST_TIME, after)
        if time is None:
            raise TokenMapError(
                f"No time stands before {name} at position {opening}.",
                remedy="Build the prompt with the checkpoint's own processor and video metadata.",
            )
        match, written = time
        after = int(block[-1]) + 2
        found.append(Mark(Kind.TIMESTAMP, index, written))
        units.append(
            Unit(
                positions=block,
                row=row,
                col=col,
                grid=(rows, cols),
                slots=(index,),
                feature_start=feature + index * rows * cols,
                shown_seconds=float(match.group(1)),
            )
        )
    return Source(Kind.VIDEO, units, found)


def _image(
    ids: Int[np.ndarray, " position"],
    positions: Int[np.ndarray, " token"],
    grid: Sequence[int],
    feature: int,
    marks: _Marks,
) -> Source:
    """One unit: the rows of the low resolution, and below them those of the high."""
    low_rows, low_cols, high_rows, high_cols = grid
    low, high = np.split(positions, [low_rows * low_cols])
    (low_row, low_col), (high_row, high_col) = full_grid(low_rows, low_cols), full_grid(high_rows, high_cols)
    unit = Unit(
        positions=positions,
        row=np.concatenate([low_row, low_rows + high_row]).astype(np.int32),
        col=np.concatenate([low_col, high_col]).astype(np.int32),
        grid=(low_rows + high_rows, max(low_cols, high_cols)),
        slots=(0,),
        feature_start=feature,
    )
    found = [*_around(ids, low, 0, "an image", marks), *_around(ids, high, 0, "an image", marks)]
    return Source(Kind.IMAGE, [unit], found)


def _around(
    ids: Int[np.ndarray, " position"],
    block: Int[np.ndarray, " token"],
    unit: int,
    name: str,
    marks: _Marks,
) -> list[Mark]:
    """The delimiters of one picture: before it, after it, and at the ends of its rows.

    Raises:
        TokenMapError: other tokens stand there.
    """
    found = [beside(ids, int(block[0]) - 1, set(marks.opens), unit, name)]
    end = int(block[-1]) + 1
    if int(ids[end]) == marks.column:
        found.append(beside(ids, end, {marks.column}, unit, name))
        end += 1
    found.append(beside(ids, end, set(marks.closes), unit, name))
    runs = split_runs(block)
    for before, after in itertools.pairwise(runs):
        between = np.arange(int(before[-1]) + 1, int(after[0]))
        if not (ids[between] == marks.column).all():
            raise TokenMapError(
                f"Tokens {ids[between].tolist()} from position {int(between[0])} on stand among those of"
                f" {name}.",
                remedy=REPORT,
            )
        found.append(Mark(Kind.DELIMITER, unit, between))
    return found


def _check_types(inputs: Mapping[str, Any], row: int, sources: Sequence[Source]) -> None:
    """Cross-check with the processor's own account, which has one type for patches and their delimiters.

    Raises:
        TokenMapError: `mm_token_type_ids` has them elsewhere.
    """
    types = inputs.get("mm_token_type_ids")
    if types is None:
        return
    given = np.atleast_2d(array(types))[row]
    here = np.zeros(len(given), dtype=bool)
    for source in sources:
        for part in [
            *(unit.positions for unit in source.units),
            *(mark.positions for mark in source.marks if mark.kind is Kind.DELIMITER),
        ]:
            here[part] = True
    wrong = np.flatnonzero((given == 1) != here)
    if len(wrong):
        raise TokenMapError(
            f"mm_token_type_ids disagrees with the placeholders at {len(wrong)} positions, the first"
            f" {wrong[0]}.",
            remedy=REPORT,
        )


FAMILY = _Molmo2(
    name="molmo2",
    model_types=("molmo2",),
    tells_time=True,
    most_videos=1,
    mixes_kinds=False,
)
