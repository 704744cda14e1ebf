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
from jaxtyping import Bool, Float, Int

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
    of_item = _numbered([groups[item] for item in np.flatnonzero(defined).tolist()])
    n_groups = max(of_item, default=-1) + 1
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
    numbers = np.array(_numbered([*names[0], *names[1]]), dtype=np.int64)
    n_union = int(numbers.max(initial=-1)) + 1
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
        ends = [(1 - confidence) / 2, (1 + confidence) / 2]
        low, high = np.quantile(means[:, 1] - means[:, 0], ends).tolist()
    return Estimate(
        mean=right.mean - left.mean,
        ci_low=low,
        ci_high=high,
        n=left.n + right.n,
        n_groups=min(left.n_groups, right.n_groups),
        n_undefined=left.n_undefined + right.n_undefined,
    )


def _numbered(names: Sequence[Hashable]) -> list[int]:
    """Groups by first appearance: names of any type, and a result that does not depend on them."""
    index: dict[Hashable, int] = {}
    return [index.setdefault(name, len(index)) for name in names]


def _drawn_by_stratum(
    present: Bool[np.ndarray, "side group"], n_resamples: int, rng: np.random.Generator
) -> Int[np.ndarray, "resample group"]:
    """How often each group is drawn in each resample; every stratum keeps its number of groups."""
    drawn = np.zeros((n_resamples, present.shape[1]), dtype=np.int64)
    for first, second in ((True, False), (False, True), (True, True)):
        (stratum,) = np.nonzero((present[0] == first) & (present[1] == second))
        if stratum.size:
            equally = np.full(stratum.size, 1 / stratum.size)
            drawn[:, stratum] = rng.multinomial(stratum.size, equally, n_resamples)
    return drawn
