"""Accuracy against guessing, on both sides: far below chance is a finding too."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from diagnostics.scoring.statistics.clusters import complete_rows
from diagnostics.scoring.statistics.paired import Method, sign_flip

__all__ = ["AgainstChance", "against_chance"]


@dataclass(frozen=True)
class AgainstChance:
    """Accuracy against what guessing gives on the same items."""

    accuracy: float
    """Share correct; NaN without items."""
    chance: float
    """Mean of 1 / options over the items."""
    excess: float
    """Accuracy less chance."""
    ci_low: float
    """Lower end of the excess's cluster-bootstrap interval; NaN with fewer than two videos."""
    ci_high: float
    """Upper end."""
    p_independent: float
    """Two-sided exact p with items independent: (Poisson) binomial, over outcomes no likelier."""
    p_clustered: float
    """Two-sided p of a sign flip of whole videos' excess."""
    method: Method
    """How `p_clustered` was computed."""
    p_floor: float
    """The smallest `p_clustered` that so many videos allow."""
    n: int
    """Items."""
    n_clusters: int
    """Videos."""
    n_undefined: int
    """Items dropped because they are NaN."""


def against_chance(
    correct: Float[np.ndarray, " item"] | Sequence[float],
    n_options: Int[np.ndarray, " item"] | Sequence[int],
    clusters: Sequence[Hashable],
    *,
    seed: int = 0,
    n_resamples: int = 10_000,
    confidence: float = 0.95,
) -> AgainstChance:
    """Two-sided tests of accuracy against guessing among each item's options.

    `p_independent` is exact where the right letters were drawn independently of one another, whatever the
    model answers: then its hits are independent too. It is too small where one video's questions share
    their right letter or one piece of knowledge decides several of them; `p_clustered` allows for that. It
    flips the sign of a whole video's excess over chance, which the null makes mean zero but not symmetric,
    so it is approximate with few videos (docs/statistics.md gives its error rate).

    Args:
        correct: 1 or 0 an item; NaN drops it.
        n_options: options of each item, at least 1; one with a single option is right by chance.
        clusters: the video of each item.
        seed, n_resamples, confidence: as in `paired_difference`.

    Raises:
        ValueError: lengths that differ, an outcome other than 0 or 1, or an item without options.

    Source: exact two-sided p by the method of small likelihoods, as R's binom.test; Hong, "On computing the
    distribution function for the Poisson binomial distribution", Comput. Stat. Data Anal. 59, 2013.
    """
    if len(correct) != len(n_options):
        raise ValueError(f"{len(correct)} items have outcomes, but {len(n_options)} have options")
    options: np.ndarray = np.asarray(n_options, dtype=np.float64)
    if not (options >= 1).all():
        raise ValueError("chance needs at least one option an item")
    outcomes = np.asarray(correct, dtype=np.float64)
    if not np.isin(outcomes[~np.isnan(outcomes)], (0, 1)).all():
        raise ValueError("a test against chance is of outcomes that are 0 or 1")
    rows = complete_rows(np.column_stack([outcomes, 1 / options]), clusters, of="outcomes")
    hits, chances = rows.values.T
    names = rows.of_row.tolist()
    excess = complete_rows((hits - chances)[:, None], names)
    low, high = excess.interval(excess.resampled_means(n_resamples, seed), confidence)
    test = sign_flip(hits - chances, names, n_resamples=n_resamples, seed=seed)
    return AgainstChance(
        accuracy=float(rows.means[0]),
        chance=float(rows.means[1]),
        excess=float(excess.means[0]),
        ci_low=float(low[0]),
        ci_high=float(high[0]),
        p_independent=_binomial_p(hits, chances),
        p_clustered=test.p,
        method=test.method,
        p_floor=test.p_floor,
        n=rows.n,
        n_clusters=rows.n_clusters,
        n_undefined=rows.n_undefined,
    )


def _binomial_p(hits: Float[np.ndarray, " row"], chances: Float[np.ndarray, " row"]) -> float:
    if hits.size == 0:
        return np.nan
    right = int(hits.sum())
    if np.ptp(chances) == 0:
        return float(stats.binomtest(right, hits.size, float(chances[0])).pvalue)
    counts = np.arange(hits.size + 1)
    likelihood = np.asarray(stats.poisson_binom.pmf(counts, chances), dtype=np.float64).reshape(-1)
    # Outcomes as likely as the one seen differ from it by rounding; the slack is scipy's own.
    return float(min(1.0, likelihood[likelihood <= likelihood[right] * (1 + 1e-7)].sum()))
