"""Outcomes of the same items along a ladder of levels (budgets, doses): the trend, and the best level."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from einops import rearrange
from jaxtyping import Float

from diagnostics.scoring.statistics.clusters import Rows, complete_rows
from diagnostics.scoring.statistics.paired import Method

__all__ = ["BestLevel", "Trend", "best_level", "monotone_trend"]

_ENUMERATED = 100_000
"""Orderings of all videos' levels up to which every one is counted."""
_CHUNK = 4_000_000
"""Permuted scores held at once, in numbers (32 MB)."""


@dataclass(frozen=True, eq=False)
class Trend:
    """Whether the mean rises along the ladder."""

    means: Float[np.ndarray, " level"]
    """Mean over items at each level; NaN without items."""
    slope: float
    """Least-squares slope of the means on the rank of the level: change per step of the ladder."""
    ci_low: float
    """Lower end of the slope's cluster-bootstrap interval; NaN with fewer than two videos."""
    ci_high: float
    """Upper end."""
    p_rising: float
    """One-sided p against "no trend or falling"; NaN without items."""
    p_falling: float
    """One-sided p against "no trend or rising"."""
    p: float
    """Two-sided p."""
    method: Method
    """`exact`: all orders of the levels within videos counted; `monte_carlo`: drawn, with the +1."""
    n: int
    """Items."""
    n_clusters: int
    """Videos."""
    n_undefined: int
    """Items dropped because they are NaN at some level."""


@dataclass(frozen=True, eq=False)
class BestLevel:
    """The level with the highest mean, and how sure that is."""

    level: float
    """The level; the lowest of those tied; NaN without items."""
    tied: tuple[float, ...]
    """All levels that share the highest mean."""
    mean: float
    """Mean there. The largest of several means flatters its level: do not report it as its accuracy."""
    means: Float[np.ndarray, " level"]
    """Mean over items at each level."""
    probabilities: Float[np.ndarray, " level"]
    """Share of the resamples in which each level is best, ties shared; NaN with fewer than two videos."""
    ci_low: float
    """Lowest level of the interval: the 2.5% point of the best level over resamples, itself a level."""
    ci_high: float
    """Highest level: the 97.5% point."""
    n: int
    """Items."""
    n_clusters: int
    """Videos."""
    n_undefined: int
    """Items dropped because they are NaN at some level."""


def monotone_trend(
    values: Float[np.ndarray, "item level"],
    levels: Sequence[float],
    clusters: Sequence[Hashable],
    *,
    seed: int = 0,
    n_resamples: int = 10_000,
    confidence: float = 0.95,
) -> Trend:
    """Trend of the mean over an ordered ladder, by permuting the levels within videos.

    The statistic is Page's (J. Am. Stat. Assoc. 58, 1963): outcomes weighted by the centred rank of their
    level, summed; on the outcomes themselves instead of their ranks, so that it is a slope in units of the
    outcome. One order of the levels is drawn for a whole video. With one item a video and ranks for
    outcomes it is Page's L test.

    It tests for a rise on the whole. A curve that climbs and then drops at the end can still rise on the
    whole: read it with `best_level`.

    Args:
        values: outcome of each item at each level; an item with a NaN is dropped.
        levels: in rising order; only their order counts, so that 4, 8, 16 are equally spaced.
        clusters: the video of each item.
        seed: of the permutations and the bootstrap.
        n_resamples: permutations drawn where not all are counted, and bootstrap resamples.
        confidence: of the slope's interval.

    Raises:
        ValueError: fewer than two levels, levels not rising, lengths that differ, or an infinite value.
    """
    rows = _ladder(values, levels, clusters)
    ranks = np.arange(len(levels), dtype=np.float64)
    scores = (ranks - ranks.mean()) / ((ranks - ranks.mean()) ** 2).sum()
    slopes = rows.resampled_means(n_resamples, seed) @ scores
    low, high = rows.interval(slopes, confidence)
    p_rising, p_falling, p, method = _permuted_trend(rows, scores, n_resamples, seed)
    return Trend(
        means=rows.means,
        slope=float(rows.means @ scores),
        ci_low=float(low),
        ci_high=float(high),
        p_rising=p_rising,
        p_falling=p_falling,
        p=p,
        method=method,
        n=rows.n,
        n_clusters=rows.n_clusters,
        n_undefined=rows.n_undefined,
    )


