"""The log of a run: what goes into it, what does not break through, and how it ends."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import pytest

from diagnostics.errors import RunError
from diagnostics.store.run_log import LoggedStream, log_path, run_log


def test_what_libraries_say_is_in_the_file_and_not_on_the_screen(tmp_path, capfd):
    path = log_path(tmp_path, 3)
    early = logging.StreamHandler()  # of a library that was imported before
    logging.getLogger("early").addHandler(early)
    logging.getLogger("early").propagate = False
    assert logging.lastResort is not None  # its stream is whatever `sys.stderr` is, and cannot be set
    logging.getLogger("follows").addHandler(logging.lastResort)
    logging.getLogger("follows").propagate = False
    with run_log(path, "begins"):
        logging.getLogger("early").warning("from an earlier handler")
        logging.getLogger("follows").warning("from one that follows")
        logging.getLogger("diagnostics.somewhere").info("ours")
        logging.getLogger("library").warning("theirs")
        logging.getLogger("library").info("too much")
        own = logging.StreamHandler()  # a library with a handler of its own, made while it was imported
        logging.getLogger("loud").addHandler(own)
        logging.getLogger("loud").propagate = False
        logging.getLogger("loud").warning("from its own handler")
        print("a\rbar at 10%\rbar at 100%", file=sys.stderr)
        sys.stderr.write("without an end of line")
        print("on the screen")
    assert path.name == "run.3.log"
    told = path.read_text()
    lines = [
        "begins; process",
        "ours",
        "theirs",
        "from its own handler",
        "from an earlier handler",
        "from one that follows",
        "bar at 100%",
    ]
    assert told.index("without an end of line") < told.index("done after")
    for line in (*lines, "without an end of line", "done after"):
        assert told.count(line) == 1, line
    assert "too much" not in told
    assert "10%" not in told
    assert capfd.readouterr() == ("on the screen\n", "")
    assert early.stream is sys.stderr
    logging.getLogger("early").removeHandler(early)
    logging.getLogger("loud").removeHandler(own)


def test_bars_drawn_over_each_other_do_not_fill_the_log(tmp_path):
    path = tmp_path / "run.0.log"
    with run_log(path, "begins"):
        sys.stderr.write("\router 0%")
        for percent in range(100):  # as tqdm draws the second of two bars
            sys.stderr.write("\n")
            sys.stderr.write(f"\r\x1b[32minner\x1b[0m {percent}%")
            sys.stderr.write("\x1b[A")
        assert isinstance(sys.stderr, LoggedStream)
        assert sys.stderr.unfinished == "inner 99%"  # no escapes: it is shown on the screen
        print("a warning", file=sys.stderr)
    told = path.read_text()
    assert told.count("outer") == told.count("inner") == 1
    assert "stderr: a warning\n" in told
    assert "\x1b" not in told


def test_a_second_attempt_goes_on_and_nothing_is_left_behind(tmp_path):
    before = (list(logging.getLogger().handlers), logging.getLogger("diagnostics").level, sys.stderr)
    for attempt in ("first", "second"):
        with run_log(tmp_path / "run.0.log", attempt):
            pass
    assert (list(logging.getLogger().handlers), logging.getLogger("diagnostics").level, sys.stderr) == before
    told = (tmp_path / "run.0.log").read_text()
    assert told.index("first") < told.index("second")


@pytest.mark.parametrize(
    ("error", "traceback"),
    [
        (RunError("The disk is away.", remedy="Look."), False),
        (KeyboardInterrupt(), False),
        (KeyError("x"), True),
    ],
)
def test_what_ends_a_run_is_its_last_entry(tmp_path, error, traceback):
    path = tmp_path / "run.0.log"
    with pytest.raises(type(error)), run_log(path, "begins"):
        raise error
    told = path.read_text()
    assert type(error).__name__ in told
    assert str(error) in told
    assert ("Traceback" in told) is traceback
    assert "done" not in told


def test_lines_from_two_threads_are_whole(tmp_path):
    path = tmp_path / "run.0.log"

    def write(name: str) -> None:
        for number in range(200):
            sys.stderr.write(f"{name} {number}\n")

    with run_log(path, "begins"):
        threads = [threading.Thread(target=write, args=(name,)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = [line.split("stderr: ")[1] for line in path.read_text().splitlines() if "stderr: " in line]
    assert sorted(lines) == sorted(f"{name} {number}" for name in ("one", "two") for number in range(200))


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
def test_a_warning_is_logged_and_a_full_disk_said_once(tmp_path):
    program = (
        "import logging, pathlib, sys, warnings\n"
        "from diagnostics.store.run_log import run_log\n"
        "for path in sys.argv[1:]:\n"
        "    with run_log(pathlib.Path(path), 'begins'):\n"
        "        logging.getLogger('library').warning('x')\n"
        "        warnings.warn('seldom right')\n"
        "        print('on the screen')\n"
    )
    path = tmp_path / "run.0.log"
    run = subprocess.run(
        [sys.executable, "-c", program, path, "/dev/full"], capture_output=True, text=True, timeout=120
    )
    assert (run.returncode, run.stdout) == (0, "on the screen\n" * 2)
    assert run.stderr.count("The log cannot be written") == 1
    assert len(run.stderr.splitlines()) == 1
    assert path.read_text().count("UserWarning: seldom right") == 1
