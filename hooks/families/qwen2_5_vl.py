"""Qwen2.5-VL and the checkpoints built on it (Lingshu, MedGRPO): times are positions, not text.

A video is one run `<|vision_start|><|video_pad|> x units*rows*cols<|vision_end|>` of units of two frames.
The temporal position of unit u is `int(u * tokens_per_second * second_per_grid)`, with one
`second_per_grid` for the whole video: evenly spaced frames can be expressed, others cannot, and the
record says so. `size` bounds height x width of each frame, whatever their number.

The positions are made here and handed to the model. The family was trained with text that goes on after
the largest position of the video (so did transformers 4.49 to 5.2, and so does vLLM); transformers 5.3 to
5.24 lets it go on `max(rows, columns)` after the video's start, which puts the question of a long video
before most of its frames. Up to 5.16 `second_per_grid` was also cut to whole seconds.

The vision tower attends in windows and computes on window-ordered patches: its last hidden state is in
that order, its merged output is back in prompt order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor
from transformers.vision_utils import get_vision_window_index

from hooks.families._family import Shown, restore_order
from hooks.families._grid import GridFamily
from hooks.families._positions import positions_over_time
from hooks.families._spacing import shared_positions, spacing_notices, told_spacing

__all__ = ["FAMILY", "Qwen25VL"]

_FRAMES_PER_UNIT = 2


@dataclass(frozen=True)
class Qwen25VL(GridFamily):
    """The family's prompts, positions and windows."""

    def video_arguments(self, shown: Shown) -> dict[str, Any]:
        """Metadata from which the processor takes the spacing of the frames, and nothing else.

        It computes frames per second as slots over source frames times the source's rate; where the slots
        do not stand for the whole video, a rate is given from which the shown spacing comes out.
        """
        arguments = super().video_arguments(shown)
        (metadata,) = arguments["video_metadata"]
        metadata["fps"] = shown.source_frames / (len(shown) * told_spacing(shown))
        return arguments

    def notices(self, shown: Shown, model: Any, inputs: Mapping[str, Any] | None = None) -> list[str]:
        """Where temporal positions misstate the slots' times, and where units share one."""
        del inputs
        if model is None:  # how many positions a second are, the model's configuration tells
            return spacing_notices(shown)
        per_second = model.config.vision_config.tokens_per_second
        return [*spacing_notices(shown), *shared_positions(shown, _FRAMES_PER_UNIT, per_second)]

    def positions(self, model: Any, inputs: Mapping[str, Any]) -> Int[Tensor, "axis one position"]:
        """Rotary positions over time, height and width of one unpadded prompt, as the family was trained.

        Qwen2.5-VL technical report (arXiv 2502.13923), section 2.1.2; layout of text after video as in the
        authors' own contribution to transformers (pull request 35569).
        """
        per_second = model.config.vision_config.tokens_per_second
        steps = (per_second * seconds for seconds in inputs.get("second_per_grid_ts", ()))
        return positions_over_time(inputs, self.merge_size(model), steps)

    def vision_pairs(self, vision: Any, grid: tuple[int, int, int]) -> int:
        """In most blocks patches see those of their own window of `window_size` pixels, in
        `fullatt_block_indexes` those of their own unit.

        Windows are cut from the grid after merging, the last of a row or column taking what is left
        (technical report, arXiv 2502.13923, section 2.1.1).
        """
        units, rows, cols = grid
        merge = vision.spatial_merge_size
        side = vision.window_size // merge // vision.patch_size
        tall, wide = (_squares(length // merge, side) for length in (rows, cols))
        windowed, whole = tall * wide * merge**4, (rows * cols) ** 2
        full = len(vision.fullatt_block_indexes)
        return units * (full * whole + (int(vision.depth) - full) * windowed)

    def vit_tokens(self, model: Any, output: Any, arguments: Mapping[str, Any]) -> Float[Tensor, "token dim"]:
        """As in the base family, out of window order."""
        tokens = super().vit_tokens(model, output, arguments)
        grid = arguments.get("video_grid_thw", arguments.get("image_grid_thw"))
        order, _ = get_vision_window_index(
            grid,
            spatial_merge_size=self.merge_size(model),
            window_size=self.vision(model).window_size,
            patch_size=self.vision(model).patch_size,
        )
        return restore_order(tokens, order)


def _squares(length: int, side: int) -> int:
    """Sum of squared lengths of the pieces of `length`, `side` each and the rest."""
    return length // side * side**2 + (length % side) ** 2


FAMILY = Qwen25VL(name="qwen2_5_vl", model_types=("qwen2_5_vl",), takes_pixel_cap=True)
