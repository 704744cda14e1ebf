"""A job that SLURM has requeued by itself. Real SLURM does it in tests/system/slurm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from submitit.slurm.slurm import SlurmJobEnvironment

from diagnostics.cluster.requeue import accept_requeued


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlurmJobEnvironment, "_requeue", SlurmJobEnvironment._requeue)  # put back afterwards


def scontrol(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    program = folder / "scontrol"
    program.write_text(f"#!/bin/sh\necho \"$@\" > '{folder}/asked'\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


@pytest.mark.parametrize("code", [0, 1])
def test_slurm_is_asked_and_its_refusal_is_no_error(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol(tmp_path, monkeypatch, code)
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    accept_requeued()
    SlurmJobEnvironment()._requeue(1)
    assert (tmp_path / "asked").read_text().split() == ["requeue", "7"]


def test_outside_slurm_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = SlurmJobEnvironment._requeue
    monkeypatch.delenv("SUBMITIT_EXECUTOR", raising=False)
    accept_requeued()
    assert SlurmJobEnvironment._requeue is before
