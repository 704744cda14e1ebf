"""A whole benchmark: its table by hand, the same answers with sharing on and off, and resuming."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from diagnostics.data.items import Item
from diagnostics.experiments.benchmark import task_table, time_table
from diagnostics.experiments.conditions import Answers
from diagnostics.store.manifest import read_manifests
from diagnostics.store.record_log import all_records, read_records
from diagnostics.store.records import Record, comparable

from .conftest import Diagnose, environment

BENCHMARK = (
    "+exp=benchmark",
    "data.n_videos=3",
    "data.seconds=30",
    "data.fps=8",
    "data.evidence_ratio=0.0167",
    "data.questions=4",
    "sampling.budget=16",
    "backend.max_new_tokens=4",
)


@pytest.fixture(scope="module")
def run(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("benchmark") / "run"
    finished = diagnose(*BENCHMARK, f"out={folder}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return folder, finished.stdout


def test_the_table_is_that_of_the_records(run: tuple[Path, str]) -> None:
    folder, stdout = run
    records = read_records(folder)
    assert len(records) == 12
    table = pd.read_csv(folder / "tables" / "tasks.csv").set_index("task")
    for task in {record.task for record in records}:
        of_task = [record for record in records if record.task == task]
        assert table.loc[task, "accuracy"] == pytest.approx(np.mean([r.correct for r in of_task]))
        assert table.loc[task, "items"] == len(of_task)
        likeliest = [max(r.option_logprobs, key=lambda k, r=r: r.option_logprobs[k]) for r in of_task]
        right = [letter == r.target for letter, r in zip(likeliest, of_task, strict=True)]
        assert table.loc[task, "choice_accuracy"] == pytest.approx(np.mean(right))
    assert table.index[-1] == "all"
    assert table.loc["all", "accuracy"] == pytest.approx(np.mean([r.correct for r in records]))
    assert table.loc["all", "none_rate"] == pytest.approx(np.mean([r.answer is None for r in records]))
    chance = np.mean([1 / len(r.option_logprobs) for r in records])
    assert table.loc["all", "chance"] == pytest.approx(chance)
    assert "engine_idle" in stdout


def test_baselines_and_times_stand_beside_it(run: tuple[Path, str]) -> None:
    folder, _ = run
    baselines = pd.read_csv(folder / "tables" / "baselines.csv")
    assert {"chance", "best constant letter", "as sampled"} <= set(baselines["of"])
    times = pd.read_csv(folder / "tables" / "times.csv").set_index("part")
    assert set(times.index) == {"decode", "prepare", "generate", "busy", "idle"}
    assert times.loc["busy", "of_wall"] + times.loc["idle", "of_wall"] == pytest.approx(1)
    assert times.loc["prepare", "total"] + times.loc["generate", "total"] <= times.loc["busy", "total"]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["metrics"]["engine_idle"]["mean"] == pytest.approx(times.loc["idle", "of_wall"])
    assert {"seconds_decode", "seconds_generate"} <= {row["measure"] for row in summary["rows"]}
    for name in ("tasks.md", "tasks.tex"):
        assert (folder / "tables" / name).stat().st_size
    assert (folder / "figures" / "benchmark.png").stat().st_size


def test_sharing_was_used_and_checked(run: tuple[Path, str]) -> None:
    (manifest,) = read_manifests(run[0])
    checked = manifest.checks["sharing"]
    assert checked["questions"] == 4
    assert checked["max_logit_difference"] <= checked["allowed"] < 1e-2


def test_answers_are_the_same_with_sharing_off(
    run: tuple[Path, str], diagnose: Diagnose, tmp_path: Path
) -> None:
    finished = diagnose(*BENCHMARK, "backend.sharing=false", f"out={tmp_path / 'off'}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    shared, alone = read_records(run[0]), read_records(tmp_path / "off")
    assert not [m for m in read_manifests(tmp_path / "off") if "sharing" in m.checks]
    for one, other in zip(shared, alone, strict=True):
        told, expected = comparable(one), comparable(other)
        logprobs, plain = told.pop("option_logprobs"), expected.pop("option_logprobs")
        assert told == expected
        assert logprobs == pytest.approx(plain, abs=1e-4)


def test_a_run_that_is_killed_ends_as_one_that_is_not(
    run: tuple[Path, str], diagnose: Diagnose, cache: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "diagnostics", *BENCHMARK, f"out={folder}"]
    with subprocess.Popen(
        command, env=environment(cache), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 300
        while not (folder / "samples.0.jsonl").exists() or not (folder / "samples.0.jsonl").stat().st_size:
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    before = [record.pair for record in all_records(folder)]
    assert len(before) in (4, 8, 12), "whole groups"
    assert diagnose(*BENCHMARK, f"out={folder}").returncode == 0
    after = all_records(folder)
    assert [record.pair for record in after[: len(before)]] == before
    assert len({record.pair for record in after}) == len(after) == 12, "nothing twice"
    undisturbed = {record.pair: comparable(record) for record in read_records(run[0])}
    assert {record.pair: comparable(record) for record in after} == undisturbed, "to the last digit"


def record_of(item: str, task: str, *, answer: str | None, video: str = "v", **seconds: float) -> Record:
    return Record(
        item_id=item, video_id=video, task=task, answer=answer, target="A", correct=answer == "A",
        option_logprobs={"A": -0.1, "B": -2.0}, measures={"choice_accuracy": 1.0}, seconds=dict(seconds),
    )  # fmt: skip


def test_tasks_come_in_the_order_of_the_benchmark() -> None:
    tasks = ("Zeta", "Alpha", "", "Other")
    items = {task: Item(task, Path("v"), "v", "?", ("x", "y"), "A", task=task) for task in tasks}
    records = [record_of(task, task, answer="A" if task == "Zeta" else None, video=task) for task in tasks]
    open_ended = Record(item_id="open", video_id="o", task="Alpha")
    items["open"] = Item("open", Path("v"), "o", "?", task="Alpha")
    table = task_table(Answers.of([*records, open_ended]), items, ("Zeta", "Missing", "Alpha"))
    assert table["task"].tolist() == ["Zeta", "Alpha", "(none)", "Other", "all"]
    last = table.iloc[-1]
    assert (last["accuracy"], last["none_rate"], last["choice_accuracy"]) == (0.25, 0.75, 1.0)
    assert (last["items"], last["videos"], last["chance"]) == (4, 4, 0.5), "the open-ended one is left out"


def test_times_by_hand() -> None:
    seconds = {"decode": 3.0, "prepare": 1.0, "generate": 5.0, "busy": 6.0, "idle": 2.0}
    records = [record_of(name, "t", answer="A", **seconds) for name in "abc"]
    table = time_table(records).set_index("part")
    assert table.loc["idle"].tolist() == [6.0, 2.0, 0.25]
    assert table.loc["decode"].tolist() == [9.0, 3.0, 0.375]
    assert time_table([record_of("a", "t", answer="A")]).empty


def test_runs_are_printed_as_a_paper_does(run: tuple[Path, str], diagnose: Diagnose, tmp_path: Path) -> None:
    folder, _ = run
    fewer = diagnose(*BENCHMARK, "sampling.budget=4", f"out={tmp_path / 'fewer'}")
    assert fewer.returncode == 0, fewer.stdout + fewer.stderr
    compared = diagnose(
        "+exp=compare", f"exp.runs=[{folder},{tmp_path / 'fewer'}]", "exp.names=[many,few]",
        "exp.intervals=true", f"out={tmp_path / 'compared'}",
    )  # fmt: skip
    assert compared.returncode == 0, compared.stdout + compared.stderr
    printed = pd.read_csv(tmp_path / "compared" / "tables" / "table2.csv").set_index("run")
    assert list(printed.index) == ["items", "chance", "many", "few"]
    for name, place in (("many", folder), ("few", tmp_path / "fewer")):
        records = read_records(place)
        assert printed.loc[name, "all"] == pytest.approx(np.mean([bool(r.correct) for r in records]))
        for task in {record.task for record in records}:
            right = [bool(record.correct) for record in records if record.task == task]
            assert printed.loc[name, task] == pytest.approx(np.mean(right))
            assert printed.loc["items", task] == len(right)
    paper = [
        task for task in ("PR", "IR", "RSR", "CPR", "LLS", "Site", "Hist", "Size", "LA") if task in printed
    ]
    assert list(printed.columns) == [*paper, "all"], "the order of the paper's table"
    markdown = (tmp_path / "compared" / "tables" / "table2.md").read_text()
    assert "**" in markdown
    assert "[" in markdown
    assert r"\textbf{" in (tmp_path / "compared" / "tables" / "table2.tex").read_text()


def test_runs_of_other_items_are_no_table(run: tuple[Path, str], diagnose: Diagnose, tmp_path: Path) -> None:
    other = diagnose(*BENCHMARK, "data.questions=2", f"out={tmp_path / 'other'}")
    assert other.returncode == 0, other.stdout + other.stderr
    compared = diagnose(
        "+exp=compare", f"exp.runs=[{run[0]},{tmp_path / 'other'}]", f"out={tmp_path / 'out'}"
    )
    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert "No table2: " in compared.stdout
    assert not (tmp_path / "out" / "tables" / "table2.csv").exists()


def test_videos_in_one_padded_pass_give_the_same_records(
    run: tuple[Path, str], diagnose: Diagnose, tmp_path: Path
) -> None:
    """One question a video asked alone, and three videos at a time; the last pass holds what is left."""
    folders = [tmp_path / name for name in ("alone", "batched")]
    for folder, batch in zip(folders, (1, 3), strict=True):
        done = diagnose(*BENCHMARK, "data.questions=1", f"backend.batch={batch}", f"out={folder}")
        assert done.returncode == 0, done.stdout + done.stderr
    alone, batched = ({r.item_id: r for r in read_records(folder)} for folder in folders)
    assert list(alone) != []
    assert alone.keys() == batched.keys()
    for name, record in alone.items():
        other = batched[name]
        assert (record.raw, record.prompt_sha256) == (other.raw, other.prompt_sha256)
        assert list(record.option_logprobs.values()) == pytest.approx(
            list(other.option_logprobs.values()), abs=1e-4
        )
    (manifest,) = read_manifests(folders[1])
    assert manifest.checks["batch"]["questions"] == min(3, len(alone))
