"""Frames at which the picture changes most.

MedHorizon, section 7 (RQ4), compares uniform sampling with "differential frame-change" sampling and says
nothing else of it. Decided here: candidates at 1 a second; the difference g of a candidate is that to
the candidate before it, the first one's is infinite; the `budget` largest are taken, of equal ones the
earlier, and shown in order of time. Of the two frames of a change the later one is kept.

- `metric=pixel`: g = mean |x_t - x_(t-1)| of grey pictures of 64 x 64 in [0, 1].
- `metric=feature`: g = 1 - cos(e_t, e_(t-1)) of the scorer's features.

With `min_gap` seconds, a candidate nearer than that to one already taken waits until all others are
taken, so that a burst of changes cannot use up the budget, and the budget is still met.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.strict import STRICT
from diagnostics.video.candidates import Candidates, best_first
from diagnostics.video.relevance.config import ScorerConfig

__all__ = ["NEEDS", "Config", "change_of", "choose", "most_changed", "needs"]

NEEDS = frozenset({"change"})


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of sampling by change.

    Attributes:
        budget: how many frames; a video with fewer candidates gives all of them.
        candidate_fps: candidates a second; null for every frame.
        metric: what is compared.
        min_gap: seconds between two chosen frames, while others remain.
        scorer: whose features are compared; only with `metric=feature`.
    """

    budget: PositiveInt = 64
    candidate_fps: PositiveFloat | None = 1.0
    metric: Literal["pixel", "feature"] = "pixel"
    min_gap: NonNegativeFloat = 0.0
    scorer: ScorerConfig = ScorerConfig()


def needs(config: Config) -> frozenset[str]:
    """Changes of pixels, or features to compare."""
    return NEEDS if config.metric == "pixel" else frozenset({"features"})


def choose(config: Config, candidates: Candidates, item: Item) -> Int[np.ndarray, " chosen"]:
    """The `budget` candidates that differ most from the one before."""
    change = change_of(config.metric, candidates)
    nothing = np.empty(0, dtype=np.int64)
    return most_changed(change, candidates.seconds, config.budget, config.min_gap, nothing)


def change_of(metric: Literal["pixel", "feature"], candidates: Candidates) -> Float[np.ndarray, " n"]:
    """Difference of each candidate to the one before it; infinite for the first."""
    if metric == "pixel":
        return candidates.wanted("change")
    features = candidates.wanted("features").astype(np.float64)
    length = np.linalg.norm(features, axis=1)
    product = (features[1:] * features[:-1]).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        change = 1 - product / (length[1:] * length[:-1])  # NaN beside an empty feature: ranked last
    return np.concatenate([np.full(min(1, len(features)), np.inf), change])


def most_changed(
    change: Float[np.ndarray, " n"],
    seconds: Float[np.ndarray, " n"],
    budget: int,
    min_gap: float,
    taken: Int[np.ndarray, " m"],
) -> Int[np.ndarray, " k"]:
    """`taken` and the places of largest change, `budget` in all where there are so many; ascending."""
    ranked = best_first(change)
    ranked = ranked[~np.isin(ranked, taken)]
    missing = max(0, min(budget - len(taken), len(ranked)))
    if min_gap == 0:
        added = ranked[:missing].tolist()
    else:
        added = _apart(ranked.tolist(), seconds, missing, min_gap, seconds[taken])
    return np.sort(np.concatenate([taken, np.array(added, dtype=np.int64)])).astype(np.int64)


def _apart(
    ranked: list[int],
    seconds: Float[np.ndarray, " n"],
    missing: int,
    min_gap: float,
    taken: Float[np.ndarray, " m"],
) -> list[int]:
    """The first `missing` of `ranked` that keep their distance from all before; then those put aside."""
    times = np.sort(taken).tolist()
    added: list[int] = []
    waiting: list[int] = []
    for place in ranked:
        if len(added) == missing:
            return added
        second = float(seconds[place])
        right = bisect_left(times, second)
        near = times[max(0, right - 1) : right + 1]
        if any(abs(second - time) < min_gap for time in near):
            waiting.append(place)
        else:
            insort(times, second)
            added.append(place)
    return added + waiting[: missing - len(added)]
