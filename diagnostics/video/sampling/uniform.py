"""A fixed number of frames, uniform over all frames of the video.

MedHorizon, section 7.1 (fixed budgets of the frame-scaling study): `budget` frame numbers uniformly
spaced from the first to the last frame, in order of time.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int
from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.strict import STRICT
from diagnostics.video.candidates import Candidates, evenly

__all__ = ["NEEDS", "Config", "choose"]

NEEDS: frozenset[str] = frozenset()


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of uniform sampling.

    Attributes:
        budget: how many frames; a video with fewer gives all it has.
    """

    budget: PositiveInt = 64


def choose(config: Config, candidates: Candidates, item: Item) -> Int[np.ndarray, " chosen"]:
    """`budget` frames, uniform over the video's frames."""
    return evenly(len(candidates), config.budget)
