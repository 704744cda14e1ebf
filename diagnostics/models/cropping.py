"""Frames of which a model sees the middle alone: the notice that says so, and the same middle of a thumbnail.

A map of such a model's tokens lies on that middle, and on nothing beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
from jaxtyping import UInt8

__all__ = ["cropped_notice", "middle", "shown_part"]

_NOTICE = re.compile(r"cropped: of (\d+)x(\d+) only the middle (\d+)x(\d+) is shown")


def cropped_notice(frame: tuple[int, int], shown: tuple[int, int]) -> list[str]:
    """The notice of frames that are not shown whole; none where they are.

    Args:
        frame: height and width.
        shown: height and width of the middle that is left.
    """
    if shown == frame:
        return []
    return [f"cropped: of {frame[1]}x{frame[0]} only the middle {shown[1]}x{shown[0]} is shown"]


def shown_part(notices: Iterable[str]) -> tuple[float, float]:
    """Shares of height and width that were shown, by a record's notices."""
    for notice in notices:
        if match := _NOTICE.fullmatch(notice):
            width, height, wide, tall = map(int, match.groups())
            return tall / height, wide / width
    return 1.0, 1.0


def middle(
    picture: UInt8[np.ndarray, "height width channel"], part: tuple[float, float]
) -> UInt8[np.ndarray, "tall wide channel"]:
    """The middle of a picture, at least one pixel.

    Args:
        part: shares of its height and width.
    """
    height, width = picture.shape[:2]
    tall, wide = (max(1, round(length * share)) for length, share in zip((height, width), part, strict=True))
    top, left = (height - tall) // 2, (width - wide) // 2
    return picture[top : top + tall, left : left + wide]
