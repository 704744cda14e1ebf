"""What a container says about its own length, read from its first bytes without decoding.

A file that was cut short often still opens, and readers then return other frames or fewer of them.
MP4, Matroska and AVI write down how long they are, so that a cut can be told before any frame is
asked for. MPEG-TS and raw streams do not: their end is where the file ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["boxes", "is_known_container", "missing_bytes"]

_MATROSKA_HEADER = b"\x1a\x45\xdf\xa3"
_MATROSKA_SEGMENT = b"\x18\x53\x80\x67"
_MP4_FIRST_BOXES = {b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"styp", b"sidx", b"pnot"}
_TS_PACKET, _M2TS_PACKET = 188, 192


def is_known_container(path: Path) -> bool:
    """Whether the first bytes are those of a common video container, whatever follows them."""
    with path.open("rb") as file:
        head = file.read(400)
    return (
        head[4:8] in _MP4_FIRST_BOXES
        or head.startswith((_MATROSKA_HEADER, b"RIFF", b"\x00\x00\x01", b"\x00\x00\x00\x01", b"FLV", b"OggS"))
        or _is_transport_stream(head)
    )


def missing_bytes(path: Path) -> int:
    """How many bytes the container declares beyond the end of the file.

    Returns:
        0 where the file is as long as it says, or where the format does not say. An MP4 without its
        header (`moov`), as a recorder leaves it when it is cut off, counts as at least one byte.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(12)
        file.seek(0)
        if head[4:8] in _MP4_FIRST_BOXES:
            return _missing_from_mp4(file, size)
        if head.startswith(_MATROSKA_HEADER):
            return _missing_from_matroska(file, size)
        if head.startswith(b"RIFF"):
            declared = int.from_bytes(head[4:8], "little")
            # 0 and all ones: written live, length unknown.
            return max(0, declared + 8 - size) if 0 < declared < 0xFFFFFFFF else 0
    return 0


def boxes(file: BinaryIO, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """The ISO 14496-12 boxes between two offsets: type, start of the body, end of the box.

    The last one may reach beyond `end` where the file was cut. Stops at what is not a box.
    """
    offset = start
    while offset + 8 <= end:
        file.seek(offset)
        head = file.read(16)
        length, kind, body = int.from_bytes(head[:4], "big"), head[4:8], offset + 8
        if length == 1:
            length, body = int.from_bytes(head[8:16], "big"), offset + 16
        elif length == 0:
            length = end - offset
        if length < body - offset or not all(32 <= letter < 127 or letter == 0xA9 for letter in kind):
            return
        yield kind, body, offset + length
        offset += length


def _missing_from_mp4(file: BinaryIO, size: int) -> int:
    found: dict[bytes, int] = {}
    for kind, _, stop in boxes(file, 0, size):
        found[kind] = stop
    if not found:
        return 0
    beyond = max(found.values()) - size
    if beyond <= 0 and b"moov" not in found:
        return 1
    return max(0, beyond)


def _missing_from_matroska(file: BinaryIO, size: int) -> int:
    file.seek(4)
    header, unknown = _matroska_size(file)
    if unknown:
        return 0
    file.seek(header, 1)
    while (element := file.read(4)) and element != _MATROSKA_SEGMENT:
        if element[:1] != b"\xec":  # only Void elements may stand between header and segment
            return 0
        file.seek(-3, 1)
        padding, _ = _matroska_size(file)
        file.seek(padding, 1)
    length, unknown = _matroska_size(file)
    return 0 if unknown else max(0, file.tell() + length - size)


def _matroska_size(file: BinaryIO) -> tuple[int, bool]:
    """A variable-length size (RFC 8794, section 4) and whether it stands for "unknown"."""
    first = file.read(1)
    if not first or first == b"\0":
        return 0, True
    extra = 8 - first[0].bit_length()
    value = int.from_bytes(bytes([first[0] & (0xFF >> (extra + 1))]) + file.read(extra), "big")
    return value, value == (1 << (7 * (extra + 1))) - 1


def _is_transport_stream(head: bytes) -> bool:
    plain = head[:1] == b"\x47" == head[_TS_PACKET : _TS_PACKET + 1]
    timed = head[4:5] == b"\x47" == head[4 + _M2TS_PACKET : 5 + _M2TS_PACKET]
    return plain or timed
