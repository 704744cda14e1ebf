"""TMVP-SurVideo: rows of words, whose time base has to be found out."""

from __future__ import annotations

import pytest

from diagnostics.data.sources._source import Clip
from diagnostics.data.sources.tmvp import SOURCE
from diagnostics.errors import DataFileError, UnknownLabelError

from .layouts import TMVP_INSTRUMENTS, add_tmvp, said

PHASES = ["Preparation"] * 3 + ["BlockAorta"] * 4 + ["Preparation"] + ["SuturetLeftAtrium"] * 4
TOOLS = [(), ("Knife",), ("Knife", "Scissor"), ("Scissor",), (), ("Aspirator",)] + [()] * 6
WANTED = [(0, 3, "Preparation"), (3, 7, "BlockAorta"), (7, 8, "Preparation"), (8, 12, "SuturetLeftAtrium")]


@pytest.mark.parametrize("first", [0, 1])
def test_a_row_a_second(tmp_path, first):
    add_tmvp(tmp_path, 5, PHASES, TOOLS, range(first, first + 12))
    read = SOURCE.read(tmp_path, "005", Clip(300, 25.0, 12.0))
    assert said(read.tracks["phases"]) == WANTED
    assert said(read.tracks["instruments"]) == [(1, 3, "Knife"), (2, 4, "Scissor"), (5, 6, "Aspirator")]
    assert (read.base, read.seconds, read.whole, read.warnings) == ("seconds", 12.0, True, ())
    assert f"counted from {first}" in read.time_base
    assert len(read.files) == 2


def test_without_a_clip_a_number_is_a_second(tmp_path):
    add_tmvp(tmp_path, 5, PHASES)
    read = SOURCE.read(tmp_path, "005")
    assert said(read.tracks["phases"]) == WANTED
    assert set(read.tracks) == {"phases"}


def test_numbers_that_are_the_originals_frames(tmp_path):
    """Rows of each 25th frame: a row is a second, whatever the rate of the benchmark's copy."""
    add_tmvp(tmp_path, 5, PHASES, TOOLS, range(0, 300, 25))
    for clip in (None, Clip(360, 30.0, 12.0), Clip(300, 25.0, 12.0)):
        read = SOURCE.read(tmp_path, "005", clip)
        assert said(read.tracks["phases"]) == WANTED
        assert (read.base, read.seconds) == ("seconds", 12.0)
        assert read.time_base == "a row is a second: numbers go up by 25"
        assert said(read.tracks["instruments"])[0] == (1, 3, "Knife")


def test_a_row_a_second_of_an_original_of_2997_frames_a_second(tmp_path):
    """The numbers go up by 30, at times by 29: row 11,990 is second 11,990, where counting by 30 loses 12."""
    numbers = [round(second * 30_000 / 1001) for second in range(12_000)]
    phases = ["Preparation"] * 11_990 + ["BlockAorta"] * 10
    add_tmvp(
        tmp_path, 5, phases, [("Knife",) if second == 11_995 else () for second in range(12_000)], numbers
    )
    path = tmp_path / "phase_annotations" / "005.txt"
    path.write_text(path.read_text().replace(f"\n{numbers[700]} Preparation\n", "\n"))
    read = SOURCE.read(tmp_path, "005", Clip(300_000, 25.0, 12_000.0))
    assert said(read.tracks["phases"]) == [
        (0, 700, "Preparation"),
        (701, 11_990, "Preparation"),
        (11_990, 12_000, "BlockAorta"),
    ]
    assert said(read.tracks["instruments"]) == [(11_995, 11_996, "Knife")]
    assert read.seconds == 12_000
    assert "1 moments have no row (first 700)" in read.warnings[0]


@pytest.mark.parametrize(
    ("numbers", "clip", "first"),
    [
        (range(25, 325, 25), Clip(300, 25.0, 12.0), (0, 3)),  # 25 is taken for the first second
        (range(3, 15), Clip(300, 25.0, 15.0), (3, 6)),
    ],
)
def test_where_the_video_begins_is_doubtful(tmp_path, numbers, clip, first):
    add_tmvp(tmp_path, 5, PHASES, frames=numbers)
    read = SOURCE.read(tmp_path, "005", clip)
    assert said(read.tracks["phases"])[0] == (*first, "Preparation")
    assert f"the first number is {numbers[0]}, so where the video begins cannot be told" in read.warnings[0]


def test_labels_of_each_fifth_second(tmp_path):
    add_tmvp(tmp_path, 5, PHASES, frames=range(0, 60, 5))
    read = SOURCE.read(tmp_path, "005", Clip(1500, 25.0, 60.0))
    assert said(read.tracks["phases"]) == [(5 * a, 5 * b, label) for a, b, label in WANTED]


def test_numbers_that_are_the_benchmarks_frames(tmp_path):
    """A row for each of 1,200 frames of a video of 48 s."""
    add_tmvp(tmp_path, 5, [phase for phase in PHASES for _ in range(100)], frames=range(1, 1201))
    read = SOURCE.read(tmp_path, "005", Clip(1200, 25.0, 48.0))
    assert said(read.tracks["phases"]) == [(100 * a, 100 * b, label) for a, b, label in WANTED]
    assert (read.base, read.n_frames, read.seconds) == ("frames", 1200, None)


