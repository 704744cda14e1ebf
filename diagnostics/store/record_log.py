"""The append-only files of records, `samples.<shard>.jsonl`: the index of a run.

One writer a file, one `write` a line (or for lines that belong together), flushed to the disk before the next
item starts (about 1 ms where an item takes seconds). So a kill leaves at most one torn line, at the end: the
next writer cuts it off, readers pass over it. A line that ends properly and still cannot be read means that
the file was edited or damaged, and is an error.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from diagnostics.errors import DamagedRunError
from diagnostics.store.records import Record, from_json, latest, to_json

__all__ = ["RecordWriter", "all_records", "read_records", "records_path"]

_NAME = re.compile(r"samples\.(\d+)\.jsonl")
_BLOCK = 1 << 16


def records_path(run_dir: Path, shard: int) -> Path:
    """The file that holds the records of one shard."""
    return run_dir / f"samples.{shard}.jsonl"


class RecordWriter:
    """Appends records to one file. Whoever makes one holds the shard's lock.

    Attributes:
        dropped_bytes: length of the torn last line that was cut off on opening; 0 where there was none.
    """

    def __init__(self, path: Path) -> None:
        """Open `path`, made if it is not there, and cut a torn last line off.

        Raises:
            OSError: the file cannot be opened or written.
        """
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self._descriptor = os.open(path, flags, 0o666)
        self._lock = threading.Lock()
        size = os.fstat(self._descriptor).st_size
        self._size = _end_of_last_line(self._descriptor, size)
        self.dropped_bytes = size - self._size
        if self.dropped_bytes:
            self._cut_back()

    def append(self, *records: Record) -> None:
        """Write a line for each, all in one go, and wait for the disk.

        Raises:
            OSError: the disk is full or gone. What was written of the lines is cut off again, so that
                the file stays readable and a later call can succeed.
        """
        lines = "".join(to_json(record) + "\n" for record in records).encode("ascii")
        with self._lock:
            try:
                rest = lines
                while rest:  # a short write means a full disk; asking for the rest gives the reason
                    rest = rest[os.write(self._descriptor, rest) :]
                os.fsync(self._descriptor)
            except OSError:
                self._cut_back()
                raise
            self._size += len(lines)

    def _cut_back(self) -> None:
        os.ftruncate(self._descriptor, self._size)
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; nothing is left to write."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _end_of_last_line(descriptor: int, size: int) -> int:
    """The length of the file up to and with its last line end; 0 where it has none."""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        os.lseek(descriptor, start, os.SEEK_SET)
        block = os.read(descriptor, end - start)
        if (found := block.rfind(b"\n")) >= 0:
            return start + found + 1
        end = start
    return 0


def _read_file(path: Path) -> Iterator[Record]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return  # torn, or still being written by another process
            try:
                yield from_json(line)
            except ValueError as error:
                raise DamagedRunError(
                    f"line {number} is no record: {error}.",
                    remedy="Restore the file from a copy, or delete that line: its pair is measured again.",
                    path=path,
                ) from error


def all_records(run_dir: Path) -> list[Record]:
    """Every record in the run, of earlier attempts too, file by file and line by line.

    A last line without its end is passed over, since a live process may be writing it.

    Raises:
        DamagedRunError: a line cannot be read; names the file and the line.
    """
    files = {int(match[1]): path for path in run_dir.iterdir() if (match := _NAME.fullmatch(path.name))}
    return [record for shard in sorted(files) for record in _read_file(files[shard])]


def read_records(run_dir: Path) -> list[Record]:
    """The record that counts for each pair (see `latest`), over all shards, sorted by item and condition.

    A pair is finished where `error` is None.

    Raises:
        DamagedRunError: see `all_records`.
    """
    chosen = latest(all_records(run_dir))
    return [chosen[pair] for pair in sorted(chosen)]
