import dataclasses
import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnostics.data import load_items
from diagnostics.data.items import FLAGS, Criterion, Evidence, Item, Turn, Window
from diagnostics.data.jsonl import write_records
from diagnostics.errors import (
    AnswerNotAnOptionError,
    DataFileError,
    DuplicateItemError,
    EvidenceOutsideVideoError,
    PathLeavesRootError,
    RecordError,
    TooFewOptionsError,
)

GOOD = {"id": "q1", "video": "a.mp4", "question": "Which?", "options": ["red", "blue"], "answer": "B"}


def load(path, **config):
    return load_items("jsonl", {"path": str(path), **config})


def the_error(loaded):
    assert len(loaded.rejected) == 1, loaded.rejected
    return loaded.rejected[0]


def test_every_key_reaches_the_item(write_lines, tmp_path):
    record = {
        **GOOD,
        "task": "colour",
        "task_family": "attribute",
        "evidence": {"seconds": [[4, 5.5]], "frames": [[32, 44]], "kind": "proxy"},
        "flags": ["order_free"],
        "turns": [{"role": "user", "text": "Look."}, {"role": "assistant", "text": "I do."}],
        "rubric": [{"text": "names the colour", "points": 2}, {"text": "invents a finding", "points": -1}],
        "audio": "sound/a.wav",
        "surgeon": 7,
        "metadata": {"answers": 3},
    }
    (item,) = load(write_lines(record)).items
    assert item.video == (tmp_path / "a.mp4").resolve()
    assert item.video_id == "a.mp4"
    assert item.answer == "B"
    assert item.evidence == Evidence((Window(4.0, 5.5, 32, 44),), "proxy")
    assert item.flags == {"order_free"}
    assert item.turns == (Turn("user", "Look."), Turn("assistant", "I do."))
    assert item.rubric == (Criterion("names the colour", 2.0), Criterion("invents a finding", -1.0))
    assert item.audio == (tmp_path / "sound" / "a.wav").resolve()
    assert item.metadata == {"surgeon": 7, "answers": 3}


def test_the_smallest_record_is_open_ended_and_unlabelled(write_lines):
    (item,) = load(write_lines({"id": 5, "video": "a.mp4", "question": "What happens?"})).items
    assert (item.id, item.options, item.answer, item.evidence) == ("5", (), None, None)


def test_one_bad_record_of_each_kind_costs_itself_only(write_lines, tmp_path):
    (tmp_path / "link.mp4").symlink_to("/etc/hostname")
    bad = [
        (TooFewOptionsError, {**GOOD, "id": "one", "options": ["red"]}),
        (AnswerNotAnOptionError, {**GOOD, "id": "none", "answer": "green"}),
        (AnswerNotAnOptionError, {**GOOD, "id": "letter", "answer": "C"}),
        (DuplicateItemError, {**GOOD, "question": "Again?"}),
        (PathLeavesRootError, {**GOOD, "id": "absolute", "video": "/etc/hostname"}),
        (PathLeavesRootError, {**GOOD, "id": "up", "video": "x/../../b.mp4"}),
        (PathLeavesRootError, {**GOOD, "id": "link", "video": "link.mp4"}),
        (PathLeavesRootError, {**GOOD, "id": "drive", "video": "C:\\clips\\a.mp4"}),
        (PathLeavesRootError, {**GOOD, "id": "share", "video": "\\\\server\\a.mp4"}),
        (PathLeavesRootError, {**GOOD, "id": "sound", "audio": "../a.wav"}),
        (EvidenceOutsideVideoError, {**GOOD, "id": "reversed", "evidence": [[5, 4]]}),
        (EvidenceOutsideVideoError, {**GOOD, "id": "empty", "evidence": [[5, 5]]}),
        (EvidenceOutsideVideoError, {**GOOD, "id": "negative", "evidence": {"frames": [[-1, 4]]}}),
        (RecordError, {**GOOD, "id": "flag", "flags": ["orderfree"]}),
        (RecordError, {**GOOD, "id": "kind", "evidence": {"seconds": [[1, 2]], "kind": "exakt"}}),
        (RecordError, {**GOOD, "id": "windows", "evidence": []}),
        (RecordError, {**GOOD, "id": "global", "evidence": {"seconds": [[1, 2]], "kind": "global"}}),
        (RecordError, {**GOOD, "id": "half", "evidence": {"frames": [[0.5, 4]]}}),
        (RecordError, {**GOOD, "id": "number", "answer": 1}),
        (RecordError, {**GOOD, "id": "turns", "turns": [{"role": "nurse", "text": ""}]}),
        (RecordError, {**GOOD, "id": "rubric", "rubric": {"text": "x"}}),
        (RecordError, {**GOOD, "id": "nul", "video": "a\0.mp4"}),
        (RecordError, {**GOOD, "id": "novideo", "video": ""}),
        (RecordError, {"video": "a.mp4", "question": "Who am I?"}),
        (RecordError, '{"id": "torn", "video": "a.m'),
        (RecordError, '{"id": "nan", "video": "a.mp4", "question": "?", "score": NaN}'),
        (RecordError, '{"id": "twice", "id": "twice", "video": "a.mp4", "question": "?"}'),
        (RecordError, '{"id": "half a pair \\ud800", "video": "a.mp4", "question": "?"}'),
        (RecordError, "[" * 100_000),
        (RecordError, '"a text"'),
    ]
    path = write_lines(GOOD, *(record for _, record in bad), {**GOOD, "id": "last"})
    loaded = load(path)
    assert [item.id for item in loaded.items] == ["q1", "last"]
    for number, ((kind, record), error) in enumerate(zip(bad, loaded.rejected, strict=True), start=2):
        assert type(error) is kind, (record, error)
        assert error.path == f"{path}:{number}"
        assert error.remedy
        if isinstance(record, dict):
            assert error.item_id == record.get("id")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("anwser", "answer"),
        ("Answer", "answer"),
        ("answr", "answer"),
        ("option", "options"),
        ("evidance", "evidence"),
        ("taks", "task"),
        ("task-family", "task_family"),
        ("flgas", "flags"),
        ("rubrics", "rubric"),
    ],
)
def test_a_misspelt_key_is_an_error_that_names_the_near_match(write_lines, written, meant):
    record = {key: value for key, value in GOOD.items() if key != meant}
    error = the_error(load(write_lines({**record, written: "x"})))
    assert repr(written) in error.problem
    assert repr(meant) in error.problem


