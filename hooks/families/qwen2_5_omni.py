"""Qwen2.5-Omni's thinker: Qwen2.5-VL's windowed vision tower, and sound at 25 tokens a second.

Sound is woven into its video in chunks of `seconds_per_chunk` (2 s): the video tokens of a chunk, then its
audio tokens. A unit's temporal position is `int(u * second_per_grid * position_id_per_seconds)`, in the same
clock as audio tokens, one position each.

Traps, beside those of `hooks.families._omni`:

- The processor begins at most one chunk a video token. Where units lie more than a chunk apart (fewer than
  one frame a second), a unit's first tokens are each given a chunk of their own, so that the unit is torn
  apart by the sound of earlier seconds. The map says which tokens are whose; `notices` says that it happened.
- The processor cuts every sound after its feature extractor's `chunk_length` (300 s as published).
- The checkpoint's configuration is that of thinker, talker and vocoder together; the thinker alone is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from hooks.families._family import Shown
from hooks.families._omni import OmniFamily
from hooks.families._spacing import shared_positions, told_spacing
from hooks.families.qwen2_5_vl import Qwen25VL

__all__ = ["FAMILY"]


@dataclass(frozen=True)
class _Qwen25Omni(OmniFamily, Qwen25VL):
    def audio_tokens(self, model: Any, frames: Int[np.ndarray, " sound"]) -> Int[np.ndarray, " sound"]:
        """A convolution and a pooling halve the mel frames one after the other."""
        del model
        return ((frames - 1) // 2 + 1 - 2) // 2 + 1

    def notices(self, shown: Shown, model: Any, inputs: Mapping[str, Any] | None = None) -> list[str]:
        """As for both generations; units that share a position, and units torn apart by sound."""
        found = super().notices(shown, model, inputs)
        if model is None:
            return found
        config = model.config
        per_unit = self.slots_per_unit(model)
        found += shared_positions(shown, per_unit, config.position_id_per_seconds)
        apart = per_unit * told_spacing(shown)
        if (
            inputs is not None
            and len(shown) > per_unit
            and apart > config.seconds_per_chunk
            and self.has_woven_sound(model, inputs)
        ):
            found.append(
                f"units_torn_apart: units lie {apart:.1f} s apart, chunks of sound last "
                f"{config.seconds_per_chunk} s, so that earlier sound stands between the tokens of one unit"
            )
        return found

    def positions(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        """None: the library's are those the family was trained with."""
        del model, inputs


FAMILY = _Qwen25Omni(
    name="qwen2_5_omni",
    model_types=("qwen2_5_omni", "qwen2_5_omni_thinker"),
    auto_class="Qwen2_5OmniThinkerForConditionalGeneration",
)
