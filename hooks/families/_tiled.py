"""Families that cut pictures into tiles and pack them again row by row, with a newline after each row.

An image is two units of one source: the whole picture in one tile, then its tiles put together again,
without the padding around them, as one grid. After each row of that grid stands a newline embedding at a
placeholder: a delimiter, no patch. How many rows and columns there are is asked of the model's own packing,
which is run on features that say what they are; nothing of its arithmetic is repeated here.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.errors import TokenMapError
from hooks.families._frames import FrameFamily, frame_units, require_run
from hooks.families._grid import counted_off
from hooks.families._sources import REPORT, Kind, Mark, Source, Unit, array, frames_given, full_grid, sequence

__all__ = ["TiledFamily", "selected_states"]


@dataclass(frozen=True)
class TiledFamily(FrameFamily):
    """The layout shared by LLaVA-NeXT's descendants: `pixel_values_videos`, `pixel_values`, `image_sizes`.

    Attributes:
        newline_after_video: True where one newline embedding stands after a video's last frame.
    """

    newline_after_video: bool = False
    equal_videos: bool = True

    @abstractmethod
    def frame_side(self, model: Any) -> int:
        """Rows, and columns, of tokens of a video's frame."""

    @abstractmethod
    def image_tiles(self, model: Any, inputs: Mapping[str, Any]) -> list[int]:
        """Tiles of each image of the batch, the one of the whole picture counted; 1 where it is not cut."""

    @abstractmethod
    def pool(self, model: Any, frames: Float[Tensor, "frame patch dim"]) -> Float[Tensor, "frame token dim"]:
        """The model's own pooling of a video's frames."""

    @abstractmethod
    def pack(
        self, model: Any, tiles: Sequence[Tensor], inputs: Mapping[str, Any], newline: Tensor | None
    ) -> list[Tensor]:
        """The model's own packing: features [tile, patch, dim] of each image to its tokens [token, dim]."""

    def tiles_cut(self, model: Any, sizes: Sequence[Sequence[int]]) -> list[int]:
        """Tiles of images of these heights and widths by the model's own count, the whole picture's too."""
        count = sys.modules[type(self.base(model)).__module__].image_size_to_num_patches
        config = model.config
        return [
            int(count(list(size), config.image_grid_pinpoints, config.vision_config.image_size))
            for size in sizes
        ]

    def tile_side(self, model: Any) -> int:
        """Patches along each side of a tile."""
        vision = model.config.vision_config
        return int(vision.image_size // vision.patch_size)

    def sources(
        self,
        model: Any,
        processor: Any,
        inputs: Mapping[str, Any],
        row: int,
        n_frames: int | Sequence[int] | None,
    ) -> list[Source]:
        """As in the base class: each kind has its placeholder, and is counted off in batch order."""
        del processor
        videos = self._blocks(model, inputs, row, Kind.VIDEO, self._video_sizes(model, inputs))
        newlines = self._newlines(model, inputs)
        images = self._blocks(model, inputs, row, Kind.IMAGE, [len(one) for one in newlines])
        starts = np.cumsum([0, *(len(one) for one in newlines)])
        found = [self._image(model, block, newlines[number], int(starts[number])) for number, block in images]
        given = frames_given(n_frames, len(videos))
        side = self.frame_side(model)
        for (number, block), frames in zip(videos, given, strict=True):
            tokens = block[:-1] if self.newline_after_video else block
            units = frame_units(tokens, (side, side), number * len(block), frames)
            after = [Mark(Kind.DELIMITER, len(units) - 1, block[-1:])] if self.newline_after_video else []
            found.append(Source(Kind.VIDEO, units, after))
        return found

    def vit_tokens(self, model: Any, output: Any, arguments: Mapping[str, Any]) -> Float[Tensor, "token dim"]:
        """The layer of the vision tower that the model reads, pooled or packed as the model does.

        NaN at newlines.
        """
        states = selected_states(model, output, arguments)
        newline = states.new_full(states.shape[-1:], torch.nan)
        if "image_sizes" in arguments:
            tiles = torch.split(states, self.image_tiles(model, arguments))
            return torch.cat(self.pack(model, tiles, arguments, newline))
        # In transformers 5.16 the method for videos calls its pixels what that for images does.
        pixels = arguments.get("pixel_values_videos", arguments.get("pixel_values"))
        videos = self.pool(model, states).chunk(len(pixels))
        after = [newline[None]] if self.newline_after_video else []
        return torch.cat([part for video in videos for part in (video.flatten(0, 1), *after)])

    def grids(self, model: Any, inputs: Mapping[str, Any]) -> list[tuple[int, int, int]]:
        """A video's frames, and each image's tiles."""
        side = self.tile_side(model)
        videos = inputs.get("pixel_values_videos")
        shown = [] if videos is None else [int(videos.shape[1])] * int(videos.shape[0])
        tiles = self.image_tiles(model, inputs) if inputs.get("pixel_values") is not None else []
        return [(count, side, side) for count in [*shown, *tiles]]

    def _video_sizes(self, model: Any, inputs: Mapping[str, Any]) -> list[int]:
        """Placeholders of each video of the batch."""
        pixels = inputs.get("pixel_values_videos")
        if pixels is None:
            return []
        videos, frames = int(pixels.shape[0]), int(pixels.shape[1])
        return [frames * self.frame_side(model) ** 2 + int(self.newline_after_video)] * videos

    def _newlines(self, model: Any, inputs: Mapping[str, Any]) -> list[Bool[np.ndarray, " token"]]:
        """For each image of the batch, which of its placeholders are newlines."""
        if inputs.get("pixel_values") is None:
            return []
        patches = self.tile_side(model) ** 2
        features = [torch.zeros(tiles, patches, 1) for tiles in self.image_tiles(model, inputs)]
        return [array(one[:, 0]) > 0 for one in self.pack(model, features, inputs, torch.ones(1))]

    def _blocks(
        self, model: Any, inputs: Mapping[str, Any], row: int, kind: Kind, sizes: Sequence[int]
    ) -> list[tuple[int, Int[np.ndarray, " token"]]]:
        """The row's videos or images: their numbers in the batch and their placeholders' positions."""
        ids, padding = sequence(inputs, row)
        stands = (ids == self.placeholders(model)[kind]) & ~padding
        counted = np.asarray(sizes, dtype=np.int64)
        name = "the videos" if kind is Kind.VIDEO else "the images"
        numbered = list(counted_off(stands, counted, row, name).items())
        for number, block in numbered:
            require_run(block, f"{kind.name.lower()} {number}")
        return numbered

    def _image(
        self, model: Any, block: Int[np.ndarray, " token"], newline: Bool[np.ndarray, " token"], start: int
    ) -> Source:
        """One image: the whole picture, then the grid of its tiles where it is cut."""
        side = self.tile_side(model)
        row, col = full_grid(side, side)
        units = [Unit(block[: side**2], row, col, (side, side), slots=(0,), feature_start=start)]
        packed, ends = block[side**2 :], newline[side**2 :]
        rows = int(ends.sum())
        if len(packed) > rows:
            cols = len(packed) // rows - 1
            if not np.array_equal(np.flatnonzero(ends), np.arange(1, rows + 1) * (cols + 1) - 1):
                raise TokenMapError(
                    f"The {len(packed)} tokens of an image's tiles are not {rows} rows of one length.",
                    remedy=REPORT,
                )
            row, col = full_grid(rows, cols)
            patches = np.flatnonzero(~ends)
            units.append(
                Unit(packed[patches], row, col, (rows, cols), (0,), start + side**2, features=patches)
            )
        marks = [Mark(Kind.DELIMITER, len(units) - 1, packed[ends])] if rows else []
        return Source(Kind.IMAGE, units, marks)


def selected_states(model: Any, output: Any, arguments: Mapping[str, Any]) -> Float[Tensor, "tile patch dim"]:
    """The vision tower's states that the model projects: of the layers it reads, less a dropped class token.

    Args:
        output: what the encoder returned.
        arguments: what it was called with, which may choose another layer than the configuration does.
    """

    def chosen(name: str) -> Any:
        value = arguments.get(name)
        return getattr(model.config, name) if value is None else value

    layers = chosen("vision_feature_layer")
    layers = [layers] if isinstance(layers, int) else layers
    states = torch.cat([output.hidden_states[layer] for layer in layers], dim=-1).float()
    return states[:, 1:] if chosen("vision_feature_select_strategy") == "default" else states
