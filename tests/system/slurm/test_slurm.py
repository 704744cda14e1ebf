"""A real SLURM: multiruns, preemption, time limits, jobs that die without a trace, batch scripts.

Runs last as long as their pauses make them (`slowly.engine`), so that a test knows when it is in the middle.
A requeued job waits two minutes before it starts again: SLURM's doing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from diagnostics.store.manifest import attempts_of, read_manifests
from diagnostics.store.record_log import all_records, read_records
from diagnostics.store.records import comparable

from .cluster import cluster, missing_programs

pytestmark = [pytest.mark.system, pytest.mark.skipif(sys.platform != "linux", reason="SLURM is for Linux")]

VIDEOS, QUESTIONS = 4, 5
ITEMS = VIDEOS * QUESTIONS
BENCHMARK = (
    "+exp=benchmark", "model=tiny_random", f"data.n_videos={VIDEOS}", "data.seconds=20", "data.fps=4",
    f"data.questions={QUESTIONS}", "sampling.budget=4", "backend.max_new_tokens=1",
    "backend.name=slowly.engine", "~backend.sharing", "~backend.together", "~backend.batch",
)  # fmt: skip
LAUNCHER = (
    "hydra/launcher=slurm", "hydra.launcher.partition=main", "hydra.launcher.gpus_per_node=null",
    "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=null",
)  # fmt: skip
PATIENCE_SECONDS = 900.0


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which jobs are submitted, their own modules on the path."""
    if missing := missing_programs():
        pytest.skip(f"not installed: {', '.join(missing)} (Debian: slurm-wlm, munge)")
    folder = tmp_path_factory.mktemp("slurm")
    with ExitStack() as stack:
        try:
            environment = stack.enter_context(cluster(folder))
        except RuntimeError as error:  # what this machine allows, and nothing of ours
            pytest.skip(f"SLURM does not start here: {error}")
        environment |= {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
        yield environment | {"DIAGNOSTICS_CACHE": str(folder / "cache")}


@contextmanager
def started(
    slurm: dict[str, str], cwd: Path, *arguments: str
) -> Iterator[tuple[subprocess.Popen[str], Callable[[], str]]]:
    """A command of the toolkit, ended at the latest with the test; and what it has said so far."""
    log = cwd / "launcher.log"
    with log.open("w") as out:
        command = [sys.executable, "-m", "diagnostics", *arguments]
        process = subprocess.Popen(
            command, cwd=cwd, env=slurm, stdout=out, stderr=subprocess.STDOUT, text=True
        )
        try:
            yield process, log.read_text
        finally:
            process.kill()
            process.wait()
            subprocess.run(["scancel", "--partition=main,urgent"], env=slurm, check=False)


def wait_for(
    condition: Callable[[], bool], what: Callable[[], str], seconds: float = PATIENCE_SECONDS
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.2)


def folder_below(root: Path) -> Path | None:
    found = [path for path in root.glob("*") if path.is_dir() and not path.name.startswith(".")]
    return found[0] if found else None


def finished_records(root: Path) -> int:
    folder = folder_below(root)
    return 0 if folder is None else sum(record.error is None for record in all_records(folder))


def assert_each_item_once(folder: Path) -> None:
    done = Counter(record.pair for record in all_records(folder) if record.error is None)
    assert len(done) == ITEMS
    assert set(done.values()) == {1}


def test_a_multirun_of_three_shards(slurm: dict[str, str], tmp_path: Path) -> None:
    arguments = [
        *BENCHMARK,
        "+backend.pause=0",
        "shard.count=3",
        "shard.index=0,1,2",
        f"out={tmp_path / 'runs'}",
    ]
    with started(slurm, tmp_path, *arguments, *LAUNCHER, "-m") as (process, said):
        assert process.wait(PATIENCE_SECONDS) == 0, said()
    folder = folder_below(tmp_path / "runs")
    assert folder is not None
    assert_each_item_once(folder)
    attempts = attempts_of(read_manifests(folder))
    assert sorted(attempt.shard for attempt in attempts) == [0, 1, 2]
    assert all(attempt.machine.scheduler["SLURM_JOB_PARTITION"] == "main" for attempt in attempts)
    with started(slurm, tmp_path, "+exp=merge", f"run={folder}") as (process, said):
        assert process.wait(PATIENCE_SECONDS) == 0, said()
    assert json.loads((folder / "summary.json").read_text())["n_items"] == ITEMS


def test_a_job_that_is_preempted_comes_back_and_finishes(slurm: dict[str, str], tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    arguments = [*BENCHMARK, "+backend.pause=1.5", "shard.count=1", f"out={runs}"]
    with started(slurm, tmp_path, *arguments, *LAUNCHER, "-m") as (process, said):
        wait_for(lambda: finished_records(runs) >= 3, said)
        subprocess.run(
            ["sbatch", "--wait", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 2"],
            env=slurm, check=True, timeout=PATIENCE_SECONDS, capture_output=True,
        )  # fmt: skip
        in_between = finished_records(runs)
        assert 3 <= in_between < ITEMS, "it was preempted in the middle"
        assert process.wait(PATIENCE_SECONDS) == 0, said()
    folder = folder_below(runs)
    assert folder is not None
    assert_each_item_once(folder)
    attempts = attempts_of(read_manifests(folder))
    assert [attempt.machine.scheduler.get("SLURM_RESTART_COUNT", "0") for attempt in attempts] == ["0", "1"]
    assert attempts[-1].outcome == "done"
    assert not [record for record in all_records(folder) if record.error], (
        "no signal is taken for a failed item"
    )


def test_a_job_at_its_time_limit_goes_back_into_the_queue(slurm: dict[str, str], tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    # SLURM counts in minutes: the signal comes one to two minutes after the start.
    limits = ["hydra.launcher.timeout_min=3", "hydra.launcher.signal_delay_s=60"]
    limits += ["hydra.launcher.max_num_timeout=5"]
    arguments = [*BENCHMARK, "+backend.pause=8", "shard.count=1", f"out={runs}"]
    with started(slurm, tmp_path, *arguments, *LAUNCHER, *limits, "-m") as (process, said):
        assert process.wait(PATIENCE_SECONDS) == 0, said()
    folder = folder_below(runs)
    assert folder is not None
    assert_each_item_once(folder)
    attempts = attempts_of(read_manifests(folder))
    assert len(attempts) >= 2, "two minutes are too few for all"
    restarts = [attempt.machine.scheduler.get("SLURM_RESTART_COUNT", "0") for attempt in attempts]
    assert restarts == [str(number) for number in range(len(attempts))]
    assert not [record for record in all_records(folder) if record.error], (
        "no signal is taken for a failed item"
    )


def test_a_job_that_dies_without_a_trace_is_noticed(slurm: dict[str, str], tmp_path: Path) -> None:
    """Accounting is off: submitit alone would wait for ever."""
    runs = tmp_path / "runs"
    arguments = [*BENCHMARK, "+backend.pause=0.5", "shard.count=1", f"out={runs}"]
    with started(slurm, tmp_path, *arguments, *LAUNCHER, "-m") as (process, said):
        wait_for(lambda: finished_records(runs) >= 2, said)
        folder = folder_below(runs)
        assert folder is not None
        os.kill(read_manifests(folder)[0].attempts[0].pid, signal.SIGKILL)
        assert process.wait(180) != 0
        assert "FAILED" in said(), said()
    before = {record.pair: comparable(record) for record in read_records(folder)}
    assert 2 <= len(before) < ITEMS
    with started(slurm, tmp_path, *arguments, *LAUNCHER, "-m") as (process, said):
        assert process.wait(PATIENCE_SECONDS) == 0, said()
    assert_each_item_once(folder)
    after = {record.pair: comparable(record) for record in read_records(folder)}
    assert before.items() <= after.items()


def test_a_batch_script_needs_no_waiting_process(slurm: dict[str, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    resources = [argument for argument in LAUNCHER if argument.startswith("hydra.launcher.")]
    arguments = [*BENCHMARK, "+backend.pause=0", "shard.count=2", f"out={run}", *resources]
    with started(slurm, tmp_path, "sbatch", *arguments) as (process, said):
        assert process.wait(PATIENCE_SECONDS) == 0, said()
        (tmp_path / "run.sh").write_text(said())
    submitted = subprocess.run(
        ["sbatch", "--wait", "run.sh"], cwd=tmp_path, env=slurm, timeout=PATIENCE_SECONDS, capture_output=True
    )
    logs = "\n".join(path.read_text() for path in (tmp_path / ".slurm").iterdir())
    assert submitted.returncode == 0, f"{submitted}\n{logs}"
    assert_each_item_once(run)
    merge = next(line for line in (tmp_path / "run.sh").read_text().splitlines() if "+exp=merge" in line)
    subprocess.run(merge.lstrip("# "), shell=True, cwd=tmp_path, env=slurm, check=True, capture_output=True)
    assert json.loads((run / "summary.json").read_text())["n_items"] == ITEMS
