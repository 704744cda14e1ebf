"""MultiBypass140: milliseconds, overlays left out. With its public label files too, where they are."""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from diagnostics.data.sources.multibypass140 import SOURCE
from diagnostics.errors import DataFileError, UnknownLabelError

from .layouts import add_multibypass140, said

PHASES = [
    (0, 3200, "out_of_body"),
    (4000, 10_500, "preparation"),
    (10_500, 20_000, "gastric_pouch_creation"),
    (12_000, 14_000, "severe_index"),
    (20_000, 21_000, "out_of_body"),
]
STEPS = [(4000, 10_000, 1, "s1_cavity_exploration"), (10_000, 20_000, 0, "s0_null_step")]


def test_milliseconds_without_overlays(tmp_path):
    add_multibypass140(tmp_path, "BBP03", PHASES, STEPS)
    add_multibypass140(tmp_path, "SBP44", PHASES[1:2], STEPS[:1])
    assert {stem: len(paths) for stem, paths in SOURCE.find(tmp_path).items()} == {"BBP03": 1, "SBP44": 1}
    read = SOURCE.read(tmp_path, "BBP03")
    assert said(read.tracks["phases"]) == [(4, 10.5, "preparation"), (10.5, 20, "gastric_pouch_creation")]
    assert said(read.tracks["steps"]) == [(4, 10, "s1_cavity_exploration"), (10, 20, "s0_null_step")]
    assert read.tracks["phases"].complete
    # the overlay at the end still says that the video is at least so long
    assert (read.base, read.seconds, read.whole, read.warnings) == ("seconds", 21.0, False, ())
    assert "b3368e0" not in read.label_version
    assert "b3368e0" in SOURCE.read(tmp_path, "SBP44").label_version


def test_overlapping_and_reversed_rows_are_dropped_and_doubted(tmp_path):
    rows = [
        (0, 5000, "preparation"),
        (4000, 9000, "omentum_division"),
        (9000, 12_000, "anastomosis_test"),
        (20_000, 15_000, "disassembling"),
    ]
    add_multibypass140(tmp_path, "BBP01", rows)
    read = SOURCE.read(tmp_path, "BBP01")
    track = read.tracks["phases"]
    assert said(track) == [(9, 12, "anastomosis_test")]
    assert track.doubts == ((0, 5), (4, 9), (15, 20))
    assert track.in_doubt(16, 17)
    assert not track.complete
    assert [warning.split(":")[0] for warning in read.warnings] == [
        "'disassembling' ends at 15, not after its start 20",
        "'preparation' 0-5 shares time with another",
        "'omentum_division' 4-9 shares time with another",
    ]
    assert all("row" in warning for warning in read.warnings)


def test_a_name_with_anothers_number_is_doubted(tmp_path):
    rows = [(0, 5000, "preparation"), (5000, 9000, "omentum_division"), (12_000, 10_000, "anastomosis_test")]
    path = add_multibypass140(tmp_path, "BBP01", rows)
    whole = json.loads(path.read_text())
    whole["phases"][1]["label_id"], whole["phases"][2]["label_id"] = 4, 2
    path.write_text(json.dumps(whole))
    read = SOURCE.read(tmp_path, "BBP01")
    assert said(read.tracks["phases"]) == [(0, 5, "preparation")]
    assert read.tracks["phases"].doubts == ((5, 9), (10, 12))
    assert "has the number of 'anastomosis_test'" in read.warnings[0]


def test_labels_of_another_version(tmp_path):
    path = add_multibypass140(tmp_path, "BBP01", [(0, 5000, "preparation")])
    path.write_text(path.read_text().replace("preparation", "preperation"))
    with pytest.raises(UnknownLabelError, match=r"'preperation' \(phases, row 1\).*'preparation'") as raised:
        SOURCE.read(tmp_path, "BBP01")
    assert isinstance(raised.value, DataFileError)
    path.write_text(
        path.read_text().replace("preperation", "preparation").replace('"label_id": 0', '"label_id": 14')
    )
    with pytest.raises(UnknownLabelError, match="14 "):
        SOURCE.read(tmp_path, "BBP01")


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"phases": []}', '{"phases": [{"start": 0}], "steps": []}', '{"phases": {}, "steps": []}',
     '{"phases": [{"start": "0", "end": 5, "label_name": "preparation", "label_id": 0}], "steps": []}',
     '{"phases": [{"start": -1, "end": 5, "label_name": "preparation", "label_id": 0}], "steps": []}',
     '{"phases": [{"start": 1, "end": 1%s, "label_name": "preparation", "label_id": 0}], "steps": []}'
     % ("0" * 400)],
)  # fmt: skip
def test_a_file_of_another_form_is_refused(tmp_path, text):
    add_multibypass140(tmp_path, "BBP01", []).write_text(text)
    with pytest.raises(DataFileError, match=r"BBP01\.mp4\.json"):
        SOURCE.read(tmp_path, "BBP01")


def test_labels_beside_the_split_ones(tmp_path):
    add_multibypass140(tmp_path / "a", "BBP01", PHASES)
    add_multibypass140(tmp_path / "b", "BBP01", PHASES)
    with pytest.raises(DataFileError, match="Several files claim the labels of BBP01"):
        SOURCE.read(tmp_path, "BBP01")


@pytest.mark.parametrize(
    ("video", "stem"),
    [("BBP07", "BBP07"), ("sbp70", "SBP70"), ("multibypass_BBP-01", "BBP01"), ("BBP1", None),
     ("BBP101", None), ("01", None)],
)  # fmt: skip
def test_stems(video, stem):
    assert SOURCE.stem(video) == stem


def test_reworded_labels():
    assert SOURCE.label("phases", "Closure of Petersen's space") == "closure_petersen_space"
    assert SOURCE.label("phases", "Jejunojejunal anastomosis") == "jejunojejunal_anastomosis"
    assert SOURCE.label("steps", "Treitz angle identification") == "s15_treitz_angle_identification"
    assert len(SOURCE.aliases["steps"]) >= 2 * 46


# -- the public files: no package of a registry holds them, so that they are read where a person has a clone


@pytest.mark.skipif(
    "MULTIBYPASS140" not in os.environ, reason="MULTIBYPASS140 names no clone of the owners' repository"
)
def test_the_public_labels():
    root = Path(os.environ["MULTIBYPASS140"])
    stems = SOURCE.find(root)
    assert Counter(stem[:3] for stem in stems) == {"BBP": 70, "SBP": 70}
    read = [SOURCE.read(root, stem) for stem in stems]
    kept = {what: sum(len(one.tracks[what].intervals) for one in read) for what in ("phases", "steps")}
    # 2,451 rows of phases, of which 689 out_of_body and 334 severe_index
    assert kept == {"phases": 2451 - 689 - 334, "steps": 5429}
    assert not any(one.warnings for one in read)
    for one in read:
        for track in one.tracks.values():
            assert all(a.end == b.start for a, b in pairwise(track.intervals))
    hours = Counter()
    for one in read:
        hours[one.stem[:3]] += one.seconds / 3600
    assert hours == {"BBP": pytest.approx(87.3, abs=0.05), "SBP": pytest.approx(129.2, abs=0.05)}
