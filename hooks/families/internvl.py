r"""InternVL 2.5, 3 and 3.5 as transformers loads them (checkpoints that end in `-hf` or `-HF`).

A video of F frames reads

    Frame1: <img><IMG_CONTEXT> x tokens</img>\nFrame2: <img>...</img>\n ... FrameF: <img>...</img>

and an image `<img><IMG_CONTEXT> x tokens*tiles</img>`. A unit is one frame: the whole picture, squeezed into
one square tile (448 pixels, 16 x 16 tokens, in the checkpoints); the shape of the frame is lost. Four things
to know:

- Frames of a video carry the *image's* placeholder, and their pixels go into `pixel_values` beside those of
  images, in prompt order. A run of placeholders is a frame where `Frame<n>: ` stands before it, n counting on
  from 1, and it is one tile long; else it is an image. Images whose own captions read like that, one tile
  each, are the same prompt as a video, and are mapped as one.
- Images are cut into tiles row by row, as many as suit their shape, a thumbnail of the whole after them where
  there is more than one. What the processor returns does not tell 2 x 3 tiles from 3 x 2, so each tile is a
  unit of its own, the thumbnail the last of its image.
- No times are told, only the frames' numbers: order is text.
- Videos of one prompt must have equally many frames: the processor stacks them.

The vision tower puts a class token before the patches, which is dropped; four neighbouring patches become one
token by pixel shuffle, which leaves tokens row-major.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from einops import reduce
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.errors import TokenMapError
from hooks.families._family import Encoder
from hooks.families._frames import FrameFamily, frame_units
from hooks.families._runs import beside, split_runs, text_before
from hooks.families._sources import REPORT, Kind, Mark, Source, Unit, frames_given, full_grid, sequence

__all__ = ["FAMILY"]

_LABEL = re.compile(r"Frame(\d+): $")
_LONGEST_LABEL = 16  # tokens; "Frame133200: " is 10 where every digit is one


@dataclass(frozen=True, eq=False)
class _Run:
    """One stretch between `<img>` and `</img>`.

    Attributes:
        tiles: how many it holds.
        marks: its two delimiters.
        number: of the frame, where one is written before it.
        label: where that is written.
        follows: True where nothing but a line break stands between the run before and the label.
    """

    positions: Int[np.ndarray, " token"]
    tiles: int
    marks: Sequence[Mark]
    number: int | None = None
    label: Int[np.ndarray, " position"] = field(default_factory=lambda: np.empty(0, np.int64))
    follows: bool = False


@dataclass(frozen=True)
class _InternVL(FrameFamily):
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
        """As in the base class: frames and tiles by counting off what fills the placeholders."""
        ids, padding = sequence(inputs, row)
        stands = (ids == self.placeholders(model)[Kind.IMAGE]) & ~padding
        if not stands.any():
            return []
        grid = self._tile_grid(model, inputs)
        tiles, size = int(inputs["pixel_values"].shape[0]), grid[0] * grid[1]
        if tiles * size != stands.sum():
            raise TokenMapError(
                f"The prompt holds {stands.sum()} placeholders, {tiles} tiles of {size} tokens fill"
                f" {tiles * size}.",
                remedy=REPORT + " A prompt truncated by the tokenizer has this fault too.",
            )
        runs = _runs(getattr(processor, "tokenizer", processor), ids[row], stands[row], size)
        groups = _groups(runs)
        videos = [group for group in groups if group[0].number is not None]
        given = iter(frames_given(n_frames, len(videos)))
        first = int(stands[:row].sum())
        found = []
        for group in groups:
            positions = np.concatenate([run.positions for run in group])
            if group[0].number is None:
                units, kind = _tiles(positions, grid, first), Kind.IMAGE
            else:
                units, kind = frame_units(positions, grid, first, next(given)), Kind.VIDEO
            found.append(Source(kind, units, _marks(group)))
            first += len(positions)
        return found

    def grids(self, model: Any, inputs: Mapping[str, Any]) -> list[tuple[int, int, int]]:
        """One entry for all tiles of the batch, whichever they belong to."""
        if inputs.get("pixel_values") is None:
            return []
        tiles, _, height, width = inputs["pixel_values"].shape
        rows, cols = model.config.vision_config.patch_size
        return [(int(tiles), int(height // rows), int(width // cols))]

    def vision_pairs(self, vision: Any, grid: tuple[int, int, int]) -> int:
        """As in the base class, with the class token."""
        tiles, rows, cols = grid
        return int(vision.num_hidden_layers) * tiles * (rows * cols + 1) ** 2

    def encoders(self, model: Any) -> tuple[Encoder, ...]:
        """Frames are encoded as images, in one call with them."""
        del model
        return (Encoder("get_image_features", (Kind.VIDEO, Kind.IMAGE)),)

    def vit_tokens(self, model: Any, output: Any, arguments: Mapping[str, Any]) -> Float[Tensor, "token dim"]:
        """As in the base class; the tokens are those of all tiles in prompt order."""
        layer = arguments.get("vision_feature_layer")
        layer = model.config.vision_feature_layer if layer is None else layer
        hidden = output.last_hidden_state if layer == -1 else output.hidden_states[layer]
        rows, _ = self._tile_grid(model, arguments)
        window = round(1 / model.config.downsample_ratio)
        return reduce(
            hidden[:, 1:].float(),
            "tile (row high col wide) dim -> (tile row col) dim",
            "mean",
            row=rows,
            high=window,
            wide=window,
        )

    def _tile_grid(self, model: Any, inputs: Mapping[str, Any]) -> tuple[int, int]:
        """Rows and columns of tokens of each tile."""
        pixels = inputs.get("pixel_values")
        if pixels is None:
            raise TokenMapError("The prompt has placeholders and no `pixel_values`.", remedy=REPORT)
        patch = model.config.vision_config.patch_size
        ratio = model.config.downsample_ratio
        rows, cols = (int(side // one * ratio) for side, one in zip(pixels.shape[-2:], patch, strict=True))
        return rows, cols


def _runs(
    tokenizer: Any, ids: Int[np.ndarray, " position"], stands: Bool[np.ndarray, " position"], size: int
) -> list[_Run]:
    """The stretches of placeholders, each with its delimiters and checked to hold whole tiles."""
    opens, closes = {tokenizer.start_image_token_id}, {tokenizer.end_image_token_id}
    runs: list[_Run] = []
    for positions in split_runs(np.flatnonzero(stands)):
        first, last = int(positions[0]), int(positions[-1])
        if len(positions) % size:
            raise TokenMapError(
                f"{len(positions)} placeholders at position {first} are not whole tiles of {size}.",
                remedy=REPORT,
            )
        tiles = len(positions) // size
        name = f"the picture at position {first}"
        marks = [beside(ids, first - 1, opens, 0, name), beside(ids, last + 1, closes, tiles - 1, name)]
        found = text_before(tokenizer, ids, first - 1, _LABEL, _LONGEST_LABEL) if tiles == 1 else None
        if found is None:
            runs.append(_Run(positions, tiles, marks))
            continue
        match, label = found
        between = ids[runs[-1].marks[1].positions[0] + 1 : label[0]] if runs else None
        follows = between is not None and tokenizer.decode(between.tolist()) in ("", "\n")
        runs.append(_Run(positions, tiles, marks, int(match.group(1)), label, follows))
    return runs


def _groups(runs: Sequence[_Run]) -> list[list[_Run]]:
    """Runs by source: the frames of a video together, each image by itself and without a number."""
    groups: list[list[_Run]] = []
    for run in runs:
        if run.number is not None and run.follows and groups[-1][-1].number == run.number - 1:
            groups[-1].append(run)
        elif run.number == 1:
            groups.append([run])
        else:
            groups.append([_Run(run.positions, run.tiles, run.marks)])
    return groups


def _tiles(positions: Int[np.ndarray, " token"], grid: tuple[int, int], first: int) -> list[Unit]:
    """The tiles of one image, which all show its one picture."""
    size = grid[0] * grid[1]
    row, col = full_grid(*grid)
    return [
        Unit(block, row, col, grid, slots=(0,), feature_start=first + index * size)
        for index, block in enumerate(np.split(positions, len(positions) // size))
    ]


def _marks(group: Sequence[_Run]) -> list[Mark]:
    """Delimiters of each run, and the frame's number before it, by unit of the source."""
    found = []
    for index, run in enumerate(group):
        found += [Mark(one.kind, index + one.unit, one.positions) for one in run.marks]
        if len(run.label):
            found.append(Mark(Kind.DELIMITER, index, run.label))
    return found


FAMILY = _InternVL(name="internvl", model_types=("internvl",), equal_videos=True)
