"""How a video's frames are spaced: what one spacing for all of them says, and what whole seconds do.

For families that are told one spacing, or none at all; and for those whose times are cut to whole seconds.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from hooks.families._family import Shown

__all__ = ["shared_positions", "shared_seconds", "spacing_notices", "told_spacing", "uneven_gaps"]

_UNEVEN = 0.25
"""Largest deviation of a spacing from the mean one, as a share of it, that passes as even: rounding
source indices to whole frames moves a spacing by up to one frame."""


def told_spacing(shown: Shown) -> float:
    """Seconds from slot to slot that the positions express.

    Slots spread over the whole video: its duration over their number, as every published pipeline has it
    (their own spacing, duration over number minus one, differs by less than a slot in all). Slots over
    a part of it, or under another clock: their mean spacing.
    """
    whole = shown.source_frames / shown.source_fps / len(shown)
    intervals = len(shown) - 1
    if intervals == 0:
        return whole
    seconds = shown.shown_seconds
    span = float(seconds[-1] - seconds[0])
    if span <= 0 or abs(span - whole * intervals) <= whole + 1 / shown.source_fps:
        return whole
    return span / intervals


def uneven_gaps(shown: Shown) -> Float[np.ndarray, " gap"] | None:
    """Seconds from frame to frame where they do not run forward evenly; None where they do."""
    gaps = np.diff(shown.shown_seconds)
    if not len(gaps):
        return None
    mean = float(gaps.mean())
    even = mean > 0 and np.max(np.abs(gaps - mean)) <= max(1 / shown.source_fps, _UNEVEN * mean)
    return None if even else gaps


def spacing_notices(shown: Shown) -> list[str]:
    """Where one spacing misstates the slots' times."""
    gaps = uneven_gaps(shown)
    if gaps is None:
        return []
    return [
        f"uneven_spacing: frames lie {gaps.min():.2f} to {gaps.max():.2f} s apart; this family's "
        f"temporal positions assume {told_spacing(shown):.2f} s throughout"
    ]


def shared_seconds(seconds: Float[np.ndarray, " shown"], what: str) -> list[str]:
    """Where times that differ are the same when they are cut to whole seconds.

    Args:
        seconds: the times that are written, before they are cut.
        what: they are of, for the notice.
    """
    same = int(((np.diff(np.floor(seconds)) == 0) & (np.diff(seconds) != 0)).sum())
    if not same:
        return []
    return [
        f"shared_times: {same} of {len(seconds) - 1} neighbouring {what} are told the same whole second, "
        "though their frames differ in time"
    ]


def shared_positions(shown: Shown, per_unit: int, positions_per_second: float) -> list[str]:
    """Where whole-numbered temporal positions are too coarse to tell one unit from the next.

    Args:
        per_unit: frames of a unit.
        positions_per_second: of video time.
    """
    step = per_unit * told_spacing(shown) * positions_per_second
    if len(shown) <= per_unit or step >= 1:
        return []
    return [f"shared_positions: temporal units lie {step:.2f} positions apart, so that neighbours share one"]
