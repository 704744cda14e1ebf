"""What the attention-drift figures draw: curves of many items on common grids.

`gather` turns items (arrays of one item each, live or read back from a run) into `DriftCurves`.
The definitions are those of ViLAMP's redundancy analysis (Cheng et al., arXiv 2504.02438, section 3)
as MedHorizon uses it (sections 4.4 and 8, Figure 9): units ranked by their share of the video's
attention, and patches outside the keyframes ranked by attention against their cosine to the same
place in the nearest preceding keyframe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

__all__ = [
    "BandKind",
    "DriftCurves",
    "Estimate",
    "ItemDrift",
    "Pooling",
    "attention_over_time",
    "band",
    "cumulative_on_grid",
    "evidence_over_time",
    "gather",
    "running_mean_on_grid",
    "slot_cells",
]

BandKind = Literal["mean", "items"]
"""What a shaded band shows: the 95% interval of the mean, or the middle 95% of the items."""

Pooling = Literal["per_head", "pooled"]
"""The two roads to an item's concentration: heads that each peak on another unit look diffuse when pooled."""

_RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over `n` values and its 95% interval; None where undefined."""

    mean: float | None
    ci_low: float | None = None
    ci_high: float | None = None
    n: int = 0

    @property
    def defined(self) -> bool:
        """Whether there is a number to show."""
        return self.mean is not None and bool(np.isfinite(self.mean))

    @property
    def has_interval(self) -> bool:
        """Whether both ends of the interval are numbers."""
        ends = (self.ci_low, self.ci_high)
        return all(end is not None and bool(np.isfinite(end)) for end in ends)

    @classmethod
    def of(cls, entry: Mapping[str, float | int | None] | None) -> Estimate:
        """From one entry of `summary.json`'s `metrics`; undefined for None."""
        if entry is None:
            return UNDEFINED
        return cls(entry.get("mean"), entry.get("ci_low"), entry.get("ci_high"), int(entry.get("n") or 0))


UNDEFINED = Estimate(None)


@dataclass(frozen=True, slots=True)
class ItemDrift:
    """One item's arrays.

    Attributes:
        unit_share: share of the video's attention that each temporal unit holds, heads pooled; sums to 1.
        cumulative: C(k), the share held by the k most attended units, k = 1..U: of the pooled
            attention, or the mean over heads that each rank units their own way.
        slot_seconds: true seconds of each slot of each unit; NaN where empty or synthetic.
        slot_evidence: which slots show evidence.
        duration: seconds of the video; NaN where unknown, then the sampled times tell it.
        patch_attention: attention on each patch whose cosine is defined, in any order.
        patch_cosine: cosine of that patch to the same place in the nearest preceding keyframe.
        control_cumulative: `cumulative` under the position-only control (blank video), where it was run.
    """

    item_id: str
    video_id: str
    unit_share: Float[np.ndarray, " unit"]
    cumulative: Float[np.ndarray, " unit"]
    slot_seconds: Float[np.ndarray, "unit slot"]
    slot_evidence: Bool[np.ndarray, "unit slot"]
    duration: float
    patch_attention: Float[np.ndarray, " patch"]
    patch_cosine: Float[np.ndarray, " patch"]
    control_cumulative: Float[np.ndarray, " control_unit"] | None = None


@dataclass(frozen=True, slots=True)
class DriftCurves:
    """One run, ready to draw. Undefined values are NaN.

    Attributes:
        name: how the run is called in legends.
        video_ids: the video of each item; intervals resample videos, since items of one video are alike.
        n_units: temporal units of each item.
        unit_grid: fractions of ranked units, 0 to 1.
        cumulative: attention share held by that fraction of the most attended units.
        unit_fraction: by percent (50, 80, 90...), the mean over items of the smallest fraction of
            whole units that holds it.
        patch_grid: fractions of ranked patches, above 0 and up to 1.
        redundancy: mean cosine to the preceding keyframe over that fraction of most attended patches.
        patch_similarity: plain mean of that cosine over all patches.
        unit_similarity, unit_similarity_centred, between_video_similarity: mean cosine of pairs of
            units of one video, the same after the video's mean is taken off, and of pairs of units
            of different videos.
        redundancy_preference: attention-weighted minus plain mean cosine.
        preference_null: the ends of its circular-shift null interval, or None.
        time_attention: attention at a normalised time relative to uniform attention (1).
        evidence: share of each time bin in which evidence was shown; None where no item has any.
        control: `cumulative` under the position-only control; None or NaN rows where not run.
        pooling: whether `cumulative` and `unit_fraction` were computed per head and averaged, or on
            the attention pooled over heads.
    """

    name: str
    video_ids: tuple[str, ...]
    n_units: Int[np.ndarray, " item"]
    unit_grid: Float[np.ndarray, " grid"]
    cumulative: Float[np.ndarray, "item grid"]
    unit_fraction: Mapping[int, Estimate]
    patch_grid: Float[np.ndarray, " patch_grid"]
    redundancy: Float[np.ndarray, "item patch_grid"]
    patch_similarity: Estimate = UNDEFINED
    unit_similarity: Estimate = UNDEFINED
    unit_similarity_centred: Estimate = UNDEFINED
    between_video_similarity: Estimate = UNDEFINED
    redundancy_preference: Estimate = UNDEFINED
    preference_null: tuple[float, float] | None = None
    time_attention: Float[np.ndarray, "item bin"] = field(default_factory=lambda: np.empty((0, 0)))
    evidence: Float[np.ndarray, "item bin"] | None = None
    control: Float[np.ndarray, "item grid"] | None = None
    pooling: Pooling = "per_head"

    @property
    def n_items(self) -> int:
        """Number of items drawn."""
        return len(self.video_ids)

    @property
    def n_videos(self) -> int:
        """Number of different videos among them."""
        return len(set(self.video_ids))


