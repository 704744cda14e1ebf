"""The sound of a video, as one channel at the rate a model listens at.

Time 0 is where the pictures begin: sound that begins later is led in by silence, sound from before the first
picture is cut. The last file read is kept, for a video's questions come one after another; an hour at 16,000
samples a second is 230 MB.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.audio.resampler import AudioResampler
from av.container import InputContainer
from jaxtyping import Float

from diagnostics.errors import DamagedVideoError, EmptyVideoError, MissingVideoError

__all__ = ["read_sound"]

_REMEDY = "Copy it again, or set model.sound=false."


def read_sound(path: Path, rate: int) -> Float[np.ndarray, " sample"] | None:
    """The file's main sound, all channels mixed to one, float32 in about -1 to 1; None where it has none.

    Args:
        path: a video, or a sound file.
        rate: samples a second.

    Raises:
        MissingVideoError: there is no such file.
        EmptyVideoError: it holds zero bytes.
        DamagedVideoError: it cannot be opened, or its sound not be decoded.
    """
    if not path.is_file():
        raise MissingVideoError(
            "there is no such file.", remedy="Check the path and the data set's root.", path=path
        )
    status = path.stat()
    if status.st_size == 0:
        raise EmptyVideoError("it holds zero bytes.", remedy="Copy or download it again.", path=path)
    return _read(path, rate, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1)
def _read(path: Path, rate: int, *changed: int) -> Float[np.ndarray, " sample"] | None:
    del changed  # what tells a file from the one that was there before
    try:
        with av.open(f"file:{path}", options={"protocol_whitelist": "file"}) as container:
            if not container.streams.audio:
                return None
            samples, start = _decode(container, rate)
            pictures = _seconds(container.streams.video[0]) if container.streams.video else start
    except (av.FFmpegError, ValueError) as error:
        raise DamagedVideoError(
            f"its sound cannot be decoded: {error}.", remedy=_REMEDY, path=path
        ) from error
    late = round((start - pictures) * rate)
    found = np.pad(samples, (late, 0)) if late > 0 else samples[-late:]
    found.flags.writeable = False
    return found


def _decode(container: InputContainer, rate: int) -> tuple[Float[np.ndarray, " sample"], float]:
    """All samples, and the time of the first."""
    stream = container.streams.audio[0]
    # Channels are kept, and averaged here as speech models' own loaders do: FFmpeg's mixing is louder.
    resampler = AudioResampler(format="fltp", rate=rate)
    parts: list[np.ndarray] = []
    start: float | None = None
    for frame in container.decode(stream):
        if start is None and frame.time is not None:
            start = frame.time
        parts += [one.to_ndarray().mean(axis=0) for one in resampler.resample(frame)]
    parts += [one.to_ndarray().mean(axis=0) for one in resampler.resample(None)]
    samples = np.concatenate(parts) if parts else np.empty(0, dtype=np.float32)
    return samples.astype(np.float32, copy=False), start or 0.0


def _seconds(stream: Any) -> float:
    """Where a stream begins; 0 where it does not say."""
    if stream.start_time is None or stream.time_base is None:
        return 0.0
    return float(stream.start_time * stream.time_base)
