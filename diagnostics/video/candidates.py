"""What a sampler chooses from: candidate frames with their times and, where asked for, their signals.

Also what samplers have in common: which frames are candidates, even spacing, ranking by a score that may
hold gaps, filling up to the budget, and sharing a number of frames among evidence windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from diagnostics.data.items import Evidence
from diagnostics.errors import ScoresError
from diagnostics.video.index import VideoIndex
from diagnostics.video.selection import in_window

__all__ = [
    "Candidates",
    "best_first",
    "candidate_frames",
    "evenly",
    "fill_up",
    "finite",
    "per_window",
    "take_best",
]

_ROUNDING = 1e-6
"""Seconds by which a frame may lie after a candidate time and still be the one on screen: times in
coarse time bases (1/1000 in Matroska is caught by the half tick below) are not exact multiples."""


@dataclass(frozen=True, eq=False, slots=True)
class Candidates:
    """The frames a sampler may choose, in order of time.

    Attributes:
        index: the video's frames and their times.
        frame_index: source frame of each candidate, ascending.
        scores: relevance of each to the item's question, larger is more; None where nobody asked.
        features: an embedding of each, not normalised; None where nobody asked.
        change: difference of each to the candidate before it, from 0; infinite for the first. None
            where nobody asked.

    Raises:
        ScoresError: a signal has another length than `frame_index`, or the candidates do not ascend.
    """

    index: VideoIndex
    frame_index: Int[np.ndarray, " n"]
    scores: Float[np.ndarray, " n"] | None = None
    features: Float[np.ndarray, "n dim"] | None = None
    change: Float[np.ndarray, " n"] | None = None

    def __post_init__(self) -> None:
        if (np.diff(self.frame_index) <= 0).any():
            raise ScoresError(
                "the candidates are not in order of time.", remedy="Sort them.", path=self.index.path
            )
        for name, dimensions in (("scores", 1), ("features", 2), ("change", 1)):
            signal = getattr(self, name)
            if signal is not None and (signal.ndim != dimensions or len(signal) != len(self)):
                raise ScoresError(
                    f"{name} of shape {signal.shape} came for {len(self)} candidates.",
                    remedy="Give one entry a candidate: check candidate_fps and the file of scores.",
                    path=self.index.path,
                )

    def __len__(self) -> int:
        return len(self.frame_index)

    @property
    def seconds(self) -> Float[np.ndarray, " n"]:
        """Presentation time of each candidate, from the first frame of the video."""
        return self.index.seconds[self.frame_index]

    def wanted(self, name: str) -> Float[np.ndarray, " n *dim"]:
        """The signal called `name`.

        Raises:
            ScoresError: it is not there.
        """
        signal = getattr(self, name)
        if signal is None:
            raise ScoresError(
                f"the sampler needs {name} and was given none.",
                remedy="Give `select_frames` a `Signals`.",
                path=self.index.path,
            )
        return signal


def candidate_frames(
    index: VideoIndex,
    fps: float | None,
    most: int | None = None,
    clip: tuple[float, float] | None = None,
) -> Int[np.ndarray, " n"]:
    """Frames on screen at 0, 1/fps, 2/fps... seconds up to the last frame, each once.

    Real times decide, so that a frame held for long in a video of variable rate is a candidate once.

    Args:
        fps: candidates a second (AKS, WFS-SB, MedHorizon: 1); None for every frame.
        clip: only frames shown at `clip[0] <= seconds < clip[1]`; None for the whole video.
        most: where there are more, this many, floor(linspace(0, n - 1, most)) of them (ViLAMP: 600).
    """
    if fps is None:
        frames = np.arange(index.n_frames, dtype=np.int64)
    elif not index.n_frames:
        return np.empty(0, dtype=np.int64)
    else:
        tolerance = float(index.time_base) / 2 + _ROUNDING
        times = np.arange(np.floor((index.seconds[-1] + tolerance) * fps) + 1) / fps
        frames = np.unique(np.searchsorted(index.seconds, times + tolerance, side="right") - 1)
    if clip is not None:
        seconds = index.seconds[frames]
        frames = frames[(seconds >= clip[0]) & (seconds < clip[1])]
    if most is not None and len(frames) > most:
        frames = frames[np.linspace(0, len(frames) - 1, most).astype(np.int64)]
    return frames.astype(np.int64)


def evenly(count: int, budget: int) -> Int[np.ndarray, " n"]:
    """`budget` of `count` places, uniform from the first to the last: round(linspace(0, count - 1, budget)).

    All of them where the budget is not smaller. This is MedHorizon's rule (section 7.1), which leaves
    rounding open; we round half to even, which never picks a place twice. A budget of 1 takes the first.
    """
    if budget >= count:
        return np.arange(count, dtype=np.int64)
    return np.round(np.linspace(0, count - 1, budget)).astype(np.int64)


def finite(scores: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """`scores` for arithmetic: infinities become the largest or smallest finite score, NaN the smallest.

    All zero where none is finite.
    """
    scores = np.asarray(scores, dtype=np.float64)
    known = scores[np.isfinite(scores)]
    if not len(known):
        return np.zeros(len(scores))
    low, high = float(known.min()), float(known.max())
    return np.nan_to_num(scores, nan=low, posinf=high, neginf=low)


def best_first(scores: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Places by descending score; equal ones by time; NaN last."""
    scores = np.asarray(scores, dtype=np.float64)
    return np.argsort(-np.where(np.isnan(scores), -np.inf, scores), kind="stable")


def take_best(
    chosen: Int[np.ndarray, " m"], scores: Float[np.ndarray, " n"], budget: int
) -> Int[np.ndarray, " k"]:
    """`chosen` with the best of the other places added until there are `budget`; ascending."""
    ranked = best_first(scores)
    rest = ranked[~np.isin(ranked, chosen)]
    return np.union1d(chosen, rest[: max(0, budget - len(np.unique(chosen)))]).astype(np.int64)


def fill_up(chosen: Int[np.ndarray, " m"], count: int, budget: int) -> Int[np.ndarray, " k"]:
    """`chosen` and evenly spaced ones of the other places below `count`, `budget` in all; ascending."""
    rest = np.setdiff1d(np.arange(count), chosen)
    missing = max(0, budget - (count - len(rest)))
    return np.union1d(chosen, rest[evenly(len(rest), missing)]).astype(np.int64)


def per_window(candidates: Candidates, evidence: Evidence | None, count: int) -> Int[np.ndarray, " n"]:
    """Up to `count` places inside the evidence: shared evenly among its windows, even within each.

    Windows with too few frames give all they have and leave the rest of their share to the others.
    Within a window the frames are the middles of equal parts. None for absent or global evidence.
    """
    if evidence is None or evidence.kind == "global":
        return np.empty(0, dtype=np.int64)
    places, seconds = np.arange(len(candidates)), candidates.seconds
    free = np.ones(len(candidates), dtype=bool)
    inside = []
    for window in evidence.windows:
        held = in_window(window, candidates.frame_index, seconds) & free  # where two overlap: the first's
        free &= ~held
        inside.append(places[held])
    inside = sorted((frames for frames in inside if len(frames)), key=len)
    chosen: list[Int[np.ndarray, " n"]] = []
    for rank, frames in enumerate(inside):
        share = -(-(count - sum(map(len, chosen))) // (len(inside) - rank))
        take = min(share, len(frames))
        chosen.append(frames[((np.arange(take) + 0.5) * len(frames) / max(take, 1)).astype(np.int64)])
    return np.unique(np.concatenate(chosen)) if chosen else np.empty(0, dtype=np.int64)
