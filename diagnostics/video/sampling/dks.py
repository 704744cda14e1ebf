"""Differential keyframe selection: relevant frames that do not resemble one another.

ViLAMP (Cheng et al., ICML 2025, arXiv 2504.02438): walk the candidates by descending relevance to the
question and accept one where its cosine to every accepted one is at most `similarity`, until K
are accepted. The released code (SeqFrameSelector) stops at a relevance below `relevance`, and then pads
the set to K, which the paper does not say:

- The gaps between accepted frames are filled at the smallest spacing D for which the gaps, of length l,
  together take no more than the missing number of frames at ceil(l / D) - 1 each. A gap that takes k
  has them at ceil(l / (k + 1)) from its beginning, then at twice that, and so on, the last ones at its end.
- What is still missing is taken from the end of the last gap backwards.

`padding=true` (default) does this; `padding=false` gives the accepted frames alone, fewer than asked, as
the paper has it; the record says how many were asked for. Decided here: of equal relevance the earlier
comes first (the release sorts without a stable order); a NaN is never relevant; two of a gap's frames
that fall together at its end count once and another is taken; where nothing is accepted the frames are evenly
spaced, as the released code's caller has it, and the rule says so.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int
from pydantic import PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.strict import STRICT
from diagnostics.video.candidates import Candidates, best_first
from diagnostics.video.relevance.config import ScorerConfig

__all__ = ["NEEDS", "Config", "choose", "pad", "remark"]

NEEDS = frozenset({"scores", "features"})


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of DKS.

    Attributes:
        budget: K, how many frames.
        similarity: the largest cosine that two accepted frames may have.
        relevance: scores below it are never accepted. The release's selector says -1, its class 0.2.
        padding: whether the set is filled up to the budget.
        candidate_fps: candidates a second; null for every frame.
        max_candidates: of more than this, so many, evenly; null for no limit.
        scorer: relevance and features. The release uses CLIP ViT-B/32.
    """

    budget: PositiveInt = 32
    similarity: float = 0.85
    relevance: float = -1.0
    padding: bool = True
    candidate_fps: PositiveFloat | None = 1.0
    max_candidates: PositiveInt | None = 600
    scorer: ScorerConfig = ScorerConfig()


def choose(config: Config, candidates: Candidates, item: Item) -> Int[np.ndarray, " chosen"]:
    """Accepted candidates, and padding."""
    accepted = _accepted(config, candidates)
    count = len(candidates)
    if not len(accepted):
        return np.unique(np.linspace(0, count - 1, min(config.budget, count)).astype(np.int64))
    return pad(accepted, count, config.budget) if config.padding else accepted


def remark(config: Config, candidates: Candidates, item: Item, chosen: Int[np.ndarray, " chosen"]) -> str:
    """How many were accepted by relevance and difference."""
    accepted = len(_accepted(config, candidates))
    return f"{accepted} accepted, {len(chosen) - accepted} {'padded' if accepted else 'evenly spaced'}"


def _accepted(config: Config, candidates: Candidates) -> Int[np.ndarray, " n"]:
    """The greedy walk: an accepted frame rules out all that resemble it."""
    scores = candidates.wanted("scores").astype(np.float64)
    features = candidates.wanted("features").astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        features = features / np.linalg.norm(features, axis=1, keepdims=True)
    ruled_out = np.isnan(scores) | (scores < config.relevance)
    accepted: list[int] = []
    for place in best_first(scores).tolist():
        if len(accepted) == config.budget:
            break
        if not ruled_out[place]:
            accepted.append(place)
            ruled_out |= features @ features[place] > config.similarity  # NaN resembles nothing
    return np.array(sorted(accepted), dtype=np.int64)


def pad(accepted: Int[np.ndarray, " n"], count: int, budget: int) -> Int[np.ndarray, " m"]:
    """`accepted` and more of `count` places, `budget` in all where there are so many; ascending.

    Example: 100 places, 50 accepted, 8 wanted: 13, 26, 39, 50, 64, 77, 90, 99.
    """
    missing = min(budget, count) - len(accepted)
    if missing <= 0:
        return accepted
    borders = np.concatenate([[-1], accepted, [count]])
    begins, lengths = borders[:-1] + 1, np.diff(borders) - 1
    begins, lengths = begins[lengths > 0], lengths[lengths > 0]
    taken = np.zeros(count, dtype=bool)
    taken[accepted] = True
    spacing = _spacing(lengths, missing, count)
    for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True):
        inner = -(-length // spacing) - 1
        step = -(-length // (inner + 1))
        taken[np.minimum(begin + step * np.arange(1, inner + 1), begin + length - 1)] = True
    free = np.flatnonzero(~taken)
    still = min(budget, count) - int(taken.sum())
    if still > 0:
        taken[free[-still:]] = True
    return np.flatnonzero(taken)


def _spacing(lengths: Int[np.ndarray, " gap"], missing: int, count: int) -> int:
    """The smallest spacing at which the gaps take no more than `missing` places."""
    low, high = 1, count
    while low < high:
        middle = (low + high) // 2
        if int((-(-lengths // middle) - 1).sum()) <= missing:
            high = middle
        else:
            low = middle + 1
    return low
