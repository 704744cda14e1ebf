"""Curves of items of different length on one grid, so that they can be averaged and drawn together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from probes.intervals import clustered_curve

__all__ = [
    "MeanCurve",
    "cumulative_on_grid",
    "mean_cumulative_curve",
    "on_time_grid",
    "unit_intervals",
]


@dataclass(frozen=True, eq=False)
class MeanCurve:
    """A curve averaged over items, with its interval at each point."""

    fraction: Float[np.ndarray, " point"]
    """The grid: fraction of the units."""
    mean: Float[np.ndarray, " point"]
    """Mean over items."""
    ci_low: Float[np.ndarray, " point"]
    """Lower end of the 95% interval at each point; NaN with fewer than two videos."""
    ci_high: Float[np.ndarray, " point"]
    """Upper end."""
    n: int
    """Items it is the mean of."""
    n_groups: int
    """Videos they come from."""
    n_undefined: int
    """Items left out because their curve is undefined."""


def cumulative_on_grid(
    cumulative: Float[np.ndarray, "*batch unit"],
    grid: Float[np.ndarray, " point"],
    *,
    kind: Literal["linear", "step"] = "linear",
) -> Float[np.ndarray, "*batch point"]:
    """Read the cumulative curve C(k/U) at fractions of the units; exact at every k/U, and C(0) = 0.

    Between two of them `linear` draws the chord, as though a unit could be taken in part, and `step` stays at
    the last whole unit.

    Raises:
        ValueError: a grid that leaves [0, 1], or an unknown kind.
    """
    points = np.asarray(grid, dtype=np.float64)
    if points.size and (points.min() < 0 or points.max() > 1):
        raise ValueError("fractions of the units lie in [0, 1]")
    if kind not in ("linear", "step"):
        raise ValueError(f"curves are read by 'linear' or 'step', not {kind!r}")
    values = np.asarray(cumulative, dtype=np.float64)
    padded = np.concatenate([np.zeros((*values.shape[:-1], 1)), values], axis=-1)
    # k/U read from a grid may lie a rounding error below k.
    position = points * values.shape[-1]
    position = np.where(np.abs(position - np.rint(position)) < 1e-9, np.rint(position), position)
    below = np.floor(position).astype(int)
    if kind == "step":
        return padded[..., below] + 0.0 * values[..., :1]  # NaN at 0 too where the curve is undefined
    above = np.ceil(position).astype(int)
    rise = padded[..., above] - padded[..., below]
    return padded[..., below] + (position - below) * rise + 0.0 * values[..., :1]


def mean_cumulative_curve(
    curves: Sequence[Float[np.ndarray, " _"]],
    groups: Sequence[Hashable],
    *,
    grid: Float[np.ndarray, " point"] | None = None,
    kind: Literal["linear", "step"] = "linear",
    n_resamples: int = 2000,
    seed: int = 0,
) -> MeanCurve:
    """Mean cumulative curve of items with different numbers of units, every item with the same weight.

    Args:
        curves: C(k), k = 1..U, of each item; U may differ.
        groups: the video of each item, resampled as a whole.
        grid: fractions of the units; 0, 0.01, ..., 1 where None.
        kind: see `cumulative_on_grid`.
        n_resamples, seed: see `clustered_curve`.
    """
    fraction = np.linspace(0, 1, 101) if grid is None else np.asarray(grid, dtype=np.float64)
    rows = [cumulative_on_grid(curve, fraction, kind=kind) for curve in curves]
    values = np.stack(rows) if rows else np.empty((0, fraction.size))
    estimate = clustered_curve(values, groups, n_resamples=n_resamples, seed=seed)
    return MeanCurve(
        fraction=fraction,
        mean=estimate.mean,
        ci_low=estimate.ci_low,
        ci_high=estimate.ci_high,
        n=estimate.n,
        n_groups=estimate.n_groups,
        n_undefined=estimate.n_undefined,
    )


def unit_intervals(
    unit_seconds: Float[np.ndarray, " unit *slot"], duration: float
) -> tuple[Float[np.ndarray, " unit"], Float[np.ndarray, " unit"]]:
    """Start and end of the stretch of video each unit stands for: to half-way to its neighbours in time.

    The stretches tile [0, duration] in the order of time, whatever the order of the units.

    Args:
        unit_seconds: the true time of each unit, or of its slots (their mean counts; NaN where empty).
        duration: of the video, in seconds.

    Raises:
        ValueError: a unit with no time, or one outside the video.
    """
    seconds = np.asarray(unit_seconds, dtype=np.float64)
    if seconds.ndim == 2:
        known = np.isfinite(seconds)
        sums = np.where(known, seconds, 0.0).sum(axis=1)
        counts = known.sum(axis=1)
        seconds = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    if not ((seconds >= 0) & (seconds <= duration)).all():
        raise ValueError(f"every unit needs a time within the video's {duration} s, got {seconds}")
    order = np.argsort(seconds, kind="stable")
    ranked = seconds[order]
    edges = np.concatenate([[0.0], (ranked[1:] + ranked[:-1]) / 2, [duration]])
    start, end = np.empty_like(seconds), np.empty_like(seconds)
    start[order], end[order] = edges[:-1], edges[1:]
    return start, end


def on_time_grid(
    unit_values: Float[np.ndarray, "*batch unit"],
    start_seconds: Float[np.ndarray, " unit"],
    end_seconds: Float[np.ndarray, " unit"],
    duration: float,
    n_bins: int = 100,
) -> Float[np.ndarray, "*batch bin"]:
    """Spread each unit's value evenly over its stretch and add it up in equal bins of normalised time.

    The sum is kept: what a bin holds is attention, not attention a second. A stretch of no length falls into
    the bin it lies in (the later one of two, the last at the end).

    Args:
        unit_values: shares or masses.
        start_seconds, end_seconds: of each unit (see `unit_intervals`).
        duration: of the video, in seconds.
        n_bins: of the grid.

    Raises:
        ValueError: a stretch that ends before it starts or leaves the video, or no bins.
    """
    values = np.asarray(unit_values, dtype=np.float64)
    start, end = np.asarray(start_seconds, dtype=np.float64), np.asarray(end_seconds, dtype=np.float64)
    if n_bins < 1 or not duration > 0:
        raise ValueError(f"a time grid needs bins and a duration, got {n_bins} and {duration}")
    if start.shape != values.shape[-1:] or end.shape != start.shape:
        raise ValueError(f"{values.shape[-1]} units, {start.shape} starts and {end.shape} ends")
    if not ((start >= 0) & (start <= end) & (end <= duration)).all():
        raise ValueError(f"a unit's stretch must lie within the video's {duration} s")
    edges = np.linspace(0, 1, n_bins + 1) * duration
    overlap = np.minimum(end[:, None], edges[1:]) - np.maximum(start[:, None], edges[:-1])
    overlap = np.clip(overlap, 0, None)
    instant = overlap.sum(axis=1) <= 0
    bin_of = np.minimum(np.searchsorted(edges, start, side="right") - 1, n_bins - 1)
    overlap[instant, bin_of[instant]] = 1.0
    return values @ (overlap / overlap.sum(axis=1, keepdims=True))
