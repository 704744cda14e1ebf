"""Runs of the experiment, as a person starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

SMALL = (
    "+exp=attention_drift",
    "data.n_videos=3",
    "data.seconds=30",
    "data.fps=8",
    "data.evidence_ratio=0.0167",
    "data.questions=2",
    "sampling=uniform_plus_evidence",
    "sampling.budget=15",
    "sampling.evidence_frames=3",
    "backend.max_new_tokens=4",
    "exp.item_figures=1",
)
"""Six questions on three short procedures; an odd number of frames, so that one unit is half empty."""

Diagnose = Callable[..., subprocess.CompletedProcess[str]]


def environment(cache: Path) -> dict[str, str]:
    return {**os.environ, "DIAGNOSTICS_CACHE": str(cache), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def diagnose(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Diagnose:
    """`python -m diagnostics ...` in an empty folder."""
    folder = tmp_path_factory.mktemp("somewhere")

    def run(*arguments: str, cwd: Path = folder) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "diagnostics", *arguments]
        return subprocess.run(
            command, cwd=cwd, env=environment(cache), capture_output=True, text=True, timeout=600
        )

    return run


@dataclass(frozen=True)
class Run:
    folder: Path
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def small_run(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "small"
    finished = diagnose(*SMALL, f"out={folder}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return Run(folder, finished.stdout, finished.stderr)
