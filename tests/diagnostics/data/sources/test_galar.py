"""Galar: one-hot rows by frame number."""

from __future__ import annotations

import pytest

from diagnostics.data.sources._source import Clip
from diagnostics.data.sources.galar import SOURCE
from diagnostics.errors import DataFileError, UnknownLabelError

from .layouts import add_galar, said

SECTIONS = ["mouth", "esophagus", "stomach", "stomach", "small intestine", "stomach"]


@pytest.mark.parametrize("quality", [False, True])
def test_rows_are_frames_by_frame_not_by_index(tmp_path, quality):
    add_galar(tmp_path, 7, SECTIONS, landmarks={"z-line": [1, 2], "pylorus": [2]}, quality=quality)
    read = SOURCE.read(tmp_path, "7")
    assert said(read.tracks["regions"]) == [
        (0, 1, "mouth"),
        (1, 2, "esophagus"),
        (2, 4, "stomach"),
        (4, 5, "small intestine"),
        (5, 6, "stomach"),
    ]
    assert said(read.tracks["landmarks"]) == [(1, 3, "z-line"), (2, 3, "pylorus")]
    assert (read.base, read.n_frames, read.seconds, read.warnings) == ("frames", 6, None, ())
    assert read.label_version == f"labels as published, {32 if quality else 27} columns"


def test_rows_in_any_order(tmp_path):
    add_galar(tmp_path, 1, SECTIONS[::-1], [5, 4, 3, 2, 1, 0])
    assert said(SOURCE.read(tmp_path, "1").tracks["regions"])[:3] == [
        (0, 1, "mouth"),
        (1, 2, "esophagus"),
        (2, 4, "stomach"),
    ]


FRAMES = [0, 1, 2, 10, 11, 12]
BY_NUMBER = [
    (0, 1, "mouth"),
    (1, 2, "esophagus"),
    (2, 3, "stomach"),
    (10, 11, "stomach"),
    (11, 12, "small intestine"),
    (12, 13, "stomach"),
]
BY_PLACE = [
    (0, 1, "mouth"),
    (1, 2, "esophagus"),
    (2, 4, "stomach"),
    (4, 5, "small intestine"),
    (5, 6, "stomach"),
]


@pytest.mark.parametrize(
    ("n_frames", "wanted"),
    [(None, BY_NUMBER), (13, BY_NUMBER), (12, BY_NUMBER), (6, BY_PLACE), (5, BY_PLACE)],
)
def test_gaps_are_counted_as_the_benchmarks_video_has_them(tmp_path, n_frames, wanted):
    add_galar(tmp_path, 1, SECTIONS, FRAMES)
    read = SOURCE.read(tmp_path, "1", None if n_frames is None else Clip(n_frames, 1.0, float(n_frames)))
    assert said(read.tracks["regions"]) == wanted
    assert read.n_frames == (6 if wanted is BY_PLACE else 13)
    assert ("place of the row" in read.time_base) == (wanted is BY_PLACE)
    assert any("7 moments have no row (first 3)" in warning for warning in read.warnings) == (
        wanted is BY_NUMBER
    )


@pytest.mark.parametrize(("first", "start", "warned"), [(1, 0, False), (0, 0, False), (5, 5, True)])
def test_the_first_frame_may_be_0_or_1(tmp_path, first, start, warned):
    add_galar(tmp_path, 1, SECTIONS, range(first, first + 6))
    read = SOURCE.read(tmp_path, "1")
    assert said(read.tracks["regions"])[0] == (start, start + 1, "mouth")
    assert read.n_frames == start + 6
    assert any("cannot be told apart" in warning for warning in read.warnings) == warned


def test_a_row_of_two_sections_and_one_that_contradicts_itself(tmp_path):
    path = add_galar(tmp_path, 1, ["colon"] * 5)
    lines = path.read_text().splitlines()
    both, other, none = (line.split(",") for line in lines[2:5])
    both[5], both[8], other[5], none[5], none[10] = "", "1", "stomach", "", "0"
    path.write_text("\n".join([*lines[:2], ",".join(both), ",".join(other), ",".join(none), lines[5]]))
    read = SOURCE.read(tmp_path, "1")
    assert said(read.tracks["regions"]) == [(0, 1, "colon"), (4, 5, "colon")]
    assert read.tracks["regions"].doubts == ((1, 3),)
    assert "2 rows dropped" in read.warnings[0]
    assert "1.csv:3" in read.warnings[0]


def test_a_frame_written_twice_with_and_without_a_landmark(tmp_path):
    add_galar(tmp_path, 1, ["stomach"] * 4, [0, 1, 1, 2], landmarks={"pylorus": [0, 1]})
    read = SOURCE.read(tmp_path, "1")
    assert said(read.tracks["landmarks"]) == [(0, 1, "pylorus")]
    assert read.tracks["landmarks"].doubts == ((1, 2),)
    assert "pylorus: 2 rows dropped: one moment has two labels" in read.warnings[1]


def test_two_releases(tmp_path):
    add_galar(tmp_path, 1, SECTIONS)
    add_galar(tmp_path, 1, SECTIONS, folder="20251215_Labels_Updated")
    with pytest.raises(DataFileError, match=r"Several files claim .*1\.csv and .*1\.csv.*Keep one release"):
        SOURCE.read(tmp_path, "1")
    add_galar(tmp_path / "new", 2, SECTIONS, folder="20251215_Labels_Updated")
    assert SOURCE.read(tmp_path / "new", "2").label_version == "revised labels (by the folder), 27 columns"
    mine = tmp_path / "Updated_20251201" / "galar"  # a folder that is not the source's tells nothing
    add_galar(mine, 2, SECTIONS)
    assert SOURCE.read(mine, "2").label_version == "labels as published, 27 columns"


def test_pictures_are_not_walked_through(tmp_path):
    add_galar(tmp_path, 1, SECTIONS)
    for folder in ("Galar_Frames_1_to_10", "recording_1", "1"):
        add_galar(tmp_path, 1, SECTIONS, folder=folder)
    assert [len(paths) for paths in SOURCE.find(tmp_path).values()] == [1]


@pytest.mark.parametrize(
    ("old", "new", "error", "says"),
    [
        ("mouth,1", "throat,1", UnknownLabelError, "'throat' (line 2)"),
        ("section,mouth", "section,throat", DataFileError, "no column 'mouth'"),
        (",frame", ",frames", DataFileError, "Did you mean 'frames'?"),
        ("mouth,1", "mouth,2", DataFileError, "Line 2: 'mouth' is '2', not 0 or 1"),
        (",0\n", ",-1\n", DataFileError, "'frame' is '-1'"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, old, new, error, says):
    path = add_galar(tmp_path, 1, SECTIONS)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(error, match=r"1\.csv") as raised:
        SOURCE.read(tmp_path, "1")
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("video", "stem"), [("7", "7"), ("galar_080", "80"), ("recording_12", "12"), ("81", None), ("0", None)]
)
def test_stems(video, stem):
    assert SOURCE.stem(video) == stem


def test_reworded_labels():
    assert SOURCE.label("regions", "Small bowel") == "small intestine"
    assert SOURCE.label("regions", "Oesophagus") == "esophagus"
