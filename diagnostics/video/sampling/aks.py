"""Adaptive keyframe sampling: relevant frames, and frames from every part of the video.

AKS (Tang et al., CVPR 2025, arXiv 2502.21271). Scores are scaled to [0, 1] within the video. Strategies:

- `top`: the M best candidates.
- `bin`: the candidates are halved `depth` times, and each part gives its best M / 2^depth.
- `ada`: judge and split. A part is kept whole, at depth d, where its best M / 2^d exceed its mean by more
  than `threshold` and its scores spread by more than `spread`; else it is halved, down to `depth`.
  Each kept part gives its best M / 2^d.
- `ada_release`: the same as published (ncTimTang/AKS, frame_select.py): a part is judged by its best M
  frames at every depth, so that a part of at most M frames always splits and the defaults are
  nearly `bin`; quotas are rounded down, so that 100 becomes 96 and anything below 2^depth nothing
  at all; a part shorter than its quota gives what it has. Constant scores become NaN and then compare as
  Python's heapq compares them.

What we decided for the first three: the depth is at most log2 M, so that every part gives a frame;
what rounding down leaves over goes to the parts of highest mean, one each; where a part is shorter than its
share the best of all remaining candidates fill up; equal scores are taken by time; constant scores
scale to 0; a NaN is taken last and counts as the lowest score. The paper's threshold is not given in
the sources we could read: 0.8, 32 parts and 64 frames are the released defaults.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float, Int
from pydantic import Field, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.strict import STRICT
from diagnostics.video.candidates import Candidates, best_first, finite, take_best
from diagnostics.video.relevance.config import ScorerConfig

__all__ = ["NEEDS", "Config", "Part", "choose"]

NEEDS = frozenset({"scores"})

Part = tuple[int, int, int]
"""A stretch of candidates: first, one past the last, and how often the video was halved to get it."""


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of AKS.

    Attributes:
        budget: M, how many frames; a video with fewer candidates gives all of them.
        strategy: see the module.
        threshold: of the best frames' mean over the part's mean, on scores in [0, 1].
        spread: of the part's standard deviation; null to leave it out, as the released default of -100 does.
        depth: how often the video is halved at most.
        candidate_fps: candidates a second; null for every frame.
        scorer: what relevance is.
    """

    budget: PositiveInt = 64
    strategy: Literal["top", "bin", "ada", "ada_release"] = "ada"
    threshold: float = 0.8
    spread: float | None = None
    depth: Annotated[int, Field(ge=0, le=20)] = 5
    candidate_fps: PositiveFloat | None = 1.0
    scorer: ScorerConfig = ScorerConfig()


def choose(config: Config, candidates: Candidates, item: Item) -> Int[np.ndarray, " chosen"]:
    """The chosen candidates by relevance and coverage."""
    scores = candidates.wanted("scores").astype(np.float64)
    if config.strategy == "ada_release":
        return _release(config, scores)
    if len(scores) <= config.budget:
        return np.arange(len(scores))
    if config.strategy == "top":
        return take_best(np.empty(0, dtype=np.int64), scores, config.budget)
    scaled = _scaled(finite(scores))
    depth = min(config.depth, config.budget.bit_length() - 1)

    def kept(part: Part) -> bool:
        begin, end, halved = part
        return config.strategy == "ada" and _stands_out(
            scaled[begin:end], max(1, config.budget >> halved), config
        )

    parts = _split((0, len(scores), 0), depth, kept)
    return _from_parts(parts, scores, scaled, config.budget)


def _scaled(scores: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    span = scores.max() - scores.min()
    return (scores - scores.min()) / span if span > 0 else np.zeros(len(scores))


def _stands_out(part: Float[np.ndarray, " n"], best: int, config: Config) -> bool:
    """Whether a part's `best` highest scores exceed its mean, and its scores spread, by enough."""
    top = np.sort(part)[::-1][:best]
    above: bool = top.mean() - part.mean() > config.threshold
    return above and (config.spread is None or float(part.std()) > config.spread)


def _split(part: Part, depth: int, kept: Callable[[Part], bool]) -> list[Part]:
    """The parts that are kept or cannot be halved further, in order of time."""
    begin, end, halved = part
    if kept(part) or halved >= depth:
        return [part]
    middle = begin + (end - begin) // 2
    return [
        *_split((begin, middle, halved + 1), depth, kept),
        *_split((middle, end, halved + 1), depth, kept),
    ]


def _from_parts(
    parts: list[Part], scores: Float[np.ndarray, " n"], scaled: Float[np.ndarray, " n"], budget: int
) -> Int[np.ndarray, " chosen"]:
    """Each part's share of its best frames; the rest of the budget by rank over the whole video."""
    shares = [budget >> halved for _, _, halved in parts]
    means = np.array([scaled[begin:end].mean() for begin, end, _ in parts])
    for place in best_first(means)[: budget - sum(shares)]:
        shares[place] += 1
    chosen = [
        begin + best_first(scores[begin:end])[:share]
        for (begin, end, _), share in zip(parts, shares, strict=True)
    ]
    return take_best(np.concatenate(chosen), scores, budget)


def _release(config: Config, scores: Float[np.ndarray, " n"]) -> Int[np.ndarray, " chosen"]:
    """What the released code takes."""
    count, budget = len(scores), config.budget
    if count < budget:
        return np.arange(count)
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = (scores - scores.min()) / (scores.max() - scores.min())
    spread = -100.0 if config.spread is None else config.spread

    def best(part: Part, most: int) -> list[int]:
        begin, end, _ = part
        return heapq.nlargest(most, range(begin, end), scaled.__getitem__)

    def kept(part: Part) -> bool:
        begin, end, _ = part
        if begin == end:
            return False
        above = float(scaled[best(part, budget)].mean() - scaled[begin:end].mean())
        return above > config.threshold and float(scaled[begin:end].std()) > spread

    parts = _split((0, count, 0), config.depth, kept)
    chosen = [place for part in parts for place in best(part, int(budget / 2 ** part[2]))]
    return np.array(sorted(chosen), dtype=np.int64)
