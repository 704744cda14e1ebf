"""What a job's state is taken for, with a `squeue` of the test's own on the path."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from submitit.slurm.slurm import SlurmJob

from diagnostics.cluster.watch import QueueWatcher, watch_by_queue


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program; it keeps its arguments in `asked` beside it."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path / "squeue"


def says(squeue: Path, *lines: str, code: int = 0, error: str = "") -> None:
    told = "\n".join(f"echo '{line}'" for line in lines)
    squeue.write_text(
        f"#!/bin/sh\necho \"$@\" >> '{squeue.parent}/asked'\n{told}\necho '{error}' >&2\nexit {code}\n"
    )
    squeue.chmod(squeue.stat().st_mode | stat.S_IXUSR)


def watching(*jobs: str) -> QueueWatcher:
    watcher = QueueWatcher()
    for job in jobs:
        watcher.register_job(job)
    return watcher


@pytest.mark.parametrize(
    ("state", "done"),
    [
        ("PENDING", False), ("RUNNING", False), ("CONFIGURING", False), ("SUSPENDED", False),
        ("PREEMPTED", False),
        ("COMPLETING", False), ("REQUEUE_HOLD", False), ("COMPLETED", True), ("FAILED", True),
        ("TIMEOUT", True),
        ("CANCELLED", True), ("NODE_FAIL", True), ("OUT_OF_MEMORY", True),
    ],
)  # fmt: skip
def test_only_an_end_is_taken_for_one(squeue: Path, state: str, done: bool) -> None:
    says(squeue, f"7_0|{state}", "7_1|RUNNING")
    watcher = watching("7_0", "7_1")
    assert watcher.is_done("7_0", mode="force") is done
    assert not watcher.is_done("7_1", mode="force")


def test_all_jobs_are_asked_about_at_once_and_ended_ones_no_more(squeue: Path) -> None:
    says(squeue, "7_0|RUNNING", "7_1|FAILED", "9|RUNNING")
    watcher = watching("7_0", "7_1", "9")
    watcher.update()
    assert [watcher.get_state(job, mode="cache") for job in ("7_0", "7_1", "9")] == [
        "RUNNING",
        "FAILED",
        "RUNNING",
    ]
    says(squeue, "7_0|RUNNING", "9|COMPLETED")
    watcher.update()
    watcher.update()
    asked = (squeue.parent / "asked").read_text().splitlines()
    assert [line.rpartition("--jobs=")[2] for line in asked] == ["7,9", "7,9", "7"]
    assert watcher.get_state("7_1", mode="cache") == "FAILED", "what it ended as stays"


def test_a_job_that_the_controller_has_forgotten_has_ended(squeue: Path) -> None:
    says(squeue, "9|RUNNING")
    watcher = watching("7", "9")
    assert watcher.is_done("7", mode="force")
    assert not watcher.is_done("9", mode="force")
    says(squeue, code=1, error="slurm_load_jobs error: Invalid job id specified")
    watcher.update()
    assert watcher.is_done("9", mode="cache")


def test_where_nobody_answers_nothing_has_ended(squeue: Path) -> None:
    says(squeue, code=1, error="slurm_load_jobs error: Unable to contact slurm controller")
    assert not watching("7").is_done("7", mode="force")
    squeue.unlink()
    assert not watching("7").is_done("7", mode="force")


def test_submitits_jobs_are_watched_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlurmJob, "watcher", SlurmJob.watcher)  # put back afterwards
    watch_by_queue()
    assert isinstance(SlurmJob.watcher, QueueWatcher)