def cumulative_on_grid(
    cumulative: Float[np.ndarray, " unit"], grid: Float[np.ndarray, " grid"]
) -> Float[np.ndarray, " grid"]:
    """C(k), k = 1..U, at fractions `grid` of the units: 0 at 0, linear between whole units.

    Uniform attention gives the diagonal whatever the number of units. NaN where C is.
    """
    at = np.linspace(0.0, 1.0, len(cumulative) + 1)
    return np.interp(grid, at, np.concatenate([[0.0], cumulative]))


def running_mean_on_grid(
    weight: Float[np.ndarray, " patch"],
    value: Float[np.ndarray, " patch"],
    grid: Float[np.ndarray, " grid"],
) -> Float[np.ndarray, " grid"]:
    """Mean of `value` over the fraction `grid` of patches with the largest `weight`.

    At least one patch is taken; ties keep their order. NaN where there is no patch. At 1 it is the
    plain mean.
    """
    if value.size == 0:
        return np.full(len(grid), np.nan)
    ranked = np.asarray(value, dtype=np.float64)[np.argsort(-weight, kind="stable")]
    running = np.cumsum(ranked) / np.arange(1, ranked.size + 1)
    # The rounding keeps 0.07 * 100 = 7.000000000000001 at 7 patches.
    taken = np.ceil(np.round(np.asarray(grid) * ranked.size, 9)).astype(int)
    return running[np.clip(taken, 1, ranked.size) - 1]


def attention_over_time(
    share: Float[np.ndarray, " unit"],
    slot_seconds: Float[np.ndarray, "unit slot"],
    duration: float,
    bins: int,
) -> Float[np.ndarray, " bin"]:
    """Attention of the units shown at each normalised time, relative to uniform attention.

    A unit's value is its share times the number of units, so 1 is uniform attention however the
    frames were chosen. Each slot stands for the stretch of video nearer to it than to any other
    slot; a bin holds the mean over its stretch. Slots with the same time are averaged; slots
    without one are left out. NaN everywhere when none has a time.
    """
    relative = np.repeat(np.asarray(share, np.float64)[:, None] * len(share), slot_seconds.shape[1], axis=1)
    return _bin_means(relative, slot_seconds, duration, bins)


def evidence_over_time(
    slot_evidence: Bool[np.ndarray, "unit slot"],
    slot_seconds: Float[np.ndarray, "unit slot"],
    duration: float,
    bins: int,
) -> Float[np.ndarray, " bin"]:
    """Share of each bin of normalised time in which the nearest slot shows evidence."""
    return _bin_means(np.asarray(slot_evidence, np.float64), slot_seconds, duration, bins)


def slot_cells(
    seconds: Float[np.ndarray, " slot"], duration: float
) -> tuple[Float[np.ndarray, " edge"], Int[np.ndarray, " cell"]]:
    """The stretch of video nearer to each slot than to any other.

    Slots without a time have no cell; of slots with the same time the first has it.

    Args:
        seconds: true seconds of each slot, in any order; NaN where it has none.
        duration: seconds of the video; where NaN or too short, one gap past the last slot.

    Returns:
        Edges of the cells in rising order, one more than cells (from 0 to the duration), and the slot
        of each cell.
    """
    timed = np.flatnonzero(np.isfinite(seconds))
    times, first = np.unique(seconds[timed], return_index=True)
    if times.size == 0:
        return np.array([0.0, duration if np.isfinite(duration) and duration > 0 else 1.0]), timed
    end = float(duration)
    if not (np.isfinite(end) and end > times[-1]):
        end = float(times[-1] + (times[-1] - times[-2] if times.size > 1 else 1.0))
    return np.concatenate([[0.0], (times[1:] + times[:-1]) / 2, [end]]), timed[first]


