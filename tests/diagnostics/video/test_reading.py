from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from diagnostics import errors
from diagnostics.video.reading import FrameReader

STUBS = {
    "stub_hang": """
        import time
        def read(index, indices, out, threads):
            if 13 in indices:
                time.sleep(3600)
            out[:] = 7
    """,
    "stub_native_hang": """
        import ctypes
        def read(index, indices, out, threads):
            ctypes.PyDLL(None).sleep(3600)  # a PyDLL call keeps the interpreter's lock
    """,
    "stub_crash": """
        import os, signal, sys
        def read(index, indices, out, threads):
            if 13 in indices:
                print("about to fall", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGSEGV)
            out[:] = 7
    """,
    "stub_bug": """
        def read(index, indices, out, threads):
            raise KeyError("unforeseen")
    """,
    "stub_torch": """
        import sys
        def read(index, indices, out, threads):
            out[:] = 1 if "torch" in sys.modules else 0
    """,
}


@pytest.fixture
def stubs(tmp_path, monkeypatch):
    """Reader modules of our own, found by dotted name."""
    package = tmp_path / "stub_readers"
    package.mkdir()
    (package / "__init__.py").touch()
    for name, text in STUBS.items():
        (package / f"{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda name: f"stub_readers.{name}"


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    return [
        c for c in process.children(recursive=True) if "diagnostics.video.worker" in " ".join(c.cmdline())
    ]


def wait_until(true, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.02)
    return bool(true())


def test_frames_arrive_right_and_can_be_written_to(clips):
    with FrameReader() as reader:
        assert reader.index(clips["h264.mp4"]).n_frames == 200
        shown = reader.read(clips["h264.mp4"], [150, 3, 3, 0])
        assert [clips.spelled(picture) for picture in shown] == [150, 3, 3, 0]
        assert shown.dtype == np.uint8
        shown[0] = 0
    assert shown[1, 0, 0, 0] > 100, "pictures outlive the reader"


def test_no_frames_asked_for(clips):
    with FrameReader() as reader:
        assert reader.read(clips["h264.mp4"], []).shape == (0, 96, 192, 3)


def test_max_side(clips):
    with FrameReader(max_side=96) as reader:
        assert reader.read(clips["h264.mp4"], [9]).shape == (1, 48, 96, 3)


def test_several_workers_answer_each_his_own(clips):
    names = ["h264.mp4", "vfr.mp4", "h264.mkv", "h264.ts"]
    with FrameReader(workers=3) as reader:
        asked = [(name, [i * 7 % 200, i]) for i, name in enumerate(names * 5)]
        pending = [reader.submit(clips[name], numbers) for name, numbers in asked]
        got = [[clips.spelled(picture) for picture in future.result()] for future in pending]
        assert len(workers_of(psutil.Process())) == 3
    assert got == [numbers for _, numbers in asked]
    assert not workers_of(psutil.Process())


def test_the_index_is_opened_once_and_again_when_the_file_changes(clips, tmp_path):
    path = tmp_path / "film.mp4"
    path.write_bytes(clips["h264.mp4"].read_bytes())
    with FrameReader() as reader:
        first = reader.index(path)
        assert reader.index(str(path)) is first
        path.write_bytes(clips["single.mp4"].read_bytes())
        assert reader.index(path).n_frames == 1
        assert reader.read(path, [0]).shape[0] == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nowhere.mp4", errors.MissingVideoError),
        ("empty.mp4", errors.EmptyVideoError),
        ("audio_only.m4a", errors.NoVideoStreamError),
        ("cut.mp4", errors.TruncatedVideoError),
        ("damaged_middle.mp4", errors.DamagedVideoError),
    ],
)
def test_typed_errors_cross_the_process_boundary_and_the_reader_lives_on(clips, name, kind):
    path = clips.folder / name if name == "nowhere.mp4" else clips[name]
    with FrameReader() as reader:
        with pytest.raises(kind) as caught:
            reader.read(path, [100])
        assert (type(caught.value), caught.value.path) == (kind, str(path))
        assert type(pickle.loads(pickle.dumps(caught.value))) is kind  # noqa: S301 - our own bytes
        assert clips.spelled(reader.read(clips["h264.mp4"], [77])[0]) == 77


def test_a_frame_that_is_not_there(clips):
    with FrameReader() as reader, pytest.raises(errors.FrameCountError, match="holds 60 frames"):
        reader.read(clips["overclaiming.avi"], [0, 70])


@pytest.mark.parametrize("stub", ["stub_hang", "stub_native_hang"])
def test_a_hang_costs_a_time_out_and_nothing_else(clips, stubs, stub):
    with FrameReader(reader=stubs(stub), timeout_seconds=1.0) as reader:
        reader.index(clips["h264.mp4"])
        (worker,) = workers_of(psutil.Process())
        with pytest.raises(errors.ReaderTimeoutError, match="within 1 s") as caught:
            reader.read(clips["h264.mp4"], [13])
        assert caught.value.path == str(clips["h264.mp4"])
        assert not worker.is_running()
        if stub == "stub_hang":
            assert (reader.read(clips["h264.mp4"], [1, 2]) == 7).all(), "the next read is served"


