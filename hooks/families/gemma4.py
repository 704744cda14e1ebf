"""Gemma 4: one frame a temporal unit, minutes and seconds before each.

A video of U frames reads

    00:03 <boi><video> x rows*cols<eoi>      U times, a space between

with begin and end of image around each frame. The time is cut to whole seconds: frames of one second are
told the same time. The processor returns no grid but the place of each patch of 16 pixels, padding at
(-1, -1); 3x3 patches are pooled to one token, row-major. Frames are scaled up or down to at most
`max_soft_tokens` tokens (70 by default) whatever their size or number. Transformers 5.20 refuses every video:
its model does not pass the numbers of frames on.

Language model. Five layers in six attend in a sliding window; their rows are captured as the layer's own
mask has them. In the small checkpoints (E2B, E4B) the last `num_kv_shared_layers` layers have no keys and
values of their own: they read those of the last layer of their kind before, with queries of their own, so
they have rows of their own like all others; an intervention on the keys and values of that layer would reach
them all. While `generate` runs a prompt these layers compute the last position alone; under a capture or an
intervention they compute all of them, which leaves the logits as they are but for the order of summation.
In the large checkpoints visual tokens of a frame see each other in both directions in the sliding layers.
Heads are wider in the layers of full attention. What attention adds is normed, each layer may scale the
whole stream at its end, and logits are capped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hooks.errors import TokenMapError
from hooks.families._family import Family, Shown
from hooks.families._grid import check_types, counted_off
from hooks.families._runs import beside, text_before
from hooks.families._sources import (
    REPORT,
    Kind,
    Mark,
    Source,
    Unit,
    array,
    frames_given,
    full_grid,
    sequence,
)
from hooks.families._spacing import shared_seconds

__all__ = ["FAMILY"]

_TIME = re.compile(r"(?<!\d)(\d{2,}):(\d{2}) $")
_LONGEST_TIME = 12  # tokens; "2220:00 " is 8 where every sign is one
_SLICING = "_maybe_slice_kv_shared_inputs"


@dataclass(frozen=True)
class _Gemma4(Family):
    def beside_stream(self, model: Any) -> str | None:
        """In the small checkpoints."""
        config = self.text_model(model).config
        found = [
            name
            for name, size in (
                ("an embedding of each token for each layer", config.hidden_size_per_layer_input),
                ("keys and values that layers share", config.num_kv_shared_layers),
            )
            if size
        ]
        return " and ".join(found) or None

    def attention_norm(self, layer: Any) -> nn.Module | None:
        """Behind attention, before its output is added."""
        return layer.post_attention_layernorm

    def stream_scale(self, layer: Any) -> float:
        """A number of the checkpoint."""
        return float(layer.layer_scalar)

    def capped(self, model: Any, logits: Tensor) -> Tensor:
        """Bent towards a largest size by tanh, where the checkpoint has one."""
        cap = self.text_model(model).config.final_logit_softcapping
        return logits if cap is None else torch.tanh(logits / cap) * cap

    @contextmanager
    def whole_prompt(self, model: Any) -> Iterator[None]:
        """Without the short cut of layers that share keys and values."""
        text = self.text_model(model)
        if not hasattr(text, _SLICING) or _SLICING in text.__dict__:
            yield  # of a version without it, or done by an outer block
            return
        text.__dict__[_SLICING] = _unsliced
        try:
            yield
        finally:
            del text.__dict__[_SLICING]

    def sources(
        self,
        model: Any,
        processor: Any,
        inputs: Mapping[str, Any],
        row: int,
        n_frames: int | Sequence[int] | None,
    ) -> list[Source]:
        """As in the base class: frames by placeholder, and by the places of their patches.

        Raises:
            TokenMapError: also where the prompt holds sound.
        """
        tokenizer = getattr(processor, "tokenizer", processor)
        ids, padding = sequence(inputs, row)
        if model.config.audio_token_id is not None and (ids[row] == model.config.audio_token_id).any():
            raise TokenMapError("Sound is not mapped for gemma4.", remedy="Leave the audio track out.")
        found: list[Source] = []
        for kind, token in self.placeholders(model).items():
            here = (ids == token) & ~padding
            sources = [_frame_sizes(one, _pooling(model)) for one in _of_kind(inputs, kind)]
            sizes = np.array([one.prod(axis=1).sum() for one in sources], dtype=np.int64)
            blocks = counted_off(here, sizes, row, _NAMES[kind])
            check_types(inputs, row, kind, np.flatnonzero(here[row]))
            given = frames_given(n_frames, len(blocks)) if kind is Kind.VIDEO else [1] * len(blocks)
            for (number, block), frames in zip(blocks.items(), given, strict=True):
                start = int(sizes[:number].sum())
                grids = sources[number]
                found.append(_source(model, tokenizer, ids[row], kind, block, grids, start, frames))
        return found

    def grids(self, model: Any, inputs: Mapping[str, Any]) -> list[tuple[int, int, int]]:
        """(frames, rows, columns) in patches of each video and then each image."""
        del model
        both = [one for kind in (Kind.VIDEO, Kind.IMAGE) for one in _of_kind(inputs, kind)]
        sizes = [_frame_sizes(one, 1) for one in both]
        return [(len(one), int(one[0][0]), int(one[0][1])) for one in sizes]

    def shown_size(self, processor: Any, inputs: Mapping[str, Any]) -> tuple[int, int] | None:
        """Height and width in pixels that the first video's frames were resized to."""
        videos = _of_kind(inputs, Kind.VIDEO)
        if not videos:
            return None
        rows, cols = _frame_sizes(videos[0], 1)[0]
        patch = int(processor.video_processor.patch_size)
        return int(rows) * patch, int(cols) * patch

    def notices(self, shown: Shown, model: Any, inputs: Mapping[str, Any] | None = None) -> list[str]:
        """Where whole seconds tell two frames the same time."""
        del model, inputs
        return shared_seconds(shown.shown_seconds, "frames")

    def whole_seconds(self, model: Any) -> bool:
        """They are."""
        del model
        return True

    def vit_tokens(self, model: Any, output: Any, arguments: Mapping[str, Any]) -> Float[Tensor, "token dim"]:
        """The tower pools its last hidden state itself, and leaves padding out."""
        del model, arguments
        return output.last_hidden_state.float()


