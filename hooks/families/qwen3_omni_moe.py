"""Qwen3-Omni's thinker: a mixture of experts with Qwen3-VL's vision tower, and sound at 13 tokens a second.

Sound is woven into its video unit by unit: a unit's tokens stand right before the first audio token that is
not earlier than the unit. Temporal positions are `u * second_per_grid * position_id_per_seconds`, unrounded,
in the same clock as audio tokens, one position each. DeepStack adds visual features after the first decoder
layers. Unlike Qwen3-VL no time is written in the prompt.

The checkpoint's configuration is that of thinker and talker together; the thinker alone is loaded. Traps: see
`hooks.families._omni`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from hooks.families._omni import OmniFamily

__all__ = ["FAMILY"]


@dataclass(frozen=True)
class _Qwen3Omni(OmniFamily):
    def audio_tokens(self, model: Any, frames: Int[np.ndarray, " sound"]) -> Int[np.ndarray, " sound"]:
        """Three convolutions halve the mel frames of each window of `2 * n_window`, the last window taking
        what is left."""
        window = 2 * int(model.config.audio_config.n_window)
        whole, rest = frames // window, frames % window
        return whole * _halved(np.asarray(window)) + _halved(rest)


def _halved(frames: Int[np.ndarray, " sound"]) -> Int[np.ndarray, " sound"]:
    for _ in range(3):
        frames = (frames + 1) // 2
    return frames


FAMILY = _Qwen3Omni(
    name="qwen3_omni_moe",
    model_types=("qwen3_omni_moe", "qwen3_omni_moe_thinker"),
    auto_class="Qwen3OmniMoeThinkerForConditionalGeneration",
)
