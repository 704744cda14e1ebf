"""Reading tracks: both forms say the same, and every bad row is dropped with its number and reason."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.data.build.annotations import Interval, Place, Track, overlapping
from diagnostics.data.build.audit import Audit
from diagnostics.data.build.rows import read_annotations
from diagnostics.data.build.tracks import COLUMNS
from diagnostics.errors import DataFileError

from .conftest import SPACES, Tracks

SINGULAR = {"phases": "phase", "steps": "step", "regions": "region", "instruments": "instrument"}


def as_csv(tracks: Tracks, path: Path) -> Path:
    """The same annotations in the long form, written by hand from its description."""
    rows: list[tuple] = []
    for one in tracks.procedures:
        name = one["procedure"]
        rows += [(name, "video", one["video"], "", "", ""), (name, "source", "made up", "", "", "")]
        rows += [(name, fact, "", "", "", one[fact]) for fact in ("fps", "frames")]
        for track, word in SINGULAR.items():
            rows += [(name, word, row["label"], row["start"], row["end"], "") for row in one[track]]
        for lesion in one["lesions"]:
            rows += [(name, "lesion", lesion["lesion"], *window, "") for window in lesion["windows"]]
            rows += [
                (name, f"lesion.{key}", lesion["lesion"], "", "", lesion[key])
                for key in ("site", "size", "histology")
            ]
        rows += [(name, "label", key, "", "", value) for key, value in one["labels"].items()]
    first = tracks.procedures[0]["procedure"]
    rows += [(first, f"space.{space}", label, "", "", "") for space, all_ in SPACES.items() for label in all_]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return path


def told(annotations):
    """What annotations say, without where it was written."""
    return [
        (
            one.name,
            one.source,
            one.video,
            dict(one.stated),
            {
                name: ([(row.start, row.end, row.label) for row in track.intervals], track.doubts, track.lost)
                for name, track in one.tracks.items()
            },
            [(lesion.name, lesion.windows, dict(lesion.attributes)) for lesion in one.lesions],
            dict(one.labels),
        )
        for one in annotations.procedures
    ], dict(annotations.spaces)


def test_csv_and_json_come_to_the_same(thirty, tmp_path):
    audits = Audit(), Audit(), Audit()
    by_json = read_annotations([thirty.json(tmp_path / "a.json")], None, audits[0])
    by_csv = read_annotations([as_csv(thirty, tmp_path / "a.csv")], None, audits[1])
    assert told(by_json) == told(by_csv)
    lines = "\n".join(json.dumps({"source": "made up", **one}) for one in thirty.procedures)
    (tmp_path / "a.jsonl").write_text(lines)
    by_lines = read_annotations([tmp_path / "a.jsonl"], None, audits[2])
    assert told(by_lines)[0] == told(by_json)[0]
    assert by_lines.spaces == {}
    reasons = [sorted(entry.reason for entry in audit.entries) for audit in audits]
    assert reasons[0] == reasons[1] == reasons[2]


def test_one_procedure_may_be_spread_over_files(thirty, tmp_path):
    one = thirty.procedures[0]
    halves = [
        {key: one[key] for key in ("procedure", "video", "phases")},
        {key: value for key, value in one.items() if key != "phases"},
    ]
    for number, half in enumerate(halves):
        (tmp_path / f"{number}.json").write_text(json.dumps(half))
    both = read_annotations([tmp_path / "0.json", tmp_path / "1.json"], None, Audit())
    (tmp_path / "whole.json").write_text(json.dumps(one))
    assert told(both) == told(read_annotations([tmp_path / "whole.json"], None, Audit()))


BAD_ROWS = [
    ("case,phase,a,5,4,", "ReversedIntervalError"),
    ("case,phase,a,5,5,", "ReversedIntervalError"),
    ("case,phase,a,-1,4,", "PastEndError"),
    ("case,phase,a,x,4,", "BadRowError"),
    ("case,phase,a,nan,4,", "BadRowError"),
    ("case,phase,a,0,inf,", "BadRowError"),
    ("case,phase,a,,4,", "BadRowError"),
    ("case,phase,,0,4,", "BadRowError"),
    ("case,phase,zebra,0,4,", "UnknownLabelError"),
    ("case,phse,a,0,4,", "BadRowError"),
    ("case,phase,a,0,4", "BadRowError"),
    (",phase,a,0,4,", "BadRowError"),
    ("case,lesion,L1,9,8,", "ReversedIntervalError"),
    ("case,lesion.site,L9,,,colon", "BadRowError"),
    ("case,label,score,,,", "BadRowError"),
    ("case,step,a,0,4,", None),
]


@pytest.mark.parametrize(("row", "reason"), BAD_ROWS)
def test_a_bad_row_is_dropped_with_its_number_and_reason(tmp_path, row, reason):
    lines = [
        ",".join(COLUMNS),
        "case,video,a.mp4,,,",
        "",  # blank lines count as lines
        "case,space.phases,a,,,",
        'case,label,"two\nlines",,,x',  # and so do those inside a cell
        row,
        "case,phase,a,100,110,",
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    audit = Audit()
    (one,) = read_annotations([tmp_path / "t.csv"], None, audit).procedures
    if reason is None:
        assert not audit.entries
        return
    (entry,) = audit.entries
    assert (entry.reason, entry.row, entry.stage) == (reason, 7, "rows"), entry
    assert entry.file == str(tmp_path / "t.csv")
    assert entry.message
    assert entry.remedy
    assert [interval.start for interval in one.track("phases").intervals] == [100.0]
    distrusted = not one.track("phases").complete or one.lesions_doubted
    assert distrusted or row.startswith("case,label"), "a dropped row must leave a doubt behind"


def test_of_overlapping_rows_none_is_believed_but_instruments_may_overlap(tmp_path):
    one = {
        "procedure": "case",
        "video": "a.mp4",
        "phases": [
            {"start": 0, "end": 10, "label": "a"},
            {"start": 9, "end": 20, "label": "b"},
            {"start": 20, "end": 30, "label": "c"},
        ],
        "instruments": [
            {"start": 0, "end": 10, "label": "x"},
            {"start": 5, "end": 15, "label": "y"},
            {"start": 14, "end": 16, "label": "y"},
        ],
    }
    (tmp_path / "t.json").write_text(json.dumps(one))
    audit = Audit()
    (read,) = read_annotations([tmp_path / "t.json"], None, audit).procedures
    assert [row.label for row in read.track("phases").intervals] == ["c"]
    assert [row.label for row in read.track("instruments").intervals] == ["x"]
    assert read.track("phases").in_doubt(15, 16)
    assert not read.track("phases").in_doubt(20, 30)
    assert [(entry.track, entry.row) for entry in audit.entries] == [
        ("phases", 1),
        ("phases", 2),
        ("instruments", 2),
        ("instruments", 3),
    ]
    assert {entry.reason for entry in audit.entries} == {"OverlappingRowsError"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"video": None}, "BadRowError"),
        ({"video": "../elsewhere.mp4"}, "PathLeavesRootError"),
        ({"video": 7}, "BadRowError"),
        ({"fps": 0}, "BadRowError"),
        ({"fps": True}, "BadRowError"),
        ({"source": 7}, "BadRowError"),
    ],
)
def test_a_procedure_that_cannot_be_used_is_refused_as_a_whole(tmp_path, change, reason):
    one = {"procedure": "case", "video": "a.mp4", "phases": [{"start": 0, "end": 9, "label": "a"}], **change}
    good = {"procedure": "other", "video": "b.mp4"}
    (tmp_path / "t.json").write_text(json.dumps({"procedures": [one, good]}))
    audit = Audit()
    assert [p.name for p in read_annotations([tmp_path / "t.json"], None, audit).procedures] == ["other"]
    (entry,) = audit.entries
    assert (entry.reason, entry.stage, entry.procedure) == (reason, "procedures", "case")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "procedure,track\n"),
        ("t.csv", "procedure,track,label,start,stop,value\n"),
        ("t.csv", ""),
        ("t.json", "[]"),
        ("t.json", '{"procedures": {}}'),
        ("t.json", '{"procedures": [], "space": {}}'),
        ("t.json", '{"procedures": [], "spaces": {"phases": "a"}}'),
        ("t.json", '{"procedures": [], "spaces": {"phases": ["a", "a"]}}'),
        ("t.json", '{"procedure": "a", "procedure": "b"}'),
    ],
)
def test_a_file_that_is_not_of_its_form_stops_the_build(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataFileError) as caught:
        read_annotations([tmp_path / name], None, Audit())
    assert caught.value.remedy


def test_two_declarations_of_one_space_must_agree(tmp_path):
    for number, labels in enumerate((["a", "b"], ["b", "a"])):
        whole = {"source": "s", "spaces": {"phases": labels}, "procedures": []}
        (tmp_path / f"{number}.json").write_text(json.dumps(whole))
    with pytest.raises(DataFileError, match="declared twice"):
        read_annotations([tmp_path / "0.json", tmp_path / "1.json"], None, Audit())


def intervals() -> st.SearchStrategy[list[Interval]]:
    edge = st.integers(0, 30)
    pair = st.tuples(edge, edge).filter(lambda pair: pair[0] < pair[1])
    place = Place("t.csv", 1)
    return st.lists(
        st.builds(
            lambda pair, label: Interval(*map(float, pair), label, place), pair, st.sampled_from("abc")
        ),
        max_size=8,
    )


@given(intervals())
@settings(max_examples=300, deadline=None)
def test_overlaps_are_those_of_every_pair(rows):
    brute = {
        i
        for i, one in enumerate(rows)
        for j, other in enumerate(rows)
        if i != j and one.start < other.end and other.start < one.end
    }
    assert overlapping(rows) == brute


@given(intervals(), st.integers(0, 30), st.integers(1, 10))
@settings(max_examples=200, deadline=None)
def test_labels_in_a_window_are_those_of_its_instants(rows, start, length):
    track = Track(tuple(sorted(rows, key=lambda row: row.start)))
    instants = [start + (k + 0.5) / 2 for k in range(2 * length)]
    seen = {row.label for row in rows for t in instants if row.start <= t < row.end}
    assert set(track.within(start, start + length)) == seen
    kept = [row for n, row in enumerate(track.intervals) if n not in overlapping(list(track.intervals))]
    track = Track(tuple(kept))
    for label in track.labels:
        on = [any(row.start <= t < row.end for row in kept if row.label == label) for t in _halves()]
        stretches = sum(now and not before for before, now in zip([False, *on], on, strict=False))
        assert sum(run.label == label for run in track.runs) == stretches


def _halves() -> list[float]:
    return [k + 0.5 for k in range(31)]
