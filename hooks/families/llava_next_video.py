"""LLaVA-NeXT-Video (`llava_next_video`): a run of frames without anything between them.

A video of F frames is `<video>` x (F x side x side): of each frame the middle square (336 pixels in the
checkpoints, 24 x 24 patches) is kept, its patches averaged two by two (12 x 12 tokens), row-major. A unit is
one frame. What lies outside the middle square is never seen, 44 % of a 16:9 frame: each record says so.

An image is two units, see `hooks.families._tiled`: the whole picture (24 x 24 tokens, not pooled), then its
tiles as one grid with a newline after each row. Images are squeezed, not cropped.

The 7B's configuration names the 4,096 positions of its base model, which it divides by 2.5: it holds 10,240.

The vision tower's class token is dropped, and its last but one layer is read. No times are told, and nothing
separates frames: order reaches the model as token positions alone. Videos of one batch must have equally many
frames: the processor stacks them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from hooks.families._sources import array
from hooks.families._tiled import TiledFamily

__all__ = ["FAMILY"]


@dataclass(frozen=True)
class _LlavaNextVideo(TiledFamily):
    def frame_side(self, model: Any) -> int:
        """Patches of a side over the pooling stride."""
        return self.tile_side(model) // int(model.config.spatial_pool_stride)

    def image_tiles(self, model: Any, inputs: Mapping[str, Any]) -> list[int]:
        """As many as suit the image's shape, and the whole picture."""
        return self.tiles_cut(model, array(inputs["image_sizes"]).tolist())

    def pool(self, model: Any, frames: Float[Tensor, "frame patch dim"]) -> Float[Tensor, "frame token dim"]:
        """`vision_resampler` of the model, in its own precision."""
        return self.base(model).vision_resampler(frames.to(model.dtype)).float()

    def pack(
        self, model: Any, tiles: Sequence[Tensor], inputs: Mapping[str, Any], newline: Tensor | None
    ) -> list[Tensor]:
        """`pack_image_features` of the model."""
        packed, _ = self.base(model).pack_image_features(
            list(tiles),
            array(inputs["image_sizes"]).tolist(),
            model.config.vision_feature_select_strategy,
            image_newline=newline,
        )
        return packed

    def middle_shown(self, processor: Any, height: int, width: int) -> tuple[int, int]:
        """The short side is resized to `size`, then `crop_size` is cut out."""
        video = processor.video_processor
        if not video.do_center_crop:
            return height, width
        scale = video.size["shortest_edge"] / min(height, width)
        tall, wide = (round(video.crop_size[side] / scale) for side in ("height", "width"))
        return min(height, tall), min(width, wide)

    def fixed_size(self, processor: Any) -> tuple[int, int] | None:
        """Of the middle: `crop_size`."""
        video = processor.video_processor
        if not video.do_center_crop:
            return None
        return int(video.crop_size["height"]), int(video.crop_size["width"])

    def context(self, model: Any) -> int:
        """As in the base class, times the factor that positions are divided by."""
        text = model.config.get_text_config()
        rope = text.rope_parameters
        scale = rope["factor"] if rope["rope_type"] == "linear" else 1.0
        return int(text.max_position_embeddings * scale)

    def vision_pairs(self, vision: Any, grid: tuple[int, int, int]) -> int:
        """As in the base class, with the class token."""
        tiles, rows, cols = grid
        return int(vision.num_hidden_layers) * tiles * (rows * cols + 1) ** 2


FAMILY = _LlavaNextVideo(name="llava_next_video", model_types=("llava_next_video",), equal_videos=True)
