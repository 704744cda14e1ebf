"""The index of an MP4 without reading the film: from its sample table.

Demuxing reads a file from end to end: gigabytes, for a procedure of some hours. An MP4's header lists
every picture, and FFmpeg has read that list when the file is open (with edit lists applied), all but
the difference of decoding and presentation time. That is the `ctts` box (ISO 14496-12, section 8.6.1),
which is read here, with the boxes for times and key pictures beside it. The result is compared with
real packets at both ends of the file; where anything differs or is unusual (fragments, samples cut
away), there is no result and the file is demuxed. Between the ends it rests on the header; were that
wrong, the wanted time would never come out of the decoder, and the reader says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from av.container import InputContainer
from av.index import IndexEntries
from av.video.stream import VideoStream
from jaxtyping import Bool, Int

from diagnostics.video.structure import boxes

__all__ = ["packet_rows", "table_rows"]

_COMPARED = 1000
"""Entries at each end, and between them, in which the header must agree with FFmpeg's list."""

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


def table_rows(
    path: Path, container: InputContainer, stream: VideoStream, head: Int[np.ndarray, "head 5"]
) -> Rows | None:
    """All packets of an MP4 (durations only at its ends), or None where the table cannot be trusted.

    Args:
        head: the first packets, as demuxed. The container is left at another position.
    """
    entries = stream.index_entries
    count = len(entries)
    if "mov" not in container.format.name.split(",") or count != stream.frames or not len(head):
        return None
    table = _read_table(path, stream.id, count)
    if table is None:
        return None
    rows = np.zeros((count, 5), dtype=np.int64)
    if not _quick(rows, table, entries):
        listed = [(entry.timestamp, entry.is_keyframe, not entry.is_discard) for entry in entries]
        rows[:, [1, 3, 4]] = listed
    # FFmpeg moves all presentation times by one amount where offsets are negative.
    rows[:, 0] = rows[:, 1] + table.offsets + (head[0, 0] - rows[0, 1] - table.offsets[0])
    rows[: len(head), 2] = head[:, 2]
    last_key = int(np.flatnonzero(rows[:, 3])[-1]) if rows[:, 3].any() else 0
    container.seek(int(rows[last_key, 0]), stream=stream, backward=True)
    tail = packet_rows(container, stream)
    if not len(tail) or len(tail) > count:
        return None
    rows[count - len(tail) :, 2] = tail[:, 2]
    agrees = np.array_equal(rows[: len(head)], head) and np.array_equal(rows[count - len(tail) :], tail)
    return rows if agrees else None


class _Table(NamedTuple):
    """What the header says of one track's samples.

    Attributes:
        offsets: presentation minus decoding time of each sample (`ctts`).
        times: decoding time of each sample, from the first (`stts`).
        key: samples at which decoding can start (`stss`).
        plain: no edit list beyond one stretch, and no other kinds of key samples, so that `times` and
            `key` are all there is to FFmpeg's list.
    """

    offsets: Int[np.ndarray, " sample"]
    times: Int[np.ndarray, " sample"]
    key: Bool[np.ndarray, " sample"]
    plain: bool


def _quick(rows: Rows, table: _Table, entries: IndexEntries) -> bool:
    """Fill decoding times, key and shown from the header, for films of millions of pictures.

    FFmpeg's list costs two microseconds an entry to walk through. Where the header is plain, its ends and
    a thousand entries between them stand for the rest. Whether they agree; only then is anything filled.
    """
    count = len(rows)
    if not table.plain:
        return False
    ends = min(count, _COMPARED)
    places = np.unique(
        np.concatenate(
            [
                np.arange(ends),
                np.arange(count - ends, count),
                np.linspace(0, count - 1, ends).astype(np.int64),
            ]
        )
    )
    sample = [entries[place] for place in places.tolist()]
    first = sample[0].timestamp
    if any(entry.is_discard for entry in sample):
        return False
    if [entry.timestamp - first for entry in sample] != table.times[places].tolist():
        return False
    if [bool(entry.is_keyframe) for entry in sample] != table.key[places].tolist():
        return False
    rows[:, 1], rows[:, 3], rows[:, 4] = table.times + first, table.key, 1
    return True


