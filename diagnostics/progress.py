"""What a person watches while a run works: a bar with what is done, what failed, the rate and the time left,
and under it what the machine waits for. It is gone when the work is.

Where nobody watches (a pipe, a batch job) nothing is shown. The log gets a line now and then either way.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.spinner import Spinner
from rich.text import Text

from diagnostics.store.run_log import LoggedStream

__all__ = ["Advance", "Watch", "duration", "rate"]

_LOG_SECONDS = 60.0
_RATE_SECONDS = 900.0
"""Over which the rate is taken: items of a minute each must give one too."""
_TELL_AFTER = 3.0
"""Seconds after which a wait's length is shown: then it may be what takes the time."""

_log = logging.getLogger(__name__)


class Advance(Protocol):
    """What a bar gives to whoever does the work: call it as items are done.

    `now` is what is in work from here on, `step` how many items have been done.
    """

    def __call__(self, now: str = "", step: int = 1) -> None:
        """Count `step` items."""


class Watch:
    """Bars, waits and their place on the screen, for one run. From any thread.

    Args:
        console: where the person watches; nothing is shown where that is no terminal.
        failed: how many items of this process's have failed until now.
    """

    def __init__(self, console: Console, failed: Callable[[], int] = lambda: 0) -> None:
        self._failed = failed
        self._guard = threading.RLock()
        self._shown = _Shown(console, disable=not console.is_interactive)
        self._open = 0  # blocks that want the display

    @contextmanager
    def bar(self, task: str, total: int, done: int = 0) -> Iterator[Advance]:
        """A bar of `total` items, `done` of them before this process came; gives what counts them."""
        failed_before = self._failed()
        counted = _Counted(task, total, done, lambda: self._failed() - failed_before)
        with self._displayed():
            handle = self._shown.add_task(task, total=total, completed=done, failed=0)

            def advance(now: str = "", step: int = 1) -> None:
                with self._guard:
                    self._shown.now = now
                    self._shown.update(handle, advance=step, failed=counted.failed())
                    counted.add(step)

            try:
                yield advance
            finally:
                with self._guard:
                    self._shown.remove_task(handle)
                    self._shown.now = ""
                    counted.end()

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Say what the machine waits for while the block runs; of several, the last one is shown."""
        wait = _Wait(what)
        with self._displayed():
            self._shown.waits.append(wait)
            try:
                yield
            finally:
                self._shown.waits.remove(wait)

    @contextmanager
    def _displayed(self) -> Iterator[None]:
        with self._guard:
            self._open += 1
            if self._open == 1:
                self._shown.start()
        try:
            yield
        finally:
            with self._guard:
                self._open -= 1
                last = self._open == 0
            if last:  # outside the guard: it waits for the thread that draws
                self._shown.stop()


class _Wait:
    """By identity: two threads may wait for the same."""

    def __init__(self, what: str) -> None:
        self.what, self.since = what, time.monotonic()

    def told(self) -> str:
        seconds = time.monotonic() - self.since
        return f"{self.what} ({duration(seconds)})" if seconds >= _TELL_AFTER else self.what


class _Shown(Progress):
    """The bars, and a line of what goes on."""

    def __init__(self, console: Console, *, disable: bool) -> None:
        self.waits: list[_Wait] = []
        self.now = ""
        self._spinner = Spinner("dots")
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            _Failed(),
            _Pace(),
            console=console,
            transient=True,
            redirect_stderr=False,  # that goes to the log
            speed_estimate_period=_RATE_SECONDS,
            disable=disable,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        tasks, waits = self.tasks, self.waits[-1:]
        if tasks:
            yield self.make_tasks_table(tasks)
        told = [*([self.now] if self.now else []), *(wait.told() for wait in waits), *_library_bar()]
        if told:
            self._spinner.update(text=Text(" · ".join(told), no_wrap=True, overflow="ellipsis", style="dim"))
            yield self._spinner


def _library_bar() -> list[str]:
    """A library's own progress bar, such as that of a download."""
    unfinished = sys.stderr.unfinished if isinstance(sys.stderr, LoggedStream) else ""
    return [unfinished] if unfinished else []


class _Failed(ProgressColumn):
    def render(self, task: Task) -> Text:
        failed = task.fields["failed"]
        return Text(f"{failed} failed", style="bold red") if failed else Text("")


class _Pace(ProgressColumn):
    """The rate and the time left; nothing before two items are done."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        if task.finished or not task.speed:
            return Text("")
        left = "" if task.time_remaining is None else f"  {duration(task.time_remaining)} left"
        return Text(f"{rate(task.speed)}{left}", style="progress.remaining")


class _Counted:
    """The same count for the log, which has no screen to draw on."""

    def __init__(self, task: str, total: int, done: int, failed: Callable[[], int]) -> None:
        self._task, self._total, self._done, self.failed = task, total, done, failed
        self._before, self._started = done, time.monotonic()
        self._told = self._started
        _log.info("%s: %d of %d", task, done, total)

    def add(self, step: int) -> None:
        self._done += step
        now = time.monotonic()
        if step and now - self._told >= _LOG_SECONDS:
            self._told = now
            speed = (self._done - self._before) / (now - self._started)
            left = duration((self._total - self._done) / speed)
            _log.info("%s, %s, %s left", self._state(), rate(speed), left)

    def end(self) -> None:
        if self._done > self._before:
            _log.info("%s in %s", self._state(), duration(time.monotonic() - self._started))

    def _state(self) -> str:
        failed = self.failed()
        return f"{self._task}: {self._done} of {self._total}" + (f", {failed} failed" if failed else "")


def rate(speed: float) -> str:
    """Items a second, as 12.3/s; slower ones a minute or an hour, as 4.0/min."""
    for unit, seconds in (("s", 1.0), ("min", 60.0)):
        if speed * seconds >= 1:
            return f"{speed * seconds:.1f}/{unit}"
    return f"{speed * 3600:.1f}/h"


def duration(seconds: float) -> str:
    """As 0:09, 12:30 or 3:05:00."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
