"""No difference, said with a number: equivalence tests, and the difference a design could have seen.

A large p is no sign of equality. Two one-sided t tests (TOST: Schuirmann, J. Pharmacokinet. Biopharm. 15,
1987) ask whether the mean lies within a margin. Their standard error is cluster-robust, of the kind CR2 with
Bell and McCaffrey's degrees of freedom (Survey Methodology 28, 2002; Pustejovsky & Tipton, arXiv 1601.01981):
with one item a video, or equally many, it is Student's test on the means of the videos; with unequal videos
it has fewer degrees of freedom than videos.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy import optimize, special, stats

from diagnostics.scoring.statistics.clusters import complete_rows

__all__ = [
    "Equivalence",
    "RobustMean",
    "cluster_robust_mean",
    "equivalence",
    "minimum_detectable_difference",
    "video_variance",
]

_POINTS = 20_000
"""Points of the integral over the sample's standard deviation: good to four digits with two videos."""

Verdict = Literal["equivalent", "not_shown", "undefined"]


@dataclass(frozen=True)
class RobustMean:
    """A mean over items with a standard error that allows for videos."""

    mean: float
    """Mean over items; NaN without items."""
    standard_error: float
    """Cluster-robust (CR2); NaN with fewer than two videos."""
    degrees_of_freedom: float
    """Bell and McCaffrey's: k - 1 for k equal videos, fewer for unequal ones; NaN with fewer than two."""
    n: int
    """Items."""
    n_clusters: int
    """Videos."""
    n_undefined: int
    """Items dropped as NaN."""


@dataclass(frozen=True)
class Equivalence:
    """Whether a mean lies within `null - margin` and `null + margin`."""

    mean: float
    """Mean over items."""
    standard_error: float
    """See `RobustMean`."""
    degrees_of_freedom: float
    """See `RobustMean`."""
    margin: float
    """The margin asked for, in units of the values."""
    p_lower: float
    """One-sided p against "the mean is at or below null - margin"."""
    p_upper: float
    """One-sided p against "the mean is at or above null + margin"."""
    p: float
    """The larger of the two: of the equivalence test."""
    ci_low: float
    """Lower end of the interval of confidence 1 - 2 alpha: equivalence is this interval inside the margin."""
    ci_high: float
    """Upper end."""
    verdict: Verdict
    """`equivalent` where p < alpha; `not_shown` elsewhere, which is not "different"; `undefined` with fewer
    than two videos, or without any spread and a mean exactly on the margin."""
    n: int
    """Items."""
    n_clusters: int
    """Videos."""
    n_undefined: int
    """Items dropped as NaN."""


def cluster_robust_mean(
    values: Float[np.ndarray, " item"] | Sequence[float], clusters: Sequence[Hashable]
) -> RobustMean:
    """Mean over items, CR2 standard error and its degrees of freedom.

    With e_v the sum of the residuals of video v, n_v its items, n all items and h_v = n_v / n:
    variance = sum_v e_v^2 / (1 - h_v) / n^2, and degrees of freedom tr(G)^2 / tr(G G) of the matrix
    G of covariances that the terms would have if items were independent and alike.

    Raises:
        ValueError: lengths that differ, or an infinite value.
    """
    rows = complete_rows(np.asarray(values, float).reshape(-1, 1), clusters)
    mean = float(rows.means[0])
    error = freedom = np.nan
    if rows.n_clusters > 1:
        share = rows.counts / rows.n
        residual = rows.sums[:, 0] - rows.counts * mean
        # Residuals of equal values are rounding; they must not pass for a tiny spread.
        residual[np.abs(residual) <= 1e-12 * np.abs(rows.values).sum()] = 0.0
        error = float(np.sqrt((residual**2 / (1 - share)).sum()) / rows.n)
        # G = diag(share) - w w' but for its diagonal, with w = share / sqrt(1 - share); up to a factor n.
        cross = share**2 / (1 - share)
        off_diagonal = cross.sum() ** 2 - (cross**2).sum()
        freedom = float(1 / ((share**2).sum() + off_diagonal))
    return RobustMean(mean, error, freedom, rows.n, rows.n_clusters, rows.n_undefined)


