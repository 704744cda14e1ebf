"""The words under the attention-drift figures: who each run is, and what a reader must know."""

from __future__ import annotations

from collections.abc import Sequence

from diagnostics.report.curves import BandKind, DriftCurves, Pooling, is_defined
from diagnostics.report.style import wrapped

__all__ = ["MAX_TIME_BANDS", "comparison_caption", "run_labels", "time_caption", "two_panel_caption"]

MAX_TIME_BANDS = 3
"""With more runs than this, bands over time would hide the lines."""

_BAND_NAMES: dict[BandKind, str] = {
    "mean": "95% interval of the mean (videos resampled; none for a single video)",
    "items": "middle 95% of the items (none for a single item)",
}
_POOLING_NAMES: dict[Pooling, str] = {
    "per_head": "in each head, the curves then averaged",
    "pooled": "by the attention pooled over heads",
}


def run_labels(runs: Sequence[DriftCurves]) -> list[str]:
    """Each run's name, cut where endless, and what it stands on."""
    return [f"{wrapped(run.name, 9.0, 8.0, max_lines=1)} ({_counts(run)})" for run in runs]


def _counts(run: DriftCurves) -> str:
    if run.n_items == 0:
        return "no items"
    low, high = int(run.n_units.min()), int(run.n_units.max())
    units = f"{low} to {high} units" if low < high else f"{low} unit{'' if low == 1 else 's'}"
    if run.n_items == 1:
        return f"1 item, {units}"
    videos = "1 video" if run.n_videos == 1 else f"{run.n_videos} videos"
    return f"{run.n_items} items of {videos}, {units} each"


def two_panel_caption(runs: Sequence[DriftCurves], band_kind: BandKind) -> str:
    """What the bands, the ranking, the markers and the strip mean."""
    parts = [f"Shaded: {_BAND_NAMES[band_kind]}.", *_embeddings(runs)]
    roads = {run.pooling for run in runs}
    if len(roads) == 1:
        parts.append(f"Units are ranked {_POOLING_NAMES[roads.pop()]}.")
    else:
        told = [f"run {n}: {_POOLING_NAMES[run.pooling]}" for n, run in enumerate(runs, 1)]
        parts.append(f"Units are ranked differently ({'; '.join(told)}).")
    if any(is_defined(metric) for run in runs for metric in run.unit_fraction.values()):
        parts.append(
            "Markers: mean over items of the smallest fraction of whole units that holds 50, 80, 90% "
            "(bar: 95% interval); with few units they lie right of the curve."
        )
    if any(is_defined(run.redundancy_preference) for run in runs):
        parts.append(
            "Redundancy preference: attention-weighted minus plain mean cosine; "
            "null: attention shifted circularly in time."
        )
    return " ".join(parts)


def _embeddings(runs: Sequence[DriftCurves]) -> list[str]:
    """Which embeddings the cosines are of, where the runs tell."""
    told = list(dict.fromkeys(run.feature for run in runs))
    if told == [""]:
        return []
    if len(told) == 1:
        return [f"Cosines are of the embeddings {told[0]}."]
    each = "; ".join(f"run {n}: {run.feature or 'unknown'}" for n, run in enumerate(runs, 1))
    return [f"Cosines are of different embeddings ({each})."]


def comparison_caption(runs: Sequence[DriftCurves], band_kind: BandKind) -> str:
    """What the similarity panel shows, then the caption of the panels it shares with one run's figure."""
    told = (
        "Unit similarity: mean cosine of pairs of temporal units of one video. Patch similarity: mean cosine "
        "of patches to the same place in the last keyframe (the most attended units). Bars: 95% interval, "
        "videos resampled; hollow: no interval."
    )
    return f"{told} {two_panel_caption(runs, band_kind)}"


def time_caption(runs: Sequence[DriftCurves], band_kind: BandKind) -> str:
    """What the bands mean, and what is not there to be seen."""
    shaded = f"Shaded: {_BAND_NAMES[band_kind]}." if len(runs) <= MAX_TIME_BANDS else "Means over items."
    return shaded if any(run.evidence is not None for run in runs) else f"{shaded} No evidence was shown."
