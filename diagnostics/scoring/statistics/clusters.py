"""Items and the videos they come from: the rows every statistic works on.

Questions about one video share its luck, so a video is the unit that is resampled, flipped or permuted.
What is averaged stays the item: every mean here is over items, and a video with more questions counts for
more, as it does in the accuracy that benchmarks print.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

import probes

__all__ = ["Rows", "complete_rows"]

_DIGITS = 9
"""Decimals to which clusters are told apart when they are put in order."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The items that are defined in every column, with their clusters as numbers."""

    values: Float[np.ndarray, "row column"]
    """What was measured of each kept item."""
    of_row: Int[np.ndarray, " row"]
    """The cluster of each row. Clusters are numbered by their content (items, then sums), so that a seeded
    resampling depends neither on the order of the items nor on the names of the videos."""
    n_clusters: int
    """Clusters with at least one kept item."""
    kept: Bool[np.ndarray, " item"]
    """Which of the items given are kept."""

    @property
    def n(self) -> int:
        """Items kept."""
        return len(self.values)

    @property
    def n_undefined(self) -> int:
        """Items dropped because a column is NaN."""
        return int(len(self.kept) - self.kept.sum())

    @property
    def means(self) -> Float[np.ndarray, " column"]:
        """Mean of each column over the items; NaN without items."""
        return self.values.mean(axis=0) if self.n else np.full(self.values.shape[1], np.nan)

    @property
    def counts(self) -> Int[np.ndarray, " cluster"]:
        """Items of each cluster."""
        return np.bincount(self.of_row, minlength=self.n_clusters)

    @property
    def sums(self) -> Float[np.ndarray, "cluster column"]:
        """Sum of each column over the items of each cluster."""
        return _sums(self.values, self.of_row, self.n_clusters)

    def resampled_means(self, n_resamples: int, seed: int) -> Float[np.ndarray, "resample column"]:
        """Means over the items of clusters drawn with replacement; NaN with fewer than two clusters."""
        if self.n_clusters < 2:
            return np.full((n_resamples, self.values.shape[1]), np.nan)
        return probes.resampled_group_means(
            self.values, self.of_row, self.n_clusters, n_resamples=n_resamples, seed=seed
        )

    def interval(
        self, resampled: Float[np.ndarray, "resample ..."], confidence: float = 0.95
    ) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
        """Percentile interval of statistics resampled from these clusters, widened for their number."""
        return probes.percentile_interval(resampled, confidence, expand_for=self.n_clusters)


def complete_rows(
    values: Float[np.ndarray, "item column"],
    clusters: Sequence[Hashable],
    *,
    of: str = "values",
) -> Rows:
    """The rows of `values` without a NaN, and their clusters.

    Args:
        values: what was measured, one row an item; NaN is undefined and drops the item.
        clusters: the video of each item.
        of: what the values are called in an error.

    Raises:
        ValueError: as many videos as items are not given, or a value is infinite.
    """
    table = np.asarray(values, dtype=np.float64)
    if len(table) != len(clusters):
        raise ValueError(f"{len(table)} items have {of}, but {len(clusters)} have a video")
    if np.isinf(table).any():
        raise ValueError(f"infinite {of} have no mean: item {int(np.isinf(table).any(axis=1).argmax())}")
    kept = np.asarray(~np.isnan(table).any(axis=1), dtype=np.bool_)
    rows = table[kept]
    of_row, n_clusters = probes.group_index([clusters[item] for item in np.flatnonzero(kept).tolist()])
    counts = np.bincount(of_row, minlength=n_clusters)
    keys = np.column_stack([_sums(rows, of_row, n_clusters).round(_DIGITS), counts])
    place = np.empty(n_clusters, dtype=np.intp)
    place[np.lexsort(keys.T)] = np.arange(n_clusters)
    return Rows(rows, place[of_row], n_clusters, kept)


def _sums(
    rows: Float[np.ndarray, "row column"], of_row: Int[np.ndarray, " row"], n_clusters: int
) -> Float[np.ndarray, "cluster column"]:
    sums = np.zeros((n_clusters, rows.shape[1]))
    np.add.at(sums, of_row, rows)
    return sums
