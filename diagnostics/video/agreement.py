"""Whether another reader means the same frames as the index: refuse rather than show wrong pictures."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from diagnostics.errors import InexactReaderError
from diagnostics.video.index import VideoIndex

__all__ = ["refuse_known_inexact", "require_same_frames", "require_same_size"]

_INEXACT_CONTAINERS = {"mpegts", "mpeg"}


def refuse_known_inexact(reader: str, index: VideoIndex) -> None:
    """Refuse kinds of files from which `reader` was seen to return other frames than asked for.

    Raises:
        InexactReaderError: the container is MPEG-TS or MPEG-PS, has no reliable times (AVI, raw), or, for
            decord, the stream has open groups of pictures.
    """
    reasons = []
    if not index.reliable:
        reasons.append("it has no reliable presentation times")
    if _INEXACT_CONTAINERS & set(index.container.split(",")):
        reasons.append(f"its container is {index.container}")
    if reader == "decord" and index.open_gop:
        reasons.append("it has open groups of pictures")
    if reasons:
        raise InexactReaderError(
            f"{reader} is known to return wrong frames from such a file: {' and '.join(reasons)}.",
            remedy="Use reader=pyav, or re-encode it to H.264 in MP4.",
            path=index.path,
        )


def require_same_frames(
    reader: str,
    index: VideoIndex,
    n_frames: int,
    seconds: Float[np.ndarray, " n"],
    numbers: Int[np.ndarray, " n"],
) -> None:
    """Compare a reader's frame count, and its times of the frames `numbers`, with the index.

    Args:
        n_frames: how many frames the reader says there are.
        seconds: its times of the frames `numbers`, from the first frame.

    Raises:
        InexactReaderError: they differ, times by half the shortest distance of two frames or more.
    """
    if n_frames != index.n_frames:
        raise InexactReaderError(
            f"{reader} counts {n_frames} frames, but {index.n_frames} are shown.",
            remedy="Use reader=pyav.",
            path=index.path,
        )
    tolerance = np.diff(index.seconds).min() / 2 if index.n_frames > 1 else np.inf
    off = np.abs(seconds - index.seconds[numbers])
    if len(off) and off.max() >= tolerance:
        worst = int(off.argmax())
        raise InexactReaderError(
            f"{reader} shows frame {numbers[worst]} at {seconds[worst]:.3f} s, but its time is "
            f"{index.seconds[numbers[worst]]:.3f} s.",
            remedy="Use reader=pyav.",
            path=index.path,
        )


def require_same_size(
    reader: str, index: VideoIndex, size: tuple[int, ...], expected: tuple[int, int] | None = None
) -> None:
    """Compare a reader's picture size (height, width) with the index's, or with `expected`.

    Raises:
        InexactReaderError: they differ.
    """
    height, width = expected or (index.height, index.width)
    if tuple(size) != (height, width):
        raise InexactReaderError(
            f"{reader} gives pictures of {size[1]}x{size[0]}, but they are {width}x{height}.",
            remedy="Use reader=pyav.",
            path=index.path,
        )
