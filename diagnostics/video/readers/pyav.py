"""The exact reader: PyAV, by index, one seek a group of pictures.

A frame is accepted only when its presentation time equals the wanted one. Where a seek lands too
late, or the picture does not come, the reader backs off to an earlier key frame (at most
`MAX_BACK_OFF` times) and at last decodes the file from its start. Files without reliable times are
decoded from the start at once, counting.

Three things make it fast without making it inexact. Each group is left at its last wanted frame.
Only wanted frames are converted to RGB. In H.264, pictures that no other picture refers to
(nal_ref_idc 0, typically half of them) are not decoded unless wanted; other codecs' "non-reference"
marks mean less (HEVC's is per temporal layer), so there every picture is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import av
import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream
from jaxtyping import Int, UInt8

from diagnostics.errors import DamagedVideoError, FrameCountError
from diagnostics.video.decoding import draw, frames_in_order, open_stream
from diagnostics.video.index import VideoIndex

__all__ = ["MAX_BACK_OFF", "read"]

MAX_BACK_OFF = 4
"""How many earlier key frames are tried before the file is decoded from its start."""

_SKIPS_UNREFERENCED = {"h264"}


def read(
    index: VideoIndex, indices: Int[np.ndarray, " n"], out: UInt8[np.ndarray, "n h w 3"], threads: int = 1
) -> None:
    """Fill `out` with the frames at `indices`. See `diagnostics.video.readers`.

    Args:
        threads: groups of pictures decoded at a time (decoders release the GIL).

    Raises:
        DamagedVideoError: a wanted frame cannot be decoded from any key frame.
        FrameCountError: a file without reliable times ended before a wanted frame.
    """
    if not len(indices):
        return
    if not index.reliable:
        _read_counting(index, _places(np.asarray(indices)), out)
        return
    groups = _groups(index, np.asarray(indices))
    parts = np.array_split(np.arange(len(groups)), min(max(threads, 1), len(groups)))
    if len(parts) == 1:
        _read_groups(index, groups, out)
        return
    with ThreadPoolExecutor(len(parts)) as pool:
        done = [pool.submit(_read_groups, index, [groups[i] for i in part], out) for part in parts]
        for future in done:
            future.result()


@dataclass
class _Group:
    """The wanted frames that follow one key frame."""

    key: int
    """Position of the key frame in `index.key_pts`; -1 where none precedes."""
    wanted: dict[int, list[int]] = field(default_factory=dict)
    """Presentation time of each wanted frame and its places in `out`."""


def _places(numbers: Int[np.ndarray, " n"]) -> dict[int, list[int]]:
    places: dict[int, list[int]] = {}
    for place, number in enumerate(numbers.tolist()):
        places.setdefault(number, []).append(place)
    return places


def _groups(index: VideoIndex, indices: Int[np.ndarray, " n"]) -> list[_Group]:
    groups: dict[int, _Group] = {}
    for pts, places in sorted(_places(index.pts[indices]).items()):
        key = int(np.searchsorted(index.key_pts, pts, side="right")) - 1
        groups.setdefault(key, _Group(key)).wanted[pts] = places
    return list(groups.values())


def _read_groups(index: VideoIndex, groups: list[_Group], out: UInt8[np.ndarray, "n h w 3"]) -> None:
    sink = _Sink(index, out)
    with open_stream(index.path) as (container, stream):
        stuck = [group for group in groups if not _read_group(index, container, stream, group, sink)]
    if stuck:
        _read_from_start(
            index, {pts: places for group in stuck for pts, places in group.wanted.items()}, sink
        )


class _Sink:
    """Draws wanted frames to their places."""

    def __init__(self, index: VideoIndex, out: UInt8[np.ndarray, "n h w 3"]) -> None:
        self._index, self._out, self._reformatter = index, out, VideoReformatter()

    def put(self, frame: VideoFrame, places: list[int]) -> None:
        """Draw `frame` once and copy it to the rest of its places."""
        turned = self._index.rotation % 180 != 0
        width, height = (frame.height, frame.width) if turned else (frame.width, frame.height)
        if (width, height) != (self._index.width, self._index.height):
            raise DamagedVideoError(
                f"its pictures change from {self._index.width}x{self._index.height} to {width}x{height}.",
                remedy="Re-encode it to one size.",
                path=self._index.path,
            )
        draw(frame, self._index.rotation, self._reformatter, self._out[places[0]])
        for place in places[1:]:
            self._out[place] = self._out[places[0]]


def _read_group(
    index: VideoIndex, container: InputContainer, stream: VideoStream, group: _Group, sink: _Sink
) -> bool:
    """Decode one group, backing off where needed. Whether all its frames came."""
    for key in range(group.key, max(group.key - MAX_BACK_OFF, 0) - 1, -1):
        container.seek(int(index.key_seek[key]), stream=stream, backward=True)
        try:
            for frame in _frames_after_seek(container, stream, group):
                if frame.pts in group.wanted:
                    sink.put(frame, group.wanted.pop(frame.pts))
        except av.FFmpegError:
            # Damage, or a seek into the middle of a group: an earlier start tells which.
            continue
        if not group.wanted:
            return True
    return False


def _frames_after_seek(container: InputContainer, stream: VideoStream, group: _Group) -> Iterator[VideoFrame]:
    """Frames from the key frame where a seek landed up to the group's last wanted one.

    Nothing where it landed after the first wanted frame.
    """
    decoder = stream.codec_context
    choosy = decoder.codec.canonical_name in _SKIPS_UNREFERENCED
    first, landed = min(group.wanted), None
    for packet in container.demux(stream):
        if packet.pts is None:  # the empty packet at the end of the stream: `index.reliable` rules out others
            yield from decoder.decode(None)
            return
        if landed is None:
            if not packet.is_keyframe:
                continue
            landed = packet.pts
            if landed > first:
                return
        if packet.pts < landed:
            # Shown before the key frame and depending on pictures before it.
            continue
        if choosy:
            decoder.skip_frame = "DEFAULT" if packet.pts in group.wanted else "NONREF"
        yield from decoder.decode(packet)
        if not group.wanted:
            return


def _read_from_start(index: VideoIndex, wanted: dict[int, list[int]], sink: _Sink) -> None:
    """Decode from the start, taking frames by their times; the last resort."""
    last, reason = max(wanted), "its picture does not come out of the decoder"
    with open_stream(index.path) as (container, stream):
        try:
            for frame in frames_in_order(container, stream):
                if frame.pts in wanted:
                    sink.put(frame, wanted.pop(frame.pts))
                if not wanted or (frame.pts is not None and frame.pts >= last):
                    break
        except av.FFmpegError as error:
            reason = str(error.strerror)
    if wanted:
        number = int(np.searchsorted(index.pts, min(wanted)))
        raise DamagedVideoError(
            f"frame {number} at {index.seconds[number]:.3f} s cannot be decoded ({reason}); "
            f"{len(wanted)} wanted frames are affected.",
            remedy="Copy or download it again, re-encode it, or leave the item out.",
            path=index.path,
        )


def _read_counting(
    index: VideoIndex, places: dict[int, list[int]], out: UInt8[np.ndarray, "n h w 3"]
) -> None:
    sink, last = _Sink(index, out), max(places)
    with open_stream(index.path) as (container, stream):
        try:
            for number, frame in enumerate(frames_in_order(container, stream)):
                if number in places:
                    sink.put(frame, places.pop(number))
                if number >= last:
                    break
        except av.FFmpegError as error:
            raise DamagedVideoError(
                f"decoding fails before frame {min(places)} ({error.strerror}).",
                remedy="Copy or download it again, or re-encode it.",
                path=index.path,
            ) from error
    if places:
        raise FrameCountError(
            f"it ended before frame {min(places)}, though {index.n_frames} frames were counted.",
            remedy="The file may have changed while it was read; try again.",
            path=index.path,
        )
