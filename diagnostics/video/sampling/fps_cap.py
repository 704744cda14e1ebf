"""Frames at a fixed rate, thinned uniformly where there are more than the model takes.

MedHorizon, section 7.1 (frame admission): candidates at the model's rate (1 a second); where there
are at most `budget`, all of them; else `budget` of them uniformly spaced from the first candidate to
the last. The end of a long video is never cut off.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int
from pydantic import PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.strict import STRICT
from diagnostics.video.candidates import Candidates, evenly

__all__ = ["NEEDS", "Config", "choose"]

NEEDS: frozenset[str] = frozenset()


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of sampling at a rate.

    Attributes:
        candidate_fps: candidates a second.
        budget: the most frames the model is shown.
    """

    candidate_fps: PositiveFloat = 1.0
    budget: PositiveInt = 64


def choose(config: Config, candidates: Candidates, item: Item) -> Int[np.ndarray, " chosen"]:
    """At most `budget` of the candidates."""
    return evenly(len(candidates), config.budget)
