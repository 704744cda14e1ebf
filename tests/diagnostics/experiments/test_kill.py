"""SIGKILL at random moments, and the same command again: nothing finished is lost or counted twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from diagnostics.store.record_log import read_records
from diagnostics.store.records import comparable
from diagnostics.store.run_folder import tensor_path
from diagnostics.store.tensors import read_tensors

from .conftest import Run, environment

KILLS = 10
RECORDS = 24
COMMAND = (
    "+exp=attention_drift",
    "data.n_videos=6",
    "data.seconds=30",
    "data.questions=4",
    "sampling.budget=15",
    "exp.item_figures=0",
)


def lines(folder: Path) -> int:
    path = folder / "samples.0.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def start(folder: Path, cache: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "diagnostics", *COMMAND, f"out={folder}"],
        env=environment(cache),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill_after_a_record(folder: Path, cache: Path, random_source: random.Random) -> bool:
    """Start, wait for one more record and a random moment more, kill. False where the run ended before."""
    before = lines(folder)
    process = start(folder, cache)
    deadline = time.monotonic() + 300
    while lines(folder) == before and process.poll() is None:
        assert time.monotonic() < deadline, "no record appeared"
        time.sleep(0.005)
    time.sleep(random_source.uniform(0, 0.15))
    ended = process.poll() is not None
    if not ended:
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return not ended


def test_killed_ten_times_it_comes_to_the_same_records_and_tensors(
    small_run: Run, cache: Path, tmp_path: Path
) -> None:
    """(`small_run` has made the tiny model, so that no kill falls into its making.)"""
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    assert start(undisturbed, cache).wait(timeout=600) == 0
    random_source = random.Random(20261129)
    killed = 0
    while killed < KILLS:
        assert lines(disturbed) < RECORDS, f"only {killed} kills fell into the middle of the run"
        killed += kill_after_a_record(disturbed, cache, random_source)
    assert start(disturbed, cache).wait(timeout=600) == 0

    once, again = read_records(undisturbed), read_records(disturbed)
    key = lambda record: record.pair  # noqa: E731
    assert len(once) == RECORDS
    assert [comparable(r) for r in sorted(once, key=key)] == [comparable(r) for r in sorted(again, key=key)]
    for one, two in zip(sorted(once, key=key), sorted(again, key=key), strict=True):
        first = read_tensors(tensor_path(undisturbed, one))
        second = read_tensors(tensor_path(disturbed, two))
        theirs = {path: array for path, _, array in second.arrays()}
        for path, _, array in first.arrays():
            np.testing.assert_array_equal(array, theirs.pop(path), err_msg=path)
        assert not theirs
    pairs = [line.split(b'"error":')[0] for line in (disturbed / "samples.0.jsonl").read_bytes().splitlines()]
    assert len(pairs) == RECORDS, "nothing finished was measured twice"
    assert (undisturbed / "summary.json").read_bytes() == (disturbed / "summary.json").read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_readers_die_with_a_killed_run(small_run: Run, cache: Path, tmp_path: Path) -> None:
    process = start(tmp_path / "run", cache)
    while lines(tmp_path / "run") == 0 and process.poll() is None:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 30
    while session(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert session(process.pid) == []


def session(leader: int) -> list[int]:
    """Living processes of the session that `leader` began."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                members.append(int(entry.name))
    return members
