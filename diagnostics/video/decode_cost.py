"""How many pictures have to be decoded to show some of them, from a file's index and a few of its packets.

Decoding starts at the key frame before a wanted frame and ends when that has come out. Two things of the
coding matter beside the index, and both are read from the first packets without decoding any: the share of
pictures that others refer to (the exact reader skips the rest of an H.264 stream, unless wanted), and how
many more pictures go into the decoder before one comes out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from jaxtyping import Int

from diagnostics.video.decoding import open_stream
from diagnostics.video.index import VideoIndex
from diagnostics.video.pictures import CONTAINER

__all__ = ["Coding", "coding_of", "pictures_to_decode"]

_PACKETS = 600
_SKIPPING = "pyav"
"""The reader that passes over pictures nobody refers to."""
_SLICES = (1, 5)
"""H.264 units that hold a picture, of an ordinary and of a key frame (ITU-T H.264, table 7-1)."""


@dataclass(frozen=True, slots=True)
class Coding:
    """What the first packets say.

    Attributes:
        referenced: share of pictures that are decoded although nobody wants them.
        reorder: pictures that go into the decoder after one before that one comes out.
    """

    referenced: float = 1.0
    reorder: int = 0


def coding_of(index: VideoIndex, reader: str = _SKIPPING) -> Coding:
    """Read a file's first packets.

    Args:
        reader: the one that will read the file: those that do not skip decode every picture.

    Raises:
        VideoError: see `decoding.open_stream`.
    """
    if index.container == CONTAINER or not index.reliable:
        return Coding()
    referenced: list[bool] = []
    times: list[int] = []
    with open_stream(index.path) as (container, stream):
        extra = stream.codec_context.extradata or b""
        for packet in islice(container.demux(stream), _PACKETS):
            if packet.pts is None or packet.size == 0:
                continue
            times.append(packet.pts)
            if index.codec == "h264" and reader == _SKIPPING:
                referenced.append(_is_referenced(bytes(packet), extra))
    share = float(np.mean(referenced)) if referenced else 1.0
    return Coding(share, _reorder(np.array(times, dtype=np.int64)))


def pictures_to_decode(index: VideoIndex, frames: Iterable[int], coding: Coding) -> int:
    """Pictures that one request for `frames` decodes: an estimate within a few for each group of pictures.

    A file without reliable times is decoded whole for its index, and once more up to the last frame.
    """
    wanted = np.unique(np.fromiter(frames, dtype=np.int64))
    if not len(wanted):
        return 0
    if index.container == CONTAINER:
        return len(wanted)
    if not index.reliable:
        return index.n_frames + int(wanted[-1]) + 1
    keys = np.searchsorted(index.pts, index.key_pts)
    group = np.searchsorted(index.key_pts, index.pts[wanted], side="right") - 1
    last = np.flatnonzero(np.diff(group, append=-2))
    first = np.where(group[last] < 0, 0, keys[np.maximum(group[last], 0)])
    spans = wanted[last] - first + 1
    own = np.diff(last, prepend=-1)
    passed = coding.referenced * (spans - own)
    # What goes in before the last wanted picture comes out; at the end of the file nothing is left to.
    beyond = np.minimum(coding.reorder, index.n_frames - 1 - wanted[last])
    return round(float((passed + own + beyond).sum()))


def _reorder(times: Int[np.ndarray, " packet"]) -> int:
    """The most pictures that come before another in the order of decoding and after it in time."""
    depth, held = 0, np.empty(0, dtype=np.int64)
    for time in times:
        held = np.append(held[held > time], time)
        depth = max(depth, len(held) - 1)
    return depth


def _is_referenced(packet: bytes, extra: bytes) -> bool:
    """Whether an H.264 picture's `nal_ref_idc` is not 0 (ITU-T H.264, section 7.4.1)."""
    for start in _units(packet, extra):
        if packet[start] & 31 in _SLICES:
            return bool(packet[start] & 96)
    return True


def _units(packet: bytes, extra: bytes) -> Iterable[int]:
    """Where each unit of a packet begins: by lengths where the header says so (ISO 14496-15), else by start
    codes."""
    if extra[:1] == b"\x01" and len(extra) > 4:
        size = (extra[4] & 3) + 1
        place = 0
        while place + size < len(packet):
            yield place + size
            place += size + int.from_bytes(packet[place : place + size], "big")
        return
    place = packet.find(b"\0\0\1")
    while 0 <= place < len(packet) - 3:
        yield place + 3
        place = packet.find(b"\0\0\1", place + 3)
