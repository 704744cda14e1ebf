"""One pass over a file's packets: when each is shown, where decoding can start, what comes out first.

Two roads to the same table: demuxing every packet, or an MP4's own sample table
(`diagnostics.video.sample_table`), which leaves the film itself unread.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import av
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from jaxtyping import Bool, Int

from diagnostics.errors import DamagedVideoError, TruncatedVideoError
from diagnostics.video.sample_table import Rows, table_rows

__all__ = ["Scan", "is_timeless", "scan_packets", "scan_table"]

_TIMELESS = {"avi", "h264", "hevc", "av1", "obu", "m4v", "mpegvideo", "vc1", "mjpeg", "ivf", "dv", "rawvideo"}
"""FFmpeg demuxers whose times are made up from a frame rate, or not to be found again after a seek."""

_BROADCAST = {"mpegts", "mpeg", "flv", "live_flv"}
"""Demuxers of streams that one may join in the middle, and that lose bytes on the way: what comes before
the first key frame is passed over, and a packet marked as corrupt is not the end."""

_VP8_SHOWN = 0x10
"""Bit of a VP8 frame's first byte that says it is shown (RFC 6386, section 9.1)."""


class Scan(NamedTuple):
    """What the packets say, one entry a packet, in the order of decoding.

    Attributes:
        pts, dts: presentation and decoding time in the stream's time base.
        key: decoding can start here.
        shown: the packet's picture is shown (not cut away by an edit list, not hidden).
        last_duration: of the packet that is shown last; 0 where unknown.
        first: the first picture the decoder gives.
        first_pts: its presentation time.
    """

    pts: Int[np.ndarray, " packet"]
    dts: Int[np.ndarray, " packet"]
    key: Bool[np.ndarray, " packet"]
    shown: Bool[np.ndarray, " packet"]
    last_duration: int
    first: VideoFrame
    first_pts: int


def is_timeless(container: InputContainer) -> bool:
    """Whether the format carries no presentation times that can be relied on."""
    return bool(_TIMELESS & set(container.format.name.split(",")))


def scan_packets(path: Path, container: InputContainer, stream: VideoStream) -> Scan | None:
    """Demux the whole file. None where a time is missing or two pictures have the same.

    Raises:
        TruncatedVideoError: the data ends in the middle of a picture.
        DamagedVideoError: the first picture cannot be decoded.
    """
    if is_timeless(container):
        return None
    rows: list[tuple[int, int, int, bool, bool]] = []
    start = _Start(path, container, stream)
    for packet, row in _rows(path, container, stream):
        if row is None:
            return None
        rows.append(row)
        if start.first is None:
            start.feed(packet)
    start.finish()
    return _scan(np.array(rows, dtype=np.int64).reshape(-1, 5), start.first)


def scan_table(path: Path, container: InputContainer, stream: VideoStream) -> Scan | None:
    """Demux only up to the first picture and take the rest from an MP4's sample table.

    None where there is no such table, or it cannot be trusted.

    Raises:
        DamagedVideoError: the first picture cannot be decoded.
    """
    if "mov" not in container.format.name.split(","):
        return None
    head: list[tuple[int, int, int, bool, bool]] = []
    start = _Start(path, container, stream)
    for packet, row in _rows(path, container, stream):
        if row is None:
            return None
        head.append(row)
        start.feed(packet)
        if start.first is not None:
            break
    start.finish()
    rows = table_rows(path, container, stream, np.array(head, dtype=np.int64).reshape(-1, 5))
    return None if rows is None else _scan(rows, start.first)


class _Start:
    """Decodes until the first picture comes."""

    def __init__(self, path: Path, container: InputContainer, stream: VideoStream) -> None:
        self.first: VideoFrame | None = None
        self._path, self._decoder = path, stream.codec_context
        self._joinable = container.format.name in _BROADCAST
        self._key: int | None = None

    def feed(self, packet: Packet) -> None:
        """Decode one packet.

        In a stream joined in the middle, packets before the first key frame are not shown by any
        player; pictures shown before the key frame but stored after it may depend on those, and fail.

        Raises:
            DamagedVideoError: the first key frame, or what follows it, cannot be decoded.
        """
        if self._key is None and packet.is_keyframe:
            self._key = packet.pts
        if self._key is None:
            if self._joinable:
                return
            raise self._damaged("decoding cannot start from it")
        try:
            self.first = next(iter(self._decoder.decode(packet)), None)
        except av.FFmpegError as error:
            if packet.pts is None or packet.pts >= self._key:
                raise self._damaged(str(error.strerror)) from error

    def finish(self) -> None:
        """Take what the decoder still holds, where no picture came yet."""
        if self.first is None:
            self.first = next(iter(self._decoder.decode(None)), None)

    def _damaged(self, reason: str) -> DamagedVideoError:
        return DamagedVideoError(
            f"its first picture cannot be decoded ({reason}).",
            remedy="Copy or download it again, or re-encode it.",
            path=self._path,
        )


def _rows(
    path: Path, container: InputContainer, stream: VideoStream
) -> Iterator[tuple[Packet, tuple[int, int, int, bool, bool] | None]]:
    """Each packet and its row of the table; None where it has no presentation time."""
    may_hide = stream.codec_context.name == "vp8"
    lossy = container.format.name in _BROADCAST
    for packet in container.demux(stream):
        if packet.size == 0:
            continue
        pts, dts = packet.pts, packet.dts
        if pts is None:
            yield packet, None
            continue
        if packet.is_corrupt and not lossy:
            raise TruncatedVideoError(
                f"it ends in the middle of a picture (time {pts} in units of {stream.time_base} s).",
                remedy="Copy or download it again.",
                path=path,
            )
        hidden = packet.is_discard or (may_hide and not bytes(packet)[0] & _VP8_SHOWN)
        yield packet, (pts, pts if dts is None else dts, packet.duration or 0, packet.is_keyframe, not hidden)


def _scan(rows: Rows, first: VideoFrame | None) -> Scan | None:
    pts, dts, duration = rows[:, 0], rows[:, 1], rows[:, 2]
    key, shown = rows[:, 3].astype(bool), rows[:, 4].astype(bool)
    if first is None or first.pts is None or first.pts not in pts[shown]:
        return None
    # Sorted, since `np.unique` hashes: 40 times slower at millions of pictures.
    if (np.diff(np.sort(pts[shown])) == 0).any():
        return None
    last = int(np.argmax(np.where(shown, pts, pts.min())))
    return Scan(pts, dts, key, shown, int(duration[last]), first, first.pts)
