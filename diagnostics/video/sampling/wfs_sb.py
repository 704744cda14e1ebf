"""Wavelet-based frame selection with semantic boundaries.

WFS-SB (Chen et al., CVPR 2026, arXiv 2603.00512; MAC-AutoML/WFS-SB, configs/wfs_defaults.yaml). From the
relevance x of N candidates to K frames:

1. The coarsest detail band of a db4 wavelet transform of x, at level floor(log2 N - 3), is
   transformed back alone. Peaks of its absolute value (above the mean by half a deviation, at least
   max(5, 0.02 N) apart, prominent by 5% of the range) cut the video into segments.
2. A segment's importance is .4 length/N + .2 mean + .3 max + .1 var/var(x). Of more than three
   segments those below max(0.05, mean - 1.2 deviations) are dropped, unless that drops all.
3. The softmax of the importances shares out K; fractions go to the largest remainders.
4. In each segment the most relevant frame, then by maximal marginal relevance:
   lambda (2x - 1) - (1 - lambda) max cosine to those taken.
5. Too few: the same over the whole video. Too many: the least relevant go.
6. Without peaks: K // 2 evenly spaced frames and the most relevant others.

Decided here: `scale=min_max` (default) scales x to [0, 1] within the video, as step 4 and the constants
take for granted; the release takes scores as they come (`scale=as_given`, right for ITM
probabilities, refused outside [0, 1]). Detail below 1e-9 is none, since constant scores give the release
peaks from rounding noise. With N <= K all candidates are taken. A NaN counts as the lowest score. Of equal
remainders the later segment gets the frame, as released; equal scores are taken by time.
"""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
import pywt
from jaxtyping import Float, Int
from pydantic import Field, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass
from scipy.signal import find_peaks

from diagnostics.data.items import Item
from diagnostics.errors import ScoresError
from diagnostics.strict import STRICT
from diagnostics.video.candidates import Candidates, best_first, finite
from diagnostics.video.relevance.config import ScorerConfig

__all__ = ["NEEDS", "Config", "boundaries", "choose", "level", "needs", "shares"]

NEEDS = frozenset({"scores", "features"})

