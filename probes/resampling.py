"""Drawing groups with replacement: the one bootstrap that every interval of the toolkit is made with.

Groups (videos) are drawn, not items, because questions about one video are not independent (cluster
bootstrap: Davison & Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8). Percentile
intervals (section 5.3 there) of few groups are too narrow, by the missing (g-1)/g of the variance and by the
normal quantile in place of Student's; `percentile_interval` can widen its percentiles by both (Hesterberg,
"What Teachers Should Know About the Bootstrap", arXiv 1411.5279, "expanded percentiles").
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int, UInt
from scipy import special

_KEPT_DRAWS = 24
_KEPT_BYTES = 8 << 20
"""Draws that are kept for the next statistic of as many groups: how many, and the largest. A table has
thousands of means over a few group counts, and drawing is nearly all that their intervals cost."""

__all__ = ["group_draws", "group_index", "percentile_interval", "resampled_group_means"]


def group_index(groups: Sequence[Hashable]) -> tuple[Int[np.ndarray, " item"], int]:
    """The number of each item's group, counted by first appearance, and how many groups there are.

    Names may be of any hashable type, and do not change a result.
    """
    index: dict[Hashable, int] = {}
    numbers = [index.setdefault(group, len(index)) for group in groups]
    return np.asarray(numbers, dtype=np.intp), len(index)


def group_draws(
    n_groups: int, n_resamples: int, generator: np.random.Generator
) -> Int[np.ndarray, "r group"]:
    """How often each group is in each resample: rows of counts that sum to `n_groups`."""
    return generator.multinomial(n_groups, np.full(n_groups, 1 / n_groups), n_resamples)


def resampled_group_means(
    values: Float[np.ndarray, "item column"],
    of_item: Int[np.ndarray, " item"],
    n_groups: int,
    *,
    n_resamples: int,
    seed: int,
) -> Float[np.ndarray, "resample column"]:
    """The mean over the items of the groups drawn, in each resample; the same draws for every column."""
    sums = np.zeros((n_groups, values.shape[1]))
    np.add.at(sums, of_item, values)
    counts = np.bincount(of_item, minlength=n_groups)
    small = n_groups * n_resamples <= _KEPT_BYTES  # a byte each, but for counts above 255
    drawn = (_kept_draws if small else _seeded_draws)(n_groups, n_resamples, seed).astype(np.float64)
    return (drawn @ sums) / (drawn @ counts)[:, None]


def _seeded_draws(n_groups: int, n_resamples: int, seed: int) -> UInt[np.ndarray, "r group"]:
    """`group_draws` of a fresh generator, in the smallest type that holds its counts; read only."""
    drawn = group_draws(n_groups, n_resamples, np.random.default_rng(seed))
    small = drawn.astype(np.min_scalar_type(drawn.max(initial=0)))
    small.flags.writeable = False
    return small


_kept_draws = lru_cache(maxsize=_KEPT_DRAWS)(_seeded_draws)


def percentile_interval(
    resampled: Float[np.ndarray, "resample ..."], confidence: float, *, expand_for: int | None = None
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """Lower and upper end of the percentile interval of resampled statistics.

    Args:
        resampled: the statistic in each resample; those that are NaN are left out, entry by entry.
        confidence: of the interval, in (0, 1).
        expand_for: the number of groups the resamples were drawn from, to widen the percentiles for it
            (tail = Phi(sqrt(g / (g-1)) t_{g-1}(tail))); None keeps the plain percentiles.

    Raises:
        ValueError: a confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"the confidence of an interval lies in (0, 1), got {confidence}")
    tail = (1 - confidence) / 2
    if expand_for is not None:
        if expand_for < 2:
            empty = np.full(resampled.shape[1:], np.nan)
            return empty, empty
        student = float(special.stdtrit(expand_for - 1, tail))
        tail = float(special.ndtr(np.sqrt(expand_for / (expand_for - 1)) * student))
    columns = resampled.reshape(len(resampled), -1)
    if not np.isnan(columns).any():
        low, high = np.quantile(columns, [tail, 1 - tail], axis=0)
    else:
        low, high = np.full((2, columns.shape[1]), np.nan)
        for column, values in enumerate(columns.T):
            defined = values[~np.isnan(values)]
            if defined.size:
                low[column], high[column] = np.quantile(defined, [tail, 1 - tail])
    return low.reshape(resampled.shape[1:]), high.reshape(resampled.shape[1:])