def equivalence(
    differences: Float[np.ndarray, " item"] | Sequence[float],
    clusters: Sequence[Hashable],
    *,
    margin: float,
    null: float = 0.0,
    alpha: float = 0.05,
) -> Equivalence:
    """Two one-sided tests that the mean difference over items is within `margin` of `null`.

    Without any spread the tests take their limits: p is 0 inside the margin and 1 outside.

    Args:
        differences: one an item (of a paired comparison; or outcomes, with the `null` to hold them to).
        clusters: the video of each item.
        margin: how far from `null` still counts as the same; positive, to be set before the data is seen.
        null: the value to be equivalent to.
        alpha: level of each one-sided test; the interval has confidence 1 - 2 alpha.

    Raises:
        ValueError: a margin that is not positive, lengths that differ, or an infinite value.
    """
    if not margin > 0:
        raise ValueError(f"a margin of equivalence is positive, got {margin}")
    estimate = cluster_robust_mean(differences, clusters)
    above, below = estimate.mean - (null - margin), (null + margin) - estimate.mean
    error, freedom = estimate.standard_error, estimate.degrees_of_freedom
    half = float(stats.t.ppf(1 - alpha, freedom)) * error if error > 0 else error
    p_lower, p_upper = (_upper_tail(distance, error, freedom) for distance in (above, below))
    p = float(np.maximum(p_lower, p_upper))
    verdict: Verdict = "undefined" if np.isnan(p) else "equivalent" if p < alpha else "not_shown"
    return Equivalence(
        mean=estimate.mean,
        standard_error=error,
        degrees_of_freedom=freedom,
        margin=margin,
        p_lower=p_lower,
        p_upper=p_upper,
        p=p,
        ci_low=estimate.mean - half,
        ci_high=estimate.mean + half,
        verdict=verdict,
        n=estimate.n,
        n_clusters=estimate.n_clusters,
        n_undefined=estimate.n_undefined,
    )


def video_variance(
    differences: Float[np.ndarray, " item"] | Sequence[float], clusters: Sequence[Hashable]
) -> float:
    """Variance that one video adds, from a pilot: the squared cluster-robust error times the videos.

    With equally many items a video it is the sample variance of the videos' means. It carries the pilot's
    number of items a video over to the study that is planned. NaN with fewer than two videos.
    """
    pilot = cluster_robust_mean(differences, clusters)
    return pilot.standard_error**2 * pilot.n_clusters


def minimum_detectable_difference(
    n_videos: int, variance: float, *, power: float = 0.8, alpha: float = 0.05
) -> float:
    """The smallest true mean difference that a two-sided paired test over videos finds with this power.

    Args:
        n_videos: videos of the study.
        variance: that one video adds to the mean difference (`video_variance` of a pilot).
        power: chance to find it.
        alpha: level of the two-sided test.

    Returns:
        In units of the differences. NaN with fewer than two videos or an undefined variance; 0 for a
        variance of 0.

    Raises:
        ValueError: a negative variance, or power or alpha outside alpha < power < 1.

    Source: power of the t test (Cohen, "Statistical Power Analysis", 1988, section 2.3). statsmodels'
    `TTestPower.solve_power` is not used: with few videos or a strict alpha it returns its starting value
    (10.0 for n = 2, alpha = 0.01), because scipy's noncentral t is NaN on its way.
    """
    if not 0 < alpha < power < 1:
        raise ValueError(f"power lies between alpha and 1, got power {power} and alpha {alpha}")
    if variance < 0:
        raise ValueError(f"a variance is not negative, got {variance}")
    if n_videos < 2 or np.isnan(variance):
        return np.nan
    # The sample's standard deviation, over the true one, at evenly spaced points of its distribution.
    points = (np.arange(_POINTS) + 0.5) / _POINTS
    spread = np.sqrt(special.chdtri(n_videos - 1, 1 - points) / (n_videos - 1))
    critical = float(stats.t.isf(alpha / 2, n_videos - 1)) * spread

    def missing(shift: float) -> float:
        return float((special.ndtr(shift - critical) + special.ndtr(-shift - critical)).mean()) - power

    shift = optimize.brentq(missing, 0.0, float(critical.max()) + 10)
    return float(shift) * float(np.sqrt(variance / n_videos))


def _upper_tail(distance: float, error: float, freedom: float) -> float:
    """P(T >= distance / error), with its limits where there is no spread."""
    if error == 0:
        return np.nan if abs(distance) < 1e-12 else float(distance < 0)
    return float(stats.t.sf(distance / error, freedom))
