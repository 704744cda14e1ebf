"""Families of one frame a temporal unit, each the same number of tokens, whose prompts hold no times.

Frames are told apart by their order alone. What a prompt cannot say is said in its notices: times that are
not evenly spaced, or do not run forward, are lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from hooks.errors import TokenMapError
from hooks.families._family import Family, Shown
from hooks.families._sources import REPORT, Unit, full_grid
from hooks.families._spacing import uneven_gaps

__all__ = ["FrameFamily", "frame_units", "require_run"]


@dataclass(frozen=True)
class FrameFamily(Family):
    """A family that is told no times."""

    def notices(self, shown: Shown, model: Any, inputs: Mapping[str, Any] | None = None) -> list[str]:
        """Where the frames' times are not those a reader of their order would suppose."""
        del model, inputs
        gaps = uneven_gaps(shown)
        if gaps is None:
            return []
        return [
            f"times_not_told: frames lie {gaps.min():.2f} to {gaps.max():.2f} s apart; prompts of {self.name}"
            " hold frames in order and no times"
        ]


def require_run(positions: Int[np.ndarray, " position"], name: str) -> None:
    """Refuse placeholders of one video or image that do not follow one another.

    Raises:
        TokenMapError: something stands between them.
    """
    first, last = int(positions[0]), int(positions[-1])
    if last - first + 1 != len(positions):
        raise TokenMapError(
            f"The {len(positions)} tokens of {name} are spread over positions {first} to {last}.",
            remedy=REPORT,
        )


def frame_units(
    positions: Int[np.ndarray, " token"],
    grid: tuple[int, int],
    feature_start: int,
    frames: int | None,
) -> list[Unit]:
    """The units of one video, whose tokens are row-major and frames in order.

    Args:
        positions: of all its visual tokens.
        grid: rows and columns of a frame.
        feature_start: of its first frame.
        frames: how many were given; None where nobody told.

    Raises:
        TokenMapError: the video shows another number of frames than was given.
    """
    rows, cols = grid
    size = rows * cols
    found = len(positions) // size
    if frames is not None and frames != found:
        raise TokenMapError(
            f"{frames} frames were given, the prompt shows {found}.",
            remedy="The processor sampled frames again: pass do_sample_frames=False and full video metadata.",
        )
    row, col = full_grid(rows, cols)
    return [
        Unit(
            positions=block,
            row=row,
            col=col,
            grid=grid,
            slots=(index,),
            feature_start=feature_start + index * size,
        )
        for index, block in enumerate(np.split(positions, found))
    ]
