"""What the attention-drift figures draw: curves of many items on common grids.

`gather` turns items (arrays of one item each, live or read back from a run) into `DriftCurves`.
The definitions are those of ViLAMP's redundancy analysis (Cheng et al., arXiv 2504.02438) as MedHorizon
uses it (arXiv 2605.06537, section 4.4 and Figure 9), and are computed by `probes`: units ranked by their
share of the video's attention, and patches outside the keyframes ranked by attention against their
cosine to the same place in the nearest preceding keyframe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

import probes
from diagnostics.store import Metric

__all__ = [
    "REDUNDANCY_POINTS",
    "UNDEFINED",
    "BandKind",
    "DriftCurves",
    "ItemDrift",
    "Pooling",
    "attention_over_time",
    "band",
    "evidence_over_time",
    "gather",
    "has_interval",
    "is_defined",
    "null_of_mean",
    "unit_cells",
]

BandKind = Literal["mean", "items"]
"""What a shaded band shows: the 95% interval of the mean, or the middle 95% of the items."""

Pooling = Literal["per_head", "pooled"]
"""The two roads to an item's concentration: heads that each peak on another unit look diffuse when pooled."""

REDUNDANCY_POINTS = 100
"""Points of an item's redundancy curve, as `probes.PatchRedundancy` has them: 1%, 2%, ..., 100%."""

UNDEFINED = Metric(None, None, None, 0)

_NORMAL_975 = 1.959964


def is_defined(metric: Metric) -> bool:
    """Whether there is a mean to show."""
    return metric.mean is not None and bool(np.isfinite(metric.mean))


def has_interval(metric: Metric) -> bool:
    """Whether both ends of the interval are numbers."""
    return all(end is not None and bool(np.isfinite(end)) for end in (metric.ci_low, metric.ci_high))


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
        redundancy: mean cosine to the preceding keyframe of the 1%, 2%, ..., 100% most attended patches
            (`probes.PatchRedundancy.curve_similarity`); NaN where undefined.
        null: the item's redundancy preference against circular shifts in time, where it was computed.
        control_cumulative: `cumulative` under the position-only control, where it was run.
    """

    item_id: str
    video_id: str
    unit_share: Float[np.ndarray, " unit"]
    cumulative: Float[np.ndarray, " unit"]
    slot_seconds: Float[np.ndarray, "unit slot"]
    slot_evidence: Bool[np.ndarray, "unit slot"]
    duration: float
    redundancy: Float[np.ndarray, " patch_point"]
    null: probes.ShiftNull | None = None
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
        unit_similarity, unit_similarity_centred, unit_similarity_between: mean cosine of pairs of
            units of one video, the same after the video's mean is taken off, and of pairs of units
            of different videos.
        redundancy_preference: attention-weighted minus plain mean cosine.
        preference_null: the ends of its circular-shift null interval, or None.
        time_attention: attention at a normalised time relative to uniform attention (1).
        evidence: share of each time bin in which evidence was shown; None where no item has any.
        control: `cumulative` under the position-only control; None or NaN rows where not run.
        control_kind: what stood in for the video in the control: `blank`, `permuted`.
        pooling: whether `cumulative` and `unit_fraction` were computed per head and averaged, or on
            the attention pooled over heads.
        feature: the embeddings that similarity was measured on (`projector`, `layer:1`); empty where unknown.
    """

    name: str
    video_ids: tuple[str, ...]
    n_units: Int[np.ndarray, " item"]
    unit_grid: Float[np.ndarray, " grid"]
    cumulative: Float[np.ndarray, "item grid"]
    unit_fraction: Mapping[int, Metric]
    patch_grid: Float[np.ndarray, " patch_point"]
    redundancy: Float[np.ndarray, "item patch_point"]
    patch_similarity: Metric = UNDEFINED
    unit_similarity: Metric = UNDEFINED
    unit_similarity_centred: Metric = UNDEFINED
    unit_similarity_between: Metric = UNDEFINED
    redundancy_preference: Metric = UNDEFINED
    preference_null: tuple[float, float] | None = None
    time_attention: Float[np.ndarray, "item bin"] = field(default_factory=lambda: np.empty((0, 0)))
    evidence: Float[np.ndarray, "item bin"] | None = None
    control: Float[np.ndarray, "item grid"] | None = None
    control_kind: str = "blank"
    pooling: Pooling = "per_head"
    feature: str = ""

    @property
    def n_items(self) -> int:
        """Number of items drawn."""
        return len(self.video_ids)

    @property
    def n_videos(self) -> int:
        """Number of different videos among them."""
        return len(set(self.video_ids))


