"""Qwen3.5, dense and with experts: Qwen3-VL's prompts over a hybrid language model.

Processor, prompts, times and rotary positions are Qwen3-VL's. There is no DeepStack. Of the decoder layers
one in four attends in full; the others pass information on by a gated linear recurrence
(`linear_attention`), which has no rows to capture and no edges to block: `attention_layers` says which
have. Attention's output is gated by the query position before the output projection, so a head's output is
its gated one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hooks.families.qwen3_vl import Qwen3VL

__all__ = ["FAMILY"]


@dataclass(frozen=True)
class _Qwen35(Qwen3VL):
    def attention_layers(self, model: Any) -> tuple[int, ...]:
        """The layers of full attention."""
        kinds = self.text_model(model).config.layer_types
        return tuple(layer for layer, kind in enumerate(kinds) if kind == "full_attention")


FAMILY = _Qwen35(
    name="qwen3_5",
    model_types=("qwen3_5", "qwen3_5_moe"),
    unit_delimited=True,
    tells_time=True,
    takes_pixel_cap=True,
)
