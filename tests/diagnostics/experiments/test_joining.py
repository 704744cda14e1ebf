"""A capturing run beside a benchmark run: the same answers to the same prompts, or not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from diagnostics.experiments.joining import agreement_table
from diagnostics.store.records import Record

from .conftest import Diagnose
from .told import table

DATA = (
    "data.split=test", "data.n_videos=2", "data.seconds=20", "data.fps=4", "data.questions=3",
    "sampling.budget=8", "backend.max_new_tokens=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def benchmark(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmark") / "run"
    finished = diagnose("+exp=benchmark", "model=tiny", *DATA, f"out={folder}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return folder


def agreement(folder: Path) -> dict[str, object]:
    return json.loads((folder / "manifest.json").read_text())["checks"]["benchmark_agreement"]


def test_the_observed_model_is_the_benchmarked_one(
    benchmark: Path, diagnose: Diagnose, tmp_path: Path
) -> None:
    arguments = [
        "+exp=attention_drift",
        "model=tiny",
        *DATA,
        f"benchmark_run={benchmark}",
        "exp.item_figures=0",
    ]
    finished = diagnose(*arguments, f"out={tmp_path / 'run'}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "6 of 6 answers have the prompt of" in finished.stdout
    assert "100.0% of them agree" in finished.stdout
    found = agreement(tmp_path / "run")
    assert (found["answers"], found["same_prompt"], found["agreement"]) == (6, 6, 1.0)
    assert set(table(tmp_path / "run", "benchmark_agreement")["agree"]) == {True}
    again = diagnose(*arguments[:-2], "exp.item_figures=0", f"out={tmp_path / 'run'}")
    assert again.returncode == 0, "it is no part of what the run is"


def test_another_model_is_noticed(benchmark: Path, diagnose: Diagnose, tmp_path: Path) -> None:
    """One whose heads look elsewhere, by surgery; the tokenizer is the same."""
    arguments = ["+exp=attention_drift", "model=tiny", "model.path=tiny/drifting@64", *DATA]
    arguments += [f"benchmark_run={benchmark}", "exp.item_figures=0"]
    finished = diagnose(*arguments, f"out={tmp_path / 'run'}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    found = agreement(tmp_path / "run")
    assert found["same_prompt"] == 6
    assert found["agreement"] < 1
    rows = table(tmp_path / "run", "benchmark_agreement")
    assert rows["agree"].mean() == pytest.approx(found["agreement"])


def test_another_tokenizer_says_nothing(benchmark: Path, diagnose: Diagnose, tmp_path: Path) -> None:
    arguments = ["+exp=attention_drift", "model=tiny_random", *DATA, f"benchmark_run={benchmark}"]
    finished = diagnose(*arguments, f"out={tmp_path / 'run'}", "exp.item_figures=0")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "nothing can be said" in finished.stdout
    assert agreement(tmp_path / "run")["agreement"] is None


def test_other_frames_say_nothing(benchmark: Path, diagnose: Diagnose, tmp_path: Path) -> None:
    arguments = ["+exp=frame_scaling", "model=tiny", *DATA, f"benchmark_run={benchmark}", "exp.budgets=[4,8]"]
    finished = diagnose(*arguments, f"out={tmp_path / 'run'}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    rows = table(tmp_path / "run", "benchmark_agreement")
    same = rows[rows["same_prompt"]]
    assert 6 <= len(same) < len(rows)
    assert same["agree"].all()


def test_a_place_without_a_finished_run_is_refused_before_anything_is_asked(
    diagnose: Diagnose, tmp_path: Path
) -> None:
    refused = diagnose("+exp=attention_drift", *DATA, f"benchmark_run={tmp_path}", f"out={tmp_path / 'run'}")
    assert refused.returncode == 2
    assert "There is no run in it" in refused.stderr
    assert not (tmp_path / "run").exists()


def test_what_is_compared() -> None:
    record = Record(
        item_id="a", video_id="v", target="A", answer="A", raw="A.", prompt_sha256="p", frame_size=(2, 2)
    )
    others = [
        replace(record, raw="(A)"),
        replace(record, answer="B"),
        replace(record, prompt_sha256="q"),
        replace(record, prompt_sha256=None),
        replace(record, prompt_sha256=None, frame_size=(4, 4)),
        replace(record, item_id="another"),
    ]
    found = pd.concat([agreement_table([record], [other]) for other in others])
    assert found["agree"].tolist() == [True, False, True, True, True]
    assert found["same_prompt"].tolist() == [True, True, False, None, False]
    open_ended = replace(record, target=None, answer=None, raw="a polyp")
    found = agreement_table([open_ended] * 2, [replace(open_ended, raw="two polyps")])
    assert found["agree"].tolist() == [False, False]
