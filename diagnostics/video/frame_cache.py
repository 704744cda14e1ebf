"""Decoded frames on disk, so that a video is decoded once for several runs: one file a frame.

    with FrameReader(cache=FrameCache(Path("frames"), limit_gib=20)) as reader:
        reader.read("procedure.mp4", [0, 25, 50])   # decoded and kept
        reader.read("procedure.mp4", [0, 50, 75])   # two pictures come from the disk, one is decoded

A frame is kept by all that its pixels depend on: the file's content (`content_key`), its number, the height
and width it is read at, and the reader with its version (`reader_identity`). What a reader gives for a frame
does not depend on the other frames it is asked for, so a kept one is, bit for bit, what would be decoded.

One file a frame, and not one a request: what is read at once is the union of what the pending pairs of a
video show (`experiments.read_ahead`), so that one question more, a run that goes on, or another budget would
miss it all. Frames are served as far as selections overlap: all of a subset, an order or another
perturbation; of the 732 frames that budgets of 4 to 512 ask of a film of 240, 240 differ; of 45,000 frames,
972 of 1020, so a ladder gains little on long films. It costs nothing: 64 files take 0.9 to 1.2 ms a frame,
one file of all 64 takes 1.0 to 1.1.

Uncompressed, as measured on 64 spread 720p frames (1 core, page cache warm; a decode is 57 to 63 ms a frame):

    =====================  =========  ==========  ========
    a frame                read, ms   write, ms   size
    =====================  =========  ==========  ========
    npz, stored (chosen)   0.9        1.4         1.00
    npy, no checksum       0.4        0.9         1.00
    blosc2, bytedelta      3.4        9.4         0.35
    npz, deflated          10.2       45.2        0.48
    WebP, lossless         11.7       36.8        0.20
    PNG, level 1           20.9       47.7        0.31
    FFV1                   24.6       51.1        0.15
    =====================  =========  ==========  ========

Those a fifth of the size or less cost the first run more than half of a decode; blosc2 would be a new
dependency for a third. Stored, frames need `frames * height * width * 3` bytes, which a person can plan with.
`tests/benchmarks/frame_cache.py` times the whole way.

Several processes may share the folder, without any index: files appear whole (`atomic.publish`), a use sets
a file's time of modification, and the least recently used go when the folder's listing exceeds the limit. It
is listed again whenever a process has written a 64th of the limit (20,000 files: 0.2 s), so that many
together exceed it by at most that much each. Only what is named as a frame below `<folder>/frames-1` is ever
removed, and temporary files that a killed process left there.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from diagnostics.errors import UnwritableFolderError
from diagnostics.store.atomic import is_temporary
from diagnostics.store.keyed_arrays import (
    SUFFIX,
    DamagedArrayError,
    Key,
    array_path,
    read_array,
    write_array,
)

__all__ = ["Decode", "FrameCache", "Used"]

_log = logging.getLogger(__name__)

_ROOM = "frames-1"
"""Raised with the format of files or keys: what older versions kept is then left alone."""

_FRAME = re.compile(rf"[0-9a-f]{{32}}{re.escape(SUFFIX)}")
_AROUND_BYTES = 8192
"""More than a file holds beside its pixels."""

_LISTING_SHARE = 1 / 64
_EVICTED_TO = 0.95
_LEFTOVER_SECONDS = 3600
"""A temporary file this old is of a process that was killed: writing one takes moments."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

Decode = Callable[[Int[np.ndarray, " n"]], UInt8[np.ndarray, "n h w 3"]]
"""Gives the frames of these numbers."""


@dataclass
class Used:
    """What a cache did since it was opened.

    Attributes:
        hits, misses: frames that were kept, and that had to be decoded; of a request, each number once.
        bytes_read, bytes_written: of pixels, and of files.
        evicted: files removed to stay below the limit.
        damaged: files that could not be believed; removed, their frames decoded again.
        stopped: why nothing was written any more, or None.
    """

    hits: int = 0
    misses: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    evicted: int = 0
    damaged: int = 0
    stopped: str | None = None