def unit_cells(
    slot_seconds: Float[np.ndarray, "unit slot"], duration: float
) -> tuple[Float[np.ndarray, " edge"], Int[np.ndarray, " cell"]]:
    """The stretch of video nearer to each unit than to any other, in order of time.

    Units without a time (synthetic pictures) have none.

    Args:
        slot_seconds: true seconds of each unit's slots; a unit lies at their mean.
        duration: seconds of the video; where NaN or shorter than the times, one gap past the last.

    Returns:
        Edges in rising order, one more than cells, from 0 to the duration; and the unit of each cell.
    """
    timed = np.flatnonzero(np.isfinite(slot_seconds).any(axis=1))
    if timed.size == 0:
        return np.array([0.0, duration if np.isfinite(duration) and duration > 0 else 1.0]), timed
    times = np.unique(slot_seconds[np.isfinite(slot_seconds)])
    end = float(duration)
    if not (np.isfinite(end) and end >= times[-1] and end > 0):
        end = float(times[-1] + (times[-1] - times[-2] if times.size > 1 else 1.0))
    starts, ends = probes.unit_intervals(slot_seconds[timed], end)
    order = np.argsort(starts, kind="stable")
    return np.append(starts[order], ends.max()), timed[order]


def attention_over_time(
    share: Float[np.ndarray, " unit"],
    slot_seconds: Float[np.ndarray, "unit slot"],
    duration: float,
    bins: int,
) -> Float[np.ndarray, " bin"]:
    """Attention of the units shown at each normalised time, relative to uniform attention.

    A unit's value is its share times the number of units, so 1 is uniform attention however the
    frames were chosen. Each unit stands for the stretch of video nearer to it than to any other; a
    bin holds the mean over its stretch. NaN everywhere when no unit has a time.
    """
    relative = np.asarray(share, np.float64) * len(share)
    return _bin_means(relative, slot_seconds, duration, bins)


def evidence_over_time(
    slot_evidence: Bool[np.ndarray, "unit slot"],
    slot_seconds: Float[np.ndarray, "unit slot"],
    duration: float,
    bins: int,
) -> Float[np.ndarray, " bin"]:
    """Share of each bin of normalised time in which the nearest unit shows evidence."""
    shows = np.asarray(np.any(slot_evidence, axis=1), np.float64)
    return _bin_means(shows, slot_seconds, duration, bins)


def _bin_means(
    values: Float[np.ndarray, " unit"],
    slot_seconds: Float[np.ndarray, "unit slot"],
    duration: float,
    bins: int,
) -> Float[np.ndarray, " bin"]:
    """Mean of `values` over each of `bins` equal stretches of the video, each unit filling its cell."""
    edges, unit = unit_cells(slot_seconds, duration)
    if unit.size == 0:
        return np.full(bins, np.nan)
    end = float(edges[-1])
    filled = values[unit] * np.diff(edges) / end
    return probes.on_time_grid(filled, edges[:-1], edges[1:], end, bins) * bins