def test_a_short_video_is_told_apart_too(tmp_path):
    add_tmvp(tmp_path, 5, PHASES)
    assert SOURCE.read(tmp_path, "005", Clip(12, 0.6, 20.0)).base == "frames"
    assert SOURCE.read(tmp_path, "005", Clip(20, 1.5, 13.0)).base == "seconds"


def test_numbers_that_fit_nothing_stay_seconds(tmp_path):
    """So that the durations disagree, and the video is refused."""
    add_tmvp(tmp_path, 5, [phase for phase in PHASES for _ in range(100)])
    read = SOURCE.read(tmp_path, "005", Clip(50_000, 25.0, 2000.0))
    assert (read.base, read.seconds) == ("seconds", 1200.0)


def test_a_row_less_is_a_hole(tmp_path):
    path = add_tmvp(tmp_path, 5, PHASES)
    path.write_text(path.read_text().replace("4 BlockAorta\n", ""))
    read = SOURCE.read(tmp_path, "005")
    assert said(read.tracks["phases"])[1:3] == [(3, 4, "BlockAorta"), (5, 7, "BlockAorta")]
    assert "1 moments have no row (first 4)" in read.warnings[0]


def test_instruments_of_other_moments_and_a_moment_that_contradicts_itself(tmp_path):
    add_tmvp(tmp_path, 5, PHASES, TOOLS)
    path = tmp_path / "instrument_annotations" / "005.txt"
    row = "2 0 0 0 0 0 1 0 1\n"  # knife and scissors
    path.write_text(
        path.read_text().replace(row, row + row.replace("1 0 1", "1 0 0")).replace("11 0", "12 0")
    )
    read = SOURCE.read(tmp_path, "005")
    assert said(read.tracks["instruments"]) == [(1, 3, "Knife"), (3, 4, "Scissor"), (5, 6, "Aspirator")]
    assert read.tracks["instruments"].doubts == ((2, 3),)
    assert "instruments are of 12 moments from 0 to 12, phases of 12 from 0 to 11 seconds" in read.warnings[0]
    assert "Scissor: 2 rows dropped: one moment has two labels" in read.warnings[1]
    assert len(read.warnings) == 2


def test_columns_in_the_headers_order_or_else_the_owners(tmp_path):
    add_tmvp(tmp_path, 5, PHASES, TOOLS, header=TMVP_INSTRUMENTS[::-1])
    assert said(SOURCE.read(tmp_path, "005").tracks["instruments"])[0] == (1, 3, "Knife")
    add_tmvp(tmp_path, 5, PHASES, TOOLS, header=[f"Tool{number}" for number in range(8)])
    read = SOURCE.read(tmp_path, "005")
    assert said(read.tracks["instruments"])[0] == (1, 3, "Knife")
    assert "the owners' order" in read.warnings[0]


def test_files_are_paired_by_name(tmp_path):
    add_tmvp(tmp_path, 1, PHASES)
    add_tmvp(tmp_path, 2, PHASES, TOOLS)
    (tmp_path / "phase_anticipation_annotations").mkdir()
    (tmp_path / "phase_anticipation_annotations" / "001.txt").write_text("0.1 0.2\n")
    assert {stem: len(paths) for stem, paths in SOURCE.find(tmp_path).items()} == {"001": 1, "002": 2}
    assert "instruments" not in SOURCE.read(tmp_path, "001").tracks


@pytest.mark.parametrize(
    ("where", "old", "new", "error", "says"),
    [
        ("phase", "BlockAorta", "BlockAorte", UnknownLabelError, "Did you mean 'BlockAorta'?"),
        ("phase", "Frame Phase\n", "", DataFileError, "no header"),
        ("phase", "3 BlockAorta", "3.5 BlockAorta", DataFileError, "Line 5: 'frame' is '3.5'"),
        ("phase", "BlockAorta", "Block Aorta", DataFileError, "no table"),
        ("instrument", "2 0 0", "2 0 3", DataFileError, "Line 4: Endotherm"),
        ("instrument", "Scissor", "Tweezers", UnknownLabelError, "'Tweezers' (header)"),
        ("instrument", "Scissor", "Scalpel", DataFileError, "Two columns are of one instrument"),
        ("phase", "11 Sut", "99999999999 Sut", DataFileError, "Line 13: 'frame' is '99999999999'"),
        ("instrument", "0\n", "0 1\n", DataFileError, ""),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, where, old, new, error, says):
    add_tmvp(tmp_path, 5, PHASES, TOOLS)
    path = tmp_path / f"{where}_annotations" / "005.txt"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(error, match=rf"{where}_annotations.005\.txt") as raised:
        SOURCE.read(tmp_path, "005")
    assert says.replace("Endotherm", TMVP_INSTRUMENTS[1]) in str(raised.value)


@pytest.mark.parametrize(
    ("video", "stem"), [("001", "001"), ("59", "059"), ("tmvp_012", "012"), ("x1", None)]
)
def test_stems(video, stem):
    assert SOURCE.stem(video) == stem


def test_reworded_labels():
    assert SOURCE.label("phases", "Left heart drainage") == "LeftHeartDrain"
    assert SOURCE.label("phases", "Suture left atrium") == "SuturetLeftAtrium"
    assert SOURCE.label("instruments", "Scissors") == "Scissor"