class FrameCache:
    """A folder of frames. One serves several threads, and several processes may have the same folder.

    Args:
        folder: made if it is not there.
        limit_gib: what its frames may take together, in GiB.
        say: told once of a full disk and once of a damaged file; the log by default.

    Attributes:
        used: what it did.

    Raises:
        UnwritableFolderError: the folder cannot be made. One that is there and cannot be written to is read
            from.
    """

    def __init__(
        self, folder: Path, limit_gib: float = 20.0, say: Callable[[str], None] | None = None
    ) -> None:
        self.folder, self.limit_gib, self.used = folder.expanduser().resolve(), limit_gib, Used()
        self._room, self._limit = self.folder / _ROOM, int(limit_gib * 2**30)
        self._say = say or _log.warning
        self._guard = threading.RLock()
        self._held: int | None = None  # bytes: those of the last listing and what was written since
        self._since = 0
        try:
            self._room.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno not in _FULL:
                raise UnwritableFolderError(
                    f"The folder of the frame cache cannot be made ({error.strerror}).",
                    remedy="Name another one with reading.cache=DIR.",
                    path=folder,
                ) from error
            self._stop(error)

    def frames(
        self,
        what: Key,
        numbers: Int[np.ndarray, " n"],
        size: tuple[int, int],
        decode: Decode,
        *,
        may_keep: Callable[[], bool],
    ) -> UInt8[np.ndarray, "n h w 3"]:
        """The frames of these numbers, repeats allowed: kept ones, and the others decoded in one request.

        Args:
            what: the file's content and the reader.
            size: height and width.
            may_keep: asked after decoding; False where the file changed meanwhile, or the frames are not
                worth keeping.

        Raises:
            What `decode` raises.
        """
        found: UInt8[np.ndarray, "n h w 3"] | None = None
        missing = []
        for number in np.unique(numbers).tolist():
            picture = self._load(_frame_key(what, number, size), (*size, 3))
            if picture is None:
                missing.append(number)
                continue
            if found is None:
                found = np.empty((len(numbers), *size, 3), np.uint8)
            found[numbers == number] = picture
        if found is None:  # the usual first run: nothing is copied
            found = decode(numbers)
            if may_keep():
                for number in missing:
                    self._keep(_frame_key(what, number, size), found[np.flatnonzero(numbers == number)[0]])
        elif missing:
            decoded = decode(np.array(missing, dtype=np.int64))
            keeping = may_keep()
            for number, picture in zip(missing, decoded, strict=True):
                found[numbers == number] = picture
                if keeping:
                    self._keep(_frame_key(what, number, size), picture)
        return found

    def told(self) -> dict[str, Any]:
        """What it is and did, for the manifest."""
        with self._guard:
            return {"folder": str(self.folder), "limit_gib": self.limit_gib, **asdict(self.used)}

    def line(self) -> str | None:
        """What it did, for the screen; None where it was never asked."""
        with self._guard:
            used, asked = self.used, self.used.hits + self.used.misses
        if not asked:
            return None
        parts = [f"{used.hits:,} of {asked:,} frames were kept ({_gib(used.bytes_read)} read)"]
        parts.append(f"{_gib(used.bytes_written)} written")
        parts += [f"{used.evicted:,} evicted"] if used.evicted else []
        parts += [f"{used.damaged:,} damaged and decoded again"] if used.damaged else []
        parts += [f"writing stopped: {used.stopped}"] if used.stopped else []
        return f"frame cache: {', '.join(parts)}"

    # -- one frame

    def _load(self, key: Key, shape: tuple[int, int, int]) -> UInt8[np.ndarray, "h w 3"] | None:
        path = array_path(self._room, key)
        try:
            picture = read_array(path, key)
            if picture.shape != shape or picture.dtype != np.uint8:
                raise DamagedArrayError(f"it holds {picture.dtype} {picture.shape}")
        except FileNotFoundError:
            with self._guard:
                self.used.misses += 1
            return None
        except DamagedArrayError as error:
            self._remove_damaged(path, error)
            return None
        # A folder of somebody else's may be read and not be written to: then its owner's runs set the times.
        with contextlib.suppress(OSError):
            os.utime(path)
        with self._guard:
            self.used.hits += 1
            self.used.bytes_read += picture.nbytes
        return picture

    def _remove_damaged(self, path: Path, error: DamagedArrayError) -> None:
        with contextlib.suppress(OSError):  # what cannot be removed is found damaged and decoded each time
            path.unlink(missing_ok=True)
        with self._guard:
            self.used.misses += 1
            self.used.damaged += 1
            if self.used.damaged == 1:
                self._say(
                    f"frame cache: {path} is damaged ({error}): removed, and its frame is decoded again. "
                    "Others are counted without a word."
                )

    def _keep(self, key: Key, picture: UInt8[np.ndarray, "h w 3"]) -> None:
        try:
            if self._reserve(picture.nbytes + _AROUND_BYTES):
                written = write_array(array_path(self._room, key), key, picture)
                with self._guard:
                    self.used.bytes_written += written
        except OSError as error:
            self._stop(error)

    def _stop(self, error: OSError) -> None:
        with self._guard:
            if self.used.stopped is None:
                self.used.stopped = error.strerror or str(error)
                self._say(
                    f"frame cache: {self.folder} cannot be written ({self.used.stopped}): "
                    "the run goes on and keeps no more frames."
                )

    # -- the limit

    def _reserve(self, size: int) -> bool:
        """Make room for a file and count it; False where nothing is written any more, or it never fits."""
        with self._guard:
            if self.used.stopped is not None or size > self._limit:
                return False
            if (
                self._held is None
                or self._held + size > self._limit
                or self._since >= self._limit * _LISTING_SHARE
            ):
                self._held, self._since = self._evict(size), 0
            self._held += size
            self._since += size
            return True

    def _evict(self, size: int) -> int:
        """Remove the least recently used where `size` more bytes would exceed the limit; gives bytes held."""
        files = sorted(self._listing())
        held = sum(file_size for _, file_size, _ in files)
        if held + size <= self._limit:
            return held
        goal = max(0, int(self._limit * _EVICTED_TO) - size)
        for _, file_size, path in files:
            if held <= goal:
                break
            path.unlink(missing_ok=True)
            held -= file_size
            self.used.evicted += 1
        return held

    def _listing(self) -> list[tuple[int, int, Path]]:
        """Time of last use in ns, bytes and path of each frame; old temporary files are removed."""
        found = []
        for room in sorted(self._room.glob("[0-9a-f][0-9a-f]")):
            with os.scandir(room) as entries:
                for entry in entries:
                    try:
                        facts = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:  # another process evicted or renamed it
                        continue
                    if _FRAME.fullmatch(entry.name):
                        found.append((facts.st_mtime_ns, facts.st_size, Path(entry.path)))
                    elif is_temporary(entry.name) and facts.st_mtime < time.time() - _LEFTOVER_SECONDS:
                        Path(entry.path).unlink(missing_ok=True)
        return found


def _frame_key(what: Key, number: int, size: tuple[int, int]) -> Key:
    return {**what, "height": size[0], "width": size[1], "frame": number}


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
