"""MiniHorizon's frames as decoded from its mp4 files, laid out as the vision tower wants them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from diagnostics.data.minihorizon.files import ensure_files
from diagnostics.data.minihorizon.procedure import Procedure, make_procedures
from diagnostics.data.minihorizon.settings import Config
from diagnostics.video.index import VideoIndex
from diagnostics.video.reading import FrameReader

__all__ = ["GRID", "PATCH", "Footage", "as_patches", "shoot", "unit_pixels"]

PATCH, _MERGE = 16, 2
GRID = 6
"""Patches along each side of a picture of 96 pixels."""


@dataclass(frozen=True)
class Footage:
    """A split, decoded.

    Attributes:
        config: what was written.
        folder: where the videos are.
        procedures: what happens in each video.
        indices: the frames' times of each video, as the toolkit's reader knows them.
        patches: every frame of every video, video after video (27 kB a frame).
        first: where in `patches` each video begins.
    """

    config: Config
    folder: Path
    procedures: Sequence[Procedure]
    indices: Sequence[VideoIndex]
    patches: UInt8[np.ndarray, "frame patch channel height width"]
    first: Int[np.ndarray, " video"]

    @property
    def fps(self) -> float:
        """Frames a second, the same in all videos."""
        return float(self.config.rate)


def as_patches(
    frames: UInt8[np.ndarray, "frame height width 3"],
) -> UInt8[np.ndarray, "frame patch 3 16 16"]:
    """Patches in the processor's order: those that are merged into one token stand together."""
    return rearrange(
        frames,
        "frame (down mdown high) (across macross wide) channel"
        " -> frame (down across mdown macross) channel high wide",
        mdown=_MERGE,
        macross=_MERGE,
        high=PATCH,
        wide=PATCH,
    )


def unit_pixels(
    patches: UInt8[np.ndarray, "slot patch 3 16 16"],
) -> Float[Tensor, "token_patch 1536"]:
    """What the processor gives for an even number of frames: two a unit, scaled to [-1, 1]."""
    pairs = rearrange(
        patches, "(unit pair) patch channel high wide -> (unit patch) (channel pair high wide)", pair=2
    )
    return torch.from_numpy(np.ascontiguousarray(pairs)).float().div_(127.5).sub_(1.0)


def shoot(config: Config, advance: Callable[[int, int], None] | None = None) -> Footage:
    """Write the split's videos (or find them) and decode them all.

    Args:
        config: a split of pictures of 96 x 96 pixels.
        advance: told how many videos are done, and of how many.
    """
    folder = ensure_files(config)
    procedures = make_procedures(config)
    lengths = np.array([procedure.n_frames for procedure in procedures])
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    patches = np.empty((int(lengths.sum()), GRID * GRID, 3, PATCH, PATCH), dtype=np.uint8)
    indices = []
    with FrameReader() as reader:
        for procedure, start in zip(procedures, first, strict=True):
            path = folder / f"{procedure.name}.mp4"
            indices.append(reader.index(path))
            patches[start : start + procedure.n_frames] = as_patches(
                reader.read(path, range(procedure.n_frames))
            )
            if advance is not None:
                advance(procedure.index + 1, len(procedures))
    return Footage(config, folder, procedures, indices, patches, first)
