"""The index of an MP4 without reading the film: from its sample table.

Demuxing reads a file from end to end: gigabytes, for a procedure of some hours. An MP4's header lists
every picture, and FFmpeg has read that list when the file is open (with edit lists applied), all but
the difference of decoding and presentation time. That is the `ctts` box (ISO 14496-12, section
8.6.1.3), which is read here. The result is compared with real packets at both ends of the file; where
anything differs or is unusual (fragments, samples cut away), there is no result and the file is demuxed.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np
from av.container import InputContainer
from av.video.stream import VideoStream
from jaxtyping import Int

from diagnostics.video.structure import boxes

__all__ = ["packet_rows", "table_rows"]

Rows = Int[np.ndarray, "packet 5"]
"""One packet a row, in the order of decoding: presentation time, decoding time, duration, key, shown."""


def packet_rows(container: InputContainer, stream: VideoStream) -> Rows:
    """The packets from the current position to the end."""
    rows = [
        (packet.pts, packet.dts, packet.duration or 0, packet.is_keyframe, not packet.is_discard)
        for packet in container.demux(stream)
        if packet.size and packet.pts is not None and packet.dts is not None
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, 5)


def table_rows(path: Path, container: InputContainer, stream: VideoStream, head: Rows) -> Rows | None:
    """All packets of an MP4 (durations only at its ends), or None where the table cannot be trusted.

    Args:
        head: the first packets, as demuxed. The container is left at another position.
    """
    entries = stream.index_entries
    count = len(entries)
    if "mov" not in container.format.name.split(",") or count != stream.frames or not len(head):
        return None
    offsets = _composition_offsets(path, stream.id, count)
    if offsets is None:
        return None
    listed = np.array(
        [(entry.timestamp, entry.is_keyframe, not entry.is_discard) for entry in entries], np.int64
    )
    rows = np.zeros((count, 5), dtype=np.int64)
    rows[:, 1], rows[:, 3], rows[:, 4] = listed.T
    # FFmpeg moves all presentation times by one amount where offsets are negative.
    rows[:, 0] = rows[:, 1] + offsets + (head[0, 0] - rows[0, 1] - offsets[0])
    rows[: len(head), 2] = head[:, 2]
    last_key = int(np.flatnonzero(rows[:, 3])[-1]) if rows[:, 3].any() else 0
    container.seek(int(rows[last_key, 0]), stream=stream, backward=True)
    tail = packet_rows(container, stream)
    if not len(tail) or len(tail) > count:
        return None
    rows[count - len(tail) :, 2] = tail[:, 2]
    agrees = np.array_equal(rows[: len(head)], head) and np.array_equal(rows[count - len(tail) :], tail)
    return rows if agrees else None


def _composition_offsets(path: Path, track: int, count: int) -> Int[np.ndarray, " sample"] | None:
    """Presentation minus decoding time of each sample of a track; None where the header is unusual."""
    with path.open("rb") as file:
        size = path.stat().st_size
        top = {kind: (start, end) for kind, start, end in boxes(file, 0, size)}
        if b"moov" not in top or b"moof" in top:
            return None
        for kind, start, end in boxes(file, *top[b"moov"]):
            if kind == b"trak" and _track_id(file, start, end) == track:
                return _read_offsets(file, start, end, count)
    return None


def _track_id(file: BinaryIO, start: int, end: int) -> int | None:
    found = _descend(file, start, end, (b"tkhd",))
    if found is None:
        return None
    file.seek(found[0])
    head = file.read(24)
    return int.from_bytes(head[20:24] if head[0] == 1 else head[12:16], "big")


def _read_offsets(file: BinaryIO, start: int, end: int, count: int) -> Int[np.ndarray, " sample"] | None:
    table = _descend(file, start, end, (b"mdia", b"minf", b"stbl"))
    if table is None:
        return None
    found = _descend(file, *table, (b"ctts",))
    if found is None:
        return np.zeros(count, dtype=np.int64)
    file.seek(found[0] + 4)  # version 0 says unsigned, but FFmpeg, like most writers, takes both as signed
    runs = np.frombuffer(file.read(4), ">u4")[0]
    table_of_runs = np.frombuffer(file.read(8 * int(runs)), ">i4").reshape(-1, 2)
    lengths = table_of_runs[:, 0]
    if len(table_of_runs) != runs or (lengths < 0).any() or lengths.sum(dtype=np.int64) != count:
        return None
    return np.repeat(table_of_runs[:, 1].astype(np.int64), lengths)


def _descend(file: BinaryIO, start: int, end: int, way: tuple[bytes, ...]) -> tuple[int, int] | None:
    """Body of the box that is reached by following `way` down from the bytes between two offsets."""
    for step in way:
        found = next(((body, stop) for kind, body, stop in boxes(file, start, end) if kind == step), None)
        if found is None:
            return None
        start, end = found
    return start, end
