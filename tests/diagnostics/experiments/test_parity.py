"""Two engines on the same items: each kind of difference by hand, and transformers against itself."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from diagnostics.experiments.parity import compare
from diagnostics.store.record_log import read_records
from diagnostics.store.records import Failure, Record
from diagnostics.video.selection import Slot

from .conftest import Diagnose

PARITY = (
    "+exp=parity",
    "exp.other_settings={sharing: false}",
    "data.n_videos=2",
    "data.seconds=30",
    "data.fps=8",
    "data.evidence_ratio=0.0167",
    "data.questions=3",
    "sampling.budget=15",
    "backend.max_new_tokens=4",
)
SLOTS = (Slot("v", 0, 0.0, 0.0), Slot("v", 25, 1.0, 1.0))


def record(**changes: Any) -> Record:
    told = Record(
        item_id="q", video_id="v", task="T", slots=SLOTS, prompt_ids=(5, 6, 7), grid=((1, 4, 4),), raw="A.",
        answer="A", rule="whole_letter", option_logprobs={"A": -0.1, "B": -2.4},
    )  # fmt: skip
    return replace(told, **changes)


def test_equal_records_are_equal() -> None:
    found = compare(record(), record(), 0.0)
    assert (found.item, found.task, found.video, found.difference) == ("q", "T", "v", "")
    assert (found.same_frames, found.same_ids, found.same_answer) == (True, True, True)
    assert found.largest_difference == 0


@pytest.mark.parametrize(
    ("changes", "field", "difference"),
    [
        ({"slots": SLOTS[:1]}, "same_frames", "2 frames against 1"),
        (
            {"slots": (SLOTS[0], Slot("v", 26, 1.04, 1.04))},
            "same_frames",
            "frame 1: 25 at 1.0 s against 26 at 1.04 s",
        ),
        (
            {"slots": (SLOTS[0], Slot("v", 25, 1.0, 2.0))},
            "same_frames",
            "frame 1: 25 at 1.0 s against 25 at 2.0 s",
        ),
        ({"prompt_ids": (5, 9, 7)}, "same_ids", "prompt token 1: 6 against 9 (3 and 3 tokens)"),
        ({"prompt_ids": (5, 6)}, "same_ids", "prompt token 2: 7 against None (3 and 2 tokens)"),
        ({"grid": ((2, 4, 2),)}, "same_ids", "grid of patches: ((1, 4, 4),) against ((2, 4, 2),)"),
        ({"answer": "B", "raw": "B"}, "same_answer", "answer: 'A.' against 'B'"),
        ({"answer": None, "rule": None, "raw": "Well"}, "same_answer", "answer: 'A.' against 'Well'"),
    ],
)
def test_each_difference_is_named(changes: dict[str, Any], field: str, difference: str) -> None:
    found = compare(record(), record(**changes), 1e-3)
    told = {name: getattr(found, name) for name in ("same_frames", "same_ids", "same_answer")}
    assert told == {"same_frames": True, "same_ids": True, "same_answer": True} | {field: False}
    assert found.difference == difference


def test_log_probabilities_differ_beyond_the_tolerance() -> None:
    other = record(option_logprobs={"A": -0.1004, "B": -2.402})
    found = compare(record(), other, 1e-3)
    assert found.largest_difference == pytest.approx(0.002)
    assert found.difference == "log-probability of B: -2.400000 against -2.402000"
    assert compare(record(), other, 0.0021).difference == ""


def test_the_first_difference_is_the_cause_before_what_follows_from_it() -> None:
    other = record(prompt_ids=(5, 6, 8), option_logprobs={"A": -3.0, "B": -0.2}, answer="B", raw="B")
    found = compare(record(), other, 1e-3)
    assert found.difference.startswith("prompt token 2")
    assert not found.same_answer
    assert found.largest_difference == pytest.approx(2.9)


def test_what_an_engine_does_not_tell_is_neither_equal_nor_different() -> None:
    found = compare(record(), record(prompt_ids=(), option_logprobs={}), 1e-3)
    assert found.same_ids is None
    assert math.isnan(found.largest_difference)
    assert found.difference == ""


def test_the_same_letter_in_other_words_is_the_same_answer_but_open_ended_words_count() -> None:
    assert compare(record(), record(raw="The answer is A"), 1e-3).same_answer
    one = record(answer=None, rule=None, raw="A polyp.", option_logprobs={})
    assert not compare(one, replace(one, raw="A lesion."), 1e-3).same_answer
    assert compare(one, replace(one), 1e-3).same_answer


def test_an_item_that_one_engine_refused_is_a_difference() -> None:
    failed = record(error=Failure("PromptTooLongError", "It has 9 tokens."), raw=None, answer=None)
    for one, other, name in ((record(), failed, "the other"), (failed, record(), "the first")):
        found = compare(one, other, 1e-3)
        assert found.difference == f"{name} engine failed: PromptTooLongError: It has 9 tokens."
        assert (found.same_frames, found.same_ids, found.same_answer) == (None, None, None)


# -- as a command


def test_transformers_with_sharing_agrees_with_itself_without(diagnose: Diagnose, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    finished = diagnose(*PARITY, f"out={folder}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "hf and hf: 6 items, no difference." in finished.stdout
    table = pd.read_csv(folder / "tables" / "parity.csv")
    assert len(table) == 6
    assert table[["equal", "same_frames", "same_ids", "same_answer"]].all(axis=None)
    records = read_records(folder)
    assert len(records) == 12
    assert {(r.condition["side"], r.condition["engine"]) for r in records} == {
        ("backend", "hf"),
        ("other", "hf"),
    }
    sides = [{r.item_id: r for r in records if r.condition["side"] == side} for side in ("backend", "other")]
    largest = max(
        abs(one.option_logprobs[letter] - sides[1][name].option_logprobs[letter])
        for name, one in sides[0].items()
        for letter in one.option_logprobs
    )
    assert table["largest_difference"].max() == pytest.approx(largest)
    assert 0 < largest < 1e-4, "two roads, not one taken twice"
    assert all(len(r.prompt_ids) == r.n_prompt_tokens for r in records)
    metrics = json.loads((folder / "summary.json").read_text())["metrics"]
    assert metrics["same_ids"]["mean"] == metrics["same_answer"]["mean"] == 1
    assert metrics["largest_difference"]["mean"] == pytest.approx(largest)
    # Again: nothing is asked, and the same comes out.
    assert diagnose(*PARITY, f"out={folder}").returncode == 0
    assert read_records(folder) == records


def test_a_difference_fails_the_command_and_is_shown(diagnose: Diagnose, tmp_path: Path) -> None:
    finished = diagnose(*PARITY, "exp.tolerance=0", "data.limit=3", f"out={tmp_path / 'run'}")
    assert finished.returncode == 1, finished.stdout + finished.stderr
    table = pd.read_csv(tmp_path / "run" / "tables" / "parity.csv")
    differing = table[~table["equal"]]
    assert len(differing)
    first = differing.iloc[0]
    assert f"hf and hf differ in {len(differing)} of 3 items. First, {first['item']}: log-probability of" in (
        finished.stderr
    )
    assert first["first_difference"].startswith("log-probability of ")


def test_the_other_engine_is_checked_before_anything_is_asked(diagnose: Diagnose, tmp_path: Path) -> None:
    for arguments, told in (
        (("exp.other=vlm",), "vllm"),
        (("exp.other_settings={shareing: false}",), "sharing"),
    ):
        finished = diagnose(*PARITY, *arguments, f"out={tmp_path / told}")
        assert finished.returncode == 2, finished.stdout
        assert told in finished.stderr
        assert not read_records(tmp_path / told)
