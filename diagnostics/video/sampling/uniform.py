"""A fixed number of frames, uniform over all frames of the video.

MedHorizon, section 7.1 (fixed budgets of the frame-scaling study): `budget` frame numbers uniformly
spaced from the first to the last frame, in order of time.
"""

from __future__ import annotations

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.strict import STRICT
from diagnostics.video.index import VideoIndex
from diagnostics.video.sampling import as_selection, evenly
from diagnostics.video.selection import Selection

__all__ = ["Config", "select"]


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of uniform sampling.

    Attributes:
        budget: how many frames; a video with fewer gives all it has.
    """

    budget: PositiveInt = 64


def select(config: Config, index: VideoIndex, item: Item) -> Selection:
    """`budget` frames, uniform over the video's frames."""
    frames = evenly(index.n_frames, config.budget)
    return as_selection(index, item, frames, f"uniform(budget={config.budget})", config.budget)
