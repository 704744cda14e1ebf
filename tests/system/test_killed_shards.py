"""Killed at twenty random moments, started again with another number of shards each time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from diagnostics.store.record_log import all_records, read_records
from diagnostics.store.records import comparable

pytestmark = pytest.mark.system

KILLS = 20
VIDEOS, QUESTIONS = 160, 2
BENCHMARK = (
    "+exp=benchmark", "model=tiny_random", f"data.n_videos={VIDEOS}", "data.seconds=20", "data.fps=4",
    f"data.questions={QUESTIONS}", "sampling.budget=4", "backend.max_new_tokens=1",
)  # fmt: skip
PATIENCE_SECONDS = 300.0


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cache = tmp_path_factory.mktemp("cache")
    return {**os.environ, "DIAGNOSTICS_CACHE": str(cache), "OMP_NUM_THREADS": "1"}


def start(folder: Path, environment: dict[str, str], count: int) -> list[subprocess.Popen[bytes]]:
    """All shards of a run, side by side, each leading a session of its own."""
    command = [sys.executable, "-m", "diagnostics", *BENCHMARK, f"shard.count={count}", f"out={folder}"]
    return [
        subprocess.Popen(
            [*command, f"shard.index={shard}"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        for shard in range(count)
    ]


def kill_in_the_middle(folder: Path, environment: dict[str, str], count: int, source: random.Random) -> None:
    """Wait for a new record and a random moment more, then kill every shard at once."""
    before = len(all_records(folder)) if folder.exists() else 0
    processes = start(folder, environment, count)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not folder.exists() or len(all_records(folder)) == before:
        assert time.monotonic() < deadline, "no record appeared"
        assert any(process.poll() is None for process in processes), [p.communicate() for p in processes]
        time.sleep(0.01)
    time.sleep(source.uniform(0, 0.05))
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)
    for process in processes:
        process.communicate()


def test_killed_twenty_times_with_other_shards_it_comes_to_the_same(
    environment: dict[str, str], tmp_path: Path
) -> None:
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    for process in start(undisturbed, environment, 1):
        assert process.wait(PATIENCE_SECONDS) == 0
    once = {record.pair: comparable(record) for record in read_records(undisturbed)}
    source = random.Random(20261130)
    count = 1
    for _ in range(KILLS):
        count = source.choice([other for other in (1, 2, 3) if other != count])
        kill_in_the_middle(disturbed, environment, count, source)
        assert len(read_records(disturbed)) < len(once), "every kill falls into the middle of the run"
    for process in start(disturbed, environment, 2):
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, errors
    again = {record.pair: comparable(record) for record in read_records(disturbed)}
    assert again == once
    assert set(Counter(record.pair for record in all_records(disturbed)).values()) == {1}, "nothing twice"
    for folder in (undisturbed, disturbed):
        merge = [sys.executable, "-m", "diagnostics", "+exp=merge", f"run={folder}"]
        subprocess.run(merge, env=environment, check=True, capture_output=True)
    tasks = Path("tables") / "tasks.csv"
    assert (disturbed / tasks).read_bytes() == (undisturbed / tasks).read_bytes()
