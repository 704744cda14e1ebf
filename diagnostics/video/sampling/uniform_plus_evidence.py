"""Uniform frames, some of them exchanged for evidence frames: the same budget, the evidence shown.

Most procedure videos are hours long and their evidence lasts seconds, so that no frame of it is among
128 uniform ones; a measurement of attention to the evidence then has nothing to measure. Here
`evidence_frames` frames of the evidence are shown for certain. Each takes the place of the uniform
frame nearest to it in time, so that budget, span and order stay those of uniform sampling.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.strict import STRICT
from diagnostics.video.candidates import Candidates, evenly, per_window

__all__ = ["NEEDS", "Config", "choose", "remark"]

NEEDS: frozenset[str] = frozenset()


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of sampling with evidence.

    Attributes:
        budget: how many frames; a video with fewer gives all it has.
        evidence_frames: how many of them come from the evidence, where it has so many.
    """

    budget: PositiveInt = 64
    evidence_frames: PositiveInt = 8


def choose(config: Config, candidates: Candidates, item: Item) -> Int[np.ndarray, " chosen"]:
    """`budget` frames: uniform ones, the nearest of them exchanged for evidence frames."""
    uniform = evenly(len(candidates), config.budget)
    evidence = _evidence(config, candidates, item)
    return _exchange(uniform, evidence, candidates.seconds)


def remark(config: Config, candidates: Candidates, item: Item, chosen: Int[np.ndarray, " chosen"]) -> str:
    """How many evidence frames there are, and how many of them uniform sampling would have missed."""
    evidence = _evidence(config, candidates, item)
    exchanged = len(np.setdiff1d(evidence, evenly(len(candidates), config.budget)))
    return f"{len(evidence)} evidence frames, {exchanged} exchanged"


def _evidence(config: Config, candidates: Candidates, item: Item) -> Int[np.ndarray, " n"]:
    return per_window(candidates, item.evidence, min(config.evidence_frames, config.budget, len(candidates)))


def _exchange(
    uniform: Int[np.ndarray, " n"], evidence: Int[np.ndarray, " k"], seconds: Float[np.ndarray, " candidate"]
) -> Int[np.ndarray, " n"]:
    """Put each evidence frame in the place of the nearest uniform one; nearest pairs first."""
    missing = np.setdiff1d(evidence, uniform)
    replaceable = np.setdiff1d(uniform, evidence)
    distance = np.abs(seconds[missing][:, None] - seconds[replaceable][None, :])
    taken: set[int] = set()
    placed: set[int] = set()
    for flat in np.argsort(distance, axis=None, kind="stable").tolist():
        place, slot = divmod(flat, len(replaceable))
        if place not in placed and slot not in taken:
            placed.add(place)
            taken.add(slot)
    return np.union1d(np.setdiff1d(uniform, replaceable[sorted(taken)]), missing).astype(np.int64)
