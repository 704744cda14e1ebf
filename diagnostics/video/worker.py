"""The reading process: indexes and decodes on request, and can be killed without harm.

Run as `python -m diagnostics.video.worker SOCKET LIFELINE PARENT`, with two inherited file
descriptors and the parent's process id. A request is a tuple `(what, arguments)`, a reply
`(value, error)`; pictures come back as a file descriptor of unnamed memory that follows the reply,
so that nothing is copied through the pipe and nothing is left in /dev/shm by whatever death.

The process ends when its parent does, also when that is killed: the kernel sends it SIGKILL
(Linux), and a thread waits for the end of the lifeline pipe (elsewhere).
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
import sys
import tempfile
import threading
import traceback
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle

import numpy as np

from diagnostics.errors import DiagnosticsError, ReaderCrashError
from diagnostics.video.decode_cost import coding_of
from diagnostics.video.index import VideoIndex, check_indices, open_index, size_within
from diagnostics.video.pictures import is_pictures, open_pictures, read_pictures
from diagnostics.video.readers import load_reader, reader_identity

__all__ = ["main", "memory_file"]

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Serve requests until the parent closes the connection or dies."""
    socket, lifeline, parent = (int(argument) for argument in arguments)
    _die_with(parent, lifeline)
    faulthandler.enable()
    connection = Connection(socket)
    index: VideoIndex | None = None
    while True:
        try:
            what, argument = connection.recv()
        except EOFError:
            return
        try:
            if what == "index":
                index = open_pictures(argument) if is_pictures(argument) else open_index(argument)
                connection.send((index, None))
            elif what == "identity":
                connection.send((reader_identity(argument), None))
            elif what == "coding":
                connection.send((coding_of(*argument), None))
            else:
                given, *rest = argument
                index = given or index
                assert index is not None
                _read(connection, index, *rest)
        except DiagnosticsError as error:
            connection.send((None, error))
        except Exception as error:  # noqa: BLE001 - reported to the parent, which raises it
            connection.send((None, _unexpected(error)))


def memory_file(size: int) -> int:
    """Descriptor of `size` bytes of shared memory without a name: gone with its last user."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("frames")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _read(
    connection: Connection,
    index: VideoIndex,
    indices: list[int],
    reader: str,
    max_side: int | None,
    threads: int,
) -> None:
    wanted = check_indices(index, np.array(indices, dtype=np.int64))
    height, width = size_within(index, max_side)
    shape = (len(wanted), height, width, 3)
    size = int(np.prod(shape))
    if size == 0:
        connection.send((shape, None))
        return
    descriptor = memory_file(size)
    try:
        # Not closed by hand: a reader's error still holds the array, and a map in use cannot be closed.
        pixels = np.frombuffer(mmap.mmap(descriptor, size), np.uint8).reshape(shape)
        if is_pictures(index.path):
            read_pictures(index, wanted, pixels)
        else:
            load_reader(reader).read(index, wanted, pixels, threads)
        connection.send((shape, None))
        send_handle(connection, descriptor, os.getppid())
    finally:
        os.close(descriptor)


def _unexpected(error: Exception) -> ReaderCrashError:
    return ReaderCrashError(
        f"the reader failed with {type(error).__name__}: {error}\n{traceback.format_exc()}",
        remedy="This is a fault of the reader: report it, or choose another one.",
    )


def _die_with(parent: int, lifeline: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)
    threading.Thread(target=_wait_for_end, args=(lifeline,), daemon=True).start()


def _wait_for_end(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
