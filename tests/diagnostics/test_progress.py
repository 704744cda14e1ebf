"""What a person watches: the bar's numbers, what is waited for, and silence where nobody watches."""

from __future__ import annotations

import io
import logging
import threading

import pytest
from rich.console import Console

from diagnostics.progress import Watch, duration, rate


class Screen:
    """A terminal, or none, that keeps what was drawn."""

    def __init__(self, *, terminal: bool = True) -> None:
        self.file = io.StringIO()
        self.console = Console(
            file=self.file, width=100, force_terminal=terminal, force_interactive=terminal, color_system=None
        )

    def now(self, watch: Watch) -> str:
        """The display as it would be drawn now."""
        paper = Console(file=io.StringIO(), width=100, color_system=None)
        paper.print(watch._shown.get_renderable())
        assert isinstance(paper.file, io.StringIO)
        return paper.file.getvalue()


def test_the_bar_has_items_done_failed_and_what_is_waited_for():
    screen, failed = Screen(), [7]  # seven failed before this bar
    watch = Watch(screen.console, lambda: failed[0])
    with watch.bar("Capturing", total=12, done=3) as advance:
        assert "failed" not in screen.now(watch)
        failed[0] += 2
        advance("[bold]q4", 1)
        with watch.waiting("waiting for frames"):
            shown = screen.now(watch)
            with watch.waiting("loading tiny"):
                assert "loading tiny" in screen.now(watch)
        assert "4/12" in shown
        assert "2 failed" in shown
        assert "[bold]q4 · waiting for frames" in shown  # text of a data set is no markup
        assert "waiting" not in screen.now(watch)
        advance()
        advance()
        assert "/s" in screen.now(watch)
        assert "left" in screen.now(watch)
    assert "Capturing" not in screen.now(watch)


def test_where_nobody_watches_nothing_is_shown_and_the_log_has_it(caplog):
    screen = Screen(terminal=False)
    watch = Watch(screen.console, lambda: 0)
    with caplog.at_level(logging.INFO, logger="diagnostics"), watch.bar("Answering", total=2) as advance:
        with watch.waiting("waiting for frames"):
            advance("q1")
        advance()
    assert screen.file.getvalue() == ""
    assert [message.partition(" in ")[0] for message in caplog.messages] == [
        "Answering: 0 of 2",
        "Answering: 2 of 2",
    ]


def test_waits_of_several_threads_and_a_wait_without_a_bar():
    screen = Screen()
    watch = Watch(screen.console)
    inside, leave = threading.Event(), threading.Event()

    def load() -> None:
        with watch.waiting("loading tiny"):
            inside.set()
            leave.wait(10)

    other = threading.Thread(target=load)
    with watch.waiting("waiting for frames"):
        other.start()
        assert inside.wait(10)
        assert "loading tiny" in screen.now(watch)
        leave.set()
        other.join(10)
        assert "waiting for frames" in screen.now(watch)
    assert screen.now(watch).strip() == ""


def test_an_error_leaves_no_bar_behind():
    screen = Screen()
    watch = Watch(screen.console)
    with pytest.raises(KeyError), watch.bar("Capturing", total=2), watch.waiting("waiting for frames"):
        raise KeyError
    assert not watch._shown.live.is_started
    assert screen.now(watch).strip() == ""
    wiped, shown = "\r\x1b[2K", "\x1b[?25h"
    assert screen.file.getvalue().endswith(f"{wiped}{shown}\r")  # and the cursor is back


@pytest.mark.parametrize(
    ("speed", "told"), [(12.34, "12.3/s"), (1.0, "1.0/s"), (0.5, "30.0/min"), (1 / 90, "40.0/h")]
)
def test_rates(speed, told):
    assert rate(speed) == told


@pytest.mark.parametrize(
    ("seconds", "told"), [(9.4, "0:09"), (59.7, "1:00"), (750, "12:30"), (11100, "3:05:00")]
)
def test_durations(seconds, told):
    assert duration(seconds) == told
