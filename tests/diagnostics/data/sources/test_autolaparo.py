"""AutoLaparo: tab-separated rows counted from 1, one a second."""

from __future__ import annotations

import hashlib

import pytest

from diagnostics.data.sources.autolaparo import SOURCE
from diagnostics.errors import DataFileError, UnknownLabelError

from .layouts import add_autolaparo, said


def test_frame_k_is_second_k_minus_1(tmp_path):
    path = add_autolaparo(tmp_path, 3, [1, 1, 2, 2, 2, 1])
    add_autolaparo(tmp_path, 12, [7])
    assert set(SOURCE.find(tmp_path)) == {"03", "12"}
    read = SOURCE.read(tmp_path, "03")
    assert said(read.tracks["phases"]) == [
        (0, 2, "Preparation"),
        (2, 5, "Dividing Ligament and Peritoneum"),
        (5, 6, "Preparation"),
    ]
    assert (read.base, read.seconds, read.whole, read.warnings) == ("seconds", 6.0, True, ())
    assert [(file.path, file.sha256) for file in read.files] == [
        (path, hashlib.sha256(path.read_bytes()).hexdigest())
    ]


def test_a_file_as_windows_writes_it(tmp_path):
    path = add_autolaparo(tmp_path, 1, [1, 2])
    wanted = said(SOURCE.read(tmp_path, "01").tracks["phases"])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert said(SOURCE.read(tmp_path, "01").tracks["phases"]) == wanted


def test_a_missing_row_is_a_hole(tmp_path):
    path = add_autolaparo(tmp_path, 1, [4, 4, 4, 4])
    path.write_text(
        "".join(line for line in path.read_text().splitlines(keepends=True) if not line.startswith("2"))
    )
    read = SOURCE.read(tmp_path, "01")
    assert said(read.tracks["phases"]) == [(0, 1, "Transecting the Vagina"), (2, 4, "Transecting the Vagina")]
    assert len(read.warnings) == 1
    assert "1 moments have no row (first 1)" in read.warnings[0]


def test_a_second_with_two_phases_has_none(tmp_path):
    path = add_autolaparo(tmp_path, 1, [4, 4, 4])
    path.write_text(path.read_text() + "2\t5\n3\t4\n")
    read = SOURCE.read(tmp_path, "01")
    track = read.tracks["phases"]
    assert said(track) == [(0, 1, "Transecting the Vagina"), (2, 3, "Transecting the Vagina")]
    assert track.doubts == ((1, 2),)
    assert "one moment has two labels" in read.warnings[0]
    assert "label_01.txt:3" in read.warnings[0]
    assert "written twice" in read.warnings[1]


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("Frame\tPhase\n1\t1\n2\t8\n", UnknownLabelError, "8 (line 3) is none of the phases"),
        ("Frame\tPhase\n0\t1\n1\t1\n", DataFileError, "count from 1"),
        ("Frame\tPhase\n1\t1\n2\tx\n", DataFileError, "Line 3: 'Phase' is 'x'"),
        ("Frame\tPhase\n1\t1\n\n2\tx\n", DataFileError, "Line 4: 'Phase' is 'x'"),
        ("Frame\tStage\n1\t1\n", DataFileError, "no column 'Phase'"),
        ("Frame\tPhase\tPhase\n1\t1\t2\n", DataFileError, "Two columns are 'Phase'"),
        ("Frame\tPhase\n1\t1\n1e300\t1\n", DataFileError, "Line 3: 'Frame' is '1e300'"),
        ("Frame\tPhase\n1\t1\t5\t6\n", DataFileError, ""),
        ("Frame\tPhase\n", DataFileError, "no rows"),
        ("", DataFileError, "no table"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, text, error, says):
    add_autolaparo(tmp_path, 1, [1]).write_text(text)
    with pytest.raises(error, match=r".*label_01\.txt") as raised:
        SOURCE.read(tmp_path, "01")
    assert says in str(raised.value)


def test_two_releases_claim_a_video(tmp_path):
    add_autolaparo(tmp_path / "old", 1, [1])
    add_autolaparo(tmp_path / "new", 1, [1])
    with pytest.raises(DataFileError, match=r"Several files claim the phases of video 01: new/.* and old/"):
        SOURCE.read(tmp_path, "01")
    with pytest.raises(DataFileError, match="no file of the phases of video 02"):
        SOURCE.read(tmp_path, "02")


def test_nothing_of_its_layout(tmp_path):
    (tmp_path / "readme.txt").write_text("x")
    with pytest.raises(DataFileError, match=r"Put there label_01\.txt"):
        SOURCE.find(tmp_path)
    with pytest.raises(DataFileError, match="no such"):
        SOURCE.find(tmp_path / "gone")


@pytest.mark.parametrize(
    ("video", "stem"),
    [("01", "01"), ("7", "07"), ("autolaparo_21", "21"), ("AutoLaparo-video-03", "03"),
    ("22", None), ("00", None), ("1" * 5000, None),  ("BBP01", None), ("001-002", None), ("01-lus", None)],
)  # fmt: skip
def test_stems(video, stem):
    assert SOURCE.stem(video) == stem


def test_reworded_labels():
    assert SOURCE.label("phases", "Transection of the vagina") == "Transecting the Vagina"
    assert SOURCE.label("phases", "dividing_ligament_and_peritoneum") == "Dividing Ligament and Peritoneum"
    assert SOURCE.label("phases", "colpotomy") == "colpotomy"