@pytest.mark.parametrize(
    "key", ["question_id", "video_id", "task_id", "video_fps", "duration", "source", "idx", "risk"]
)
def test_other_keys_are_metadata(write_lines, key):
    (item,) = load(write_lines({**GOOD, key: "x"})).items
    assert item.metadata == {key: "x"}


@pytest.mark.parametrize(("missing", "written"), [("id", "ID"), ("video", "vidoe"), ("question", "Question")])
def test_a_missing_key_names_what_may_have_been_meant(write_lines, missing, written):
    record = {key: value for key, value in GOOD.items() if key != missing}
    assert repr(written) in str(the_error(load(write_lines({**record, written: "x"}))))


def test_an_item_is_left_out_of_no_list(write_lines):
    loaded = load(write_lines(GOOD, GOOD, GOOD))
    assert len(loaded.items) == 1
    assert [type(error) for error in loaded.rejected] == [DuplicateItemError] * 2
    assert ":1" in loaded.rejected[1].problem


def test_marks_line_ends_and_blank_lines_are_tolerated(write_lines):
    plain = load(write_lines(GOOD, {**GOOD, "id": "q2", "question": "Ligne\u2028séparée ?"}))
    path = write_lines(
        "\ufeff" + json.dumps(GOOD),
        "",
        "   ",
        {**GOOD, "id": "q2", "question": "Ligne\u2028séparée ?"},
        end="\r\n",
    )
    assert load(path) == plain
    assert len(plain.items) == 2


def test_bytes_that_are_no_utf8_cost_their_line(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b"\n" + b'{"id": "caf\xe9"}\n')
    loaded = load(path)
    assert len(loaded.items) == 1
    assert the_error(loaded).path == f"{path}:2"


@pytest.mark.parametrize(
    ("content", "hint"),
    [(b"", "no record"), (b"\n \n", "no record"), (b"[\n{}]", "array"), (b"\xff\xfe{\0", "UTF-16")],
)
def test_a_file_that_is_no_json_lines(tmp_path, content, hint):
    path = tmp_path / "questions.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=hint):
        load(path)


def test_a_missing_file_names_its_near_match(write_lines, tmp_path):
    write_lines(GOOD, name="my_questions.jsonl")
    with pytest.raises(DataFileError, match=r"my_questions\.jsonl\?"):
        load(tmp_path / "my_question.jsonl")
    with pytest.raises(DataFileError, match="no such root"):
        load(tmp_path / "my_questions.jsonl", root=str(tmp_path / "vids"))
    with pytest.raises(DataFileError, match="is a folder"):
        load(tmp_path)


