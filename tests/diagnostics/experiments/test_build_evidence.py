"""From eight sources to results: evidence is built, checked, and used, on a MedHorizon of sixteen videos."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from rich.console import Console

from diagnostics.catalogue import config_folder, rewrite_overrides
from diagnostics.config import run_config
from diagnostics.data import load_items
from diagnostics.errors import ConfigError, DiagnosticsError
from diagnostics.experiments.outcome import Outcome
from diagnostics.run import execute

from ...made_sources import EXPECTED, REASONS, write_questions, write_sources
from .conftest import Diagnose
from .told import lines_of, table

NO_TORCH = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers"):
            raise ImportError(f"{name} is not for this")
sys.meta_path.insert(0, Refuse())
from diagnostics.__main__ import main
main()
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_questions(tmp_path_factory.mktemp("benchmark"))


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def built(data: list[str], sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the experiment, where torch cannot be imported."""
    folder = tmp_path_factory.mktemp("runs") / "built"
    arguments = ["+exp=build_evidence", *data, f"exp.root={sources}", f"out={folder}"]
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH, *arguments],
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "printed").write_text(done.stdout)
    return folder


def run_here(*arguments: str) -> tuple[Outcome, str]:
    """A run in this process: what it came to and what it printed."""
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        composed = compose("config", overrides=rewrite_overrides(arguments))
    values: Any = OmegaConf.to_container(composed, resolve=True)
    console = Console(file=io.StringIO(), width=200)
    outcome = execute(run_config(values), multirun=False, console=console)
    return outcome, console.file.getvalue()


def rows(path: Path) -> dict[str, dict]:
    return {row["id"]: row for row in map(json.loads, path.read_text().splitlines())}


def test_every_item_has_the_evidence_worked_out_by_hand(built: Path) -> None:
    sidecar = rows(built / "evidence.jsonl")
    found = {name: (row["kind"], row.get("frames", [])) for name, row in sidecar.items()}
    assert found == EXPECTED
    for row in sidecar.values():
        seconds = [[first / 2, end / 2] for first, end in row.get("frames", [])]
        assert row.get("seconds", []) == seconds
    assert sidecar["001-001/0"]["alternatives"] == {
        "all": [[10, 20], [40, 70]],
        "longest": [[40, 70]],
        "first": [[10, 20]],
    }


def test_the_audit_names_file_hash_time_base_and_reason(built: Path, sources: Path) -> None:
    audit = rows(built / "audit.jsonl")
    assert list(audit) == list(pd.read_csv(built / "audit.csv", dtype={"id": str})["id"])
    assert {name: row["reason_kind"] for name, row in audit.items() if row["kind"] == "missing"} == REASONS
    file = sources / "MultiBypass140" / "labels" / "bern" / "labels_by70" / "BBP01.mp4.json"
    told = audit["BBP01/0"]
    assert told["files"] == [{"path": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}]
    assert told["source_video"] == "BBP01"
    for name, row in audit.items():
        if row["frames"]:
            assert row["time_base"], name
            assert row["label_version"], name
            assert row["files"], name
            assert all(0 <= first < end <= 120 for first, end in row["frames"])
    assert any("s39_coagulation" in warning for warning in audit["SBP02/0"]["warnings"])
    assert any("no folder of US-Study" in warning for warning in audit["01-lus/0"]["warnings"])


def test_the_summary_counts_by_task_and_source(built: Path) -> None:
    printed = (built / "printed").read_text()
    assert f"data.evidence={built / 'evidence.jsonl'}" in printed
    assert "There is no folder of US-Study" in printed
    counts = table(built, "evidence_kinds").set_index("task")
    assert counts.loc["all", ["exact", "approx", "proxy", "global", "label-run", "missing"]].tolist() == [
        8, 1, 2, 4, 1, 2,
    ]  # fmt: skip
    assert list(counts.index)[:4] == ["PR", "SD", "RL", "IR"]
    by_source = table(built, "evidence_sources").set_index("source")
    assert by_source.loc["REAL-Colon", ["proxy", "global", "missing"]].tolist() == [2, 1, 1]
    metrics = json.loads((built / "summary.json").read_text())["metrics"]
    assert metrics["unread_windows"]["mean"] == 1
    assert metrics["refused_durations"]["mean"] == 1
    reasons = table(built, "evidence_reasons")
    assert {"durations disagree", "not annotated", "sparse"} <= set(reasons["kind"])


