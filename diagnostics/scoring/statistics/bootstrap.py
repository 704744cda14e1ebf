"""The cluster bootstrap for any statistic of item rows.

Means have their own fast road (`probes.clustered_mean`); both draw videos by `probes.group_draws` and take
their percentiles by `probes.percentile_interval`, widened for the number of videos.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

import probes
from diagnostics.scoring.statistics.clusters import Rows, complete_rows

__all__ = ["Bootstrap", "cluster_bootstrap"]

_CHUNK = 4_000_000
"""Weights held at once, in numbers (32 MB)."""


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """A statistic of item rows and its interval; arrays where the statistic is one."""

    estimate: Float[np.ndarray, "*shape"]
    """The statistic of the items as they are; NaN without items."""
    ci_low: Float[np.ndarray, "*shape"]
    """Lower end of the interval; NaN with fewer than two videos."""
    ci_high: Float[np.ndarray, "*shape"]
    """Upper end."""
    resampled: Float[np.ndarray, "resample ..."]
    """The statistic in each resample."""
    n: int
    """Items it is of."""
    n_clusters: int
    """Videos they come from."""
    n_undefined: int
    """Items dropped because a column is NaN."""
    n_undefined_resamples: int
    """Resamples in which the statistic is NaN somewhere; the interval is of the others."""


def cluster_bootstrap(
    statistic: Callable[..., object],
    *columns: Float[np.ndarray, " item"],
    clusters: Sequence[Hashable],
    n_resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
    vectorized: bool = False,
) -> Bootstrap:
    """A statistic of item rows with a percentile interval from resampling videos.

    Plainly, `statistic(*columns)` is called once a resample with the rows drawn, those of a video drawn
    twice twice. With `vectorized=True` it is called as `statistic(weights, *columns)` with
    `weights [resample, item]`, how often each row was drawn, and returns one value (or row) a resample:

        cluster_bootstrap(lambda w, x: w @ x / w.sum(axis=1), correct, clusters=videos, vectorized=True)

    Args:
        statistic: of item rows; a number or an array of any one shape. NaN says it is undefined.
        columns: what it takes, one value an item; an item that is NaN in any of them is dropped.
        clusters: the video of each item.
        n_resamples: bootstrap resamples.
        confidence: of the interval.
        seed: of the resampling.
        vectorized: how the statistic is called.

    Raises:
        ValueError: no column, lengths that differ, or an infinite value.

    Source: Davison & Hinkley, "Bootstrap Methods and their Application", 1997, sections 3.8 and 5.3.
    """
    lengths = {len(column) for column in columns}
    if len(lengths) != 1:
        raise ValueError(f"the statistic needs columns of one length, got {sorted(lengths) or 'none'}")
    rows = complete_rows(np.column_stack([np.asarray(column, float) for column in columns]), clusters)
    resampled = estimate = np.asarray(np.nan)
    if rows.n:
        estimate = _evaluate(statistic, rows, np.ones((1, rows.n), dtype=np.intp), vectorized)[0]
    resampled = np.full((n_resamples, *estimate.shape), np.nan)
    if rows.n_clusters > 1:
        generator = np.random.default_rng(seed)
        step = max(1, _CHUNK // rows.n)
        for start in range(0, n_resamples, step):
            stop = min(start + step, n_resamples)
            drawn = probes.group_draws(rows.n_clusters, stop - start, generator)
            resampled[start:stop] = _evaluate(statistic, rows, drawn[:, rows.of_row], vectorized)
    low, high = rows.interval(resampled, confidence)
    undefined = int(np.isnan(resampled.reshape(n_resamples, -1)).any(axis=1).sum())
    return Bootstrap(estimate, low, high, resampled, rows.n, rows.n_clusters, rows.n_undefined, undefined)


def _evaluate(
    statistic: Callable[..., object], rows: Rows, weights: np.ndarray, vectorized: bool
) -> Float[np.ndarray, "resample ..."]:
    columns = rows.values.T
    if vectorized:
        return np.asarray(statistic(weights, *columns), dtype=np.float64)
    everyone = np.arange(rows.n)
    drawn = (np.repeat(everyone, weight) for weight in weights)
    return np.asarray([statistic(*columns[:, picked]) for picked in drawn], dtype=np.float64)
