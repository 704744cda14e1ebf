"""LLaVA-OneVision (`llava_onevision`): a run of frames without anything between them, one newline at the end.

A video of F frames is `<video>` x (F x side x side + 1): each frame is squeezed into one square (384 pixels
in the checkpoints, 27 x 27 patches), its patches pooled bilinearly to half a side, rounded up (14 x 14
tokens), row-major. A unit is one frame. The last placeholder of a video is no patch but the newline
embedding: a delimiter. An odd side means that neighbouring tokens share patches; the last pixels of a row or
column (384 = 27 x 14 + 6) belong to no patch.

An image is two units, see `hooks.families._tiled`: the whole picture (27 x 27 tokens, not pooled), then its
tiles as one grid, scaled down where there are more than `vision_aspect_ratio` allows. Several images given to
the processor as one nested list are not cut: each is one unit with a newline after it. `image_sizes` and
`batch_num_images` tell; without the latter every image counts as cut, as in the model.

No times are told, and nothing separates frames: order reaches the model as token positions alone. Videos of
one batch must have equally many frames: the processor stacks them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from hooks.families._sources import array
from hooks.families._tiled import TiledFamily

__all__ = ["FAMILY"]


@dataclass(frozen=True)
class _LlavaOnevision(TiledFamily):
    def frame_side(self, model: Any) -> int:
        """Half the patches of a side, rounded up."""
        return math.ceil(self.tile_side(model) / 2)

    def image_tiles(self, model: Any, inputs: Mapping[str, Any]) -> list[int]:
        """As many as suit the image's shape, and the whole picture; one each of several in one sample."""
        sizes = array(inputs["image_sizes"]).tolist()
        counts = inputs.get("batch_num_images")
        counts = [1] * len(sizes) if counts is None else array(counts).tolist()
        alone = [count == 1 for count in counts for _ in range(count)]
        cut = iter(self.tiles_cut(model, [size for size, one in zip(sizes, alone, strict=True) if one]))
        return [next(cut) if one else 1 for one in alone]

    def image_arguments(self, pictures: Sequence[np.ndarray]) -> dict[str, Any]:
        """As one sample: several pictures are not cut, as in training (arXiv 2408.03326, section 3.2)."""
        return {"images": [list(pictures)]}

    def pool(self, model: Any, frames: Float[Tensor, "frame patch dim"]) -> Float[Tensor, "frame token dim"]:
        """`apply_pooling` of the model, which it applies to projections."""
        return self.base(model).apply_pooling(frames)

    def pack(
        self, model: Any, tiles: Sequence[Tensor], inputs: Mapping[str, Any], newline: Tensor | None
    ) -> list[Tensor]:
        """`pack_image_features` of the model."""
        packed, _ = self.base(model).pack_image_features(
            list(tiles),
            array(inputs["image_sizes"]).tolist(),
            image_newline=newline,
            vision_aspect_ratio=model.config.vision_aspect_ratio,
        )
        return packed


FAMILY = _LlavaOnevision(
    name="llava_onevision", model_types=("llava_onevision",), newline_after_video=True, equal_videos=True
)
