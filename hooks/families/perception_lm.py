"""PerceptionLM (`perception_lm`): square tiles without anything between them, for videos and images alike.

A video of F frames is `<|video|>` x (F x side x side): each frame is squeezed into one tile (448 pixels in
the checkpoints), its patches pooled (16 x 16 tokens), row-major. A unit is one frame.

An image is a thumbnail of the whole, then its tiles row by row, all of one size. What the processor returns
does not tell 2 x 3 tiles from 3 x 2, so each tile is a unit of its own, the thumbnail the first of its image.
Images of one batch must have equally many tiles, and videos equally many frames: the processor stacks them.

How many tokens a tile has is counted: placeholders over tiles, a square number. The vision tower (timm's
Perception Encoder) hides its patch size.

No times are told, and nothing separates frames: order reaches the model as token positions alone. One
method of the model encodes both images and videos, in two calls where a prompt holds both, images first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from hooks.errors import TokenMapError
from hooks.families._family import Encoder
from hooks.families._frames import FrameFamily, frame_units, require_run
from hooks.families._grid import counted_off
from hooks.families._sources import REPORT, Kind, Source, Unit, frames_given, full_grid, sequence

__all__ = ["FAMILY"]

_PIXELS = {Kind.VIDEO: "pixel_values_videos", Kind.IMAGE: "pixel_values"}


@dataclass(frozen=True)
class _PerceptionLM(FrameFamily):
    def sources(
        self,
        model: Any,
        processor: Any,
        inputs: Mapping[str, Any],
        row: int,
        n_frames: int | Sequence[int] | None,
    ) -> list[Source]:
        """As in the base class: each kind has its placeholder; tiles are counted off in batch order."""
        del processor
        videos, side = self._blocks(model, inputs, row, Kind.VIDEO)
        found = []
        for (number, block), frames in zip(videos, frames_given(n_frames, len(videos)), strict=True):
            units = frame_units(block, (side, side), number * len(block), frames)
            found.append(Source(Kind.VIDEO, units))
        images, side = self._blocks(model, inputs, row, Kind.IMAGE)
        for number, block in images:
            found.append(Source(Kind.IMAGE, _tiles(block, side, number * len(block))))
        return found

    def grids(self, model: Any, inputs: Mapping[str, Any]) -> list[tuple[int, int, int]]:
        """A video's frames, and each image's tiles."""
        pool = int(model.config.projector_pooling_ratio)
        found = []
        for kind, name in _PIXELS.items():
            if inputs.get(name) is not None:
                _, side = self._sizes(model, inputs, kind)
                found += [(int(inputs[name].shape[1]), side * pool, side * pool)] * int(inputs[name].shape[0])
        return found

    def vision_pairs(self, vision: Any, grid: tuple[int, int, int]) -> int:
        """As in the base class, with a class token; timm keeps the number of layers in its own arguments."""
        tiles, rows, cols = grid
        told = getattr(vision, "model_args", None) or {}
        depth = told.get("depth") or vision.num_hidden_layers
        return int(depth) * tiles * (rows * cols + 1) ** 2

    def encoders(self, model: Any) -> tuple[Encoder, ...]:
        """One method for both, called once for each."""
        del model
        return (Encoder("get_image_features", (Kind.IMAGE, Kind.VIDEO), apart=True),)

    def vit_tokens(self, model: Any, output: Any, arguments: Mapping[str, Any]) -> Float[Tensor, "token dim"]:
        """The vision tower's last states, pooled as the model pools their projections."""
        del arguments
        hidden = output.last_hidden_state
        hidden = hidden[:, 1:] if model.config.vision_use_cls_token else hidden
        pooled = self.base(model).multi_modal_projector.pooling(hidden)
        return rearrange(pooled, "tile token dim -> (tile token) dim").float()

    def _sizes(self, model: Any, inputs: Mapping[str, Any], kind: Kind) -> tuple[list[int], int]:
        """Placeholders of each video or image of the batch, and rows (and columns) of a tile."""
        ids, padding = sequence(inputs, 0)
        stand = int(((ids == self.placeholders(model)[kind]) & ~padding).sum())
        pixels = inputs.get(_PIXELS[kind])
        if pixels is None:
            return [], 0
        count, tiles = (int(length) for length in pixels.shape[:2])
        side = math.isqrt(stand // (count * tiles))
        if side**2 * count * tiles != stand or not side:
            raise TokenMapError(
                f"The prompt holds {stand} placeholders for {count} x {tiles} square tiles.",
                remedy=REPORT + " A prompt truncated by the tokenizer has this fault too.",
            )
        return [side**2 * tiles] * count, side

    def _blocks(
        self, model: Any, inputs: Mapping[str, Any], row: int, kind: Kind
    ) -> tuple[list[tuple[int, Int[np.ndarray, " token"]]], int]:
        """The row's videos or images, by number in the batch, and rows (and columns) of a tile."""
        ids, padding = sequence(inputs, row)
        stands = (ids == self.placeholders(model)[kind]) & ~padding
        sizes, side = self._sizes(model, inputs, kind)
        counted = np.asarray(sizes, dtype=np.int64)
        numbered = list(counted_off(stands, counted, row, _PIXELS[kind]).items())
        for number, block in numbered:
            require_run(block, f"{kind.name.lower()} {number}")
        return numbered, side


def _tiles(block: Int[np.ndarray, " token"], side: int, start: int) -> list[Unit]:
    """The tiles of one image, which all show its one picture."""
    row, col = full_grid(side, side)
    return [
        Unit(positions, row, col, (side, side), slots=(0,), feature_start=start + index * side**2)
        for index, positions in enumerate(np.split(block, len(block) // side**2))
    ]


FAMILY = _PerceptionLM(name="perception_lm", model_types=("perception_lm",), equal_videos=True)
