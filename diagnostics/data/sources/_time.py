"""Seconds to frames of the benchmark's video, and back.

Frame i is shown during `[i / fps, (i + 1) / fps)`. Both directions are half-open.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["to_frames", "to_seconds"]


def to_frames(spans: Iterable[tuple[float, float]], fps: float, n_frames: int) -> tuple[tuple[int, int], ...]:
    """Half-open frames of half-open seconds, in the order given: each edge goes to the nearest edge of a
    frame (a half upwards) and is clipped to the video.

    A span that falls between two such edges gets the one frame shown in its middle, since an evidence window
    of no frame is none. A span without time or wholly outside the video is left out.

    Args:
        spans: `(start, end)` in seconds.
        fps: of the video, above 0.
        n_frames: of the video.

    Raises:
        ValueError: `fps` is not a positive number.
    """
    if not (math.isfinite(fps) and fps > 0):
        raise ValueError(f"fps is {fps}, not a positive number")
    found = []
    for start, end in spans:
        if end <= start:
            continue
        first, stop = math.floor(start * fps + 0.5), math.floor(end * fps + 0.5)
        if first == stop:
            first = math.floor((start + end) / 2 * fps)
            stop = first + 1
        first, stop = max(first, 0), min(stop, n_frames)
        if first < stop:
            found.append((first, stop))
    return tuple(found)


def to_seconds(spans: Iterable[tuple[int, int]], fps: float) -> tuple[tuple[float, float], ...]:
    """Half-open seconds of half-open frames, in the order given.

    Raises:
        ValueError: `fps` is not a positive number.
    """
    if not (math.isfinite(fps) and fps > 0):
        raise ValueError(f"fps is {fps}, not a positive number")
    return tuple((first / fps, end / fps) for first, end in spans)
