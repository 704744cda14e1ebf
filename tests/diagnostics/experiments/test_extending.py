"""What the pages about adding things promise: their code, run as it stands, from outside the repository."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from diagnostics.data import load_items
from diagnostics.data.items import Item
from diagnostics.errors import AnswerNotAnOptionError, ConfigError, PathLeavesRootError
from diagnostics.experiments.own_probes import load_probes, own_measures
from diagnostics.store.record_log import read_records
from diagnostics.store.records import Record
from diagnostics.store.run_folder import tensor_path
from diagnostics.store.tensors import read_tensors
from diagnostics.video.candidates import Candidates
from diagnostics.video.sampling import load_sampler, select_frames

from ...finished_runs import write_run
from .conftest import environment

DOCS = Path(__file__).resolve().parents[3] / "docs"


def block(page: str, language: str, holding: str) -> str:
    """The one block of code of a page that holds some text."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)
    (code,) = [code for code in found if holding in code]
    return str(code)


def on_the_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process import the `mine` of that folder, and no other test's."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(folder))


def write(folder: Path, module: str, code: str, settings: str = "", text: str = "") -> None:
    """A package beside nothing of ours, and the YAML file of its options."""
    path = folder / f"{module.replace('.', '/')}.py"
    path.parent.mkdir(exist_ok=True)
    (path.parent / "__init__.py").touch()
    path.write_text(code, encoding="utf-8")
    if settings:
        (folder / "conf" / settings).parent.mkdir(parents=True, exist_ok=True)
        (folder / "conf" / settings).write_text(text, encoding="utf-8")


