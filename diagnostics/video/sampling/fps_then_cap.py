"""Frames at a fixed rate, thinned uniformly where there are more than the model takes.

MedHorizon, section 7.1 (frame admission): candidates at the model's rate (1 a second); where there
are at most `budget`, all of them; else `budget` of them uniformly spaced from the first candidate to
the last. The end of a long video is never cut off.

A candidate is the frame on screen at 0, 1/fps, 2/fps... seconds, by the frames' real times, so that a
frame held for long in a video of variable rate is a candidate once.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int
from pydantic import PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.strict import STRICT
from diagnostics.video.index import VideoIndex
from diagnostics.video.sampling import as_selection, evenly
from diagnostics.video.selection import Selection

__all__ = ["Config", "candidates", "select"]

_ROUNDING = 1e-6
"""Seconds by which a frame may lie after a candidate time and still be the one on screen: times in
coarse time bases (1/1000 in Matroska is caught by the half tick below) are not exact multiples."""


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of sampling at a rate.

    Attributes:
        fps: candidates a second.
        budget: the most frames the model is shown.
    """

    fps: PositiveFloat = 1.0
    budget: PositiveInt = 64


def candidates(index: VideoIndex, fps: float) -> Int[np.ndarray, " candidate"]:
    """Frames on screen at 0, 1/fps, 2/fps... seconds up to the last frame, each once."""
    tolerance = float(index.time_base) / 2 + _ROUNDING
    times = np.arange(np.floor((index.seconds[-1] + tolerance) * fps) + 1) / fps
    return np.unique(np.searchsorted(index.seconds, times + tolerance, side="right") - 1)


def select(config: Config, index: VideoIndex, item: Item) -> Selection:
    """At most `budget` of the candidates."""
    all_candidates = candidates(index, config.fps)
    frames = all_candidates[evenly(len(all_candidates), config.budget)]
    rule = f"fps_then_cap(fps={config.fps:g}, budget={config.budget})"
    return as_selection(index, item, frames, rule, config.budget)
