"""Records: strict JSON, and a file of them that survives kills and full disks."""

import json
import math
import resource
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.errors import DamagedRunError, IncompleteRunError
from diagnostics.store import (
    VOLATILE,
    Failure,
    Record,
    all_records,
    comparable,
    from_json,
    latest,
    merge_check,
    read_records,
    to_json,
)
from diagnostics.store.record_log import RecordWriter, records_path
from diagnostics.video.selection import Slot

TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=20)
NUMBER = st.floats() | st.integers(-(2**53), 2**53) | st.floats(width=32).map(np.float32) | st.none()
NUMBERS = st.dictionaries(TEXT, NUMBER, max_size=3)
COUNT = st.integers(0, 2**40) | st.integers(0, 2**31).map(np.int64)
SLOT = st.builds(Slot, source=TEXT, frame_index=COUNT, true_seconds=st.floats(), shown_seconds=st.floats())
RECORD = st.builds(
    Record,
    item_id=TEXT,
    video_id=TEXT,
    condition=st.dictionaries(TEXT, TEXT | st.integers() | st.booleans(), max_size=3),
    slots=st.lists(SLOT, max_size=3),
    grid=st.lists(st.tuples(COUNT, COUNT, COUNT), max_size=2),
    source_fps=NUMBER,
    n_units=COUNT | st.none(),
    raw=TEXT | st.none(),
    correct=st.booleans() | st.sampled_from([np.True_, np.False_]) | st.none(),
    option_logprobs=NUMBERS,
    measures=NUMBERS,
    axes=st.dictionaries(TEXT, COUNT, max_size=2),
    warnings=st.lists(TEXT, max_size=2),
    error=st.builds(Failure, type=TEXT, message=TEXT) | st.none(),
)


def refuse(name):
    raise AssertionError(f"{name} in JSON")


@given(RECORD)
@settings(max_examples=120, deadline=None)
def test_a_record_comes_back_from_its_line(record):
    line = to_json(record)
    assert line.isascii()
    assert "\n" not in line
    json.loads(line, parse_constant=refuse)
    assert to_json(from_json(line)) == line
    assert comparable(from_json(line)) == comparable(record)


def test_the_line_has_the_fields_the_design_names(make_record):
    names = {
        "item_id", "condition_id", "condition", "config_hash", "video_id", "shard", "attempt", "slots",
        "source_fps", "grid", "n_visual_tokens", "n_prompt_tokens", "prompt_sha256", "raw", "answer", "rule",
        "target", "correct", "option_logprobs", "seconds", "measures", "axes", "tensor_file", "error",
    }  # fmt: skip
    values = json.loads(to_json(make_record(error=Failure.of(ValueError("no")))))
    assert names <= set(values)
    assert values["slots"][1] == {
        "source": "blank",
        "frame_index": -1,
        "true_seconds": None,
        "shown_seconds": 0.5,
    }
    assert values["error"] == {"type": "ValueError", "message": "no"}
    assert values["measures"] == {"gini": 0.25, "entropy": None}
    assert {field.name for field in fields(Record)} > VOLATILE


def test_undefined_times_come_back_as_nan(make_record):
    back = from_json(to_json(make_record()))
    assert math.isnan(back.slots[1].true_seconds)
    assert back.slots[0] == Slot("v.mp4", 3, 0.1, 0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"correct": 1},
        {"n_units": "3"},
        {"n_units": 3.0},
        {"n_units": True},
        {"raw": 3},
        {"measures": {"a": True}},
        {"measures": {"a": "1"}},
        {"measures": [1]},
        {"axes": {"a": 1.5}},
        {"condition": {"a": float("nan")}},
        {"slots": [{"source": "v"}]},
        {"slots": [{"source": "v", "frame_index": 1.0, "true_seconds": 0, "shown_seconds": 0}]},
        {"slots": [{"source": "v", "frame_index": 1, "true_seconds": "0", "shown_seconds": 0}]},
        {"warnings": "one"},
        {"error": {"type": "E"}},
        {"unknown": 1},
    ],
)
def test_a_line_with_a_wrong_value_is_refused(make_record, wrong):
    values = json.loads(to_json(make_record())) | wrong
    with pytest.raises(ValueError, match=r"\w"):
        from_json(json.dumps(values))


LATER = {"earlier_replies", "extractor", "prompt_ids"}
"""Fields that came after the first runs were written."""


@pytest.mark.parametrize("name", [field.name for field in fields(Record) if field.name not in LATER])
def test_a_line_that_lacks_a_field_is_refused(make_record, name):
    values = json.loads(to_json(make_record()))
    del values[name]
    with pytest.raises(ValueError, match=name):
        from_json(json.dumps(values))


def test_a_condition_id_of_another_condition_is_refused(make_record):
    values = json.loads(to_json(make_record())) | {"condition": {"budget": 1}}
    with pytest.raises(ValueError, match="condition_id"):
        from_json(json.dumps(values))


@pytest.mark.parametrize("line", ["", "null", "[]", "{", '{"item_id": NaN}', "\0\0\0"])
def test_what_is_no_record_is_refused(line):
    with pytest.raises(ValueError, match=r"\w"):
        from_json(line)


