r"""MiniCPM-V 4.6 and 4.7: every frame as a whole and, where it is large, in slices; a hybrid language model.

A video of F frames reads, each frame's slices row by row,

    <image_id>0</image_id>                                                        4.6 only
    <image><|video_pad|> x n</image>                                              F times
      <slice><|video_pad|> x m</slice><slice>...</slice>\n<slice>...</slice>      of large frames, after each

and an image the same with `<|image_pad|>`. Quirks:

- No times are written, and 4.7 writes no number either: frames are told apart by their order.
- A frame of more than 448 x 448 pixels is shown twice, shrunk to about that many pixels and cut into up to
  nine slices of about that many each. Both are one unit. Its grid has the whole frame's rows first and the
  slices' rows, where they lie in the picture, below; so it is taller than the frame, and some places of it
  are empty.
- n is the product of `target_sizes` over 16, two merges of 2 x 2, or over 4 where `downsample_mode` is
  "4x"; then the model must be told the same mode as the processor.
- The processor returns sizes of all pictures of all frames in one list and says neither how many frames nor
  how many slices there are: both are read from the prompt. Two videos with nothing between them cannot be
  told apart and are mapped as one.
- `stack_frames` above 1 puts the frames of a second on one canvas; such prompts are refused, as frames are
  then chosen, and paired, by the processor.
- The language model is Qwen3.5's: one layer in four attends, the others have no attention rows.
- 4.6 counts positions one a token. 4.7 lays the slices and the whole of a frame on one canvas in two
  dimensions; markers stand at its corners.

The vision tower merges windows of 2 x 2 patches behind one of its layers, which leaves them row-major; then
the merger merges 2 x 2 of these.

Source: transformers' `minicpmv4_6` and `minicpmv4_7`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from einops import reduce
from jaxtyping import Float, Int
from torch import Tensor

from hooks.errors import TokenMapError
from hooks.families._family import Shown
from hooks.families._frames import FrameFamily
from hooks.families._grid import check_types
from hooks.families._runs import beside, placeholder_runs, runs_before
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

__all__ = ["FAMILY"]

_SAME_MODE = REPORT + " They must have the same downsample_mode too."
_SIZES = {Kind.VIDEO: "target_sizes_videos", Kind.IMAGE: "target_sizes"}


@dataclass(frozen=True)
class _Marks:
    """Ids of the tokens around pictures."""

    image_start: int
    image_end: int
    slice_start: int
    slice_end: int

    @classmethod
    def of(cls, tokenizer: Any) -> _Marks:
        return cls(
            *tokenizer.convert_tokens_to_ids(
                [
                    tokenizer.image_start_token,
                    tokenizer.image_end_token,
                    tokenizer.slice_start_token,
                    tokenizer.slice_end_token,
                ]
            )
        )


@dataclass(frozen=True, eq=False)
class _Picture:
    """One run of placeholders: a whole frame or image, or a slice of it.

    Attributes:
        grid: rows and columns in tokens.
        whole: False of a slice.
        follows: of a slice, True where it goes on the row of the slice before; of a whole frame, True where
            nothing stands between it and the frame before.
    """

    positions: Int[np.ndarray, " token"]
    grid: tuple[int, int]
    whole: bool
    follows: bool


@dataclass(frozen=True)
class _MiniCPMV(FrameFamily):
    def attention_layers(self, model: Any) -> tuple[int, ...]:
        """The layers of full attention."""
        types = self.text_model(model).config.layer_types
        return tuple(layer for layer, kind in enumerate(types) if kind == "full_attention")

    def sources(
        self,
        model: Any,
        processor: Any,
        inputs: Mapping[str, Any],
        row: int,
        n_frames: int | Sequence[int] | None,
    ) -> list[Source]:
        """As in the base class: frames and slices are read from the prompt, grids from `target_sizes`."""
        if getattr(getattr(processor, "video_processor", None), "stack_frames", 1) > 1:
            raise TokenMapError(
                "The processor stacks several frames on one canvas (stack_frames above 1).",
                remedy="Set processor.video_processor.stack_frames = 1: one frame is one unit.",
            )
        tokenizer = getattr(processor, "tokenizer", processor)
        ids, padding = sequence(inputs, row)
        marks, merge = _Marks.of(tokenizer), _merge(model, inputs)
        found: list[Source] = []
        for kind, token in self.placeholders(model).items():
            runs = placeholder_runs(ids[row], padding[row], token)
            check_types(inputs, row, kind, np.concatenate([np.empty(0, np.int64), *runs]))
            every = sum(len(placeholder_runs(ids[one], padding[one], token)) for one in range(len(ids)))
            first = runs_before(ids, padding, row, token)
            grids = _grids(inputs, kind, merge, every)
            starts = np.cumsum(grids.prod(axis=1)) - grids.prod(axis=1)
            pictures = _pictures(ids[row], runs, grids[first : first + len(runs)], marks)
            groups = _groups(pictures, kind)
            frames = frames_given(n_frames, len(groups)) if kind is Kind.VIDEO else [None] * len(groups)
            at = first
            for group, given in zip(groups, frames, strict=True):
                if given is not None and given != len(group):
                    raise TokenMapError(
                        f"{given} frames were given, the prompt shows {len(group)}.",
                        remedy="Pass do_sample_frames=False and full video metadata to the processor.",
                    )
                features = []
                for frame in group:
                    features.append(int(starts[at]))
                    at += len(frame)
                found.append(_source(ids[row], kind, group, features, marks))
        return sorted(found, key=lambda source: int(source.units[0].positions[0]))

    def grids(self, model: Any, inputs: Mapping[str, Any]) -> list[tuple[int, int, int]]:
        """One entry for each picture of each frame, whole ones and slices alike."""
        del model
        found = [inputs[name] for name in _SIZES.values() if inputs.get(name) is not None]
        return [(1, int(rows), int(cols)) for part in found for rows, cols in array(part)]

    def joined(self, name: str, inputs: Sequence[Mapping[str, Any]]) -> Tensor:
        """As in the base class; pictures of all prompts stand one after another in one row of patches."""
        if name not in ("pixel_values", "pixel_values_videos"):
            return super().joined(name, inputs)
        return torch.cat([one[name] for one in inputs], dim=-1)

    def notices(self, shown: Shown, model: Any, inputs: Mapping[str, Any] | None = None) -> list[str]:
        """As in the base class, and where frames are shown whole and in slices, which rows are which."""
        found = super().notices(shown, model, inputs)
        sizes = None if inputs is None or model is None else inputs.get("target_sizes_videos")
        if sizes is not None and len(sizes) > len(shown):
            rows, cols = (int(side) // _merge(model, inputs or {}) for side in sizes[0])
            found.append(
                f"in_slices: the first {rows} rows and {cols} columns of a frame's tokens show it whole, the"
                f" rows below in {len(sizes) // len(shown) - 1} slices"
            )
        return found

    def model_positions(self, model: Any, inputs: Mapping[str, Any]) -> Int[Tensor, "axis one position"]:
        """As in the base class; 4.7 needs the pictures' sizes for its canvas."""
        base = self.base(model)
        if "position_ids" in inputs or not hasattr(base, "get_rope_index"):
            return super().model_positions(model, inputs)
        names = ("input_ids", "mm_token_type_ids", *_SIZES.values(), "attention_mask", "downsample_mode")
        found, _ = base.get_rope_index(**{name: inputs[name] for name in names if name in inputs})
        return found

    def vision_pairs(self, vision: Any, grid: tuple[int, int, int]) -> int:
        """As in the base class, with a quarter of the patches behind the layer that merges windows."""
        units, rows, cols = grid
        patches, before = rows * cols, int(vision.insert_layer_id) + 1
        height, width = vision.window_kernel_size
        window = height * width
        after = int(vision.num_hidden_layers) - before
        return units * (before * patches**2 + patches * window + after * (patches // window) ** 2)

    def vit_tokens(self, model: Any, output: Any, arguments: Mapping[str, Any]) -> Float[Tensor, "token dim"]:
        """As in the base class: the last state is windows already merged once, 2 x 2 of them to a token."""
        name = next(name for name in _SIZES.values() if name in arguments)
        merged_once = _merge(model, arguments) // 2
        parts, start = [], 0
        for rows, cols in (array(arguments[name]) // merged_once).tolist():
            block = output.last_hidden_state[0, start : start + rows * cols].float()
            high, wide = model.config.merge_kernel_size
            parts.append(
                reduce(
                    block,
                    "(row high col wide) dim -> (row col) dim",
                    "mean",
                    row=rows // high,
                    high=high,
                    wide=wide,
                )
            )
            start += rows * cols
        return torch.cat(parts)


def _merge(model: Any, inputs: Mapping[str, Any]) -> int:
    """Patches along each side of a token."""
    return 2 if (inputs.get("downsample_mode") or model.config.downsample_mode) == "4x" else 4


def _grids(inputs: Mapping[str, Any], kind: Kind, merge: int, runs: int) -> Int[np.ndarray, "picture 2"]:
    """Rows and columns in tokens of each picture of the batch.

    Raises:
        TokenMapError: there are other than `runs` pictures, or one does not divide by `merge`.
    """
    given = inputs.get(_SIZES[kind])
    sizes = np.empty((0, 2), dtype=np.int64) if given is None else array(given).astype(np.int64)
    if len(sizes) != runs:
        raise TokenMapError(
            f"The prompts hold {runs} {kind.name.lower()} pictures, {_SIZES[kind]} {len(sizes)}.",
            remedy=REPORT,
        )
    if (sizes % merge).any():
        raise TokenMapError(
            f"{_SIZES[kind]} {sizes.tolist()} does not divide by the merge size {merge}.",
            remedy=_SAME_MODE,
        )
    return sizes // merge


def _pictures(
    ids: Int[np.ndarray, " position"],
    runs: Sequence[Int[np.ndarray, " token"]],
    grids: Int[np.ndarray, "picture 2"],
    marks: _Marks,
) -> list[_Picture]:
    """Every run with its grid, and how it joins the one before.

    Raises:
        TokenMapError: a run has other than its grid's tokens.
    """
    found: list[_Picture] = []
    closes = {marks.image_end, marks.slice_end}
    for index, (positions, (rows, cols)) in enumerate(zip(runs, grids.tolist(), strict=True)):
        if len(positions) != rows * cols:
            raise TokenMapError(
                f"Picture {index} has {len(positions)} placeholders, its size gives {rows} x {cols}.",
                remedy=_SAME_MODE,
            )
        first = int(positions[0])
        # The opening mark is at first - 1; right before it stands what closes a neighbour, if there is one.
        found.append(
            _Picture(
                positions=positions,
                grid=(rows, cols),
                whole=first > 0 and int(ids[first - 1]) != marks.slice_start,
                follows=bool(found) and first > 1 and int(ids[first - 2]) in closes,
            )
        )
    return found


def _groups(pictures: Sequence[_Picture], kind: Kind) -> list[list[list[_Picture]]]:
    """Pictures by video and frame; of images each is a group of one.

    Raises:
        TokenMapError: the first picture is a slice.
    """
    groups: list[list[list[_Picture]]] = []
    for picture in pictures:
        if not picture.whole:
            if not groups:
                raise TokenMapError("A slice stands before any whole picture.", remedy=REPORT)
            groups[-1][-1].append(picture)
        elif groups and picture.follows and kind is Kind.VIDEO:
            groups[-1].append([picture])
        else:
            groups.append([[picture]])
    return groups


def _source(
    ids: Int[np.ndarray, " position"],
    kind: Kind,
    frames: Sequence[Sequence[_Picture]],
    features: Sequence[int],
    marks: _Marks,
) -> Source:
    """One video or image: a unit a frame, and the delimiters around its pictures."""
    units, found = [], []
    for index, (frame, feature) in enumerate(zip(frames, features, strict=True)):
        units.append(_unit(frame, index, feature))
        for picture in frame:
            name = f"{'frame' if picture.whole else 'a slice of frame'} {index}"
            opens = {marks.image_start if picture.whole else marks.slice_start}
            closes = {marks.image_end if picture.whole else marks.slice_end}
            found.append(beside(ids, int(picture.positions[0]) - 1, opens, index, name))
            found.append(beside(ids, int(picture.positions[-1]) + 1, closes, index, name))
        found += _breaks(frame, index)
    return Source(kind, units, found)


def _breaks(frame: Sequence[_Picture], unit: int) -> list[Mark]:
    """The line breaks between rows of slices."""
    found = []
    for before, after in itertools.pairwise(frame):
        between = np.arange(int(before.positions[-1]) + 2, int(after.positions[0]) - 1)
        if len(between):
            found.append(Mark(Kind.DELIMITER, unit, between))
    return found


def _unit(frame: Sequence[_Picture], index: int, feature: int) -> Unit:
    """The whole picture's rows, and below them those of the slices."""
    rows, cols = [], []
    down = across = tallest = widest = 0
    for picture in frame:
        high, wide = picture.grid
        # A slice that does not go on the row before it begins the next; the first one always does.
        if not (picture.follows and not picture.whole) or across == 0:
            down, across, tallest = down + tallest, 0, 0
        row, col = full_grid(high, wide)
        rows.append(down + row)
        cols.append(across + col)
        across, tallest = across + wide, max(tallest, high)
        if picture.whole:
            down, across, tallest = high, 0, 0
        widest = max(widest, wide, across)
    return Unit(
        positions=np.concatenate([picture.positions for picture in frame]),
        row=np.concatenate(rows).astype(np.int32),
        col=np.concatenate(cols).astype(np.int32),
        grid=(down + tallest, widest),
        slots=(index,),
        feature_start=feature,
    )


FAMILY = _MiniCPMV(
    name="minicpmv4_6",
    model_types=("minicpmv4_6", "minicpmv4_7"),
    size_rules=("scale_resolution", "max_slice_nums", "slice_mode"),
    # Seen in 5.16 and 5.20, whose processor makes one table of all videos' grids; not in 5.24.
    equal_videos=tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 24),
)
