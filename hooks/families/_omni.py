"""The thinkers of Qwen's Omni models: pictures as in Qwen-VL, and sound, by itself or woven into a video.

A silent video is one run `<|vision_start|>video tokens<|vision_end|>`. With its sound
(`load_audio_from_video=True`, called `use_audio_in_video` before transformers 5.2x) it reads

    <|vision_start|><|audio_start|>  video and audio tokens  <|audio_end|><|vision_end|>

in order of time. The video's tokens keep their order, so units are counted off from them; audio tokens are
mapped as `Kind.AUDIO` and belong to no unit. A sound by itself is `<|audio_start|>audio tokens<|audio_end|>`.

Traps:

- The model is told apart from the processor that sound is woven in: `model(..., use_audio_in_video=True)`.
  The processor does not return it; without it positions are computed as if the video had none.
- Times are positions, from one spacing a call (`fps`); evenly spaced frames can be expressed. Without
  `fps` every video counts as sampled at the family's default rate: the sampled rate is lost.
- The processor's class brings a `size` for videos that wins over that of the checkpoint's video processor:
  limits have to be given with each call.
- Positions grow fast, 13 or 25 a second of video: 32,768 of them are 22 or 42 minutes.
- `logits_to_keep` is taken and ignored: logits of the whole prompt are computed (`hooks.kept_logits`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.errors import TokenMapError
from hooks.families._family import Shown
from hooks.families._grid import GridFamily, VisionIds, check_types, counted_off
from hooks.families._sources import REPORT, Kind, Mark, Source, array, sequence, token_id
from hooks.families._spacing import spacing_notices, told_spacing

__all__ = ["OmniFamily"]

_MEL_FRAMES_PER_SECOND = 100
"""Both families' feature extractors: 16,000 samples a second, one frame each 160."""