_WAVELET, _MODE, _DRIFT = "db4", "symmetric", 3
_HEIGHT, _PROMINENCE, _APART, _APART_AT_LEAST = 0.5, 0.05, 0.02, 5
_LENGTH, _MEAN, _MAX, _VARIANCE = 0.4, 0.2, 0.3, 0.1
_STRICTNESS, _LEAST_IMPORTANCE = 1.2, 0.05
_NO_DETAIL = 1e-9
_FADE = 10.0
"""Candidates over which likeness by time alone falls to 1/e."""


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of WFS-SB.

    Attributes:
        budget: K, how many frames; a video with fewer candidates gives all of them.
        relevance_weight: lambda, of relevance against difference.
        temperature: of the softmax that shares out the budget.
        scale: of the scores, see the module.
        likeness: `features` (cosine) or `time` (exp(-distance / 10), the release's rule without features).
        candidate_fps: candidates a second; null for every frame.
        scorer: relevance and features. The release's default is BLIP-2 ITM.
    """

    budget: PositiveInt = 16
    relevance_weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    temperature: PositiveFloat = 1.0
    scale: Literal["min_max", "as_given"] = "min_max"
    likeness: Literal["features", "time"] = "features"
    candidate_fps: PositiveFloat | None = 1.0
    scorer: ScorerConfig = ScorerConfig()


def needs(config: Config) -> frozenset[str]:
    """Scores, and features where likeness is theirs."""
    return NEEDS if config.likeness == "features" else frozenset({"scores"})


def choose(config: Config, candidates: Candidates, item: Item) -> Int[np.ndarray, " chosen"]:
    """`budget` candidates, shared out among the segments of the relevance curve.

    Raises:
        ScoresError: `scale=as_given` and a score lies outside [0, 1].
    """
    relevance = _relevance(config, candidates)
    count = len(relevance)
    if count <= config.budget:
        return np.arange(count)
    cuts = boundaries(relevance)
    if not len(cuts):
        return _without_boundaries(relevance, config.budget)
    picks = _Picks(config, candidates, 2 * relevance - 1)
    borders = [0, *cuts.tolist(), count]
    segments, budgets = shares(relevance, borders, config.budget, config.temperature)
    for (begin, end), budget in zip(segments, budgets, strict=True):
        picks.from_segment(begin, end, budget)
    return picks.in_all(config.budget)


def _relevance(config: Config, candidates: Candidates) -> Float[np.ndarray, " n"]:
    scores = finite(candidates.wanted("scores"))
    if not len(scores):
        return scores
    low, high = scores.min(), scores.max()
    if config.scale == "as_given":
        if low < 0 or high > 1:
            raise ScoresError(
                f"scores from {low:.3g} to {high:.3g} came, and scale=as_given takes those from 0 to 1.",
                remedy="Set sampling.scale=min_max.",
                path=candidates.index.path,
            )
        return scores
    return (scores - low) / (high - low) if high > low else np.zeros(len(scores))


def level(count: int) -> int:
    """Depth of the transform: floor(log2 N - 3), at least 1, at most what db4 allows for N samples."""
    deepest = pywt.dwt_max_level(count, pywt.Wavelet(_WAVELET).dec_len)
    if deepest <= 1:
        return 1
    return int(np.clip(np.floor(np.log2(count) - _DRIFT), 1, deepest))


def boundaries(relevance: Float[np.ndarray, " n"]) -> Int[np.ndarray, " peak"]:
    """Where the coarsest detail of the curve peaks: the first candidate of each segment but the first."""
    count = len(relevance)
    with warnings.catch_warnings():
        # Below 16 candidates every level is too deep for db4; level 1 is what the release then takes.
        warnings.filterwarnings("ignore", "Level value of", UserWarning)
        bands = pywt.wavedec(relevance, _WAVELET, mode=_MODE, level=level(count))
    alone = [band if place == 1 else np.zeros_like(band) for place, band in enumerate(bands)]
    detail = np.abs(pywt.waverec(alone, _WAVELET, mode=_MODE)[:count])
    if detail.max() < _NO_DETAIL:
        return np.empty(0, dtype=np.int64)
    return find_peaks(
        detail,
        height=detail.mean() + _HEIGHT * detail.std(),
        distance=max(_APART_AT_LEAST, int(_APART * count)),
        prominence=_PROMINENCE * (detail.max() - detail.min()),
    )[0].astype(np.int64)


def shares(
    relevance: Float[np.ndarray, " n"], borders: list[int], budget: int, temperature: float
) -> tuple[list[tuple[int, int]], Int[np.ndarray, " segment"]]:
    """Segments that count, [begin, end), and how many frames each is to give: `budget` in all."""
    segments = list(pairwise(borders))
    variance = relevance.var() + 1e-8
    importance = np.array(
        [
            _LENGTH * (end - begin) / len(relevance)
            + _MEAN * relevance[begin:end].mean()
            + _MAX * relevance[begin:end].max()
            + _VARIANCE * relevance[begin:end].var() / variance
            for begin, end in segments
        ]
    )
    if len(segments) > 3:
        kept = importance >= max(_LEAST_IMPORTANCE, importance.mean() - _STRICTNESS * importance.std())
        if kept.any():
            segments = [segment for segment, keep in zip(segments, kept, strict=True) if keep]
            importance = importance[kept]
    weight = np.exp((importance - importance.max()) / temperature)
    exact = weight / weight.sum() * budget
    whole = np.floor(exact).astype(np.int64)
    order = np.argsort(exact - whole)[::-1]
    whole[order[: budget - int(whole.sum())]] += 1
    return segments, whole


def _without_boundaries(relevance: Float[np.ndarray, " n"], budget: int) -> Int[np.ndarray, " chosen"]:
    uniform = np.linspace(0, len(relevance) - 1, budget // 2).astype(np.int64)
    ranked = best_first(relevance)
    others = ranked[~np.isin(ranked, uniform)]
    return np.sort(np.concatenate([uniform, others[: budget - len(uniform)]]))


class _Picks:
    """Frames taken so far, and each candidate's largest likeness to one of them within the present pass."""

    def __init__(self, config: Config, candidates: Candidates, worth: Float[np.ndarray, " n"]) -> None:
        self.weight = config.relevance_weight
        self.worth = worth
        self.taken: list[int] = []
        self.features: Float[np.ndarray, "n dim"] | None = None
        if config.likeness == "features":
            features = candidates.wanted("features").astype(np.float64)
            length = np.linalg.norm(features, axis=1, keepdims=True)
            with np.errstate(invalid="ignore", divide="ignore"):
                self.features = np.nan_to_num(features / length)  # an empty feature resembles nothing

    def from_segment(self, begin: int, end: int, budget: int) -> None:
        """Its most relevant frame, then by marginal relevance within the segment alone."""
        if budget > 0:
            first = begin + int(np.argmax(self.worth[begin:end]))
            self.taken += self._walk(begin, end, [first], min(budget, end - begin))

    def in_all(self, budget: int) -> Int[np.ndarray, " chosen"]:
        """`budget` frames, ascending: filled up from the whole video, or cut to the most relevant."""
        if len(self.taken) > budget:
            taken = np.array(sorted(self.taken))
            return np.sort(taken[best_first(self.worth[taken])[:budget]])
        return np.sort(np.array(self._walk(0, len(self.worth), self.taken, budget), dtype=np.int64))

    def _walk(self, begin: int, end: int, taken: list[int], budget: int) -> list[int]:
        """`taken` and the best of [begin, end) by marginal relevance, one by one, until `budget`."""
        likeness = np.full(end - begin, -np.inf)
        free = np.ones(end - begin, dtype=bool)
        walked = list(taken)
        for place in walked:
            np.maximum(likeness, self._likeness(begin, end, place), out=likeness)
            free[place - begin] = False
        while len(walked) < budget:
            marginal = self.weight * self.worth[begin:end] - (1 - self.weight) * likeness
            place = begin + int(np.argmax(np.where(free, marginal, -np.inf)))
            walked.append(place)
            free[place - begin] = False
            np.maximum(likeness, self._likeness(begin, end, place), out=likeness)
        return walked

    def _likeness(self, begin: int, end: int, place: int) -> Float[np.ndarray, " n"]:
        if self.features is not None:
            return self.features[begin:end] @ self.features[place]
        return np.exp(-np.abs(np.arange(begin, end) - place) / _FADE)