def _bin_means(
    values: Float[np.ndarray, "unit slot"],
    slot_seconds: Float[np.ndarray, "unit slot"],
    duration: float,
    bins: int,
) -> Float[np.ndarray, " bin"]:
    """Mean of `values` over each of `bins` equal stretches of the video, each slot filling its cell."""
    timed = np.isfinite(slot_seconds)
    if not timed.any():
        return np.full(bins, np.nan)
    edges, _ = slot_cells(slot_seconds.ravel(), duration)
    _, where = np.unique(slot_seconds[timed], return_inverse=True)
    held = np.bincount(where, values[timed]) / np.bincount(where)
    integral = np.concatenate([[0.0], np.cumsum(held * np.diff(edges))])
    bin_edges = np.linspace(0.0, edges[-1], bins + 1)
    return np.diff(np.interp(bin_edges, edges, integral)) / (edges[-1] / bins)


def band(
    values: Float[np.ndarray, "item grid"], video_ids: Sequence[str], kind: BandKind
) -> tuple[Float[np.ndarray, " grid"], Float[np.ndarray, " grid"], Float[np.ndarray, " grid"]]:
    """Mean over items and the two ends of a 95% band.

    `items`: the 2.5th and 97.5th percentiles of the items. `mean`: the percentile bootstrap of the
    mean, whole videos resampled with replacement (1,000 times, fixed seed). NaN entries are left
    out; the band is NaN where fewer than two items (`items`) or two videos (`mean`) are defined.

    Returns:
        mean, low, high.
    """
    values = np.asarray(values, dtype=np.float64)
    defined = np.isfinite(values)
    count = defined.sum(axis=0)
    total = np.where(defined, values, 0.0).sum(axis=0)
    mean = np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
    low, high = np.full(mean.shape, np.nan), np.full(mean.shape, np.nan)
    if kind == "items":
        enough = count >= 2
        if enough.any():
            low[enough], high[enough] = np.nanpercentile(values[:, enough], [2.5, 97.5], axis=0)
        return mean, low, high
    videos, member = np.unique(np.asarray(video_ids, dtype=str), return_inverse=True)
    belongs = (member[None, :] == np.arange(len(videos))[:, None]).astype(np.float64)
    sums, counts = belongs @ np.where(defined, values, 0.0), belongs @ defined
    enough = (counts > 0).sum(axis=0) >= 2
    if enough.any():
        draws = np.random.default_rng(0).multinomial(
            len(videos), np.full(len(videos), 1 / len(videos)), size=_RESAMPLES
        )
        drawn = draws @ counts[:, enough]
        means = np.divide(draws @ sums[:, enough], drawn, out=np.full(drawn.shape, np.nan), where=drawn > 0)
        low[enough], high[enough] = np.nanpercentile(means, [2.5, 97.5], axis=0)
    return mean, low, high


def gather(
    name: str,
    items: Sequence[ItemDrift],
    unit_fraction: Mapping[int, Estimate],
    *,
    patch_similarity: Estimate = UNDEFINED,
    unit_similarity: Estimate = UNDEFINED,
    unit_similarity_centred: Estimate = UNDEFINED,
    between_video_similarity: Estimate = UNDEFINED,
    redundancy_preference: Estimate = UNDEFINED,
    preference_null: tuple[float, float] | None = None,
    pooling: Pooling = "per_head",
    grid_points: int = 101,
    time_bins: int = 50,
) -> DriftCurves:
    """Put items on common grids and set the run's estimates beside them.

    The estimates are the run's own numbers (its summary), so that figure and table cannot differ.
    """
    unit_grid = np.linspace(0.0, 1.0, grid_points)
    patch_grid = np.linspace(0.0, 1.0, grid_points)[1:]
    controls = [
        np.full(grid_points, np.nan)
        if item.control_cumulative is None
        else cumulative_on_grid(item.control_cumulative, unit_grid)
        for item in items
    ]
    evidence = [
        evidence_over_time(item.slot_evidence, item.slot_seconds, item.duration, time_bins) for item in items
    ]
    return DriftCurves(
        name=name,
        video_ids=tuple(item.video_id for item in items),
        n_units=np.array([len(item.unit_share) for item in items], dtype=np.int64),
        unit_grid=unit_grid,
        cumulative=_rows([cumulative_on_grid(item.cumulative, unit_grid) for item in items], grid_points),
        unit_fraction=dict(unit_fraction),
        patch_grid=patch_grid,
        redundancy=_rows(
            [running_mean_on_grid(item.patch_attention, item.patch_cosine, patch_grid) for item in items],
            len(patch_grid),
        ),
        patch_similarity=patch_similarity,
        unit_similarity=unit_similarity,
        unit_similarity_centred=unit_similarity_centred,
        between_video_similarity=between_video_similarity,
        redundancy_preference=redundancy_preference,
        preference_null=preference_null,
        time_attention=_rows(
            [
                attention_over_time(item.unit_share, item.slot_seconds, item.duration, time_bins)
                for item in items
            ],
            time_bins,
        ),
        evidence=_rows(evidence, time_bins) if any(item.slot_evidence.any() for item in items) else None,
        pooling=pooling,
        control=_rows(controls, grid_points)
        if any(i.control_cumulative is not None for i in items)
        else None,
    )


def _rows(rows: list[np.ndarray], width: int) -> Float[np.ndarray, "item width"]:
    return np.stack(rows) if rows else np.empty((0, width))