def run(folder: Path, cache: Path, *arguments: str) -> list[Record]:
    """The records of `python -m diagnostics ...`, started in the folder that holds the package."""
    dirs = ["--config-dir", "conf"] if (folder / "conf").exists() else []
    command = [sys.executable, "-m", "diagnostics", *dirs, f"out={folder / 'run'}", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment(cache), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return read_records(folder / "run")


SHORT = ("data.n_videos=2", "data.seconds=20", "data.questions=1")


# A benchmark, a sampler and a probe, together in one run


MARKS = {"training": "def load(", "apart": "apart:", "distance": "def measures("}
"""What singles out the block of each module on its page."""


@dataclass(frozen=True)
class Made:
    """The folder that everything was written into, the benchmark's, and the items that it was made of."""

    folder: Path
    root: Path
    items: list[Item]
    records: list[Record]


def right_text(item: Item) -> str:
    return item.options[item.letters.index(item.answer or "")]


def release(root: Path, items: list[Item]) -> None:
    """Films and questions in the form of docs/own_benchmark.md, and two records that cannot be used."""
    (root / "films").mkdir(parents=True)
    records = []
    for number, item in enumerate(items):
        (root / "films" / f"case_{number}.mp4").write_bytes(item.video.read_bytes())
        right = right_text(item)
        assert item.evidence is not None
        (window,) = item.evidence.windows
        records.append(
            {
                "qid": number,
                "film": f"case_{number}",
                "ask": item.question,
                "right": right,
                "wrong": [text for text in item.options if text != right],
                "span": [window.start_seconds, window.end_seconds],
                "skill": "Colour",
                "ward": 7,
            }
        )
    records += [
        {**records[0], "qid": "away", "film": "../../case"},
        {**records[0], "qid": "twice", "wrong": [records[0]["right"], "none"]},
    ]
    (root / "questions.json").write_text(json.dumps(records), encoding="utf-8")


@pytest.fixture(scope="module")
def made(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("made")
    split = {"split": "test", "n_videos": 2, "seconds": 20, "questions": 9, "evidence_ratio": 0.1}
    local = [
        item
        for item in load_items("minihorizon", {**split, "cache": str(cache)}).items
        if item.options and item.evidence is not None and len(item.evidence.windows) == 1
    ]
    items = list({item.video_id: item for item in local}.values())
    assert len(items) == 2
    release(folder / "training", items)
    for page, name, settings in (
        ("own_benchmark.md", "training", "data/training.yaml"),
        ("own_sampler.md", "apart", "sampling/apart.yaml"),
    ):
        code, text = block(page, "python", MARKS[name]), block(page, "yaml", f"mine.{name}")
        write(folder, f"mine.{name}", code, settings, text)
    write(folder, "mine.distance", block("own_probe.md", "python", MARKS["distance"]))
    records = run(
        folder, cache, "+exp=attention_drift", "data=training", f"data.root={folder / 'training'}",
        "sampling=apart", "sampling.budget=10", "sampling.apart=1", "exp.probes=[mine.distance]",
        "exp.features=[projector]", "exp.control=none", "exp.item_figures=0", "backend.max_new_tokens=1",
    )  # fmt: skip
    return Made(folder, folder / "training", items, records)


def test_the_benchmark_of_the_page(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_path(made.folder, monkeypatch)
    loaded = load_items("mine.training", {"root": str(made.root)})
    for item, original in zip(loaded.items, made.items, strict=True):
        assert set(item.options) == set(original.options)
        assert item.options == tuple(sorted(item.options))
        assert right_text(item) == right_text(original)
        assert item.evidence is not None
        assert original.evidence is not None
        assert item.evidence.windows[0].start_seconds == original.evidence.windows[0].start_seconds
        assert item.metadata == {"ward": 7}
    assert [(error.item_id, type(error)) for error in loaded.rejected] == [
        ("away", PathLeavesRootError),
        ("twice", AnswerNotAnOptionError),
    ]
    done = {record.item_id: record for record in made.records if record.error is None}
    assert {key: record.target for key, record in done.items()} == {i.id: i.answer for i in loaded.items}
    failed = {record.item_id: record.error.type for record in made.records if record.error is not None}
    assert failed == {"away": "PathLeavesRootError", "twice": "AnswerNotAnOptionError"}


def test_the_sampler_of_the_page(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    done = [record for record in made.records if record.error is None]
    for record in done:
        assert len(record.slots) == 10
        assert record.selection_rule.startswith("apart(budget=10, apart=1, candidate_fps=1, scorer=(name=no")

    on_the_path(made.folder, monkeypatch)
    sampler = importlib.import_module("mine.apart")
    index: Any = SimpleNamespace(seconds=np.arange(10.0), path=None)
    scores = np.array([0, 9, 8, 1, 7, np.nan, 0, 0, 0, 6], float)
    candidates = Candidates(index, np.arange(10), scores=scores)
    item: Any = None

    def chosen(budget: int, apart: float) -> list[int]:
        return sampler.choose(sampler.Config(budget=budget, apart=apart), candidates, item).tolist()

    assert chosen(3, 3.0) == [1, 4, 9]
    assert chosen(3, 0.0) == [1, 2, 4]
    assert len(chosen(6, 3.0)) == 6
    assert chosen(99, 3.0) == list(range(10))


def test_the_sampler_by_time_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "mine.first", block("own_sampler.md", "python", "np.arange("))
    on_the_path(tmp_path, monkeypatch)
    sampler, item = load_sampler("mine.first"), Item("q", Path("v.mp4"), "v", "What is it?")
    seconds = np.arange(9) / 3
    index: Any = SimpleNamespace(
        seconds=seconds, n_frames=9, fps=3.0, duration=3.0, path=Path("v.mp4"), time_base=1
    )
    settings = yaml.safe_load(block("own_sampler.md", "yaml", "mine.first"))
    assert settings.pop("rule") == "mine.first"
    for budget, expected in ((4, [0, 1, 2, 3]), (99, list(range(9)))):
        selection = select_frames(sampler, sampler.Config(**settings | {"budget": budget}), index, item)
        assert selection.frame_indices.tolist() == expected
        assert selection.rule == f"first(budget={budget})"


def test_the_probe_of_the_page_measures_every_item(made: Made) -> None:
    expected, even = [], []
    for record in made.records:
        path = tensor_path(made.folder / "run", record)
        if record.error is not None or path is None:
            continue
        tensors = read_tensors(path)
        assert tensors.attention is not None
        mass = tensors.attention.unit_mass[:, :, tensors.role.index("question")].mean(axis=(0, 1))
        seconds = np.nanmean(tensors.units.true_seconds, axis=1)
        shows = tensors.units.evidence.any(axis=1)
        away = [min(abs(time - other) for other in seconds[shows]) for time in seconds]
        expected.append(np.average(away, weights=mass))
        even.append(np.mean(away))
        assert record.measures["seconds_from_evidence"] == pytest.approx(expected[-1], rel=1e-5)
    assert len(expected) == 2
    told = json.loads((made.folder / "run" / "summary.json").read_text(encoding="utf-8"))["metrics"]
    assert told["seconds_from_evidence"]["mean"] == pytest.approx(np.mean(expected), rel=1e-5)
    assert told["seconds_from_evidence_uniform"]["mean"] == pytest.approx(np.mean(even))
    manifest = json.loads((made.folder / "run" / "manifest.json").read_text(encoding="utf-8"))
    source = hashlib.sha256((made.folder / "mine" / "distance.py").read_bytes()).hexdigest()
    assert manifest["config"]["exp"]["probes_sha256"] == {"mine.distance": source}


def test_a_probe_that_cannot_be_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "probe_package.empty", "")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"no module 'probe_package\.gone'"):
        load_probes(["probe_package.gone"])
    with pytest.raises(ConfigError, match=r"'probe_package\.empty' is no probe"):
        load_probes(["probe_package.empty"])
    for name in ("", ".empty", "mine/distance.py"):
        with pytest.raises(ConfigError, match="no dotted name"):
            load_probes([name])


@pytest.mark.parametrize("name", ["gini_pooled", "accuracy", "mine@layer=1", "a,b"])
def test_a_measure_under_a_name_that_is_not_free_is_refused(name: str) -> None:
    probe: Any = SimpleNamespace(__name__="mine.probe", measures=lambda seen: {"free": 1, name: 2.0})
    seen: Any = None
    with pytest.raises(ConfigError, match=f"'mine.probe' calls a measure '{name}'"):
        own_measures([probe], seen, {"gini_pooled"})
    probe.measures = lambda seen: {"free": 1}
    assert own_measures([probe], seen, {"gini_pooled"}) == {"free": 1.0}


def test_a_probe_on_a_finished_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [{"gini": 0.1, "correct": True}] * 3)
    names: dict[str, Any] = {"RUN": folder}
    exec(compile(block("own_probe.md", "python", "open_run("), "own_probe.md", "exec"), names)
    for record in read_records(folder):
        path = tensor_path(folder, record)
        assert path is not None
        tensors = read_tensors(path)
        assert tensors.attention is not None
        mass = tensors.attention.unit_mass[:, :, 0].mean(axis=(0, 1), dtype=np.float64)
        expected = np.average(np.nanmean(tensors.units.true_seconds, axis=1), weights=mass)
        assert names["table"].loc[record.item_id, "attended_seconds"] == pytest.approx(expected)


# docs/extending.md


def test_the_experiment_of_the_page_runs_by_its_dotted_name(cache: Path, tmp_path: Path) -> None:
    text = "# @package _global_\n# Is half of it enough?\nexp: {name: mine.half}\n"
    write(tmp_path, "mine.half", block("extending.md", "python", "def run("), "exp/half.yaml", text)
    records = run(tmp_path, cache, "+exp=half", *SHORT, "sampling.budget=7", "backend.max_new_tokens=1")
    by_pair = {(record.item_id, record.condition["shown"]): record for record in records}
    assert len(by_pair) == 4
    for (item, shown), record in by_pair.items():
        assert record.error is None
        whole = by_pair[item, "whole"].slots
        assert record.slots == (whole if shown == "whole" else whole[:4])
    table = pd.read_csv(tmp_path / "run" / "tables" / "differences.csv")
    (row,) = table[table["task"] == "all"].to_dict("records")
    correct = {
        shown: [record.correct for (_, told), record in by_pair.items() if told == shown]
        for shown in ("whole", "first half")
    }
    assert row["n"] == 2
    assert row["difference"] == pytest.approx((sum(correct["first half"]) - sum(correct["whole"])) / 2)