def test_the_last_attempt_counts(make_record):
    first, failed = make_record(attempt=1), make_record(attempt=2, error=Failure("E", "m"))
    third = make_record(attempt=2, raw="again")
    assert latest([failed, first])[first.pair] is failed
    assert latest([first, failed, third])[first.pair] is third


@given(cut=st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_a_file_cut_anywhere_loses_only_the_torn_line(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("cut")
    path = records_path(folder, 0)
    records = [Record(item_id=f"item {n}", video_id="v", raw="ß" * n) for n in range(6)]
    with RecordWriter(path) as writer:
        for record in records:
            writer.append(record)
    whole = path.read_bytes()
    path.write_bytes(whole[: cut % len(whole)])
    kept = path.read_bytes().count(b"\n")
    torn = len(path.read_bytes().rpartition(b"\n")[2])
    assert read_records(folder) == records[:kept]
    with RecordWriter(path) as writer:
        assert writer.dropped_bytes == torn
        for record in records[kept:]:
            writer.append(record)
    assert path.read_bytes() == whole


def test_a_long_torn_line_is_cut_off_whole(tmp_path, make_record):
    """Longer than the blocks in which the end of the last line is looked for."""
    path = records_path(tmp_path, 3)
    with RecordWriter(path) as writer:
        writer.append(make_record())
    whole = path.read_bytes()
    path.write_bytes(whole + b"x" * 200_000)
    with RecordWriter(path) as writer:
        assert writer.dropped_bytes == 200_000
    assert path.read_bytes() == whole
    path.write_bytes(b"y" * 200_000)
    with RecordWriter(path) as writer:
        assert writer.dropped_bytes == 200_000
    assert path.read_bytes() == b""


@pytest.mark.parametrize("damage", [b"{}\n", b"garbage\n", b"\n", b"\xff\xfe\n", b"\0\0\0\n"])
@pytest.mark.parametrize("line", [1, 2, 3])
def test_a_damaged_line_is_an_error_that_names_it(tmp_path, make_record, damage, line):
    path = records_path(tmp_path, 0)
    with RecordWriter(path) as writer:
        for n in range(3):
            writer.append(make_record(f"item {n}"))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line - 1] = damage
    path.write_bytes(b"".join(lines))
    with pytest.raises(DamagedRunError, match=f"line {line} ") as caught:
        read_records(tmp_path)
    assert caught.value.path == str(path)


def test_all_shards_are_read(tmp_path, make_record):
    for shard in (0, 2, 11):
        with RecordWriter(records_path(tmp_path, shard)) as writer:
            writer.append(make_record(f"item {shard}", attempt=1))
            writer.append(make_record("shared", attempt=shard))
    (tmp_path / "samples.x.jsonl").write_text("not ours\n")
    assert len(all_records(tmp_path)) == 6
    assert [(r.item_id, r.attempt) for r in read_records(tmp_path)] == [
        ("item 0", 1),
        ("item 11", 1),
        ("item 2", 1),
        ("shared", 11),
    ]


FULL_DISK = """
import resource, sys
from pathlib import Path
from diagnostics.store import Record
from diagnostics.store.record_log import RecordWriter
path = Path(sys.argv[1])
small, big = Record(item_id="small", video_id="v"), Record(item_id="big", video_id="v", raw="x" * 5000)
with RecordWriter(path) as writer:
    writer.append(small)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 2000, resource.RLIM_INFINITY))
    try:
        writer.append(big)
    except OSError as error:
        print(type(error).__name__, path.read_bytes().count(b"\\n"), path.read_bytes().endswith(b"\\n"))
    writer.append(small)
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs a limit on file sizes")
def test_a_full_disk_leaves_whole_lines_and_the_writer_usable(tmp_path):
    path = records_path(tmp_path, 0)
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.stdout.split() == ["OSError", "1", "True"]
    assert [record.item_id for record in all_records(tmp_path)] == ["small", "small"]


def test_merging_names_what_is_missing_failed_twice_and_unexpected(make_record):
    a, b = make_record("a", attempt=1), make_record("b", attempt=1, error=Failure("E", "m"))
    expected = [a.pair, b.pair, ("c", "-")]
    check = merge_check([a, replace(a, shard=1), b, make_record("d")], expected)
    assert check.missing == (("c", "-"),)
    assert check.failed == (b.pair,)
    assert check.duplicate == (a.pair,)
    assert check.unexpected == (("d", "-"),)
    with pytest.raises(IncompleteRunError, match=r"1 missing.*\('c', '-'\).*1 recorded twice.*1 unexpected"):
        check.require_whole()
    # A pair done again in a later attempt (its tensors were lost) is no fault, nor is a failed one.
    good = merge_check([a, replace(a, attempt=2), b], [a.pair, b.pair])
    assert good.whole
    good.require_whole()


def test_a_line_from_before_a_field_came_is_read_and_any_other_gap_is_named(make_record):
    values = json.loads(to_json(make_record("a")))
    older = {name: value for name, value in values.items() if name not in LATER}
    assert from_json(json.dumps(older)) == make_record("a")
    with pytest.raises(ValueError, match="fields are missing: raw, slots"):
        from_json(json.dumps({name: value for name, value in older.items() if name not in ("raw", "slots")}))
