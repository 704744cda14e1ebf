r"""SmolVLM and SmolVLM2: every frame is one square picture behind a clock time; video is images to the model.

A video of F frames reads

    You are provided ... F frames ... video.\n
    \nFrame from 00:01:<fake_token_around_image><global-img><image> x n<fake_token_around_image>     F times
    \n\n

and an image is either that without the time, or cut into tiles

    <fake..><row_1_col_1><image> x n ... <fake..><row_1_col_C><image> x n\n
    ...
    \n<fake_token_around_image><global-img><image> x n<fake_token_around_image>

Quirks:

- Frames carry the image's placeholder, and pixels of both come in `pixel_values`, so the processor takes
  videos or images in one prompt, not both. A run of placeholders is a frame where a clock time stands
  before its delimiters; it goes on a video where nothing but that stands between it and the frame before.
  An image whose caption reads `Frame from 00:01:` is the same prompt as a frame, and is mapped as one.
- Every frame is squeezed into a square of `max_image_size`, whatever its shape: n is the same for all. A
  frame of 384 pixels is 27 patches of 14 a side, and the last 6 pixels are seen by none.
- Times are cut to whole seconds: frames less than a second apart share one.
- An image in tiles is one unit: its tiles where they lie in the picture, and below them the whole picture
  again, at low resolution. So the unit's grid has more rows than the picture.
- `processor.apply_chat_template` has a template of its own for videos, whatever the checkpoint's says.
- transformers 5.16 and 5.20 count a prompt's placeholders off in blocks of the vision tower's `patch_size`:
  frames of the 2.2B checkpoint, of 81 tokens, run in multiples of 14 alone. 5.24 takes any number.
- Pictures that are wholly zero after normalising are taken for padding and dropped by the model. No 8-bit
  picture is.

Source: transformers' `smolvlm`; SmolVLM (arXiv 2504.05299).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from einops import reduce
from jaxtyping import Float, Int
from torch import Tensor

from hooks.errors import TokenMapError
from hooks.families._family import Encoder, Family
from hooks.families._runs import placeholder_runs, runs_before
from hooks.families._sources import REPORT, Kind, Mark, Source, Unit, frames_given, full_grid, sequence
from hooks.text_spans import TokenText

__all__ = ["FAMILY"]

_FAKE = re.escape("<fake_token_around_image>")
_FRAME = re.compile(rf"\nFrame from (?P<minutes>\d+):(?P<seconds>\d\d):{_FAKE}<global-img>$")
_NEXT_FRAME = re.compile(rf"{_FAKE}{_FRAME.pattern}")
_TILE = re.compile(rf"{_FAKE}<row_(?P<row>\d+)_col_(?P<col>\d+)>$")
_WHOLE = re.compile(rf"{_FAKE}<global-img>$")
_AFTER_TILES = re.compile(rf"\n\n{_FAKE}<global-img>$")
_LONGEST = 40
"""Tokens read before a picture: 22 where each character of `\\nFrame from 2220:00:` is one, and marks."""


@dataclass(frozen=True, eq=False)
class _Picture:
    """One run of placeholders and what stands before it.

    Attributes:
        before: positions of its delimiters, and of its time where it has one.
        after: position of the delimiter right after it; -1 where the next tile's stands there.
        tile: row and column, from 0; None of a whole picture.
        seconds: told of it; None of an image.
        follows: True where it goes on the video, or closes the tiles, of the run before.
    """

    positions: Int[np.ndarray, " token"]
    time: Int[np.ndarray, " position"]
    before: Int[np.ndarray, " position"]
    after: int
    tile: tuple[int, int] | None
    seconds: float | None
    follows: bool


@dataclass(frozen=True)
class _SmolVLM(Family):
    def text_model(self, model: Any) -> Any:
        """The language model: embeddings in, hidden states out."""
        return self.base(model).text_model

    def vision(self, model: Any) -> Any:
        """The vision tower, without the connector."""
        return self.base(model).vision_model

    def placeholders(self, model: Any) -> dict[Kind, int]:
        """One placeholder for frames and images."""
        return dict.fromkeys((Kind.VIDEO, Kind.IMAGE), int(model.config.image_token_id))

    def sources(
        self,
        model: Any,
        processor: Any,
        inputs: Mapping[str, Any],
        row: int,
        n_frames: int | Sequence[int] | None,
    ) -> list[Source]:
        """As in the base class: pictures are runs of placeholders, told apart by what stands before them."""
        tokenizer = getattr(processor, "tokenizer", processor)
        ids, padding = sequence(inputs, row)
        token, side = self.placeholders(model)[Kind.IMAGE], _side(model)
        _check_counts(inputs, int(((ids == token) & ~padding).sum()), side)
        runs = placeholder_runs(ids[row], padding[row], token)
        pictures = _pictures(tokenizer, ids[row], runs, side)
        groups: list[list[_Picture]] = []
        for picture in pictures:
            if picture.follows and groups:
                groups[-1].append(picture)
            else:
                groups.append([picture])
        videos = [group for group in groups if group[0].seconds is not None]
        given = iter(frames_given(n_frames, len(videos)))
        feature = runs_before(ids, padding, row, token) * side**2
        found: list[Source] = []
        for group in groups:
            build = _image if group[0].seconds is None else _video
            if build is _video and (frames := next(given)) is not None and frames != len(group):
                raise TokenMapError(
                    f"{frames} frames were given, the prompt shows {len(group)}.",
                    remedy="Pass do_sample_frames=False and full video metadata to the processor.",
                )
            found.append(build(group, side, feature))
            feature += len(group) * side**2
        return found

    def fixed_size(self, processor: Any) -> tuple[int, int] | None:
        """A square of `max_image_size`."""
        side = int(processor.video_processor.max_image_size["longest_edge"])
        return side, side

    def grids(self, model: Any, inputs: Mapping[str, Any]) -> list[tuple[int, int, int]]:
        """One entry for each sequence's pictures, padding pictures among them."""
        if inputs.get("pixel_values") is None:
            return []
        batch, pictures, _, height, width = inputs["pixel_values"].shape
        patch = int(model.config.vision_config.patch_size)
        return [(int(pictures), int(height) // patch, int(width) // patch)] * int(batch)

    def joined(self, name: str, inputs: Sequence[Mapping[str, Any]]) -> Tensor:
        """As in the base class; prompts of fewer pictures are filled up with zeros, which the model drops."""
        values = [one[name] for one in inputs]
        if name in ("pixel_values", "pixel_attention_mask"):
            most = max(value.shape[1] for value in values)
            shape = [0] * (2 * (values[0].ndim - 2))
            values = [torch.nn.functional.pad(value, (*shape, 0, most - value.shape[1])) for value in values]
        return torch.cat(values)

    def whole_seconds(self, model: Any) -> bool:
        """They are."""
        del model
        return True

    def encoders(self, model: Any) -> tuple[Encoder, ...]:
        """Frames are encoded as images."""
        del model
        return (Encoder("get_image_features", (Kind.VIDEO, Kind.IMAGE)),)

    def vit_tokens(self, model: Any, output: Any, arguments: Mapping[str, Any]) -> Float[Tensor, "token dim"]:
        """As in the base class; a token is `scale_factor` patches a side."""
        del arguments
        side, window = _side(model), int(model.config.scale_factor)
        return reduce(
            output.last_hidden_state.float(),
            "picture (row high col wide) dim -> (picture row col) dim",
            "mean",
            row=side,
            high=window,
            col=side,
            wide=window,
        )


def _side(model: Any) -> int:
    """Tokens along each side of a picture."""
    vision = model.config.vision_config
    return int(vision.image_size) // int(vision.patch_size) // int(model.config.scale_factor)


def _check_counts(inputs: Mapping[str, Any], placeholders: int, side: int) -> None:
    """Placeholders of the batch against its pictures, of which padding ones are wholly zero."""
    pixels = inputs.get("pixel_values")
    real = 0 if pixels is None else int((pixels.flatten(2) != 0).any(dim=-1).sum())
    if placeholders != real * side**2:
        raise TokenMapError(
            f"The prompt holds {placeholders} placeholders, {real} pictures of {side} x {side} tokens fill"
            f" {real * side**2}.",
            remedy=REPORT + " A prompt truncated by the tokenizer has this fault too.",
        )


def _pictures(
    tokenizer: Any,
    ids: Int[np.ndarray, " position"],
    runs: Sequence[Int[np.ndarray, " token"]],
    side: int,
) -> list[_Picture]:
    """Every run with what stands before and after it."""
    fake = tokenizer.convert_tokens_to_ids("<fake_token_around_image>")
    found: list[_Picture] = []
    end = 0
    for index, positions in enumerate(runs):
        if len(positions) != side**2:
            raise TokenMapError(
                f"Picture {index} has {len(positions)} placeholders, not {side} x {side}.", remedy=REPORT
            )
        first, last = int(positions[0]), int(positions[-1])
        begin = max(end, first - _LONGEST)
        text = TokenText.decode(tokenizer, ids[begin:first].tolist())
        after = last + 1 if last + 1 < len(ids) and ids[last + 1] == fake else -1
        found.append(_picture(text, begin, end if begin == end else -1, positions, after, found[-1:]))
        end = last + 1
    return found


def _picture(
    text: TokenText,
    begin: int,
    end: int,
    positions: Int[np.ndarray, " token"],
    after: int,
    previous: list[_Picture],
) -> _Picture:
    """What one run is, from the text before it.

    Args:
        begin: position of the text's first token.
        end: position after the run before, where the text reaches back to it; -1 where it does not.
    """
    frame, tile, whole = (pattern.search(text.text) for pattern in (_FRAME, _TILE, _WHOLE))
    match = frame or tile or whole
    if match is None:
        raise TokenMapError(
            f"Neither a tile's place nor a whole picture's mark stands before position {int(positions[0])}:"
            f" {text.text[-60:]!r}.",
            remedy=REPORT,
        )
    before = begin + text.tokens(*match.span())
    reaches, last = end >= 0, previous[0] if previous else None
    if frame:
        seconds = 60.0 * int(frame["minutes"]) + int(frame["seconds"])
        written = text.tokens(frame.start(), frame.end("seconds") + 1) + begin
        follows = bool(last and last.seconds is not None and reaches and _NEXT_FRAME.fullmatch(text.text))
        return _Picture(positions, written, np.setdiff1d(before, written), after, None, seconds, follows)
    none = np.empty(0, dtype=np.int64)
    if tile:
        place = int(tile["row"]) - 1, int(tile["col"]) - 1
        follows = bool(last and last.tile is not None and reaches and place != (0, 0))
    else:
        place = None
        follows = bool(last and last.tile is not None and reaches and _AFTER_TILES.fullmatch(text.text))
    if follows:  # the line breaks between rows of tiles too
        before = np.arange(begin, int(positions[0]))
    return _Picture(positions, none, before, after if place is None else -1, place, None, follows)


def _video(group: Sequence[_Picture], side: int, feature: int) -> Source:
    """One unit a frame."""
    row, col = full_grid(side, side)
    marks: list[Mark] = []
    for index, picture in enumerate(group):
        marks.append(Mark(Kind.TIMESTAMP, index, picture.time))
        marks += _delimiters(picture, index)
    return Source(
        Kind.VIDEO,
        [
            Unit(
                positions=picture.positions,
                row=row,
                col=col,
                grid=(side, side),
                slots=(index,),
                feature_start=feature + index * side**2,
                shown_seconds=float("nan") if picture.seconds is None else picture.seconds,
            )
            for index, picture in enumerate(group)
        ],
        marks,
    )


def _image(group: Sequence[_Picture], side: int, feature: int) -> Source:
    """One unit: the tiles in their places, and the whole picture below them.

    Raises:
        TokenMapError: the tiles do not fill their rows and columns, or no whole picture closes them.
    """
    tiles = [picture.tile for picture in group if picture.tile is not None]
    rows, cols = (max((tile[axis] for tile in tiles), default=-1) + 1 for axis in (0, 1))
    wanted = [(row, col) for row in range(rows) for col in range(cols)]
    if tiles != wanted or len(group) != len(tiles) + 1:
        raise TokenMapError(
            f"The tiles of an image stand at {tiles}, closed by {len(group) - len(tiles)} whole pictures.",
            remedy=REPORT,
        )
    row, col = full_grid(side, side)
    places = [*tiles, (rows, 0)]
    return Source(
        Kind.IMAGE,
        [
            Unit(
                positions=np.concatenate([picture.positions for picture in group]),
                row=np.concatenate([down * side + row for down, _ in places]).astype(np.int32),
                col=np.concatenate([across * side + col for _, across in places]).astype(np.int32),
                grid=((rows + 1) * side, max(cols, 1) * side),
                slots=(0,),
                feature_start=feature,
            )
        ],
        [mark for picture in group for mark in _delimiters(picture, 0)],
    )


def _delimiters(picture: _Picture, unit: int) -> list[Mark]:
    beside = [*picture.before.tolist(), *([picture.after] if picture.after >= 0 else [])]
    return [Mark(Kind.DELIMITER, unit, np.array(beside, dtype=np.int64))]


FAMILY = _SmolVLM(
    name="smolvlm",
    model_types=("smolvlm",),
    tells_time=True,
    mixes_kinds=False,
    size_rules=("max_image_size",),
)