_NAMES = {Kind.VIDEO: "video_position_ids", Kind.IMAGE: "image_position_ids"}


def _pooling(model: Any) -> int:
    return int(model.config.vision_config.pooling_kernel_size)


def _of_kind(inputs: Mapping[str, Any], kind: Kind) -> list[Int[np.ndarray, "frame patch 2"]]:
    """Places (x, y) of the patches of each frame of each video, or of each image; -1 where padded."""
    places = inputs.get(_NAMES[kind])
    if places is None:
        return []
    places = array(places).astype(np.int64)
    if kind is Kind.IMAGE:
        return [one[None] for one in places]
    if places.ndim == 4:  # up to 5.23 videos of a batch were stacked
        return list(places)
    counts = array(inputs["num_frames_per_video"]).astype(np.int64)
    return np.split(places, np.cumsum(counts)[:-1])


def _frame_sizes(places: Int[np.ndarray, "frame patch 2"], pooling: int) -> Int[np.ndarray, "frame 2"]:
    """Rows and columns of each frame, in tokens of `pooling` patches a side.

    Raises:
        TokenMapError: the patches of a frame fill no such grid.
    """
    sizes = places.max(axis=1)[:, ::-1] + 1
    patches = (places >= 0).all(axis=-1).sum(axis=1)
    if (sizes % pooling).any() or (sizes.prod(axis=1) != patches).any():
        raise TokenMapError(
            f"Frames of {patches.tolist()} patches do not fill grids of {sizes.tolist()} in {pooling}s.",
            remedy=REPORT,
        )
    return sizes // pooling


def _source(
    model: Any,
    tokenizer: Any,
    ids: Int[np.ndarray, " position"],
    kind: Kind,
    positions: Int[np.ndarray, " token"],
    grids: Int[np.ndarray, "frame 2"],
    feature_start: int,
    frames: int | None,
) -> Source:
    """One video or image: its frames, and what stands beside them."""
    if frames is not None and frames != len(grids):
        raise TokenMapError(
            f"{frames} frames were given, the processor shows {len(grids)}.",
            remedy="The processor sampled frames again: pass do_sample_frames=False and full video metadata.",
        )
    units: list[Unit] = []
    marks: list[Mark] = []
    sizes = grids.prod(axis=1)
    starts = np.cumsum(sizes) - sizes
    for index, (block, (rows, cols)) in enumerate(
        zip(np.split(positions, starts[1:]), grids.tolist(), strict=True)
    ):
        name, (first, last) = f"frame {index} of a {kind.name.lower()}", (int(block[0]), int(block[-1]))
        if last - first + 1 != len(block):
            raise TokenMapError(
                f"The {len(block)} tokens of {name} are spread over positions {first} to {last}.",
                remedy=REPORT,
            )
        marks.append(beside(ids, first - 1, {int(model.config.boi_token_id)}, index, name))
        marks.append(beside(ids, last + 1, {int(model.config.eoi_token_id)}, index, name))
        seconds = float("nan")
        if kind is Kind.VIDEO:
            told, seconds = _time_before(tokenizer, ids, first - 1, name)
            marks.append(Mark(Kind.TIMESTAMP, index, told))
        row, col = full_grid(rows, cols)
        slots = (index if kind is Kind.VIDEO else 0,)
        units.append(Unit(block, row, col, (rows, cols), slots, feature_start + int(starts[index]), seconds))
    return Source(kind, units, marks)


def _time_before(
    tokenizer: Any, ids: Int[np.ndarray, " position"], before: int, name: str
) -> tuple[Int[np.ndarray, " position"], float]:
    """The tokens of `mm:ss ` before a position, and the seconds."""
    found = text_before(tokenizer, ids, before, _TIME, _LONGEST_TIME)
    if found is None:
        raise TokenMapError(
            f"No time stands before {name} at position {before}.",
            remedy="Build the prompt with the checkpoint's own processor and video metadata.",
        )
    match, positions = found
    return positions, 60.0 * int(match.group(1)) + int(match.group(2))


def _unsliced(hidden: Tensor, per_layer: Any, rotary: Any, masks: Any, *_: Any, **__: Any) -> tuple[Any, ...]:
    """In the place of the method that keeps the last positions alone."""
    return hidden, per_layer, rotary, masks


FAMILY = _Gemma4(
    name="gemma4", model_types=("gemma4",), tells_time=True, size_rules=("max_soft_tokens", "patch_size")
)