def test_a_native_crash_is_an_error_that_says_what_it_was(clips, stubs):
    with FrameReader(reader=stubs("stub_crash")) as reader:
        with pytest.raises(errors.ReaderCrashError, match=r"SIGSEGV[\s\S]*about to fall"):
            reader.read(clips["h264.mp4"], [13])
        assert (reader.read(clips["h264.mp4"], [1]) == 7).all()


def test_a_killed_worker_is_replaced(clips):
    with FrameReader() as reader:
        reader.index(clips["h264.mp4"])
        (worker,) = workers_of(psutil.Process())
        worker.kill()
        with pytest.raises(errors.ReaderCrashError, match="SIGKILL"):
            reader.read(clips["h264.mp4"], [5])
        assert clips.spelled(reader.read(clips["h264.mp4"], [5])[0]) == 5


def test_a_fault_of_the_reader_is_told_with_its_trace(clips, stubs):
    with (
        FrameReader(reader=stubs("stub_bug")) as reader,
        pytest.raises(errors.ReaderCrashError, match="unforeseen"),
    ):
        reader.read(clips["h264.mp4"], [5])


@pytest.mark.parametrize("name", ["pyaw", "no_such.module", "json.decoder"])
def test_an_unknown_reader_is_a_configuration_error(clips, name):
    with FrameReader(reader=name) as reader, pytest.raises(errors.ConfigError, match=name):
        reader.read(clips["h264.mp4"], [5])


@pytest.mark.parametrize("wrong", [{"timeout_seconds": 0.0}, {"workers": 0}, {"max_side": 0}, {"threads": 0}])
def test_wrong_numbers_are_refused(wrong):
    with pytest.raises(errors.ConfigError):
        FrameReader(**wrong)


def test_the_default_reader_does_not_load_torch(clips, stubs):
    with FrameReader(reader=stubs("stub_torch")) as reader:
        assert (reader.read(clips["h264.mp4"], [0]) == 0).all()


def test_closing_ends_a_read_under_way(clips, stubs):
    reader = FrameReader(reader=stubs("stub_hang"))
    reader.index(clips["h264.mp4"])
    pending = reader.submit(clips["h264.mp4"], [13])
    closer = threading.Timer(0.3, reader.close)
    closer.start()
    with pytest.raises(errors.ReaderCrashError, match="closed"):
        pending.result(timeout=10)
    closer.join()
    assert not workers_of(psutil.Process())


def test_nothing_is_left_open(clips):
    here = psutil.Process()
    with FrameReader() as reader:
        reader.read(clips["h264.mp4"], [0])
        before, mapped = here.num_fds(), len(here.memory_maps(grouped=False))
        for start in range(40):
            reader.read(clips["h264.mp4"], [start])
        assert here.num_fds() <= before
        assert len(here.memory_maps(grouped=False)) <= mapped + 3
        (worker,) = workers_of(here)
        assert worker.num_fds() < 12


PARENT = """
import sys, time
from diagnostics.video.reading import FrameReader
reader = FrameReader(reader=sys.argv[2], workers=2)
for _ in range(2):
    reader.submit(sys.argv[1], [13])
reader.index(sys.argv[1]) if sys.argv[2] == "pyav" else time.sleep(0.5)
print("ready", flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("name", ["pyav", "stub_hang", "stub_native_hang"])
def test_workers_die_with_a_parent_that_is_killed(clips, stubs, tmp_path, name):
    """Idle, busy, and hung in native code with the interpreter's lock held."""
    shared = set(Path("/dev/shm").glob("*"))
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(clips["h264.mp4"]), name if name == "pyav" else stubs(name)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())])},
    )
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        orphans = workers_of(psutil.Process(parent.pid))
        assert orphans
        parent.send_signal(signal.SIGKILL)
        parent.wait(10)
        assert wait_until(lambda: not any(worker.is_running() for worker in orphans)), "a worker lives on"
    finally:
        parent.kill()
        parent.stdout.close()
    left = {path for path in set(Path("/dev/shm").glob("*")) - shared if "frame" in path.name}
    assert not left, "shared memory outlives its users"


def test_without_the_kernels_signal_the_lifeline_ends_the_worker(clips, monkeypatch):
    """As on systems other than Linux: the pipe to the parent is closed, and that is all."""
    from diagnostics.video import reading

    popen = subprocess.Popen

    def elsewhere(command, **options):
        start = (
            "import sys; sys.platform = 'darwin'\n"
            "from diagnostics.video.worker import main; main(sys.argv[1:])"
        )
        return popen([command[0], "-c", start, *command[3:]], **options)

    monkeypatch.setattr(reading.subprocess, "Popen", elsewhere)
    with FrameReader() as reader:
        reader.index(clips["h264.mp4"])
        (process,) = [c for c in psutil.Process().children() if "darwin" in " ".join(c.cmdline())]
        (held,) = reader._workers
        os.close(held._lifeline)
        held._lifeline = -1
        assert wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE)
