"""Means over items with 95% intervals that know that questions about one video are not independent.

The bootstrap draws videos, not items, with replacement, and takes percentiles of the mean over the items
drawn: see `probes.resampling`. With few videos plain percentiles are too narrow (`n_groups` is there to be
read; `expanded=True` widens them for it). One video says nothing about others, so it has no interval.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from probes.resampling import group_index, percentile_interval, resampled_group_means

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
    expanded: bool = False,
) -> Estimate:
    """Mean over items with a percentile interval from resampling groups.

    Args:
        values: one number an item; NaN is undefined and dropped.
        groups: the group (video) of each item.
        n_resamples: bootstrap resamples.
        confidence: of the interval.
        seed: of the resampling.
        expanded: widen the percentiles for the number of groups (`percentile_interval`).

    Raises:
        ValueError: lengths that differ, or an infinite value (it has no place in a mean).
    """
    column = np.asarray(values, dtype=np.float64).reshape(-1, 1)
    curve = clustered_curve(
        column, groups, n_resamples=n_resamples, confidence=confidence, seed=seed, expanded=expanded
    )
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
    expanded: bool = False,
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
    of_item, n_groups = group_index([groups[item] for item in np.flatnonzero(defined).tolist()])
    undefined = np.full(rows.shape[1], np.nan)
    mean = kept.mean(axis=0) if len(kept) else undefined
    low = high = undefined
    if n_groups > 1:
        means = resampled_group_means(kept, of_item, n_groups, n_resamples=n_resamples, seed=seed)
        low, high = percentile_interval(means, confidence, expand_for=n_groups if expanded else None)
    return CurveEstimate(mean, low, high, len(kept), n_groups, len(rows) - len(kept))
