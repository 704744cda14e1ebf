"""Who may write what in a run folder.

The locks are the operating system's (flock through `filelock`), so one vanishes with its process and
a killed run never blocks the next. Beside each shard's lock a note says who took it. Taking a
shard's lock, looking whether others are held, and whatever concerns the folder as a whole happen
under the folder's own lock, which is held for moments only.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from diagnostics.errors import LockedError
from diagnostics.store.atomic import write_text
from diagnostics.store.manifest import now

__all__ = ["LOCKS", "Holder", "ShardLock", "folder_lock", "held_shards", "is_held"]

LOCKS = ".locks"
"""The folder of a run's locks, inside the run's folder."""

_FOLDER_TIMEOUT_SECONDS = 60.0
_NAME = re.compile(r"shard-(\d+)\.lock")


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a shard's lock: id, machine, since when (UTC), into how many shards it cuts."""

    pid: int
    host: str
    since: str
    n_shards: int


@contextmanager
def folder_lock(run_dir: Path) -> Iterator[None]:
    """Hold the folder's own lock: what is done inside is done by one process at a time.

    Raises:
        LockedError: another process held it for a minute, though nobody needs it for more than moments.
    """
    path = run_dir / LOCKS / "folder.lock"
    try:
        with FileLock(path, timeout=_FOLDER_TIMEOUT_SECONDS):
            yield
    except Timeout as error:
        raise LockedError(
            f"Another process has been opening or closing this run for over {_FOLDER_TIMEOUT_SECONDS:.0f} s.",
            remedy="Look for a process of this run that is stopped or hangs, and end it.",
            path=path,
        ) from error


class ShardLock:
    """The right to write one shard's files, from construction until `release` or the process's end."""

    def __init__(self, run_dir: Path, shard: int, n_shards: int) -> None:
        """Take the lock; the caller holds the folder's.

        Raises:
            LockedError: another process (or another part of this one) holds it; says who.
        """
        self._lock = FileLock(_lock_path(run_dir, shard), timeout=0)
        try:
            self._lock.acquire()
        except Timeout as error:
            who = _holder(run_dir, shard)
            told = f"process {who.pid} on {who.host}, since {who.since}" if who else "another process"
            raise LockedError(
                f"Shard {shard} of this run is being written by {told}.",
                remedy="Wait for it, or end it and start again: what it finished is kept.",
                path=run_dir,
            ) from error
        note = Holder(os.getpid(), socket.gethostname(), now(), n_shards)
        # Only a note for people and for the check of shard counts: not worth waiting for the disk.
        write_text(_note_path(run_dir, shard), json.dumps(asdict(note)), shard=shard, durable=False)

    def release(self) -> None:
        """Give the lock back; nothing happens the second time."""
        self._lock.release()


def held_shards(run_dir: Path) -> dict[int, Holder | None]:
    """The shards whose lock somebody holds, and who (None where the note is missing).

    The caller holds the folder's lock: to look whether a lock is held is to take it for a moment.
    """
    shards = [int(m[1]) for path in (run_dir / LOCKS).iterdir() if (m := _NAME.fullmatch(path.name))]
    return {shard: _holder(run_dir, shard) for shard in sorted(shards) if is_held(run_dir, shard)}


def is_held(run_dir: Path, shard: int) -> bool:
    """Whether somebody holds this shard's lock; the caller holds the folder's."""
    try:
        with FileLock(_lock_path(run_dir, shard), timeout=0):
            return False
    except Timeout:
        return True


def _lock_path(run_dir: Path, shard: int) -> Path:
    return run_dir / LOCKS / f"shard-{shard}.lock"


def _note_path(run_dir: Path, shard: int) -> Path:
    return run_dir / LOCKS / f"shard-{shard}.json"


def _holder(run_dir: Path, shard: int) -> Holder | None:
    try:
        return Holder(**json.loads(_note_path(run_dir, shard).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None  # killed between taking the lock and noting it