def best_level(
    values: Float[np.ndarray, "item level"],
    levels: Sequence[float],
    clusters: Sequence[Hashable],
    *,
    seed: int = 0,
    n_resamples: int = 10_000,
    confidence: float = 0.95,
) -> BestLevel:
    """The level with the highest mean, with bootstrap probabilities of each being best.

    Where two levels are about as good the bootstrap of an argmax is not exact (it treats a tie as a close
    race); the probabilities are then spread, which is the thing to read. With fewer than 40 videos the
    interval of the level is too short (docs/statistics.md).

    Args:
        values, levels, clusters, seed, n_resamples, confidence: as in `monotone_trend`.

    Raises:
        ValueError: as there.
    """
    rows = _ladder(values, levels, clusters)
    ladder = np.asarray(levels, dtype=np.float64)
    probabilities, low, high = np.full(ladder.size, np.nan), np.nan, np.nan
    if rows.n_clusters > 1:
        best = _highest(rows.resampled_means(n_resamples, seed))
        probabilities = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
        tail = (1 - confidence) / 2
        # An ulp of slack: probabilities that sum to 0.975 but for rounding have reached it.
        reached = probabilities.cumsum() + 1e-12
        low, high = (float(ladder[np.argmax(reached >= point)]) for point in (tail, 1 - tail))
    tied = ladder[_highest(rows.means[None])[0]] if rows.n else np.empty(0)
    return BestLevel(
        level=float(tied[0]) if rows.n else np.nan,
        tied=tuple(tied.tolist()),
        mean=float(rows.means.max()),
        means=rows.means,
        probabilities=probabilities,
        ci_low=low,
        ci_high=high,
        n=rows.n,
        n_clusters=rows.n_clusters,
        n_undefined=rows.n_undefined,
    )


def _ladder(
    values: Float[np.ndarray, "item level"], levels: Sequence[float], clusters: Sequence[Hashable]
) -> Rows:
    if len(levels) < 2 or not (np.diff(np.asarray(levels, dtype=np.float64)) > 0).all():
        raise ValueError(f"a ladder has at least two levels in rising order, got {list(levels)}")
    table = np.asarray(values, dtype=np.float64)
    table = table.reshape(len(table), -1) if table.size else np.empty((len(table), len(levels)))
    if table.shape[1] != len(levels):
        raise ValueError(
            f"items have outcomes at {table.shape[1]} levels, but {len(levels)} levels are named"
        )
    return complete_rows(table, clusters, of="outcomes")


def _highest(means: Float[np.ndarray, "row level"]) -> np.ndarray:
    """Which levels share the highest mean of their row, to rounding."""
    top = means.max(axis=1, keepdims=True)
    return means >= top - 1e-12 * np.maximum(np.abs(top), 1)


def _permuted_trend(
    rows: Rows, scores: Float[np.ndarray, " level"], n_resamples: int, seed: int
) -> tuple[float, float, float, Method]:
    """Rising, falling and two-sided p of the contrast, and how they were computed."""
    if rows.n == 0:
        return np.nan, np.nan, np.nan, "undefined"
    sums = rows.sums
    # A video that answers alike at every level has the same contrast in any order: zero.
    sums = sums[np.ptp(sums, axis=1) > 1e-9 * np.abs(rows.values).sum()]
    observed = float((sums @ scores).sum())
    # Logarithms: the number of orders overflows long before anybody would count them.
    if len(sums) * math.lgamma(scores.size + 1) <= math.log(_ENUMERATED):
        orders = np.asarray(list(permutations(scores.tolist())))
        totals = np.zeros(1)
        for video in sums:
            totals = (totals[:, None] + orders @ video).reshape(-1)
        drawn, seen, method = totals, 0, "exact"
    else:
        generator = np.random.default_rng(seed)
        drawn, seen, method = _drawn_trends(sums, scores, n_resamples, generator), 1, "monte_carlo"
    slack = 1e-9 * float(np.abs(sums).sum()) * float(np.abs(scores).max())
    counts = (
        (drawn >= observed - slack).sum(),
        (drawn <= observed + slack).sum(),
        (np.abs(drawn) >= abs(observed) - slack).sum(),
    )
    rising, falling, both = (float((seen + count) / (seen + drawn.size)) for count in counts)
    return rising, falling, both, "exact" if method == "exact" else "monte_carlo"


def _drawn_trends(
    sums: Float[np.ndarray, "video level"],
    scores: Float[np.ndarray, " level"],
    n_resamples: int,
    generator: np.random.Generator,
) -> Float[np.ndarray, " resample"]:
    drawn = np.empty(n_resamples)
    step = max(1, _CHUNK // sums.size)
    for start in range(0, n_resamples, step):
        size = min(step, n_resamples - start)
        orders = generator.permuted(np.broadcast_to(scores, (size, *sums.shape)), axis=-1)
        drawn[start : start + size] = rearrange(orders, "r video level -> r (video level)") @ sums.reshape(-1)
    return drawn
