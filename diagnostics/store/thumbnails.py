"""Small JPEGs of what was shown, saved while the frames are at hand.

They are what a person sees of a run afterwards, since no video is decoded again. Their number and their
weight are bounded, whatever the length of the video.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from diagnostics.store.atomic import publish

__all__ = ["LARGEST", "LONG_SIDE", "film_slots", "write_thumbnails"]

LONG_SIDE = 160
"""Length of a thumbnail's longer side in pixels; smaller pictures stay as they are."""

LARGEST = 12 * 1024
"""Bytes of one thumbnail at most: one that is heavier is kept at a lower quality, or at half the size."""

_QUALITIES = (80, 50, 25)


def film_slots(evidence: Bool[np.ndarray, " slot"], at_most: int, *, per_unit: int = 1) -> list[int]:
    """Slots that make a film strip of so many pictures at most, in their order.

    All slots, where there are no more. Else one of each temporal unit; where even these are too many, units
    of evidence, evenly spread, up to half of the strip, and units evenly spread over all for the rest.

    Args:
        evidence: which slots show evidence; a unit is shown by the first of its slots that does.
        at_most: pictures.
        per_unit: slots of a temporal unit.
    """
    if len(evidence) <= at_most:
        return list(range(len(evidence)))
    starts = np.arange(0, len(evidence), per_unit)
    units = [evidence[start : start + per_unit] for start in starts]
    slots = starts + np.array([int(np.argmax(unit)) for unit in units])
    if len(slots) <= at_most:
        return [int(slot) for slot in slots]
    holds = np.array([bool(unit.any()) for unit in units])
    taken = _spread(np.flatnonzero(holds), at_most // 2)
    left = np.setdiff1d(np.arange(len(slots)), taken)
    taken = np.sort(np.concatenate([taken, _spread(left, at_most - len(taken))]))
    return [int(slot) for slot in slots[taken]]


def _spread(places: np.ndarray, at_most: int) -> np.ndarray:
    """So many of the places at most, evenly spread from the first to the last."""
    count = min(at_most, len(places))
    return places[np.linspace(0, len(places) - 1, count).round().astype(np.int64)] if count else places[:0]


def write_thumbnails(
    folder: Path,
    frames: Iterable[UInt8[np.ndarray, "height width 3"]],
    indices: Sequence[int],
    *,
    shard: int = 0,
) -> list[Path]:
    """Write `<index>.jpg` for each frame into `folder`, which is made.

    They illustrate and prove nothing, so the disk is not waited for.

    Args:
        folder: the pair's own folder.
        frames: RGB pictures, as many as indices.
        indices: what names each: the position of its slot in the selection.
        shard: see `atomic.publish`.

    Raises:
        ValueError: there are not as many indices as frames, or an index occurs twice or is negative.
    """
    numbers, pictures = [int(index) for index in indices], list(frames)
    if len(numbers) != len(pictures) or len(set(numbers)) != len(numbers) or min(numbers, default=0) < 0:
        raise ValueError(f"{len(pictures)} frames need as many different indices, not {numbers}")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:05d}.jpg" for number in numbers]
    for path, picture in zip(paths, pictures, strict=True):
        with publish(path, shard=shard, durable=False) as temporary:
            temporary.write_bytes(_encoded(picture))
    return paths


def _encoded(frame: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """The frame as a small JPEG of `LARGEST` bytes at most."""
    picture = Image.fromarray(np.ascontiguousarray(frame))
    picture.thumbnail((LONG_SIDE, LONG_SIDE), Image.Resampling.BILINEAR, reducing_gap=2.0)
    for quality in _QUALITIES:
        if len(told := _jpeg(picture, quality)) <= LARGEST:
            return told
    return _jpeg(picture.reduce(2), _QUALITIES[-1])


def _jpeg(picture: Image.Image, quality: int) -> bytes:
    told = io.BytesIO()
    picture.save(told, format="JPEG", quality=quality)
    return told.getvalue()
