"""Two conditions on the same items: is one better, and by how much?

The primary test flips the sign of whole videos: under the null hypothesis the two conditions are
exchangeable within a video, so the difference of every video could as well have had the other sign (Fisher,
"The Design of Experiments", 1935, section 21; Winkler et al., "Multi-level block permutation", NeuroImage
123, 2015, for whole-block flips). McNemar's test (Psychometrika 12, 1947) stands beside it because papers
print it; it takes the items for independent, which they are not when a video has several questions.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from diagnostics.scoring.statistics.clusters import complete_rows

__all__ = ["McNemar", "PairedDifference", "SignFlip", "mcnemar", "paired_difference", "sign_flip"]

_ENUMERATED = 16
"""Videos up to which all 2^k flips of real-valued sums are listed."""
_DENOMINATORS = 60
"""Sums that are multiples of 1/s for some s up to this are exact fractions (outcomes, means over seeds)."""
_CONVOLVED = 20_000_000
"""Additions up to which the exact distribution of fractions is computed."""

Method = Literal["exact", "monte_carlo", "undefined"]


@dataclass(frozen=True)
class SignFlip:
    """A two-sided sign-flip test over videos."""

    p: float
    """Share of the flips with a sum at least as far from zero as the one seen; NaN without items."""
    method: Method
    """`exact`: all 2^k flips counted. `monte_carlo`: drawn, (1 + as extreme) / (1 + drawn)."""
    p_floor: float
    """The smallest p that the test could have given: with few videos, not small."""


@dataclass(frozen=True)
class McNemar:
    """Exact McNemar test on binary outcomes, items taken as independent."""

    gained: int
    """Items wrong in `a` and right in `b`."""
    lost: int
    """Items right in `a` and wrong in `b`."""
    p: float
    """Two-sided binomial p of the split; 1 where no item changed, NaN without items."""


@dataclass(frozen=True)
class PairedDifference:
    """`b - a` over the items that both have."""

    mean_a: float
    """Mean of `a`; NaN without items, as are the next two."""
    mean_b: float
    """Mean of `b`."""
    difference: float
    """Mean of `b - a`."""
    ci_low: float
    """Lower end of the cluster-bootstrap interval; NaN with fewer than two videos."""
    ci_high: float
    """Upper end."""
    p: float
    """Of the sign-flip test over videos: the one to read."""
    method: Method
    """How it was computed."""
    p_floor: float
    """The smallest p that so many videos allow."""
    mcnemar: McNemar | None
    """Beside it, where both outcomes are 0 or 1 throughout; None elsewhere."""
    n: int
    """Items."""
    n_clusters: int
    """Videos."""
    n_undefined: int
    """Items dropped because `a` or `b` is NaN."""


def paired_difference(
    a: Float[np.ndarray, " item"] | Sequence[float],
    b: Float[np.ndarray, " item"] | Sequence[float],
    clusters: Sequence[Hashable],
    *,
    seed: int = 0,
    n_resamples: int = 10_000,
    confidence: float = 0.95,
) -> PairedDifference:
    """The mean difference `b - a` over items, its interval and its test.

    Args:
        a: outcome of each item in the first condition; NaN is undefined and drops the item.
        b: outcome of the same items in the second.
        clusters: the video of each item.
        seed: of the bootstrap, and of the flips where they are drawn.
        n_resamples: bootstrap resamples, and flips where they are drawn.
        confidence: of the interval.

    Raises:
        ValueError: lengths that differ, or an infinite outcome.
    """
    if len(a) != len(b):
        raise ValueError(f"paired outcomes are of the same items, got {len(a)} and {len(b)}")
    pairs = complete_rows(
        np.column_stack([np.asarray(a, float), np.asarray(b, float)]), clusters, of="outcomes"
    )
    first, second = pairs.values.T
    names = pairs.of_row.tolist()
    rows = complete_rows((second - first)[:, None], names)
    low, high = rows.interval(rows.resampled_means(n_resamples, seed), confidence)
    test = sign_flip(second - first, names, n_resamples=n_resamples, seed=seed)
    binary = np.isin(pairs.values, (0, 1)).all()
    return PairedDifference(
        mean_a=float(pairs.means[0]),
        mean_b=float(pairs.means[1]),
        difference=float(rows.means[0]),
        ci_low=float(low[0]),
        ci_high=float(high[0]),
        p=test.p,
        method=test.method,
        p_floor=test.p_floor,
        mcnemar=mcnemar(first, second) if binary else None,
        n=pairs.n,
        n_clusters=pairs.n_clusters,
        n_undefined=pairs.n_undefined,
    )


def sign_flip(
    differences: Float[np.ndarray, " item"] | Sequence[float],
    clusters: Sequence[Hashable],
    *,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> SignFlip:
    """Two-sided test that the mean difference is zero, by flipping the signs of whole videos.

    Differences of outcomes (and of means of outcomes over seeds) are fractions with a small denominator, so
    the distribution of their sum over all 2^k flips is computed exactly, by convolution, for any number of
    videos. Real-valued differences are enumerated up to 16 videos and drawn beyond, with the +1 of
    Phipson & Smyth (Stat. Appl. Genet. Mol. Biol. 9, 2010). Videos whose differences sum to zero cannot
    change anything and are left out.

    Args:
        differences: one an item; NaN is dropped.
        clusters: the video of each item.
        n_resamples: flips drawn where they are drawn.
        seed: of those.

    Raises:
        ValueError: lengths that differ, or an infinite difference.
    """
    rows = complete_rows(np.asarray(differences, float).reshape(-1, 1), clusters, of="differences")
    if rows.n == 0:
        return SignFlip(np.nan, "undefined", np.nan)
    sums = rows.sums[:, 0]
    # What is left of a sum that cancels (0.1 + 0.2 - 0.3) is rounding, not a difference.
    tolerance = 1e-9 * max(float(np.abs(rows.values).sum()), np.finfo(float).tiny)
    sums = sums[np.abs(sums) > tolerance]
    if sums.size == 0:
        return SignFlip(1.0, "exact", 1.0)
    p_floor = float(np.ldexp(2.0, -sums.size))
    fractions = _as_integers(sums)
    if fractions is not None and 2 * sums.size * int(np.abs(fractions).sum()) <= _CONVOLVED:
        return SignFlip(_convolved_p(fractions), "exact", p_floor)
    observed = abs(float(sums.sum())) - tolerance
    if sums.size <= _ENUMERATED:
        totals = np.zeros(1)
        for value in sums:
            totals = np.concatenate([totals + value, totals - value])
        return SignFlip(float((np.abs(totals) >= observed).mean()), "exact", p_floor)
    generator = np.random.default_rng(seed)
    signs = generator.integers(0, 2, (n_resamples, sums.size), dtype=np.int8) * np.int8(2) - np.int8(1)
    extreme = int((np.abs(signs @ sums) >= observed).sum())
    return SignFlip((1 + extreme) / (1 + n_resamples), "monte_carlo", max(p_floor, 1 / (1 + n_resamples)))


def mcnemar(a: Float[np.ndarray, " item"], b: Float[np.ndarray, " item"]) -> McNemar:
    """Exact McNemar test of two binary outcomes of the same items; an item that is NaN in either is dropped.

    Raises:
        ValueError: lengths that differ, or an outcome other than 0 or 1.
    """
    if len(a) != len(b):
        raise ValueError(f"paired outcomes are of the same items, got {len(a)} and {len(b)}")
    pairs = np.column_stack([np.asarray(a, float), np.asarray(b, float)])
    first, second = pairs[~np.isnan(pairs).any(axis=1)].T
    if not (np.isin(first, (0, 1)).all() and np.isin(second, (0, 1)).all()):
        raise ValueError("McNemar's test is of outcomes that are 0 or 1")
    gained, lost = int((first < second).sum()), int((first > second).sum())
    if first.size == 0:
        return McNemar(0, 0, np.nan)
    changed = gained + lost
    return McNemar(gained, lost, float(stats.binomtest(gained, changed).pvalue) if changed else 1.0)


def _as_integers(sums: Float[np.ndarray, " cluster"]) -> Int[np.ndarray, " cluster"] | None:
    """The sums as whole multiples of one fraction, without their common factor; None if there is none."""
    if np.abs(sums).max() > 1e6:
        return None
    for scale in range(1, _DENOMINATORS + 1):
        scaled = sums * scale
        whole = np.rint(scaled)
        if np.abs(scaled - whole).max() < 1e-7 and (whole != 0).all():
            integers = whole.astype(np.int64)
            return integers // np.gcd.reduce(integers)
    return None


def _convolved_p(sums: Int[np.ndarray, " cluster"]) -> float:
    """P(|sum of +-s| >= |sum of s|) for fair signs: the exact distribution, built up video by video."""
    sizes = np.abs(sums)
    reach = int(sizes.sum())
    chances = np.zeros(2 * reach + 1)
    chances[reach] = 1.0
    low = high = reach
    for size in sizes.tolist():
        before = chances[low : high + 1].copy()
        chances[low : high + 1] = 0.0
        chances[low - size : high - size + 1] += before / 2
        chances[low + size : high + size + 1] += before / 2
        low, high = low - size, high + size
    observed = abs(int(sums.sum()))
    if observed == 0:
        return 1.0
    return min(1.0, float(2 * chances[reach + observed :].sum()))
