"""PitVis: change points, and instruments each second. With the public label files too, where they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from diagnostics.data.sources.pitvis import SOURCE
from diagnostics.errors import DataFileError, UnknownLabelError

from .layouts import add_pitvis, said

STEPS = [
    (0, "operation_not_started"),
    (2, "nasal_corridor_creation"),
    (5, "sellotomy"),
    (6, "haemostasis"),
    (8, "sellotomy"),
    (9, "operation_ended"),
]
TOOLS = [(), ("kerrisons",), ("kerrisons", "suction"), ("suction", "kerrisons"), ("suction",), ()] + [()] * 6


def test_steps_last_until_the_next_row(tmp_path):
    add_pitvis(tmp_path, 4, STEPS, TOOLS)
    assert set(SOURCE.find(tmp_path)) == {"video_04"}
    read = SOURCE.read(tmp_path, "video_04")
    assert said(read.tracks["steps"]) == [
        (2, 5, "nasal_corridor_creation"),
        (5, 6, "sellotomy"),
        (6, 8, "haemostasis"),
        (8, 9, "sellotomy"),
    ]
    # by the owners' table haemostasis is closure, also before the end of the sellar phase
    assert said(read.tracks["phases"]) == [
        (2, 5, "nasal_sphenoid"),
        (5, 6, "sellar"),
        (6, 8, "closure"),
        (8, 9, "sellar"),
    ]
    assert said(read.tracks["instruments"]) == [(1, 4, "kerrisons"), (2, 5, "suction")]
    assert (read.base, read.seconds, read.whole, read.warnings) == ("seconds", 12.0, True, ())
    assert len(read.files) == 2


def test_without_instruments_the_length_is_a_bound(tmp_path):
    add_pitvis(tmp_path, 4, STEPS)
    read = SOURCE.read(tmp_path, "video_04")
    assert set(read.tracks) == {"steps", "phases"}
    assert (read.seconds, read.whole) == (9.0, False)


def test_a_last_step_lasts_to_the_end_where_the_end_is_known(tmp_path):
    add_pitvis(tmp_path, 4, STEPS[:-1], TOOLS)
    assert said(SOURCE.read(tmp_path, "video_04").tracks["steps"])[-1] == (8, 12, "sellotomy")
    add_pitvis(tmp_path, 5, STEPS[:-1])
    read = SOURCE.read(tmp_path, "video_05")
    assert said(read.tracks["steps"])[-1] == (6, 8, "haemostasis")
    assert read.tracks["steps"].lost == 1
    assert "nothing says when 'sellotomy' ends" in read.warnings[0]


def test_a_row_out_of_order_leaves_doubt_where_it_may_belong(tmp_path):
    steps = [(0, "durotomy"), (40, "haemostasis"), (444, "sellotomy"), (50, "durotomy"), (300, "haemostasis"),
             (450, "debris_clearance"), (500, "operation_ended")]  # fmt: skip
    add_pitvis(tmp_path, 16, steps)
    read = SOURCE.read(tmp_path, "video_16")
    assert said(read.tracks["steps"]) == [(0, 40, "durotomy"), (450, 500, "debris_clearance")]
    for name in ("steps", "phases"):
        assert read.tracks[name].doubts == ((40, 450),)
    place = f"{tmp_path / 'steps_csv' / 'steps_16.csv'}:4"
    assert read.warnings == (f"'sellotomy' at 444 s is out of order, 40-450 s in doubt: {place}",)


def test_a_row_too_early_leaves_doubt_as_far_back(tmp_path):
    steps = [
        (0, "durotomy"),
        (40, "haemostasis"),
        (30, "sellotomy"),
        (50, "durotomy"),
        (60, "operation_ended"),
    ]
    add_pitvis(tmp_path, 1, steps)
    track = SOURCE.read(tmp_path, "video_01").tracks["steps"]
    assert track.doubts == ((0, 50),)
    assert said(track) == [(50, 60, "durotomy")]


def test_steps_that_reach_beyond_the_instruments(tmp_path):
    add_pitvis(tmp_path, 4, STEPS, TOOLS[:8])
    read = SOURCE.read(tmp_path, "video_04")
    assert read.seconds == 9
    assert "steps reach 9 s, instruments 8 s" in read.warnings[0]


def test_two_rows_of_one_second(tmp_path):
    add_pitvis(
        tmp_path, 1, [(0, "durotomy"), (20, "haemostasis"), (20, "sellotomy"), (30, "operation_ended")]
    )
    track = SOURCE.read(tmp_path, "video_01").tracks["steps"]
    assert said(track) == [(0, 20, "durotomy")]
    assert track.doubts == ((20, 30),)


def test_a_name_with_anothers_number_is_doubted(tmp_path):
    path = add_pitvis(tmp_path, 4, STEPS, TOOLS)
    path.write_text(path.read_text().replace("haemostasis,8", "haemostasis,11"))
    tools = tmp_path / "instruments_csv" / "instruments_04.csv"
    tools.write_text(tools.read_text().replace("4,2,kerrisons,suction,8,16", "4,2,kerrisons,suction,9,16"))
    read = SOURCE.read(tmp_path, "video_04")
    assert read.tracks["steps"].doubts == read.tracks["phases"].doubts == ((6, 8),)
    assert said(read.tracks["steps"])[1:] == [(5, 6, "sellotomy"), (8, 9, "sellotomy")]
    assert said(read.tracks["instruments"]) == [(1, 2, "kerrisons"), (3, 4, "kerrisons"), (3, 5, "suction")]
    assert read.tracks["instruments"].doubts == ((2, 3),)


def test_broken_bytes_in_a_column_of_no_interest(tmp_path):
    path = add_pitvis(tmp_path, 4, STEPS, TOOLS)
    lines = (
        path.read_bytes().replace(b"\n", b",\xcb\xbf\n").replace(b"int_step,\xcb\xbf", b"int_step,\xcb\xbc")
    )
    path.write_bytes(lines)
    assert len(said(SOURCE.read(tmp_path, "video_04").tracks["steps"])) == 4


def test_rows_of_another_video(tmp_path):
    path = add_pitvis(tmp_path, 22, STEPS)
    path.write_text(path.read_text().replace("22,5,", "23,5,"))
    read = SOURCE.read(tmp_path, "video_22")
    assert len(said(read.tracks["steps"])) == 4
    assert "steps_22.csv:4" in read.warnings[0]
    path.rename(path.with_name("steps_09.csv"))
    with pytest.raises(DataFileError, match=r"All rows are of video 22"):
        SOURCE.read(tmp_path, "video_09")


@pytest.mark.parametrize(
    ("old", "new", "error", "says"),
    [
        ("sellotomy,5", "selotomy,5", UnknownLabelError, "Did you mean 'sellotomy'?"),
        ("sellotomy,5", "sellotomy,15", UnknownLabelError, "15"),
        ("sellotomy,5", "sellotomy,five", DataFileError, "five"),
        ("4,5,", "4,5.5,", DataFileError, "'5.5'"),
        ("int_time", "time", DataFileError, "no column 'int_time'"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, old, new, error, says):
    path = add_pitvis(tmp_path, 4, STEPS, TOOLS)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(error, match=r"steps_04\.csv") as raised:
        SOURCE.read(tmp_path, "video_04")
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("video", "stem"),
    [
        ("video_01", "video_01"),
        ("25", "video_25"),
        ("pitvqa-video_3", "video_03"),
        ("26", None),
        ("CASE001", None),
    ],
)
def test_stems(video, stem):
    assert SOURCE.stem(video) == stem


def test_reworded_labels():
    assert SOURCE.label("steps", "Hemostasis") == "haemostasis"
    assert SOURCE.label("steps", "Tumor excision") == "tumour_excision"
    assert SOURCE.label("instruments", "Kerrison rongeur") == "kerrisons"


# -- the public files: no package of a registry holds them, so that they are read where a person has a clone


@pytest.mark.skipif(
    "PITVQA_ANNOTATIONS" not in os.environ, reason="PITVQA_ANNOTATIONS names no clone of the repository"
)
def test_the_public_labels():
    root = Path(os.environ["PITVQA_ANNOTATIONS"])
    read = {stem: SOURCE.read(root, stem) for stem in SOURCE.find(root)}
    assert list(read) == [f"video_{number:02d}" for number in range(1, 26)]
    assert sum(one.seconds for one in read.values()) / 3600 == pytest.approx(33.34, abs=0.005)
    assert (min(one.seconds for one in read.values()), max(one.seconds for one in read.values())) == (
        2647,
        8646,
    )
    rows = [len((root / "steps_csv" / f"steps_{stem[-2:]}.csv").read_text().split()) - 1 for stem in read]
    assert (min(rows), max(rows)) == (14, 33)
    assert len({label for one in read.values() for label in one.tracks["steps"].labels}) == 14
    assert len({label for one in read.values() for label in one.tracks["instruments"].labels}) == 18
    doubted = {stem: one.tracks["steps"].doubts for stem, one in read.items() if one.tracks["steps"].doubts}
    assert doubted == {"video_16": ((4028, 4501),), "video_20": ((8141, 8392),)}
    assert {stem for stem, one in read.items() if one.warnings} == {"video_16", "video_20", "video_22"}
