"""Means over items with 95% intervals that know that questions about one video are not independent.

The bootstrap draws videos, not items, with replacement, and takes percentiles of the mean over the items
drawn: see `probes.resampling`. With few videos plain percentiles are too narrow (`n_groups` is there to be
read; `expanded=True` widens them for it). One video says nothing about others, so it has no interval.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from probes.resampling import group_draws, group_index, percentile_interval, resampled_group_means

__all__ = ["CurveEstimate", "Estimate", "clustered_curve", "clustered_difference", "clustered_mean"]


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


def clustered_difference(
    first: Float[np.ndarray, " item"] | Sequence[float],
    first_groups: Sequence[Hashable],
    second: Float[np.ndarray, " other"] | Sequence[float],
    second_groups: Sequence[Hashable],
    *,
    n_resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Difference of two means (second minus first) of different items, with a percentile interval.

    Groups are resampled within three strata, of which each keeps its size: those that only the first
    has, those that only the second has, and those that both have, so that what two sets of questions
    on one video have in common is not counted as noise. For the same items on both sides take
    `clustered_mean` of their differences.

    Args:
        first, second: one number an item; NaN is undefined and dropped.
        first_groups, second_groups: the group (video) of each item; equal names are one group.
        n_resamples, confidence, seed: as in `clustered_mean`.

    Returns:
        `n` and `n_undefined` count the items of both; `n_groups` is the number of groups in the smaller
        of the two. Fewer than two groups on either side give no interval.

    Raises:
        ValueError: as `clustered_mean`.
    """
    # The means themselves, and the checks of what was given.
    left = clustered_mean(first, first_groups, n_resamples=1, confidence=confidence)
    right = clustered_mean(second, second_groups, n_resamples=1, confidence=confidence)
    sides = [np.asarray(values, dtype=np.float64) for values in (first, second)]
    defined = [~np.isnan(values) for values in sides]
    names = [
        [group for group, kept in zip(groups, mask, strict=True) if kept]
        for groups, mask in zip((first_groups, second_groups), defined, strict=True)
    ]
    numbers, n_union = group_index([*names[0], *names[1]])
    of_side = np.split(numbers, [len(names[0])])
    sums = np.stack(
        [
            np.bincount(index, weights=values[mask], minlength=n_union)
            for index, values, mask in zip(of_side, sides, defined, strict=True)
        ]
    )
    counts = np.stack([np.bincount(index, minlength=n_union) for index in of_side])
    low = high = float("nan")
    if min(left.n_groups, right.n_groups) > 1:
        drawn = _drawn_by_stratum(counts > 0, n_resamples, np.random.default_rng(seed))
        means = (drawn @ sums.T) / (drawn @ counts.T)
        ends = percentile_interval(means[:, 1:] - means[:, :1], confidence)
        low, high = (float(end[0]) for end in ends)
    return Estimate(
        mean=right.mean - left.mean,
        ci_low=low,
        ci_high=high,
        n=left.n + right.n,
        n_groups=min(left.n_groups, right.n_groups),
        n_undefined=left.n_undefined + right.n_undefined,
    )


def _drawn_by_stratum(
    present: Bool[np.ndarray, "side group"], n_resamples: int, rng: np.random.Generator
) -> Int[np.ndarray, "resample group"]:
    """How often each group is drawn in each resample; every stratum keeps its number of groups."""
    drawn = np.zeros((n_resamples, present.shape[1]), dtype=np.int64)
    for first, second in ((True, False), (False, True), (True, True)):
        (stratum,) = np.nonzero((present[0] == first) & (present[1] == second))
        if stratum.size:
            drawn[:, stratum] = group_draws(stratum.size, n_resamples, rng)
    return drawn
