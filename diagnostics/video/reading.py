"""Reading frames where it can be killed.

Decoders are native code: on a bad file they can hang, crash, or be killed for memory. Here they run
in processes of their own, so that such a file costs one error and not the run:

    with FrameReader(timeout_seconds=300) as reader:
        index = reader.index("procedure.mp4")
        pending = reader.submit("procedure.mp4", [0, 25, 50])   # decoded while the model works
        pixels = pending.result()                               # uint8 [3, height, width, 3]

The processes are started fresh, not forked (a fork of a process that uses torch or a decoder can
hang), and they die with their parent however it dies.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int, UInt8

from diagnostics.errors import ConfigError, MissingVideoError, ReaderCrashError, ReaderTimeoutError
from diagnostics.video.content import FileStamp, content_key, file_stamp
from diagnostics.video.decode_cost import Coding
from diagnostics.video.index import VideoIndex, check_indices, size_within
from diagnostics.video.pictures import CONTAINER as PICTURES

if TYPE_CHECKING:  # what it imports is slow, and few need it
    from diagnostics.video.frame_cache import FrameCache

__all__ = ["FrameReader"]

_CACHED_INDICES = 256
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])


class FrameReader:
    """Reads frames by number, in `workers` killable processes.

    Args:
        reader: name of a reader in `diagnostics.video.readers`, or the dotted name of a module.
        timeout_seconds: how long one `index` or one `read` may take before its process is killed.
            A file without reliable times is decoded whole, so leave room for that.
        workers: how many requests are served at a time.
        max_side: longest side of the pictures in pixels; None for their native size.
        threads: groups of pictures decoded at a time within one request.
        cache: where decoded frames are kept between runs; None keeps none. Folders of pictures are never
            kept: their frames are single files already.

    Raises:
        ConfigError: a number is not positive.
    """

    def __init__(
        self,
        reader: str = "pyav",
        timeout_seconds: float = 600.0,
        workers: int = 1,
        max_side: int | None = None,
        threads: int = 1,
        cache: FrameCache | None = None,
    ) -> None:
        if timeout_seconds <= 0 or workers < 1 or threads < 1 or (max_side is not None and max_side < 1):
            raise ConfigError(
                f"timeout_seconds={timeout_seconds}, workers={workers}, max_side={max_side}, "
                f"threads={threads}: each must be positive.",
                remedy="Correct the reader's configuration.",
            )
        self.reader, self.max_side, self._threads = reader, max_side, threads
        self._timeout, self._cache = timeout_seconds, cache
        self._identity: dict[str, str] | None = None
        self._indices: OrderedDict[FileStamp, VideoIndex] = OrderedDict()
        self._guard = threading.Lock()
        self._workers = [_Worker() for _ in range(workers)]
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        # Requests run on threads of their own, which also are the workers' parents: a worker ends
        # with the thread that started it, and these last as long as the reader.
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="frame-reader")

    def __enter__(self) -> FrameReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes; what was submitted and not begun is cancelled."""
        for worker in self._workers:
            worker.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.kill()

    def index(self, path: str | Path) -> VideoIndex:
        """The file's index, opened once and kept until the file changes.

        Raises:
            VideoError: see `diagnostics.video.index.open_index`; also `ReaderTimeoutError` and
                `ReaderCrashError`.
        """
        return self._pool.submit(self._with_worker, self._index, path).result()

    def coding(self, path: str | Path) -> Coding:
        """How the file's pictures depend on each other, from its first packets.

        Raises:
            VideoError: see `index`.
        """
        return self._pool.submit(self._with_worker, self._coding, path).result()

    def read(
        self, path: str | Path, indices: Sequence[int] | Int[np.ndarray, " n"], *, keep: bool = True
    ) -> UInt8[np.ndarray, "n h w 3"]:
        """The frames at `indices`, in that order (repeats allowed), upright RGB.

        Args:
            keep: put what had to be decoded into the cache.

        Raises:
            FrameCountError: a frame that the file does not hold.
            DamagedVideoError: a wanted frame cannot be decoded.
            InexactReaderError: the chosen reader cannot be trusted with this file.
            ReaderTimeoutError: it took longer than `timeout_seconds`.
            ReaderCrashError: the process died.
            VideoError: see `index`.
        """
        return self.submit(path, indices, keep=keep).result()

    def submit(
        self, path: str | Path, indices: Sequence[int] | Int[np.ndarray, " n"], *, keep: bool = True
    ) -> Future[UInt8[np.ndarray, "n h w 3"]]:
        """Begin to read; `result()` of what comes back gives what `read` would."""
        numbers = np.asarray(indices, dtype=np.int64)
        return self._pool.submit(self._with_worker, self._read, path, numbers, keep)

    def _with_worker(self, call: Any, *arguments: Any) -> Any:
        worker = self._idle.get()
        try:
            return call(worker, *arguments)
        finally:
            self._idle.put(worker)

    def _index(self, worker: _Worker, path: str | Path) -> VideoIndex:
        stamp = file_stamp(path)
        with self._guard:
            if stamp in self._indices:
                self._indices.move_to_end(stamp)
                return self._indices[stamp]
        index: VideoIndex = worker.ask("index", str(path), path, self._timeout)
        worker.holds = index
        with self._guard:
            self._indices[stamp] = index
            if len(self._indices) > _CACHED_INDICES:
                self._indices.popitem(last=False)
        return index

    def _coding(self, worker: _Worker, path: str | Path) -> Coding:
        index = self._index(worker, path)
        found: Coding = worker.ask("coding", (index, self.reader), path, self._timeout)
        return found

    def _read(
        self, worker: _Worker, path: str | Path, indices: Int[np.ndarray, " n"], keep: bool
    ) -> UInt8[np.ndarray, "n h w 3"]:
        stamp = file_stamp(path)
        index = self._index(worker, path)
        wanted = check_indices(index, indices)
        if self._cache is None or index.container == PICTURES or not len(wanted):
            return self._decode(worker, path, index, wanted)
        return self._cache.frames(
            {**content_key(stamp), **self._how(worker, path)},
            wanted,
            size_within(index, self.max_side),
            lambda numbers: self._decode(worker, path, index, numbers),
            # Written over meanwhile, the file may be another than its index and its key are of.
            may_keep=lambda: keep and _is_still(stamp, path),
        )

    def _how(self, worker: _Worker, path: str | Path) -> dict[str, str]:
        """The reader as it is in the reading process."""
        if self._identity is None:
            self._identity = worker.ask("identity", self.reader, path, self._timeout)
        return self._identity

    def _decode(
        self, worker: _Worker, path: str | Path, index: VideoIndex, wanted: Int[np.ndarray, " n"]
    ) -> UInt8[np.ndarray, "n h w 3"]:
        given = None if worker.holds is index else index
        request = (given, wanted.tolist(), self.reader, self.max_side, self._threads)
        pixels: UInt8[np.ndarray, "n h w 3"] = worker.ask("read", request, path, self._timeout)
        worker.holds = index
        return pixels


