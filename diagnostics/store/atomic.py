"""Files that appear whole or not at all.

A file is written under a temporary name in its own folder, flushed to the disk and renamed; a kill
at any moment leaves the old file or the new one, and at worst a temporary file that the next
process of the same shard sweeps away.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["is_temporary", "publish", "sweep", "sync_folder", "write_text"]

_TEMPORARY = re.compile(r"\.tmp-s(\d+)-[0-9a-f]{16}\.partial")


@contextmanager
def publish(path: Path, *, shard: int = 0, durable: bool = True) -> Iterator[Path]:
    """Give a temporary path to write to, and rename it to `path` when the block ends well.

    Args:
        path: where the file is to appear; one that is already there is replaced.
        shard: who writes, so that `sweep` can tell a dead process's leftovers from a live one's files.
        durable: wait for the disk, so that the file also survives a power failure.

    Raises:
        OSError: the disk is full, the folder is read-only... The temporary file is removed.
    """
    temporary = path.with_name(f".tmp-s{shard}-{secrets.token_hex(8)}.partial")
    try:
        yield temporary
        if durable:
            _sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        sync_folder(path.parent)


def write_text(path: Path, text: str, *, shard: int = 0, durable: bool = True) -> None:
    """Publish `text` as UTF-8 with Unix line ends."""
    with publish(path, shard=shard, durable=durable) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def is_temporary(name: str) -> bool:
    """Whether a file of this name is one that is being written, or was when its process was killed."""
    return _TEMPORARY.fullmatch(name) is not None


def sweep(folder: Path, may_remove: Callable[[int], bool]) -> int:
    """Remove leftover temporary files below `folder` of the shards that `may_remove` names; says how many."""
    removed = 0
    for candidate in folder.rglob(".tmp-s*.partial"):
        match = _TEMPORARY.fullmatch(candidate.name)
        if match and may_remove(int(match[1])) and not candidate.is_dir():
            candidate.unlink(missing_ok=True)
            removed += 1
    return removed


def _sync(path: Path) -> None:
    # Opened for writing: Windows refuses to flush a handle that is only for reading.
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the folder's list of names durable, where the system can (Windows cannot)."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
