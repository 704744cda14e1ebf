"""The whole pipeline on thirty procedures."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.data import load_items
from diagnostics.data.build import TASKS, Config, build, build_in_memory
from diagnostics.data.build import reasons as reasons_module
from diagnostics.data.build.audit import STAGES, Audit
from diagnostics.data.build.reasons import Rejection
from diagnostics.errors import ItemError, VideoError

from .conftest import SPACES, Tracks, procedure
from .rederive import right


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("thirty")
    tracks = Tracks([procedure(number) for number in range(30)])
    config = Config(windows_per_run=2)
    return tracks, build([tracks.json(folder / "tracks.json")], folder / "out", config, probe=tracks.probe)


def test_every_family_comes_out(built):
    _, result = built
    assert {item.task for item in result.items} == set(TASKS)
    assert len(result.items) > 1000


def test_two_hundred_items_agree_with_a_derivation_from_the_tracks_alone(built):
    tracks, result = built
    cases = tracks.by_name()
    random = np.random.default_rng(7)
    by_task = {task: [item for item in result.items if item.task == task] for task in TASKS}
    sampled = [items[place] for items in by_task.values() for place in random.permutation(len(items))[:16]]
    assert len(sampled) >= 200
    for item in sampled:
        case = cases[item.metadata["procedure"]]
        answers, evidence = right(case, item.task, item.question, item.options)
        assert answers == {item.options["ABCD".index(item.answer)]}, (item.id, item.question)
        windows = item.evidence.windows
        frames = {f for window in windows for f in range(window.start_frame, window.end_frame)}
        assert frames == evidence, item.id


def test_kinds_and_flags_are_those_of_the_family(built):
    tracks, result = built
    cases = tracks.by_name()
    ordered = Counter()
    for item in result.items:
        case = cases[item.metadata["procedure"]]
        kind = {**dict.fromkeys(("Site", "Hist", "Size", "LLS", "LA"), "proxy")}.get(item.task, "exact")
        kind = "global" if item.task in ("BPQ", "WR", "RSR", "CPR") else kind
        assert item.evidence.kind == kind
        assert bool(item.evidence.windows) == (kind != "global")
        flag = "time_addressed" if item.task in ("PR", "SD", "RL") else "order_free"
        # Whose wording names an order: steps, the n-th of several lesions, the first of several onsets.
        names_order = item.task == "RSR"
        if item.task in ("Site", "Hist", "Size"):
            names_order = len(case["lesions"]) > 1
            assert names_order == ("to come into view" in item.question)
        if item.task == "IR":
            phase = item.question.partition("the phase ")[2].partition(" first begins")[0]
            names_order = sum(row["label"] == phase for row in case["phases"]) > 1
        assert item.flags == {"order_dependent" if names_order else flag}, item.question
        ordered[item.task, names_order] += 1
    assert {(task, named) for task in ("Site", "Hist", "Size", "IR") for named in (True, False)} <= set(
        ordered
    )


def test_letters_are_balanced_within_one_in_each_task(built):
    _, result = built
    for task in TASKS:
        counts = Counter(item.answer for item in result.items if item.task == task)
        assert max(counts.values()) - min(counts[letter] for letter in "ABCD") <= 1, (task, counts)


def test_the_question_file_loads_as_it_was_built(built):
    _, result = built
    config = {"path": str(result.folder / "questions.jsonl"), "root": str(result.root)}
    loaded = load_items("jsonl", config)
    assert not loaded.rejected
    assert loaded.items == result.items


def test_every_rejected_candidate_has_its_reason_and_the_funnel_adds_up(built):
    _, result = built
    lines = [json.loads(line) for line in (result.folder / "audit.jsonl").read_text().splitlines()]
    known = set(reasons_module.__all__) | {
        cls.__name__ for base in (ItemError, VideoError) for cls in base.__subclasses__()
    }
    for line in lines:
        assert line["reason"] in known
        assert line["stage"] in STAGES
        assert line["message"]
        assert line["remedy"]
        if line["stage"] not in ("rows", "procedures"):
            assert line["task"] in TASKS
            assert line["candidate"]["question"]
    dropped = {
        line["candidate"]["id"]
        for line in lines
        if line.get("candidate") and line["reason"] != "DuplicateQuestionError"  # its twin is kept
    }
    kept = {item.id for item in result.items}
    assert not dropped & kept
    funnel = result.audit.funnel()
    totals = funnel[funnel["reason"] == ""].groupby("stage")[["entered", "dropped", "kept"]].sum()
    order = ["candidates", "filter", "quota", "distractors", "checks", "review", "letters"]
    for before, after in pairwise(order):
        assert totals.loc[before, "kept"] == totals.loc[after, "entered"], after
    assert totals.loc["letters", "kept"] == len(result.items)
    made = totals.loc["candidates", "entered"]
    assert made == len(kept) + sum(1 for line in lines if line.get("candidate"))


def test_the_same_tracks_give_the_same_files(built, tmp_path):
    tracks, result = built
    again = build(
        [tracks.json(result.root / "tracks.json")],
        tmp_path,
        Config(windows_per_run=2),
        probe=tracks.probe,
        root=result.root,
    )
    for name in ("questions.jsonl", "audit.jsonl", "review.csv", "funnel.csv"):
        assert (again.folder / name).read_bytes() == (result.folder / name).read_bytes(), name
    other = build([result.root / "tracks.json"], tmp_path / "b", Config(seed=1), probe=tracks.probe)
    assert {item.question for item in other.items} != {item.question for item in result.items}


def test_another_procedure_leaves_the_windows_of_the_others_alone(thirty, tmp_path):
    spaces = {"tasks": ("PR", "SD", "RL")}
    few, more = (Tracks(thirty.procedures[:n]) for n in (10, 11))
    whole = [{"source": "s", "spaces": SPACES, "procedures": tracks.procedures} for tracks in (few, more)]
    first, _ = build_in_memory(whole[0], tmp_path, few.probe, Config(**spaces))
    second, _ = build_in_memory(whole[1], tmp_path, more.probe, Config(**spaces))
    assert {(item.id, item.question) for item in first} < {(item.id, item.question) for item in second}


def test_quotas_keep_answers_even(thirty, tmp_path):
    whole = {"source": "s", "spaces": SPACES, "procedures": thirty.procedures}
    config = Config(tasks=("PR", "SD"), per_task=48, per_procedure=2)
    items, audit = build_in_memory(whole, tmp_path, thirty.probe, config)
    counts = Counter((item.task, item.metadata["procedure"]) for item in items)
    assert max(counts.values()) <= 2
    assert Counter(item.task for item in items) == {"PR": 48, "SD": 48}
    answers = Counter(item.options["ABCD".index(item.answer)] for item in items if item.task == "PR")
    assert max(answers.values()) - min(answers.values()) <= 2, answers
    assert {entry.reason for entry in audit.entries if entry.stage == "quota"} == {"OverQuotaError"}


def test_even_answers_leave_no_answer_likelier_than_another(thirty, tmp_path):
    whole = {"source": "s", "spaces": SPACES, "procedures": thirty.procedures}
    config = Config(tasks=("PR", "CPR", "IR"), even_answers=True)
    items, audit = build_in_memory(whole, tmp_path, thirty.probe, config)
    uneven, _ = build_in_memory(whole, tmp_path, thirty.probe, Config(tasks=config.tasks))
    for task in config.tasks:
        candidates = Counter(item.options["ABCD".index(item.answer)] for item in uneven if item.task == task)
        answers = Counter(item.options["ABCD".index(item.answer)] for item in items if item.task == task)
        assert set(answers) == set(candidates)
        assert max(answers.values()) == min(answers.values()) < max(candidates.values()), (task, answers)
    assert {e.reason for e in audit.entries if e.stage == "quota"} == {"OverQuotaError"}


@given(
    number=st.integers(0, 10_000),
    options=st.integers(2, 6),
    named=st.integers(2, 5),
    window=st.floats(0.05, 60),
    grid=st.floats(0.05, 5),
)
@settings(max_examples=25, deadline=None)
def test_whatever_the_settings_items_are_sound(tmp_path_factory, number, options, named, window, grid):
    tracks = Tracks([procedure(number, seed=1), procedure(number + 1, seed=1)])
    whole = {"source": "s", "spaces": SPACES, "procedures": tracks.procedures}
    config = Config(options=options, named_steps=named, window_seconds=window, grid_seconds=grid)
    items, _ = build_in_memory(whole, tmp_path_factory.getbasetemp(), tracks.probe, config)
    assert len({item.id for item in items}) == len(items)
    for item in items:
        assert len(set(item.options)) == len(item.options) == (named if item.task == "RSR" else options)
        assert item.answer in item.letters
        for window_ in item.evidence.windows:
            assert 0 <= window_.start_frame < window_.end_frame <= item.metadata["n_frames"]


def test_names_of_reasons_are_types_of_their_own():
    types = [getattr(reasons_module, name) for name in reasons_module.__all__]
    assert all(issubclass(kind, Rejection) and kind.__doc__ for kind in types)
    assert len(set(types)) == len(types)


def test_a_missing_or_wrong_video_is_refused_with_the_row_that_names_it(make_tracks, tmp_path):
    good, missing, longer = (procedure(number) for number in range(3))
    tracks = make_tracks(good, missing, longer)
    del tracks.durations["case-01.mp4"]
    tracks.durations["case-02.mp4"] += 60
    result = build([tracks.json(tmp_path / "t.json")], tmp_path / "out", probe=tracks.probe)
    assert {item.metadata["procedure"] for item in result.items} == {"case-00"}
    refused = {
        e.procedure: (e.reason, e.row, e.within) for e in result.audit.entries if e.stage == "procedures"
    }
    assert refused == {
        "case-01": ("MissingVideoError", 2, "procedures"),
        "case-02": ("LengthMismatchError", 3, "procedures"),
    }


def test_rows_past_the_end_are_dropped_and_short_overhangs_cut(make_tracks, tmp_path):
    one = procedure(0)
    duration = one["frames"] / one["fps"]
    one["regions"] = [
        {"start": 0.0, "end": 100.0, "label": "colon"},
        {"start": 100.0, "end": duration + 0.5, "label": "rectum"},
        {"start": duration + 1, "end": duration + 20, "label": "stomach"},
    ]
    tracks = make_tracks(one)
    result = build(
        [tracks.json(tmp_path / "t.json")], tmp_path / "out", Config(tasks=("RL",)), probe=tracks.probe
    )
    (entry,) = [entry for entry in result.audit.entries if entry.stage == "rows"]
    assert (entry.reason, entry.row, entry.track) == ("PastEndError", 3, "regions")
    assert {item.options["ABCD".index(item.answer)] for item in result.items} <= {"colon", "rectum"}
    assert all(w.end_seconds <= duration for item in result.items for w in item.evidence.windows)


def test_an_empty_audit_has_an_empty_funnel():
    assert Audit().funnel().empty
