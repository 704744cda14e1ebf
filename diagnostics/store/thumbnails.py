"""Small JPEGs of what was shown, saved while the frames are at hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from diagnostics.store.atomic import publish

__all__ = ["LONG_SIDE", "write_thumbnails"]

LONG_SIDE = 160
"""Length of a thumbnail's longer side in pixels; smaller pictures stay as they are."""

_QUALITY = 80


def write_thumbnails(
    folder: Path,
    frames: UInt8[np.ndarray, "frame height width 3"],
    indices: Sequence[int],
    *,
    shard: int = 0,
) -> list[Path]:
    """Write `<index>.jpg` for each frame into `folder`, which is made.

    They illustrate and prove nothing, so the disk is not waited for.

    Args:
        folder: the pair's own folder.
        frames: RGB pictures.
        indices: what names each: the position of its slot in the selection.
        shard: see `atomic.publish`.

    Raises:
        ValueError: there are not as many indices as frames, or an index occurs twice or is negative.
    """
    numbers = [int(index) for index in indices]
    if len(numbers) != len(frames) or len(set(numbers)) != len(numbers) or min(numbers, default=0) < 0:
        raise ValueError(f"{len(frames)} frames need as many different indices, not {numbers}")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:05d}.jpg" for number in numbers]
    for path, frame in zip(paths, frames, strict=True):
        picture = Image.fromarray(np.ascontiguousarray(frame))
        picture.thumbnail((LONG_SIDE, LONG_SIDE), Image.Resampling.BILINEAR, reducing_gap=2.0)
        with publish(path, shard=shard, durable=False) as temporary:
            picture.save(temporary, format="JPEG", quality=_QUALITY)
    return paths
