"""The sound of a file: what is heard, at the rate asked for, in the time of the pictures."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from scipy import signal

from diagnostics.errors import DamagedVideoError, EmptyVideoError, MissingVideoError
from diagnostics.video.sound import read_sound

RATE = 44_100


def tone(seconds: float, hertz: float, rate: int = RATE) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)).astype(np.float32)


def write(
    path: Path, left: np.ndarray, right: np.ndarray, *, sound_at: float = 0.0, pictures: bool = True
) -> Path:
    """A file with stereo sound that begins at a time, beside two seconds of pictures that begin at 0."""
    with av.open(str(path), "w") as container:
        video = container.add_stream("mpeg4", rate=10) if pictures else None
        audio = container.add_stream("pcm_s16le" if path.suffix in (".wav", ".mkv") else "aac", rate=RATE)
        audio.layout = "stereo"
        if video is not None:
            video.width = video.height = 64
            for number in range(20):
                picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))
                picture.pts, picture.time_base = number, Fraction(1, 10)
                container.mux(video.encode(picture))
            container.mux(video.encode(None))
        both = (np.stack([left, right]) * 32767).astype(np.int16)
        for first in range(0, both.shape[1], 1024):
            part = np.ascontiguousarray(both[:, first : first + 1024].T.reshape(1, -1))
            frame = av.AudioFrame.from_ndarray(part, format="s16", layout="stereo")
            frame.sample_rate, frame.time_base = RATE, Fraction(1, RATE)
            frame.pts = first + round(sound_at * RATE)
            container.mux(audio.encode(frame))
        container.mux(audio.encode(None))
    return path


def test_channels_are_mixed_and_resampled(tmp_path: Path) -> None:
    """The road is scipy's polyphase resampling of the mean of the channels."""
    left, right = tone(2.0, 440), tone(2.0, 1_500)
    found = read_sound(write(tmp_path / "a.mkv", left, right), 16_000)
    assert found is not None
    assert found.dtype == np.float32
    expected = signal.resample_poly((left + right) / 2, 160, 441)
    assert abs(len(found) - len(expected)) <= 32
    middle = slice(4_000, 28_000)
    assert np.abs(found[middle] - expected[middle]).max() < 5e-3
    again = read_sound(tmp_path / "a.mkv", 16_000)
    assert again is found  # the questions of a video follow one another


@pytest.mark.parametrize("sound_at", [0.0, 0.5])
def test_time_is_that_of_the_pictures(tmp_path: Path, sound_at: float) -> None:
    found = read_sound(write(tmp_path / "a.mkv", tone(1.0, 440), tone(1.0, 440), sound_at=sound_at), 16_000)
    assert found is not None
    loud = np.flatnonzero(np.abs(found) > 0.05)
    assert loud[0] / 16_000 == pytest.approx(sound_at, abs=0.01)
    assert len(found) / 16_000 == pytest.approx(1.0 + sound_at, abs=0.01)


def test_a_sound_file_and_a_silent_video(tmp_path: Path) -> None:
    found = read_sound(write(tmp_path / "a.wav", tone(1.0, 440), tone(1.0, 440), pictures=False), 16_000)
    assert found is not None
    assert len(found) == pytest.approx(16_000, abs=32)
    with av.open(str(tmp_path / "silent.mkv"), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 64
        container.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))))
        container.mux(stream.encode(None))
    assert read_sound(tmp_path / "silent.mkv", 16_000) is None


def test_what_cannot_be_heard_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingVideoError):
        read_sound(tmp_path / "nothing.mp4", 16_000)
    (tmp_path / "empty.mp4").touch()
    with pytest.raises(EmptyVideoError):
        read_sound(tmp_path / "empty.mp4", 16_000)
    (tmp_path / "text.mp4").write_text("no video at all, nor sound\n" * 40)
    with pytest.raises(DamagedVideoError, match="sound cannot be decoded"):
        read_sound(tmp_path / "text.mp4", 16_000)