def test_paths_start_from_the_root_and_may_be_written_on_windows(write_lines, tmp_path):
    (tmp_path / "clips").mkdir()
    records = [
        {**GOOD, "id": str(n), "video": v}
        for n, v in enumerate(["day1\\a.mp4", "day1/a.mp4", "./day1/../day1/a.mp4"])
    ]
    loaded = load(write_lines(*records), root=str(tmp_path / "clips"))
    assert {item.video for item in loaded.items} == {(tmp_path / "clips" / "day1" / "a.mp4").resolve()}
    assert {item.video_id for item in loaded.items} == {"day1/a.mp4"}, "one video, one id"


def test_an_absolute_path_inside_the_root_is_inside(write_lines, tmp_path):
    path = write_lines({**GOOD, "video": str(tmp_path / "a.mp4")})
    assert load(path).items[0].video_id == "a.mp4"
    assert load(path, root="/").items[0].video == (tmp_path / "a.mp4").resolve()


def test_a_loop_of_links_is_refused(write_lines, tmp_path):
    (tmp_path / "a.mp4").symlink_to(tmp_path / "b.mp4")
    (tmp_path / "b.mp4").symlink_to(tmp_path / "a.mp4")
    loaded = load(write_lines({**GOOD, "video": "a.mp4/x.mp4"}, {**GOOD, "id": "fine", "video": "c.mp4"}))
    assert loaded.items[-1].id == "fine"


def test_evidence_is_sorted_and_overlaps_are_joined(write_lines):
    (item,) = load(write_lines({**GOOD, "evidence": [[20, 25], [1, 3], [2, 4], [4, 5]]})).items
    assert [(w.start_seconds, w.end_seconds) for w in item.evidence.windows] == [(1, 4), (4, 5), (20, 25)]
    assert item.evidence.seconds == pytest.approx(9.0), "no second is counted twice"


_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def _windows(draw):
    edges = sorted(draw(st.sets(st.integers(0, 10_000), min_size=2, max_size=8)))
    pairs = list(zip(edges[::2], edges[1::2], strict=False))
    form = draw(st.sampled_from(["seconds", "frames", "both"]))
    frames = [(a, b) if form != "seconds" else (None, None) for a, b in pairs]
    seconds = [(a / 8, b / 8) if form != "frames" else (math.nan, math.nan) for a, b in pairs]
    return tuple(Window(*s, *f) for s, f in zip(seconds, frames, strict=True))


@st.composite
def _items(draw, root):
    options = (
        tuple(draw(st.lists(_NAMES.map(str.strip), min_size=2, max_size=6, unique=True)))
        if draw(st.booleans())
        else ()
    )
    answer = (
        draw(st.sampled_from("ABCDEF"[: len(options)]))
        if options
        else draw(st.none() | _NAMES.map(str.strip))
    )
    name = draw(st.from_regex(r"[a-z]{1,6}(/[a-z]{1,6}){0,2}\.mp4", fullmatch=True))
    evidence = draw(
        st.none() | st.just(Evidence((), "global")) | _windows().map(lambda w: Evidence(w, "exact"))
    )
    return Item(
        id=draw(_NAMES),
        video=root / name,
        video_id=name,
        question=draw(_NAMES),
        options=options,
        answer=answer,
        task=draw(st.just("") | _NAMES),
        evidence=evidence,
        flags=frozenset(draw(st.sets(st.sampled_from(sorted(FLAGS))))),
        turns=tuple(Turn("user", text) for text in draw(st.lists(_NAMES, max_size=2))),
        rubric=tuple(Criterion(text, 1.5) for text in draw(st.lists(_NAMES, max_size=2))),
        metadata=draw(st.dictionaries(_NAMES, _JSON, max_size=3)),
    )


def _comparable(item):
    """Not-a-number differs from itself; its text does not."""
    return dataclasses.replace(item, evidence=None), repr(item.evidence)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_what_is_written_is_read_again(tmp_path, data):
    root = Path(tmp_path).resolve()
    items = data.draw(st.lists(_items(root), min_size=1, max_size=4, unique_by=lambda item: item.id))
    # Options that carry their own letters lose them on purpose; a text equal to a letter is ambiguous.
    plain = [i for i in items if not any(o[0] in "(ABCDEF" or o.upper() in "ABCDEF" for o in i.options)]
    path = root / "round.jsonl"
    write_records(path, plain, root)
    if plain:
        loaded = load(path)
        assert loaded.rejected == []
        assert [_comparable(item) for item in loaded.items] == [_comparable(item) for item in plain]


def test_the_documented_example_works(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")
    path = tmp_path / "my.jsonl"
    path.write_text(page.split("```json\n")[1].split("```")[0], encoding="utf-8")
    loaded = load(path)
    assert loaded.rejected == []
    assert [item.id for item in loaded.items] == ["case1-polyp", "case1-end"]
    assert loaded.items[0].answer == "C"
    assert loaded.items[0].evidence.seconds == 2.5