def _read_table(path: Path, track: int, count: int) -> _Table | None:
    """The table of a track with `count` samples; None where the header is unusual."""
    with path.open("rb") as file:
        size = path.stat().st_size
        top = {kind: (start, end) for kind, start, end in boxes(file, 0, size)}
        if b"moov" not in top or b"moof" in top:
            return None
        for kind, start, end in boxes(file, *top[b"moov"]):
            if kind == b"trak" and _track_id(file, start, end) == track:
                return _track_table(file, start, end, count)
    return None


def _track_id(file: BinaryIO, start: int, end: int) -> int | None:
    found = _descend(file, start, end, (b"tkhd",))
    if found is None:
        return None
    file.seek(found[0])
    head = file.read(24)
    return int.from_bytes(head[20:24] if head[0] == 1 else head[12:16], "big")


def _track_table(file: BinaryIO, start: int, end: int, count: int) -> _Table | None:
    found = _descend(file, start, end, (b"mdia", b"minf", b"stbl"))
    if found is None:
        return None
    tables = {kind: body for kind, body, _ in boxes(file, *found)}
    offsets = _runs(file, tables.get(b"ctts"), count)
    durations = _runs(file, tables.get(b"stts"), count)
    if offsets is None or durations is None:
        return None
    key = np.ones(count, dtype=bool)
    if b"stss" in tables:
        numbers = _entries(file, tables[b"stss"], 1)[:, 0] - 1
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= count):
            return None
        key = np.zeros(count, dtype=bool)
        key[numbers] = True
    plain = not {b"sbgp", b"stps"} & tables.keys() and _edits(file, start, end) <= 1
    return _Table(offsets, np.cumsum(durations) - durations, key, plain)


def _runs(file: BinaryIO, body: int | None, count: int) -> Int[np.ndarray, " sample"] | None:
    """A run-length coded value of each sample: 0 where there is no box, None where it does not fit."""
    if body is None:
        return np.zeros(count, dtype=np.int64)
    # Version 0 of `ctts` says unsigned, but FFmpeg, like most writers, takes both versions as signed.
    runs = _entries(file, body, 2)
    if (runs[:, 0] < 0).any() or runs[:, 0].sum() != count:
        return None
    return np.repeat(runs[:, 1], runs[:, 0])


def _entries(file: BinaryIO, body: int, width: int) -> Int[np.ndarray, "entry width"]:
    """The entries of a box that holds version, flags, their number, and `width` integers for each."""
    file.seek(body + 4)
    number = int.from_bytes(file.read(4), "big")
    data = file.read(4 * width * number)
    whole = len(data) // (4 * width) * (4 * width)
    return np.frombuffer(data[:whole], ">i4").astype(np.int64).reshape(-1, width)


def _edits(file: BinaryIO, start: int, end: int) -> int:
    """How many stretches of the film the track's edit list shows (an empty edit shows none)."""
    found = _descend(file, start, end, (b"edts", b"elst"))
    if found is None:
        return 0
    file.seek(found[0])
    long = file.read(1) == b"\x01"
    file.seek(found[0] + 4)
    number = int.from_bytes(file.read(4), "big")
    width, empty = (20, slice(8, 16)) if long else (12, slice(4, 8))
    edits = [file.read(width) for _ in range(number)]
    return sum(int.from_bytes(edit[empty], "big", signed=True) != -1 for edit in edits)


def _descend(file: BinaryIO, start: int, end: int, way: tuple[bytes, ...]) -> tuple[int, int] | None:
    """Body of the box that is reached by following `way` down from the bytes between two offsets."""
    for step in way:
        found = next(((body, stop) for kind, body, stop in boxes(file, start, end) if kind == step), None)
        if found is None:
            return None
        start, end = found
    return start, end
