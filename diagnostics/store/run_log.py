"""The log of a run: what this process did, and what the libraries below it had to say, in the run's folder.

    run.<shard>.log     one a shard; every attempt goes on at its end

Lines are `time level source: text`, times in UTC. Into it go `diagnostics`' own log, warnings and errors of
every other logger, and whatever is written to `sys.stderr` (Python's warnings, handlers of libraries, their
progress bars as they stood at last; of bars drawn over each other, a state now and then), so that none of it
breaks through what a person watches. `sys.stdout` is left alone. What is written to file descriptor 2 from C,
or by a program that is started, is not caught.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from diagnostics.errors import DiagnosticsError

__all__ = ["LoggedStream", "log_path", "run_log"]

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_OURS = "diagnostics"
_REDRAWN_SECONDS = 10.0
"""Between states of bars that are drawn over each other: a long download would fill the log with them."""
_UP = "\x1b[A"
_END = re.compile(r"(?:\x1b\[\d*A|\s)+\Z")
_OVER = re.compile(r"\r|\x1b\[\d*A")
"""Back to a line that is there: what follows is drawn over it."""
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_log = logging.getLogger(__name__)


def log_path(run_dir: Path, shard: int) -> Path:
    """Where the log of a shard is. Its ending keeps a folder with nothing else in it from being taken for
    somebody else's (`admission.refuse_foreign`)."""
    return run_dir / f"run.{shard}.log"


@contextlib.contextmanager
def run_log(path: Path, begins: str) -> Iterator[None]:
    """Keep a log while the block runs; what ends the block early is its last entry, and is raised again.

    Args:
        path: the file; gone on with where it is there.
        begins: what the first line says.

    Raises:
        OSError: the file cannot be opened.
    """
    root, ours = logging.getLogger(), logging.getLogger(_OURS)
    stderr = LoggedStream(sys.stderr)
    handler = _Handler(path, stderr.real)
    already = _handlers_on(stderr.real)
    level = ours.level
    ours.setLevel(logging.INFO)
    for theirs in already:
        theirs.setStream(cast(TextIO, stderr))
    root.addHandler(handler)
    try:
        with contextlib.redirect_stderr(stderr):
            _log.info("%s; process %d on %s", begins, os.getpid(), socket.gethostname())
            started = time.monotonic()
            try:
                try:
                    yield
                finally:
                    stderr.finish()
            except (DiagnosticsError, KeyboardInterrupt) as error:
                _log.error("%s after %.0f s: %s", type(error).__name__, time.monotonic() - started, error)
                raise
            except BaseException:
                _log.exception("ended after %.0f s", time.monotonic() - started)
                raise
            else:
                _log.info("done after %.0f s", time.monotonic() - started)
    finally:
        for theirs in already:
            theirs.setStream(stderr.real)
        root.removeHandler(handler)
        ours.setLevel(level)
        handler.close()


def _handlers_on(stream: TextIO) -> list[logging.StreamHandler[TextIO]]:
    """What libraries set up to write there when they were imported, before the block.

    Those that look `sys.stderr` up at each line (`logging.lastResort`) hold no stream and follow anyway.
    """
    loggers = [logging.getLogger(), *logging.root.manager.loggerDict.values()]
    return [
        handler
        for logger in loggers
        if isinstance(logger, logging.Logger)
        for handler in logger.handlers
        if isinstance(handler, logging.StreamHandler) and vars(handler).get("stream") is stream
    ]


class _Handler(logging.FileHandler):
    """A file; where it cannot be written (a full disk), that is said once, and the run's own files decide
    whether it goes on."""

    def __init__(self, path: Path, stderr: TextIO) -> None:
        super().__init__(path, encoding="utf-8", errors="backslashreplace")
        self._stderr, self._told = stderr, False
        formatter = logging.Formatter(_FORMAT, datefmt="%Y-%m-%dT%H:%M:%SZ")
        formatter.converter = time.gmtime
        self.setFormatter(formatter)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - logging calls it so
        """Say it once, not with a traceback at each line."""
        if not self._told:
            self._told = True
            print(f"The log cannot be written: {sys.exc_info()[1]}", file=self._stderr)

    def close(self) -> None:
        """As of any file; what is still unwritten stays so."""
        try:
            super().close()
        except OSError:
            self.handleError(logging.makeLogRecord({}))


class LoggedStream(io.TextIOBase):
    """Stands in for `sys.stderr`: whole lines go to the log.

    Attributes:
        real: the stream it stands in for.
    """

    def __init__(self, real: TextIO) -> None:
        self.real = real
        self._log = logging.getLogger("stderr")
        self._guard = threading.RLock()
        self._held = ""
        self._redrawn_at = -math.inf
        self._telling = threading.local()

    @property
    def unfinished(self) -> str:
        """The line that is being written, as it stands: of a progress bar, what it shows now."""
        return _last_state(self._held)

    def write(self, text: str) -> int:
        """Log the lines that are whole, and hold the rest."""
        with self._guard:
            *lines, self._held = (self._held + text).split("\n")
            self._held = self._held[max(0, self._held.rstrip("\r").rfind("\r")) :]
        for line in lines:
            if not line.endswith(_UP) or self._is_due():
                self._tell(_last_state(line))
        return len(text)

    def _is_due(self) -> bool:
        """Whether a state that is drawn again soon is worth a line."""
        now = time.monotonic()
        due = now - self._redrawn_at >= _REDRAWN_SECONDS
        if due:
            self._redrawn_at = now
        return due

    def finish(self) -> None:
        """Log what has no end of line."""
        with self._guard:
            line, self._held = self._held, ""
        self._tell(_last_state(line))

    def _tell(self, line: str) -> None:
        if not line:
            return
        if getattr(self._telling, "now", False):  # logging itself writes here when it fails
            print(line, file=self.real)
            return
        self._telling.now = True
        try:
            self._log.warning("%s", line)
        finally:
            self._telling.now = False

    def writable(self) -> bool:
        """Yes."""
        return True

    def isatty(self) -> bool:
        """As of the real stream, so that libraries tell their progress where somebody watches."""
        return self.real.isatty()

    def fileno(self) -> int:
        """The real stream's, for helper processes."""
        return self.real.fileno()

    @property
    def encoding(self) -> Any:  # type: ignore[override]
        """The real stream's."""
        return self.real.encoding

    @property
    def errors(self) -> Any:  # type: ignore[override]
        """The real stream's."""
        return self.real.errors


def _last_state(line: str) -> str:
    return _COLOURS.sub("", _OVER.split(_END.sub("", line))[-1]).rstrip()