@dataclass(frozen=True)
class OmniFamily(GridFamily):
    """What the two generations share; how many tokens a sound takes is each one's own."""

    takes_pixel_cap: bool = True
    hears: bool = True
    size_with_call: bool = True

    def base(self, model: Any) -> Any:
        """The module that joins towers and language model: the thinker itself in older transformers."""
        return model.model if hasattr(model.model, "language_model") else model

    def text_model(self, model: Any) -> Any:
        """The language model."""
        return getattr(self.base(model), "language_model", None) or model.model

    def packs(self, model: Any) -> bool:
        """Not in older transformers, whose thinker gives logits and no states."""
        return super().packs(model) and self.base(model) is not model

    def placeholders(self, model: Any) -> dict[Kind, int]:
        """As in the base class, and the sound's."""
        return {**super().placeholders(model), Kind.AUDIO: token_id(model, "audio_token_id")}

    def audio_tokens(self, model: Any, frames: Int[np.ndarray, " sound"]) -> Int[np.ndarray, " sound"]:
        """Tokens of sounds of so many mel frames (100 a second)."""
        raise NotImplementedError

    def sources(
        self,
        model: Any,
        processor: Any,
        inputs: Mapping[str, Any],
        row: int,
        n_frames: int | Sequence[int] | None,
    ) -> list[Source]:
        """As in the base class, and the sounds, each a source of its own without units."""
        return [
            *super().sources(model, processor, inputs, row, n_frames),
            *self._sounds(model, inputs, row),
        ]

    def _sounds(self, model: Any, inputs: Mapping[str, Any], row: int) -> list[Source]:
        ids, padding = sequence(inputs, row)
        token = self.placeholders(model)[Kind.AUDIO]
        here = (ids == token) & ~padding
        mask = inputs.get("feature_attention_mask")
        frames = np.empty(0, np.int64) if mask is None else array(mask).astype(np.int64).sum(axis=-1)
        sizes = np.asarray(self.audio_tokens(model, frames), dtype=np.int64)
        blocks = counted_off(here, sizes, row, "feature_attention_mask")
        check_types(inputs, row, Kind.AUDIO, np.flatnonzero(here[row]))
        return [self._sound(model, ids[row], block) for block in blocks.values()]

    def _sound(
        self, model: Any, ids: Int[np.ndarray, " position"], block: Int[np.ndarray, " token"]
    ) -> Source:
        """One sound between its delimiters, among which only it and a video may stand."""
        token, vision = token_id(model, "audio_token_id"), self.token_ids(model)
        begin = _last(ids, token_id(model, "audio_start_token_id"), int(block[0]))
        end = _first(ids, token_id(model, "audio_end_token_id"), int(block[-1]))
        inside = np.arange(begin + 1, end)
        mine = inside[ids[inside] == token]
        if not np.array_equal(mine, block) or not np.isin(ids[inside], (token, vision.video)).all():
            raise TokenMapError(
                f"The {len(block)} tokens of a sound from position {block[0]} are not between delimiters.",
                remedy=REPORT,
            )
        return Source(
            kind=Kind.AUDIO,
            units=(),
            marks=(
                Mark(Kind.DELIMITER, 0, np.array([begin, end])),
                Mark(Kind.AUDIO, 0, block),
            ),
        )

    def _surroundings(
        self,
        model: Any,
        tokenizer: Any,
        ids: Int[np.ndarray, " position"],
        number: int,
        placed: Any,
        apart: list[Int[np.ndarray, " token"]] | None,
    ) -> tuple[list[Mark], dict[int, float]]:
        """As in the base class; a video with its sound has that sound's delimiters inside its own."""
        begin = int(placed.positions[0])
        if not _has_sound(ids, begin, self.token_ids(model), token_id(model, "audio_start_token_id")):
            return super()._surroundings(model, tokenizer, ids, number, placed, apart)
        end = _first(ids, token_id(model, "audio_end_token_id"), int(placed.positions[-1]))
        inside = np.arange(begin, end)
        mine = inside[ids[inside] == self.token_ids(model).video]
        closes = end + 1 < len(ids) and ids[end + 1] == self.token_ids(model).end
        if not np.array_equal(mine, placed.positions) or not closes:
            raise TokenMapError(
                f"Source {number} and its sound do not end together at position {end}.", remedy=REPORT
            )
        units = placed.grid[0]
        return [
            Mark(Kind.DELIMITER, 0, np.array([begin - 2])),
            Mark(Kind.DELIMITER, units - 1, np.array([end + 1])),
        ], {}

    def _seconds_per_unit(self, inputs: Mapping[str, Any], kind: Kind, number: int) -> float:
        """Seconds between units as the model is told them; NaN of pictures."""
        told = inputs.get("video_second_per_grid")
        if kind is not Kind.VIDEO or told is None:
            return float("nan")
        return float(array(told).reshape(-1)[number])

    def has_woven_sound(self, model: Any, inputs: Mapping[str, Any]) -> bool:
        """Whether a video of the prompt has its sound among its tokens: what the model must be told by
        `use_audio_in_video=True`."""
        ids = np.atleast_2d(array(inputs["input_ids"]))
        opens = ids[:, :-1] == self.token_ids(model).start
        return bool((opens & (ids[:, 1:] == token_id(model, "audio_start_token_id"))).any())

    def video_arguments(self, shown: Shown) -> dict[str, Any]:
        """The rate of the shown frames, which is all the processor makes of their times: one for all videos
        of a call."""
        rate = float(f"{1 / told_spacing(shown):.9g}")  # equal for spacings that differ in rounding alone
        return {"fps": rate, "do_sample_frames": False}

    def sound_arguments(self, processor: Any, samples: Float[np.ndarray, " sample"]) -> dict[str, Any]:
        """The call changed its name between transformers 5.20 and 5.24, and learnt which sound is whose."""
        if hasattr(processor, "load_audio_from_video"):
            return {"audio": [samples], "audio_from_video_indices": [0], "load_audio_from_video": True}
        return {"audio": [samples], "use_audio_in_video": True}

    def forward_arguments(self, model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """That sound is woven in, where it is."""
        return {"use_audio_in_video": True} if self.has_woven_sound(model, inputs) else {}

    def notices(self, shown: Shown, model: Any, inputs: Mapping[str, Any] | None = None) -> list[str]:
        """Uneven spacing, sound that is cut short, and woven sound the model was not told of."""
        found = spacing_notices(shown)
        if inputs is None:
            return found
        mask = inputs.get("feature_attention_mask")
        if model is not None and self.has_woven_sound(model, inputs):
            heard = float(array(mask)[0].sum()) / _MEL_FRAMES_PER_SECOND
            if heard < shown.source_seconds - 1:
                lasts = shown.source_seconds
                found.append(f"sound_cut: {heard:.1f} s of sound are heard, the video lasts {lasts:.1f} s")
            if not inputs.get("use_audio_in_video"):
                found.append(
                    "sound_not_announced: the inputs lack use_audio_in_video=True, so that positions are "
                    "those of a video without sound"
                )
        return found

    def model_positions(self, model: Any, inputs: Mapping[str, Any]) -> Int[Tensor, "axis one position"]:
        """Rotary positions as the model will compute them from these inputs."""
        if "position_ids" in inputs:
            return inputs["position_ids"]
        ids = torch.as_tensor(inputs["input_ids"])
        mask = inputs.get("feature_attention_mask")
        given = inputs.get("attention_mask")
        found, _ = self.base(model).get_rope_index(
            ids,
            image_grid_thw=inputs.get("image_grid_thw"),
            video_grid_thw=inputs.get("video_grid_thw"),
            attention_mask=torch.ones_like(ids) if given is None else given,
            use_audio_in_video=bool(inputs.get("use_audio_in_video")),
            audio_seqlens=None if mask is None else mask.sum(-1),
            second_per_grids=inputs.get("video_second_per_grid"),
        )
        return found


def _has_sound(ids: Int[np.ndarray, " position"], begin: int, vision: VisionIds, opening: int) -> bool:
    """Whether a video that begins here has its sound among its tokens."""
    return begin >= 2 and ids[begin - 1] == opening and ids[begin - 2] == vision.start


def _last(ids: Int[np.ndarray, " position"], token: int, before: int) -> int:
    found = np.flatnonzero(ids[:before] == token)
    if not len(found):
        raise TokenMapError(f"No delimiter {token} stands before position {before}.", remedy=REPORT)
    return int(found[-1])


def _first(ids: Int[np.ndarray, " position"], token: int, after: int) -> int:
    found = np.flatnonzero(ids[after:] == token)
    if not len(found):
        raise TokenMapError(f"No delimiter {token} stands after position {after}.", remedy=REPORT)
    return after + int(found[0])
