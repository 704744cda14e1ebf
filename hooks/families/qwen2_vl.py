"""Qwen2-VL: laid out like Qwen2.5-VL, a run of units of two frames between one pair of delimiters.

Time is the unit's number alone: consecutive units are one temporal position apart, whatever their seconds,
which the model is not told at all. Text goes on after the video's largest position, as the model was trained
(arXiv 2409.12191, section 2.1: each modality's numbering begins one after the largest before it);
transformers 5.3 to 5.24 has it otherwise, so positions are made here. `size` bounds height x width of each
frame. The vision tower sees one unit at a time, in prompt order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from jaxtyping import Int
from torch import Tensor

from hooks.families._family import Shown
from hooks.families._grid import GridFamily
from hooks.families._positions import positions_over_time
from hooks.families._spacing import uneven_gaps

__all__ = ["FAMILY"]


@dataclass(frozen=True)
class _Qwen2VL(GridFamily):
    def notices(self, shown: Shown, model: Any, inputs: Mapping[str, Any] | None = None) -> list[str]:
        """Where the frames' times are not those a reader of their order would suppose."""
        del model, inputs
        gaps = uneven_gaps(shown)
        if gaps is None:
            return []
        return [
            f"times_not_told: frames lie {gaps.min():.2f} to {gaps.max():.2f} s apart; positions of qwen2_vl "
            "number the units and hold no times"
        ]

    def positions(self, model: Any, inputs: Mapping[str, Any]) -> Int[Tensor, "axis one position"]:
        """Rotary positions over time, height and width of one unpadded prompt, as the family was trained."""
        return positions_over_time(inputs, self.merge_size(model), repeat(1.0))


FAMILY = _Qwen2VL(name="qwen2_vl", model_types=("qwen2_vl",), takes_pixel_cap=True)
