"""Qwen's rule for the size of a picture, written down once more for tests to compare with."""

from __future__ import annotations

import math

__all__ = ["resized"]


def resized(frames: int, height: int, width: int, *, factor: int, limits: tuple[int, int]) -> tuple[int, int]:
    """Height and width in pixels after resizing: multiples of `factor`, whose area keeps within `limits`.

    Args:
        frames: 1 where the limits are for each frame (Qwen2.5-VL); the number given where they are for the
            whole video (Qwen3-VL), which compares a number rounded to pairs, half to even.
        height, width: of the frames, in pixels.
        factor: pixels along each side of a merged patch.
        limits: least and most pixels.
    """
    low, high = limits
    counted = frames if frames == 1 else round(frames / 2) * 2
    tall, wide = (max(factor, round(side / factor) * factor) for side in (height, width))
    if counted * tall * wide > high:
        scale = math.sqrt(frames * height * width / high)
        tall, wide = (max(factor, math.floor(side / scale / factor) * factor) for side in (height, width))
    elif counted * tall * wide < low:
        scale = math.sqrt(low / (frames * height * width))
        tall, wide = (math.ceil(side * scale / factor) * factor for side in (height, width))
    return tall, wide
