"""Means over items with 95% intervals that know that questions about one video are not independent.

The bootstrap draws videos, not items, with replacement, and takes percentiles of the mean over the items
drawn (cluster bootstrap: Davison & Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8;
percentile intervals: section 5.3). With few videos such intervals are too narrow; `n_groups` is there to
be read. One video says nothing about others, so it has no interval.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

__all__ = ["CurveEstimate", "Estimate", "clustered_curve", "clustered_mean"]


@dataclass(frozen=True)
class Estimate:
    """A mean over items and its interval."""

    mean: float
    """Mean of the defined values; NaN where there is none."""
    ci_low: float
    """Lower end of the interval; NaN with fewer than two groups."""
    ci_high: float
    """Upper end."""
    n: int
    """Items it is the mean of."""
    n_groups: int
    """Groups they come from."""
    n_undefined: int
    """Items dropped because their value is undefined (NaN)."""


@dataclass(frozen=True, eq=False)
class CurveEstimate:
    """The same at each point of a curve; items that are NaN anywhere are dropped as a whole."""

    mean: Float[np.ndarray, " point"]
    """Mean at each point."""
    ci_low: Float[np.ndarray, " point"]
    """Lower end at each point."""
    ci_high: Float[np.ndarray, " point"]
    """Upper end at each point."""
    n: int
    """Items it is the mean of."""
    n_groups: int
    """Groups they come from."""
    n_undefined: int
    """Items dropped."""


def clustered_mean(
    values: Float[np.ndarray, " item"] | Sequence[float],
    groups: Sequence[Hashable],
    *,
    n_resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Mean over items with a percentile interval from resampling groups.

    Args:
        values: one number an item; NaN is undefined and dropped.
        groups: the group (video) of each item.
        n_resamples: bootstrap resamples.
        confidence: of the interval.
        seed: of the resampling.

    Raises:
        ValueError: lengths that differ, or an infinite value (it has no place in a mean).
    """
    column = np.asarray(values, dtype=np.float64).reshape(-1, 1)
    curve = clustered_curve(column, groups, n_resamples=n_resamples, confidence=confidence, seed=seed)
    return Estimate(
        mean=float(curve.mean[0]),
        ci_low=float(curve.ci_low[0]),
        ci_high=float(curve.ci_high[0]),
        n=curve.n,
        n_groups=curve.n_groups,
        n_undefined=curve.n_undefined,
    )


def clustered_curve(
    values: Float[np.ndarray, "item point"],
    groups: Sequence[Hashable],
    *,
    n_resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> CurveEstimate:
    """`clustered_mean` at every point of a curve, with the same resamples at each; pointwise intervals."""
    rows = np.asarray(values, dtype=np.float64)
    if len(rows) != len(groups):
        raise ValueError(f"{len(rows)} values belong to {len(groups)} groups")
    if np.isinf(rows).any():
        raise ValueError("an infinite value cannot be averaged")
    if not 0 < confidence < 1:
        raise ValueError(f"the confidence of an interval lies in (0, 1), got {confidence}")
    defined = ~np.isnan(rows).any(axis=1)
    kept = rows[defined]
    # Groups by first appearance: hashable names of any type, and a result that does not depend on them.
    index: dict[Hashable, int] = {}
    of_item = [index.setdefault(groups[item], len(index)) for item in np.flatnonzero(defined).tolist()]
    n_groups = len(index)
    undefined = np.full(rows.shape[1], np.nan)
    mean = kept.mean(axis=0) if len(kept) else undefined
    low = high = undefined
    if n_groups > 1:
        sums = np.zeros((n_groups, rows.shape[1]))
        np.add.at(sums, of_item, kept)
        counts = np.bincount(of_item)
        drawn = np.random.default_rng(seed).multinomial(
            n_groups, np.full(n_groups, 1 / n_groups), n_resamples
        )
        means = (drawn @ sums) / (drawn @ counts)[:, None]
        low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return CurveEstimate(mean, low, high, len(kept), n_groups, len(rows) - len(kept))
