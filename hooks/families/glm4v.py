"""GLM-4.1V, GLM-4.5V (`glm4v_moe`) and GLM-4.6V (`glm46v`): units of two frames, dressed as images.

A video of U units reads

    <|begin_of_video|>
      <|begin_of_image|><|image|> x rows*cols<|end_of_image|>6      U times
    <|end_of_video|>

Its tokens carry the image's placeholder: what stands inside a video's pair of markers is video, all else is
an image. The time stands *behind* its unit and is that of the unit's first frame: GLM-4.1V and 4.5V write
whole seconds, cut and not rounded, so that units less than a second apart are told the same one; GLM-4.6V
writes `6.7 seconds`. An odd last frame is shown twice. The grid counts patches before the 2x2 merger; tokens
are row-major.

A prompt cannot hold both a video and images: the model counts all placeholders against either's features
and refuses. `size` bounds time x height x width of the whole video, so frames shrink as they grow in number.
Each unit's rows and columns begin where the text before it ended, so that position and number of units are
told by the text between them. What the tower hands to its merger has passed a 2x2 convolution: one vector a
token, which is what the features `vit` are here. GLM-4.1V and 4.6V norm what attention adds to the stream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from hooks.errors import TokenMapError
from hooks.families._family import Shown
from hooks.families._grid import VisionIds
from hooks.families._runs import beside
from hooks.families._sources import REPORT, Kind, Mark
from hooks.families._spacing import shared_seconds
from hooks.families.qwen3_vl import Qwen3VL

__all__ = ["FAMILY"]

_TIME = re.compile(r"(\d+)|(\d+\.\d) seconds")
_LONGEST_TIME = 24  # tokens; "133200.0 seconds" is 11 where every digit is one


@dataclass(frozen=True)
class _Glm4V(Qwen3VL):
    def token_ids(self, model: Any) -> VisionIds:
        """Videos and images share the image's placeholder, and the delimiters beside it."""
        config = model.config
        return VisionIds(
            video=config.image_token_id,
            image=config.image_token_id,
            start=config.image_start_token_id,
            end=config.image_end_token_id,
        )

    def placeholders(self, model: Any) -> dict[Kind, int]:
        """One id for both."""
        return dict.fromkeys((Kind.VIDEO, Kind.IMAGE), int(model.config.image_token_id))

    def stands(
        self, model: Any, ids: Int[np.ndarray, "batch position"]
    ) -> dict[Kind, Bool[np.ndarray, "batch position"]]:
        """Video is what stands between a video's markers."""
        config = model.config
        opened = np.cumsum(ids == config.video_start_token_id, axis=1)
        closed = np.cumsum(ids == config.video_end_token_id, axis=1)
        here, inside = ids == config.image_token_id, opened > closed
        return {Kind.VIDEO: here & inside, Kind.IMAGE: here & ~inside}

    def _surroundings(
        self,
        model: Any,
        tokenizer: Any,
        ids: Int[np.ndarray, " position"],
        number: int,
        placed: Any,
        apart: list[Int[np.ndarray, " token"]] | None,
    ) -> tuple[list[Mark], dict[int, float]]:
        """As in the base class; times stand between a unit's end and what follows it."""
        if apart is None:
            return super()._surroundings(model, tokenizer, ids, number, placed, None)
        known, config = self.token_ids(model), model.config
        marks: list[Mark] = []
        times: dict[int, float] = {}
        for index, block in enumerate(apart):
            name = f"unit {index} of source {number}"
            first, last = int(block[0]), int(block[-1])
            if last - first + 1 != len(block):
                raise TokenMapError(
                    f"The {len(block)} tokens of {name} are spread over positions {first} to {last}.",
                    remedy=REPORT,
                )
            marks.append(beside(ids, first - 1, {known.start}, index, name))
            marks.append(beside(ids, last + 1, {known.end}, index, name))
            positions, times[index] = _time_behind(
                tokenizer, ids, last + 2, {known.start, config.video_end_token_id}, name
            )
            marks.append(Mark(Kind.TIMESTAMP, index, positions))
        end = int(marks[-1].positions[-1]) + 1
        marks.append(beside(ids, int(apart[0][0]) - 2, {config.video_start_token_id}, 0, f"source {number}"))
        marks.append(beside(ids, end, {config.video_end_token_id}, len(apart) - 1, f"source {number}"))
        return marks, times

    def notices(self, shown: Shown, model: Any, inputs: Mapping[str, Any] | None = None) -> list[str]:
        """Where whole seconds tell two units the same time."""
        del inputs
        if model is None or not self.whole_seconds(model):
            return []
        return shared_seconds(shown.shown_seconds[:: self.slots_per_unit(model)], "units")

    def whole_seconds(self, model: Any) -> bool:
        """All but GLM-4.6V's are."""
        return model.config.model_type != "glm46v"

    def attention_norm(self, layer: Any) -> nn.Module | None:
        """GLM-4.1V and 4.6V have one."""
        return getattr(layer, "post_self_attn_layernorm", None)

    def vit_tokens(self, model: Any, output: Any, arguments: Mapping[str, Any]) -> Float[Tensor, "token dim"]:
        """The tower's output behind its 2x2 convolution, which is what it hands to the merger."""
        del model, arguments
        return output.last_hidden_state.float()


def _time_behind(
    tokenizer: Any, ids: Int[np.ndarray, " position"], begin: int, closing: set[int], name: str
) -> tuple[Int[np.ndarray, " position"], float]:
    """The tokens of the time that stands between a position and the next marker, and its seconds."""
    ends = np.flatnonzero(np.isin(ids[begin : begin + _LONGEST_TIME], list(closing)))
    text = tokenizer.decode(ids[begin : begin + int(ends[0])].tolist()) if len(ends) else ""
    match = _TIME.fullmatch(text)
    if match is None:
        raise TokenMapError(
            f"No time stands behind {name} at position {begin}: {text[:40]!r}.",
            remedy="Build the prompt with the checkpoint's own processor and video metadata.",
        )
    return np.arange(begin, begin + int(ends[0])), float(match.group(1) or match.group(2))


FAMILY = _Glm4V(
    name="glm4v",
    model_types=("glm4v", "glm4v_moe", "glm46v"),
    unit_delimited=True,
    tells_time=True,
    mixes_kinds=False,
)
