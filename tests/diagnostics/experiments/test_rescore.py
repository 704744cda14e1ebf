"""Scoring a finished run again: no model, no video, nothing of the old run touched."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from rich.console import Console

import probes
from diagnostics.catalogue import config_folder, rewrite_overrides
from diagnostics.config import run_config
from diagnostics.data import load_items
from diagnostics.errors import ConfigurationMismatchError, DiagnosticsError, RunError
from diagnostics.experiments.pairs import item_sha256
from diagnostics.run import execute
from diagnostics.scoring import EXTRACTOR_VERSION
from diagnostics.store import Record, RunFolder, Summary, config_hash, open_finished, read_summary
from diagnostics.store.asked import read_items

TEXTS = ["Cecum", "Ileocecal valve", "Hepatic flexure", "Rectum"]
# Reply, the letter an old extractor found by some rule of its own, the right letter, the letter now.
REPLIES = [
    ("The answer is B.", "B", "B", "B"),
    ("A snare is used.", "A", "A", None),
    ("The answer is A. Hmm, actually B.", "A", "B", "B"),
    ("정답은 C입니다.", None, "C", "C"),
    ("I cannot tell.", None, "D", None),
    ("<think>A</think>D", "D", "A", "D"),
]


def rescore(out: Path, run: str | Path, *arguments: str) -> str:
    """`+exp=rescore run=RUN out=OUT` in this process; what it prints, on one line."""
    given = ["+exp=rescore", f"run={run}", f"out={out}", *arguments]
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        values = OmegaConf.to_container(compose("config", overrides=rewrite_overrides(given)), resolve=True)
    console = Console(file=io.StringIO(), width=220)
    execute(run_config(values), multirun=False, console=console)
    return " ".join(console.file.getvalue().split())


def write_data(folder: Path, *, question: str = "Where is it?") -> Path:
    folder.mkdir(exist_ok=True)
    lines = []
    for number, (_, _, target, _) in enumerate(REPLIES):
        video = folder / f"v{number // 2}.mp4"
        video.write_bytes(b"x" * (number // 2 + 1))
        item = {
            "id": f"i{number}",
            "video": video.name,
            "question": question,
            "options": TEXTS,
            "answer": target,
        }
        lines.append(json.dumps(item | {"task": ("site", "tool")[number % 2]}) + "\n")
    path = folder / "questions.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    """A finished run whose letters an older extractor found."""
    path = write_data(tmp_path / "data")
    data = {"name": "jsonl", "path": str(path), "limit": None}
    config = {"exp": {"name": "benchmark"}, "data": data, "model": {"name": "tiny"}}
    items = {item.id: item for item in load_items("jsonl", {"path": str(path)}).items}
    with RunFolder.open(tmp_path / "old", config, config_hash(config), experiment="benchmark") as folder:
        folder.expect(len(REPLIES) + 1)
        for (reply, letter, target, _), item in zip(REPLIES, items.values(), strict=True):
            record = Record(
                item_id=item.id,
                video_id=item.video_id,
                task=item.task,
                item_sha256=item_sha256(item),
                raw=reply,
                answer=letter,
                rule="old",
                target=target,
                correct=letter == target,
                option_logprobs=dict(zip("ABCD", (-1.0, -2.0, -3.0, -4.0), strict=True)),
                measures={"choice_accuracy": float(target == "A"), "entropy": 1.0},
            )
            folder.append(record)
        folder.append(
            Record(item_id="gone", video_id="v9", raw="B", answer="B", rule="old", target="B", correct=True)
        )
        folder.write_summary(Summary.of("benchmark", folder.records(), {}))
    return tmp_path / "old"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_what_changed_is_told_and_the_old_run_is_left_as_it_was(old_run, tmp_path):
    before = contents(old_run)
    told = rescore(tmp_path / "new", old_run)
    assert contents(old_run) == before
    records = {record.item_id: record for record in open_finished(tmp_path / "new").records}
    assert [records[f"i{n}"].answer for n in range(len(REPLIES))] == [now for *_, now in REPLIES]
    assert all(record.extractor == EXTRACTOR_VERSION and record.rule != "old" for record in records.values())
    assert "gone" not in records
    items = read_items(tmp_path / "new")
    assert set(items) == set(records), "the page of the new run has its words"
    assert list(items["i0"].options) == TEXTS
    changed = pd.read_csv(tmp_path / "new/tables/changed.csv", keep_default_na=False)
    assert changed["item"].tolist() == ["i1", "i2", "i3"]
    assert changed[["old", "new"]].to_numpy().tolist() == [["A", ""], ["A", "B"], ["", "C"]]
    assert changed["new_rule"].tolist() == ["no_letter", "statement", "statement"]
    assert "6 replies read again" in told
    assert "3 differ" in told
    for part in ("A (old)", "none (no_letter)", "B (statement)", "C (statement)", "no such item any more"):
        assert part in told, part


def test_both_accuracies_and_their_paired_difference_are_those_of_the_records(old_run, tmp_path):
    rescore(tmp_path / "new", old_run)
    metrics = read_summary(tmp_path / "new").metrics
    videos = [number // 2 for number in range(len(REPLIES))]
    before = [float(old == target) for _, old, target, _ in REPLIES]
    after = [float(now == target) for *_, target, now in REPLIES]
    expected = {
        "accuracy_before": before,
        "accuracy": after,
        "accuracy_change": [b - a for a, b in zip(before, after, strict=True)],
        "none_rate_before": [float(old is None) for _, old, _, _ in REPLIES],
        "none_rate": [float(now is None) for *_, now in REPLIES],
        "choice_accuracy": [float(target == "A") for *_, target, _ in REPLIES],
    }
    for name, values in expected.items():
        assert metrics[name].mean == pytest.approx(sum(values) / len(values)), name
        theirs = probes.clustered_mean(values, videos)
        assert (metrics[name].ci_low, metrics[name].ci_high) == pytest.approx(
            (theirs.ci_low, theirs.ci_high)
        ), name
    rows = pd.read_csv(tmp_path / "new/tables/accuracy.csv").set_index(["measure", "scored", "task"])
    assert rows.loc[("accuracy", "before", "site"), "value"] == pytest.approx(1 / 3)
    assert rows.loc[("accuracy", "after", "site"), "value"] == pytest.approx(2 / 3)
    assert rows.loc[("accuracy", "change", "tool"), "n"] == 3


def test_the_same_command_again_writes_nothing_twice_and_a_new_extractor_scores_again(
    old_run, tmp_path, monkeypatch
):
    rescore(tmp_path / "new", old_run)
    first = (tmp_path / "new/samples.0.jsonl").read_bytes()
    rescore(tmp_path / "new", old_run)
    assert (tmp_path / "new/samples.0.jsonl").read_bytes() == first
    monkeypatch.setattr("diagnostics.experiments.rescore.EXTRACTOR_VERSION", "next")
    rescore(tmp_path / "new", old_run)
    assert {record.extractor for record in open_finished(tmp_path / "new").records} == {"next"}


def test_a_question_that_was_mended_is_left_out_and_a_missing_video_is_told(old_run, tmp_path):
    write_data(tmp_path / "data", question="Where is it now?")
    with pytest.raises(RunError, match="asks something else"):
        rescore(tmp_path / "changed", old_run)
    for video in (tmp_path / "data").glob("*.mp4"):
        video.unlink()
    rescore(tmp_path / "unverified", old_run)
    assert read_summary(tmp_path / "unverified").warnings["unverified_item"].n == len(REPLIES)


def test_the_old_folder_is_never_written_to(old_run):
    before = contents(old_run)
    with pytest.raises(ConfigurationMismatchError):
        rescore(old_run, old_run)
    assert contents(old_run) == before


def test_what_is_no_run_with_replies_is_refused(old_run, tmp_path):
    with pytest.raises(DiagnosticsError, match="no such folder"):
        rescore(tmp_path / "new", tmp_path / "nowhere")
    rescore(tmp_path / "both" / "first", old_run)
    rescore(tmp_path / "both" / "second", old_run)
    with pytest.raises(DiagnosticsError, match="no run"):
        rescore(tmp_path / "newer", tmp_path / "both")


def test_no_model_is_loaded(old_run, tmp_path, monkeypatch):
    monkeypatch.setattr("diagnostics.models.loading.load_model", lambda *_: pytest.fail("a model was loaded"))
    rescore(tmp_path / "new", old_run)
    assert "diagnostics.experiments.rescore" in sys.modules
