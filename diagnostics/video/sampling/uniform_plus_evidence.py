"""Uniform frames, some of them exchanged for evidence frames: the same budget, the evidence shown.

Most procedure videos are hours long and their evidence lasts seconds, so that no frame of it is among
128 uniform ones; a measurement of attention to the evidence then has nothing to measure. Here
`evidence_frames` frames of the evidence are shown for certain. Each takes the place of the uniform
frame nearest to it in time, so that budget, span and order stay those of uniform sampling.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int
from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Evidence, Item
from diagnostics.strict import STRICT
from diagnostics.video.index import VideoIndex
from diagnostics.video.sampling import as_selection, evenly
from diagnostics.video.selection import Selection, in_window

__all__ = ["Config", "evidence_frames", "select"]


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of sampling with evidence.

    Attributes:
        budget: how many frames; a video with fewer gives all it has.
        evidence_frames: how many of them come from the evidence, where it has so many.
    """

    budget: PositiveInt = 64
    evidence_frames: PositiveInt = 8


def evidence_frames(index: VideoIndex, evidence: Evidence | None, count: int) -> Int[np.ndarray, " n"]:
    """Up to `count` frames of the evidence: shared evenly among its windows, even within each.

    Windows with too few frames give all they have and leave the rest of their share to the others.
    Within a window the frames are the middles of equal parts. None for absent or global evidence.
    """
    if evidence is None or evidence.kind == "global":
        return np.empty(0, dtype=np.int64)
    numbers = np.arange(index.n_frames)
    free = np.ones(index.n_frames, dtype=bool)
    inside = []
    for window in evidence.windows:
        held = in_window(window, numbers, index.seconds) & free  # where windows overlap, the first has it
        free &= ~held
        inside.append(numbers[held])
    inside = sorted((frames for frames in inside if len(frames)), key=len)
    chosen: list[Int[np.ndarray, " n"]] = []
    for rank, frames in enumerate(inside):
        share = -(-(count - sum(map(len, chosen))) // (len(inside) - rank))
        take = min(share, len(frames))
        chosen.append(frames[((np.arange(take) + 0.5) * len(frames) / max(take, 1)).astype(np.int64)])
    return np.unique(np.concatenate(chosen)) if chosen else np.empty(0, dtype=np.int64)


def select(config: Config, index: VideoIndex, item: Item) -> Selection:
    """`budget` frames: uniform ones, the nearest of them exchanged for evidence frames."""
    uniform = evenly(index.n_frames, config.budget)
    evidence = evidence_frames(index, item.evidence, min(config.evidence_frames, len(uniform)))
    frames = _exchange(uniform, evidence, index)
    rule = (
        f"uniform_plus_evidence(budget={config.budget}, evidence_frames={config.evidence_frames}): "
        f"{len(evidence)} evidence frames, {len(np.setdiff1d(evidence, uniform))} exchanged"
    )
    return as_selection(index, item, frames, rule, config.budget)


def _exchange(
    uniform: Int[np.ndarray, " n"], evidence: Int[np.ndarray, " k"], index: VideoIndex
) -> Int[np.ndarray, " n"]:
    """Put each evidence frame in the place of the nearest uniform one; nearest pairs first."""
    missing = np.setdiff1d(evidence, uniform)
    replaceable = np.setdiff1d(uniform, evidence)
    distance = np.abs(index.seconds[missing][:, None] - index.seconds[replaceable][None, :])
    taken: set[int] = set()
    placed: set[int] = set()
    for flat in np.argsort(distance, axis=None, kind="stable").tolist():
        place, slot = divmod(flat, len(replaceable))
        if place not in placed and slot not in taken:
            placed.add(place)
            taken.add(slot)
    return np.union1d(np.setdiff1d(uniform, replaceable[sorted(taken)]), missing)
