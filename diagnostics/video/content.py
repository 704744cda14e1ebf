"""What a file is at this moment: its stamp for a process's memory, its content for caches on disk."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

from diagnostics.errors import MissingVideoError

__all__ = ["FileStamp", "content_key", "file_stamp"]

_PARTS, _PART_BYTES = 16, 1 << 16


class FileStamp(NamedTuple):
    """Resolved path, time of modification in ns, size in bytes."""

    path: str
    modified: int
    size: int


def file_stamp(path: str | Path) -> FileStamp:
    """The stamp of the file as it is now.

    Raises:
        MissingVideoError: it cannot be reached.
    """
    try:
        resolved = Path(path).resolve()
        facts = resolved.stat()
    except OSError as error:
        raise MissingVideoError(
            f"it cannot be reached ({error.strerror}).",
            remedy="Check the path and the data set's root.",
            path=path,
        ) from error
    return FileStamp(str(resolved), facts.st_mtime_ns, facts.st_size)


def content_key(stamp: FileStamp) -> dict[str, Any]:
    """What a file holds, wherever it lies: size, time of modification, and a digest of 16 parts of 64 KiB
    spread from its first to its last byte (all of it up to 1 MiB).

    A copy that keeps the time (`cp -p`, rsync -t) has the same key.

    Raises:
        MissingVideoError: it cannot be read.
    """
    return {"size": stamp.size, "modified": stamp.modified, "parts": _digest_of_parts(stamp)}


def _digest_of_parts(stamp: FileStamp) -> str:
    digest = hashlib.sha256()
    try:
        with Path(stamp.path).open("rb") as file:
            if stamp.size <= _PARTS * _PART_BYTES:
                digest.update(file.read())
            else:
                for part in range(_PARTS):
                    file.seek((stamp.size - _PART_BYTES) * part // (_PARTS - 1), os.SEEK_SET)
                    digest.update(file.read(_PART_BYTES))
    except OSError as error:
        raise MissingVideoError(
            f"it cannot be read ({error.strerror}).", remedy="Check its permissions.", path=stamp.path
        ) from error
    return digest.hexdigest()