def test_again_with_another_source_the_run_goes_on(data: list[str], sources: Path, tmp_path: Path) -> None:
    """US-Study arrives: its items are derived anew, nothing else is written again."""
    arguments = ("+exp=build_evidence", *data, f"exp.root={sources}", f"out={tmp_path / 'run'}")
    run_here(*arguments)
    before = len(lines_of(tmp_path / "run"))
    assert before == len(EXPECTED)
    folder = sources / "US-Study"
    folder.mkdir()
    (folder / "labels.csv").write_text("video,label\n01-lus,yes\n02-lus,no\n")
    try:
        run_here(*arguments)
    finally:
        shutil.rmtree(folder)
    assert len(lines_of(tmp_path / "run")) == before + 2
    audit = rows(tmp_path / "run" / "audit.jsonl")
    assert audit["01-lus/0"]["files"][0]["path"].endswith("labels.csv")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("data=minihorizon", "data.n_videos=1", "data.seconds=30"), "Choose data=medhorizon"),
        (("exp.root=.",), "none of the sources"),
        ((), "Give exp.root=DIR"),
        (("exp.folders.galr=.",), "Did you mean 'galar'"),
        (("exp.lesion_windows=some",), "exp.lesion_windows"),
    ],
)
def test_what_cannot_start_says_so(
    arguments: tuple, said: str, data: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [*data, *arguments] if "data=minihorizon" not in arguments else list(arguments)
    with pytest.raises(DiagnosticsError, match=re.escape(said)):
        run_here("+exp=build_evidence", *given, f"out={tmp_path / 'run'}")


def test_label_runs_are_never_mixed_with_windows(data: list[str], built: Path) -> None:
    given = {"root": data[1].partition("=")[2], "evidence": str(built / "evidence.jsonl")}

    def with_windows(**told: object) -> set[str]:
        items = load_items("medhorizon", given | told).items
        return {item.id for item in items if item.local_evidence is not None}

    windows = {name for name, (kind, frames) in EXPECTED.items() if frames and kind != "label-run"}
    assert with_windows() == windows
    assert with_windows(evidence_kinds=["label-run"]) == {"02/0"}
    assert with_windows(evidence_kinds=["exact"]) < windows
    with pytest.raises(ConfigError, match=r"label-run.*never mixed"):
        with_windows(evidence_kinds=["exact", "label-run"])


@pytest.fixture
def with_evidence(data: list[str], built: Path) -> list[str]:
    return [*data, f"data.evidence={built / 'evidence.jsonl'}"]


def test_check_knows_the_sidecar(with_evidence: list[str], tmp_path: Path) -> None:
    outcome, printed = run_here("+exp=check", *with_evidence, f"out={tmp_path}")
    assert outcome.failure is None, printed
    kinds = table(tmp_path, "evidence_kinds").drop(columns="task").sum()
    assert (kinds["exact"], kinds["label-run"], kinds["missing"]) == (8, 1, 2)
    assert "nothing wrong" in printed
    assert "1 label-run" in printed


def test_sparsity_stands_beside_the_papers(with_evidence: list[str], tmp_path: Path) -> None:
    _, printed = run_here("+exp=evidence_sparsity", *with_evidence, f"out={tmp_path}")
    _check_sparsity(table(tmp_path, "beside_the_paper"), printed)


def test_label_runs_are_not_compared_with_the_paper(with_evidence: list[str], tmp_path: Path) -> None:
    apart = "data.evidence_kinds=[label-run]"
    outcome, _ = run_here("+exp=evidence_sparsity", *with_evidence, apart, f"out={tmp_path}")
    assert "beside the paper" not in outcome.paths
    assert outcome.summary.metrics["evidence_ratio"].n == 1


@pytest.mark.parametrize(
    ("experiment", "arguments"),
    [
        ("evidence_grounding", ("exp.budget=8", "exp.swapped=2", "exp.oracle_images=4")),
        ("attention_drift", ("sampling=uniform_plus_evidence", "sampling.budget=8", "exp.item_figures=0")),
    ],
)
def test_models_are_asked_with_the_sidecars_evidence(
    experiment: str, arguments: tuple, with_evidence: list[str], diagnose: Diagnose, tmp_path: Path
) -> None:
    few = ("model=tiny_random", "data.ids=[01/0,001-001/0,02/0]")
    done = diagnose(f"+exp={experiment}", *with_evidence, *arguments, *few, f"out={tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = lines_of(tmp_path)
    assert not [line for line in lines if line["error"]]
    if experiment == "evidence_grounding":
        assert {line["item_id"] for line in lines} == {"01/0", "001-001/0"}
        assert table(tmp_path, "left_out")["item"].tolist() == ["02/0"]
    else:
        covered = {line["item_id"]: line["measures"].get("evidence_mass") for line in lines}
        assert {name for name, mass in covered.items() if mass is not None} == {"01/0", "001-001/0"}


def _check_sparsity(beside: pd.DataFrame, printed: str) -> None:
    """Ratios by hand: the lesion question covers 40, 30 or 10 of 120 frames; nine others are localisable."""
    others = [4, 10, 2, 10, 12, 4, 8, 4, 4]
    for name, lesion in (("all", 40), ("longest", 30), ("first", 10)):
        own = beside[beside["lesions"] == name].set_index("measure")
        assert own.loc["mean ratio of lesion questions", "ours"] == pytest.approx(lesion / 120)
        assert own.loc["mean ratio", "ours"] == pytest.approx((sum(others) + lesion) / 120 / 10)
        assert own.loc["mean ratio", "paper"] == pytest.approx(0.00166)
    assert beside.loc[beside["nearest"], "lesions"].tolist() == ["first"]
    assert "near is not equal" in printed
    localisable = beside.set_index("measure").loc["localisable"]
    assert (localisable["ours"], localisable["paper"]) == (13, 1035)
    assert beside.set_index("measure").loc["localisable with windows", "ours"] == 10
