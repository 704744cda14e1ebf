"""Which frames a video shows and when: the index every reader and sampler works from.

A frame's number is its place in the order of presentation, counting only frames that are shown:
what an edit list trims away has no number. The index comes from the packets alone (an MP4's sample
table, or demuxing at some two microseconds a packet) plus the decoding of the first picture, which
tells size, rotation, and whether the stream's first frames can be decoded at all.

Where packets carry no times to rely on, the index is counted by decoding the whole file in order
(`reliable=False`): AVI and raw streams (times are made up by FFmpeg, differently after a seek),
missing times, and two frames with one time. Such a file costs one full decode to open and one to
read. Why no existing reader is used for this: research note `video-io-faults`, section 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from jaxtyping import Float, Int

from diagnostics.errors import (
    DamagedVideoError,
    EmptyVideoError,
    FrameCountError,
    MissingVideoError,
    TruncatedVideoError,
)
from diagnostics.video.decoding import frames_in_order, open_stream, shown_rotation
from diagnostics.video.scanning import Scan, is_timeless, scan_packets, scan_table
from diagnostics.video.structure import missing_bytes

__all__ = ["VideoIndex", "check_indices", "open_index", "size_within"]

_SEEKS_BY_SHOWN_TIME = {"mov", "matroska"}
"""FFmpeg demuxers that, asked for a key frame's presentation time, land on it. Asked for its decoding
time, MP4 lands one key frame earlier; the others (MPEG-TS) land on it only so."""


@dataclass(frozen=True, eq=False, slots=True)
class VideoIndex:
    """The shown frames of one file, in order of presentation.

    Attributes:
        path: the file.
        pts: presentation time of each frame in units of `time_base`, strictly increasing. The number
            of the frame where the file has no reliable times.
        time_base: seconds per unit of `pts`.
        seconds: presentation time of each frame in seconds, from the first shown frame.
        fps: average frame rate: frames divided by `duration`.
        duration: seconds from the first frame to the end of the last.
        width, height: of the upright picture in pixels, after rotation.
        rotation: degrees anticlockwise by which decoded pictures are turned to be upright.
        codec: FFmpeg's name of the codec.
        container: FFmpeg's name of the container format.
        reliable: `pts` can be used to seek and to recognise a frame.
        key_pts: `pts` of the frames at which decoding can start; empty where not `reliable`.
        key_seek: what to ask the demuxer for in order to land on each of them.
        open_gop: some pictures shown before a key frame depend on the pictures before it.
        header_frames: the number of frames the header claims; 0 where it claims none.
    """

    path: str
    pts: Int[np.ndarray, " frame"]
    time_base: Fraction
    seconds: Float[np.ndarray, " frame"]
    fps: float
    duration: float
    width: int
    height: int
    rotation: int
    codec: str
    container: str
    reliable: bool
    key_pts: Int[np.ndarray, " key"]
    key_seek: Int[np.ndarray, " key"]
    open_gop: bool
    header_frames: int

    @property
    def n_frames(self) -> int:
        """How many frames the file shows."""
        return len(self.pts)


def open_index(path: str | Path) -> VideoIndex:
    """Index the frames of a video file.

    Raises:
        MissingVideoError: there is no such file, or it may not be read.
        EmptyVideoError: it holds zero bytes.
        NoVideoStreamError: it holds no video.
        TruncatedVideoError: its container says that bytes are missing at the end.
        DamagedVideoError: it cannot be opened, or its first picture cannot be decoded (any picture,
            where the file has to be counted by decoding).
    """
    path = Path(path)
    _check_present(path)
    absent = missing_bytes(path)
    if absent:
        raise TruncatedVideoError(
            f"it is cut short: at least {absent:,} bytes are missing.",
            remedy="Copy or download it again.",
            path=path,
        )
    for from_table in (True, False):
        with open_stream(path) as (container, stream):
            scan = (
                scan_table(path, container, stream) if from_table else scan_packets(path, container, stream)
            )
            if scan is not None:
                return _index_by_times(path, container, stream, scan)
    return _index_by_decoding(path)


def check_indices(index: VideoIndex, indices: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """`indices` as int64, each a frame that the file holds.

    Raises:
        FrameCountError: one of them is negative or past the last frame.
    """
    wanted = np.asarray(indices, dtype=np.int64).reshape(-1)
    outside = wanted[(wanted < 0) | (wanted >= index.n_frames)]
    if len(outside):
        claim = f" though its header claims {index.header_frames}" if _overclaims(index) else ""
        raise FrameCountError(
            f"frame {outside[0]} was asked for, but it holds {index.n_frames} frames{claim}.",
            remedy=f"Choose frames from 0 to {index.n_frames - 1}.",
            path=index.path,
        )
    return wanted


def size_within(index: VideoIndex, max_side: int | None) -> tuple[int, int]:
    """Height and width of the pictures, the longer side at most `max_side` pixels, aspect kept.

    None, or a picture that is small enough, leaves the native size.
    """
    longer = max(index.height, index.width)
    if max_side is None or longer <= max_side:
        return index.height, index.width
    return (
        max(1, round(index.height * max_side / longer)),
        max(1, round(index.width * max_side / longer)),
    )


def _overclaims(index: VideoIndex) -> bool:
    return index.header_frames > index.n_frames


def _check_present(path: Path) -> None:
    if not path.is_file():
        raise MissingVideoError(
            "it is a folder." if path.is_dir() else "there is no such file.",
            remedy="Check the path and the data set's root.",
            path=path,
        )
    try:
        size = path.stat().st_size
        path.open("rb").close()
    except PermissionError as error:
        raise MissingVideoError("it may not be read.", remedy="Change its permissions.", path=path) from error
    if size == 0:
        raise EmptyVideoError("it holds zero bytes.", remedy="Copy or download it again.", path=path)


def _index_by_times(path: Path, container: InputContainer, stream: VideoStream, scan: Scan) -> VideoIndex:
    time_base = _time_base(stream)
    # What comes before the first decodable picture (a stream cut inside a group) is never shown.
    pts = np.sort(scan.pts[scan.shown & (scan.pts >= scan.first_pts)])
    newest_key = np.maximum.accumulate(np.where(scan.key, scan.pts, np.iinfo(np.int64).min))
    key_pts, where = np.unique(scan.pts[scan.key], return_index=True)
    key_dts = scan.dts[scan.key][where]
    gaps = np.diff(pts)
    last = scan.last_duration or (int(np.median(gaps)) if len(gaps) else _frame_ticks(stream))
    return VideoIndex(
        pts=pts,
        time_base=time_base,
        seconds=(pts - pts[0]) * float(time_base),
        duration=float((pts[-1] - pts[0] + last) * time_base),
        fps=float(len(pts) / ((pts[-1] - pts[0] + last) * time_base)),
        reliable=True,
        key_pts=key_pts,
        key_seek=key_pts if _SEEKS_BY_SHOWN_TIME & set(container.format.name.split(",")) else key_dts,
        open_gop=bool((scan.pts < newest_key).any()),
        **_description(path, container, stream, scan.first),
    )


def _index_by_decoding(path: Path) -> VideoIndex:
    """Count the frames by decoding them all, in order."""
    times: list[int | None] = []
    first: VideoFrame | None = None
    with open_stream(path) as (container, stream):
        try:
            for frame in frames_in_order(container, stream):
                first = first or frame
                times.append(frame.pts)
        except av.FFmpegError as error:
            raise DamagedVideoError(
                f"decoding fails after frame {len(times) - 1} ({error.strerror}), and without times "
                "the frames after it cannot be numbered.",
                remedy="Copy or download it again, or re-encode it.",
                path=path,
            ) from error
        if first is None:
            raise DamagedVideoError(
                "none of its pictures can be decoded.",
                remedy="Copy or download it again, or re-encode it.",
                path=path,
            )
        tick = 1 / (stream.average_rate or stream.guessed_rate or stream.base_rate or Fraction(25))
        seconds = _seconds_of(times, stream, tick, trusted=not is_timeless(container))
        duration = float(seconds[-1] + tick)
        return VideoIndex(
            pts=np.arange(len(times), dtype=np.int64),
            time_base=tick,
            seconds=seconds,
            duration=duration,
            fps=len(times) / duration,
            reliable=False,
            key_pts=np.empty(0, dtype=np.int64),
            key_seek=np.empty(0, dtype=np.int64),
            open_gop=False,
            **_description(path, container, stream, first),
        )


def _seconds_of(
    times: list[int | None], stream: VideoStream, tick: Fraction, *, trusted: bool
) -> Float[np.ndarray, " frame"]:
    """The frames' own times where every one has one and none runs back; else evenly spaced ones."""
    if trusted and None not in times:
        pts = np.array(times, dtype=np.int64)
        if (np.diff(pts) >= 0).all() and pts[-1] > pts[0]:
            return (pts - pts[0]) * float(_time_base(stream))
    return np.arange(len(times)) * float(tick)


def _description(
    path: Path, container: InputContainer, stream: VideoStream, first: VideoFrame
) -> dict[str, Any]:
    rotation = shown_rotation(first, path)
    width, height = (first.width, first.height) if rotation % 180 == 0 else (first.height, first.width)
    return {
        "path": str(path),
        "width": width,
        "height": height,
        "rotation": rotation,
        "codec": stream.codec_context.codec.canonical_name,
        "container": container.format.name,
        "header_frames": stream.frames,
    }


def _frame_ticks(stream: VideoStream) -> int:
    """Length of one frame in the stream's time base, from its nominal rate."""
    rate = stream.average_rate or stream.guessed_rate or Fraction(25)
    return max(1, round(1 / (rate * _time_base(stream))))


def _time_base(stream: VideoStream) -> Fraction:
    """Seconds per unit of the stream's times (PyAV types it as optional; opened streams have one)."""
    if stream.time_base is None:
        raise ValueError("the stream has no time base")
    return stream.time_base