def band(
    values: Float[np.ndarray, "item point"], video_ids: Sequence[str], kind: BandKind
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """Mean over items and the two ends of a 95% band; items that are NaN anywhere are left out.

    `items`: the 2.5th and 97.5th percentiles of the items, from two items on. `mean`: the interval of
    `probes.clustered_curve`, which resamples whole videos, from two videos on. NaN otherwise.

    Returns:
        mean, low, high.
    """
    curve = probes.clustered_curve(values, video_ids)
    if kind == "mean":
        return curve.mean, curve.ci_low, curve.ci_high
    if curve.n < 2:
        return curve.mean, np.full_like(curve.mean, np.nan), np.full_like(curve.mean, np.nan)
    kept = values[~np.isnan(values).any(axis=1)]
    low, high = np.percentile(kept, [2.5, 97.5], axis=0)
    return curve.mean, low, high


def gather(
    name: str,
    items: Sequence[ItemDrift],
    metrics: Mapping[str, Metric],
    *,
    control_kind: str = "blank",
    pooling: Pooling = "per_head",
    feature: str = "",
    grid_points: int = 101,
    time_bins: int = 50,
) -> DriftCurves:
    """Put items on common grids and set the run's numbers beside them.

    Args:
        name: how the run is called in legends.
        items: the finished items.
        metrics: those of the run's summary, so that figure and table cannot differ; one that is
            missing is undefined. With `pooling="pooled"`, `unit_fraction_90_pooled`... are read.
        control_kind, pooling, feature: see `DriftCurves`.
        grid_points: of the cumulative curves.
        time_bins: of the curves over time; figures of several runs need the same number.
    """
    unit_grid = np.linspace(0.0, 1.0, grid_points)
    suffix = "" if pooling == "per_head" else "_pooled"
    fractions = {percent: f"unit_fraction_{percent}{suffix}" for percent in (50, 80, 90, 95)}
    when = [(item.slot_seconds, item.duration, time_bins) for item in items]
    evidence = control = None
    if any(item.slot_evidence.any() for item in items):
        shows = [evidence_over_time(i.slot_evidence, *at) for i, at in zip(items, when, strict=True)]
        evidence = _rows(shows, time_bins)
    if any(item.control_cumulative is not None for item in items):
        control = _rows([_on_grid(item.control_cumulative, unit_grid) for item in items], grid_points)
    time = [attention_over_time(i.unit_share, *at) for i, at in zip(items, when, strict=True)]
    return DriftCurves(
        name=name,
        video_ids=tuple(item.video_id for item in items),
        n_units=np.array([len(item.unit_share) for item in items], dtype=np.int64),
        unit_grid=unit_grid,
        cumulative=_rows([_on_grid(item.cumulative, unit_grid) for item in items], grid_points),
        unit_fraction={percent: metrics.get(key, UNDEFINED) for percent, key in fractions.items()},
        patch_grid=np.arange(1, REDUNDANCY_POINTS + 1) / REDUNDANCY_POINTS,
        redundancy=_rows([item.redundancy for item in items], REDUNDANCY_POINTS),
        patch_similarity=metrics.get("patch_similarity", UNDEFINED),
        unit_similarity=metrics.get("unit_similarity", UNDEFINED),
        unit_similarity_centred=metrics.get("unit_similarity_centred", UNDEFINED),
        unit_similarity_between=metrics.get("unit_similarity_between", UNDEFINED),
        redundancy_preference=metrics.get("redundancy_preference", UNDEFINED),
        preference_null=null_of_mean([item.null for item in items if item.null is not None]),
        time_attention=_rows(time, time_bins),
        evidence=evidence,
        control=control,
        control_kind=control_kind,
        pooling=pooling,
        feature=feature,
    )


def _on_grid(
    cumulative: Float[np.ndarray, " unit"] | None, grid: Float[np.ndarray, " grid"]
) -> Float[np.ndarray, " grid"]:
    """A cumulative curve on the common grid; NaN where there is none."""
    if cumulative is None:
        return np.full(len(grid), np.nan)
    return probes.cumulative_on_grid(cumulative, grid)


def null_of_mean(nulls: Sequence[probes.ShiftNull]) -> tuple[float, float] | None:
    """95% interval of the mean preference of several items if attention were shifted at random in each.

    One item: the percentiles of its own null. Several: the mean of the nulls' means, and 1.96 times
    the root of their summed variances over n, items taken as independent. Items without a null are
    left out; None where none has one.
    """
    usable = [null for null in nulls if null.n_shifts]
    if len(usable) <= 1:
        return next(((null.low, null.high) for null in usable), None)
    centre = float(np.mean([null.mean for null in usable]))
    # A null that does not vary has no z, and one whose centre was observed has z = 0: see _spread.
    reach = _NORMAL_975 * float(np.sqrt(sum(_spread(null) ** 2 for null in usable))) / len(usable)
    return centre - reach, centre + reach


def _spread(null: probes.ShiftNull) -> float:
    """Standard deviation of a null, from what it tells."""
    if np.isfinite(null.z) and null.z != 0:
        return (null.observed - null.mean) / null.z
    return (null.high - null.low) / (2 * _NORMAL_975)


def _rows(rows: list[np.ndarray], width: int) -> Float[np.ndarray, "item width"]:
    return np.stack(rows) if rows else np.empty((0, width))
