"""Frames drawn at random: the control for every rule that claims to know where to look.

Without replacement, each candidate as likely as any other. The draw depends on the seed and the item's
id alone, so that it is the same on every machine, in any order of items, and different for two questions
on one video.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

import numpy as np
from jaxtyping import Int
from pydantic import Field, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.strict import STRICT
from diagnostics.video.candidates import Candidates

__all__ = ["NEEDS", "Config", "choose"]

NEEDS: frozenset[str] = frozenset()


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of random sampling.

    Attributes:
        budget: how many frames; a video with fewer candidates gives all of them.
        seed: of the draw.
        candidate_fps: candidates a second; null for every frame.
    """

    budget: PositiveInt = 64
    seed: Annotated[int, Field(ge=0)] = 0
    candidate_fps: PositiveFloat | None = None


def choose(config: Config, candidates: Candidates, item: Item) -> Int[np.ndarray, " chosen"]:
    """`budget` of the candidates, drawn with the seed and the item's id."""
    digest = hashlib.sha256(f"{config.seed}/{item.id}".encode()).digest()
    generator = np.random.default_rng(int.from_bytes(digest, "big"))
    drawn = generator.permutation(len(candidates))[: config.budget]
    return np.sort(drawn).astype(np.int64)