def _is_still(stamp: FileStamp, path: str | Path) -> bool:
    try:
        return file_stamp(path) == stamp
    except MissingVideoError:
        return False


class _Worker:
    """One reading process, started when first needed and again after a death."""

    def __init__(self) -> None:
        self.holds: VideoIndex | None = None
        self.closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._lifeline = -1
        self._log: Any = None

    def ask(self, what: str, argument: Any, path: str | Path, timeout: float) -> Any:
        """Send a request and wait for its answer; kill the process where that takes too long."""
        connection = self._connection or self._start()
        deadline = time.monotonic() + timeout
        try:
            connection.send((what, argument))
            if not connection.poll(max(0.0, deadline - time.monotonic())):
                self.kill()
                raise ReaderTimeoutError(
                    f"the reader gave no answer within {timeout:g} s and was killed.",
                    remedy="Raise timeout_seconds for a long file; leave out one that hangs.",
                    path=path,
                )
            value, error = connection.recv()
            if error is None and what == "read":
                value = _received(connection, value)
        except (EOFError, OSError) as error:
            raise self._crash(path) from error
        if error is not None:
            error.path = error.path or str(path)
            raise error
        return value

    def stop(self) -> None:
        """End the process, from any thread; the one that waits for its answer cleans up."""
        self.closed = True
        process = self._process
        if process is not None:
            process.kill()

    def kill(self) -> None:
        """End the process at once and let go of everything it held."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        if self._log is not None:
            self._log.close()
            self._log = None
        self.holds = None

    def _start(self) -> Connection:
        if self.closed:
            raise RuntimeError("this FrameReader is closed")
        ours, theirs = socket.socketpair()
        end, self._lifeline = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        # The parent's own search path, so that readers named by dotted name are found there too.
        search = os.pathsep.join([_PACKAGE_ROOT, *filter(None, sys.path)])
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "diagnostics.video.worker",
                    str(theirs.fileno()),
                    str(end),
                    str(os.getpid()),
                ],
                pass_fds=(theirs.fileno(), end),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**os.environ, "PYTHONPATH": search},
                start_new_session=True,
            )
        os.close(end)
        self._connection = Connection(ours.detach())
        return self._connection

    def _crash(self, path: str | Path) -> ReaderCrashError:
        process = self._process
        if process is None or self.closed:
            return ReaderCrashError("the reader was closed.", remedy="Keep it open while reading.", path=path)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        code = process.poll()
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 2000))
        said = self._log.read().decode(errors="replace").strip()
        self.kill()
        how = signal.Signals(-code).name if code is not None and code < 0 else f"code {code}"
        hint = " (out of memory?)" if code == -signal.SIGKILL else ""
        return ReaderCrashError(
            f"the reading process died with {how}{hint}. {said}".rstrip(),
            remedy="Leave the file out, re-encode it, or give the machine more memory.",
            path=path,
        )


def _received(connection: Connection, shape: tuple[int, int, int, int]) -> UInt8[np.ndarray, "n h w 3"]:
    size = int(np.prod(shape))
    if size == 0:
        return np.empty(shape, np.uint8)
    descriptor = recv_handle(connection)
    try:
        # The array keeps the map, and the map keeps the memory, until the last of them is gone.
        return np.frombuffer(mmap.mmap(descriptor, size), np.uint8).reshape(shape)
    finally:
        os.close(descriptor)
