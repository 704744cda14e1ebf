"""What a prompt gets wrong about time without any error: found in the inputs, and said.

The most common silent faults in reports about video models: temporal positions that several units share
though their frames differ in time, a sampling rate that got lost on the way to the processor, a written time
that is not that of the frames behind it, positions past those the model was trained on. All are found from
what the processor returned and the frames that were meant, for every family alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from hooks.errors import CaptureError
from hooks.families import Family, Kind, Shown
from hooks.layout import Layout
from hooks.token_map import TokenMap

__all__ = ["layout_faults"]

_ROUNDED = 0.0501
"""Seconds by which a time written with one decimal may differ."""
_CUT = 1.0
"""Seconds by which a time written in whole seconds may lie before its frames."""
_SPACING = 0.05
"""Share by which a told spacing may differ: rates are rounded on the way."""
_NAMED = 3


def layout_faults(
    family: Family,
    model: Any,
    inputs: Mapping[str, Any],
    tokens: TokenMap | Layout,
    shown: Shown | Sequence[Shown],
    *,
    trained_positions: int | None = None,
) -> list[str]:
    """What the prompt misstates about its videos' times, each `kind: details`; none where all is well.

    - `shared_positions`: units of a video have one temporal rotary position, though their frames differ in
      time.
    - `shared_times`: the same time is written before units whose frames differ in time.
    - `fps_lost`: the spacing that the model is told is not that of the frames.
    - `marker_mismatch`: the time written before a unit is not that of its frames.
    - `positions_past_training`: the largest position lies past those of training.

    Args:
        family: of the model.
        inputs: one prompt, as the processor returned it, with `position_ids` where they are given.
        tokens: its map, built with `n_frames`.
        shown: what each of its videos shows, in prompt order.
        trained_positions: how many the model was trained on; None asks nothing of them.

    Raises:
        CaptureError: not one `shown` for each video.
    """
    videos = _videos(tokens)
    given = [shown] if not isinstance(shown, Sequence) else list(shown)
    if len(given) != len(videos):
        raise CaptureError(
            f"{len(given)} selections were given for {len(videos)} videos.", remedy="Give one for each video."
        )
    positions = family.model_positions(model, inputs)
    found: list[str] = []
    for units, one in zip(videos, given, strict=True):
        spans = _spans(tokens.unit_slots[units], np.asarray(one.shown_seconds, dtype=np.float64))
        told = tokens.unit_shown_seconds[units]
        if len(positions) > 1:
            axis = positions[0].reshape(-1).cpu().numpy()
            found += _shared(axis[_first_positions(tokens, units)], spans)
        if family.tells_time:
            found += _mistold(told, spans, _CUT if family.whole_seconds(model) else _ROUNDED)
        elif np.isfinite(told).all() and len(units) > 1:
            found += _lost_rate(told, spans, len(one), 1 / one.source_fps)
    largest = int(positions.max())
    if trained_positions is not None and largest >= trained_positions:
        found.append(
            f"positions_past_training: the largest position is {largest}, the model was trained up to"
            f" {trained_positions}"
        )
    return found


def _videos(tokens: TokenMap | Layout) -> list[Int[np.ndarray, " unit"]]:
    """The units of each video, in prompt order."""
    moving = np.unique(tokens.unit[tokens.kind == Kind.VIDEO])
    sources = tokens.unit_source[moving]
    return [moving[sources == source] for source in np.unique(sources)]


def _first_positions(tokens: TokenMap | Layout, units: Int[np.ndarray, " unit"]) -> Int[np.ndarray, " unit"]:
    """Where each unit's first visual token stands."""
    visual = np.flatnonzero(tokens.kind == Kind.VIDEO)
    return visual[np.searchsorted(tokens.unit[visual], units)]


def _spans(
    slots: Int[np.ndarray, "unit slot"], seconds: Float[np.ndarray, " frame"]
) -> Float[np.ndarray, "unit 2"]:
    """The earliest and the latest time of the frames of each unit."""
    own = np.where(slots >= 0, seconds[np.maximum(slots, 0)], np.nan)
    return np.stack([np.nanmin(own, axis=1), np.nanmax(own, axis=1)], axis=1)


def _differ(spans: Float[np.ndarray, "unit 2"]) -> np.ndarray:
    """Which neighbouring units show other times."""
    return (np.diff(spans, axis=0) != 0).any(axis=1)


def _shared(temporal: np.ndarray, spans: Float[np.ndarray, "unit 2"]) -> list[str]:
    same = np.flatnonzero((np.diff(temporal) == 0) & _differ(spans))
    if not len(same):
        return []
    return [
        f"shared_positions: {len(same)} of {len(temporal) - 1} pairs of neighbouring temporal units have one"
        f" temporal position, though their frames differ in time: the first are units {same[0]} and"
        f" {same[0] + 1}"
    ]


def _mistold(told: Float[np.ndarray, " unit"], spans: Float[np.ndarray, "unit 2"], cut: float) -> list[str]:
    """Times written before units: those of other frames, and the same for several.

    Args:
        cut: seconds by which a time may lie before its frames.
    """
    early = told < spans[:, 0] - cut
    late = told > spans[:, 1] + _ROUNDED
    found = []
    wrong = np.flatnonzero(early | late | np.isnan(told))
    if len(wrong):
        told_of = ", ".join(
            f"unit {unit} is told {told[unit]:g} s and shows {spans[unit, 0]:.1f} to {spans[unit, 1]:.1f} s"
            for unit in wrong[:_NAMED]
        )
        found.append(
            f"marker_mismatch: {len(wrong)} of {len(told)} written times are not the frames': {told_of}"
        )
    same = np.flatnonzero((np.diff(told) == 0) & _differ(spans))
    if len(same):
        found.append(
            f"shared_times: {len(same)} of {len(told) - 1} pairs of neighbouring units are told the same"
            " time, though their frames differ in time"
        )
    return found


def _lost_rate(
    told: Float[np.ndarray, " unit"], spans: Float[np.ndarray, "unit 2"], frames: int, period: float
) -> list[str]:
    """One spacing for the whole video. It may be the frames' own, or the video's length over their number,
    which differs by a frame's share of it; either is off by a frame of the source where indices were rounded.
    """
    step, own = float(np.diff(told).mean()), float(np.diff(spans[:, 0]).mean())
    if own <= 0:  # shown backwards, or at one time: what the families say themselves
        return []
    least = own * (1 - 1 / frames) * (1 - _SPACING) - period
    most = own * (1 + 1 / max(1, frames - 2)) * (1 + _SPACING) + period
    if least <= step <= most:
        return []
    return [
        f"fps_lost: the model is told {step:.2f} s from unit to unit, the frames lie {own:.2f} s apart: the"
        " rate they were sampled at did not reach the processor"
    ]
