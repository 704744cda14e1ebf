"""Qwen2.5-VL, and Qwen2-VL whose prompt and module layout it shares.

A video is one run `<|vision_start|><|video_pad|> x units*rows*cols<|vision_end|>` with no time in the
text; time reaches the model as temporal positions, `second_per_grid_ts` seconds a unit. Qwen2.5's
vision tower attends in windows and computes on window-ordered patches: its last hidden state is in
that order, its merged output is back in prompt order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor
from transformers.vision_utils import get_vision_window_index

from hooks.families._family import Family, restore_order

__all__ = ["FAMILY"]


@dataclass(frozen=True)
class _Qwen2VL(Family):
    def vit_tokens(
        self,
        vision: Any,
        hidden: Float[Tensor, "patch dim"],
        grid_thw: Int[Tensor, "source 3"],
        merge_size: int,
    ) -> Float[Tensor, "token dim"]:
        """As in the base family, out of window order where the tower computes in windows."""
        tokens = super().vit_tokens(vision, hidden, grid_thw, merge_size)
        window = getattr(vision, "window_size", None)
        if window is None:
            return tokens
        order, _ = get_vision_window_index(
            grid_thw, spatial_merge_size=merge_size, window_size=window, patch_size=vision.patch_size
        )
        return restore_order(tokens, order)


FAMILY = _Qwen2VL(
    name="qwen2_5_vl",
    model_types=("qwen2_5_vl", "qwen2_vl"),
    unit_delimited=False,
    tells_time=False,
)
