"""Videos with a tone in them, written on the spot."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np

__all__ = ["sounding_video"]

_RATE = 44_100


def sounding_video(path: Path, seconds: int, *, sound: bool = True, hertz: float = 440.0) -> Path:
    """Noise of 96 x 64 pixels, ten pictures a second, and a tone beside it.

    Args:
        sound: leave the tone out where False.
    """
    generator = np.random.default_rng(0)
    with av.open(str(path), "w") as container:
        video = container.add_stream("mpeg4", rate=10)
        video.width, video.height = 96, 64
        audio = container.add_stream("aac", rate=_RATE) if sound else None
        for number in range(10 * seconds):
            picture = av.VideoFrame.from_ndarray(generator.integers(0, 256, (64, 96, 3), dtype=np.uint8))
            picture.pts, picture.time_base = number, Fraction(1, 10)
            container.mux(video.encode(picture))
        container.mux(video.encode(None))
        if audio is not None:
            tone = 0.3 * np.sin(2 * np.pi * hertz * np.arange(seconds * _RATE) / _RATE)
            for first in range(0, len(tone), 1024):
                part = tone[None, first : first + 1024].astype(np.float32)
                frame = av.AudioFrame.from_ndarray(part, format="fltp", layout="mono")
                frame.sample_rate, frame.pts, frame.time_base = _RATE, first, Fraction(1, _RATE)
                container.mux(audio.encode(frame))
            container.mux(audio.encode(None))
    return path
