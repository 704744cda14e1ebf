"""The shipped weights, through the whole application: decoded films, prompts, generation, capture."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from diagnostics.testbed import WEIGHTS
from diagnostics.testbed.measure import FLOORS, MEASURED, Score, below_floor


def test_the_card_says_what_they_score_and_they_are_small() -> None:
    scores = [Score(**entry) for entry in json.loads((WEIGHTS / "scores.json").read_text())]
    assert {(score.frames, score.budget) for score in scores} == {(s.frames, s.budget) for s in MEASURED}
    assert {score.task for score in scores} >= set(FLOORS)
    assert below_floor(scores) == []
    assert (WEIGHTS / "model.safetensors").stat().st_size <= 8_000_000
    assert "MiniHorizon" in (WEIGHTS / "README.md").read_text()


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("trained")
    command = [
        sys.executable, "-m", "diagnostics", "+exp=attention_drift", "data.split=test",
        "data.n_videos=24", "sampling=uniform_plus_evidence", "sampling.budget=16",
        "sampling.evidence_frames=8",
        "exp.item_figures=0", f"data.tasks=[{','.join(FLOORS)}]", f"out={folder / 'run'}",
    ]  # fmt: skip
    variables = {**os.environ, "DIAGNOSTICS_CACHE": str(folder / "cache")}
    run = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads((folder / "run" / "summary.json").read_text())


def test_it_answers_with_letters_and_is_right(summary: dict) -> None:
    """A sample of 24 videos: a margin below the floors, which the card is held to."""
    assert summary["metrics"]["none_rate"]["mean"] == 0
    accuracy = {row["task"]: row["value"] for row in summary["rows"] if row["measure"] == "accuracy"}
    assert {task: accuracy[task] for task in FLOORS if accuracy[task] < FLOORS[task] - 0.1} == {}


def test_it_looks_at_the_lesion_it_is_asked_about(summary: dict) -> None:
    lift = {row["task"]: row for row in summary["rows"] if row["measure"] == "evidence_log_lift"}
    for task in ("Hist", "Size", "Site"):
        assert lift[task]["ci_low"] > 0, task
