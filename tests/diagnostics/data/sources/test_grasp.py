"""GraSP: COCO-like files whose pictures are seconds, or frames of an original of 30 or 45 a second."""

from __future__ import annotations

import json

import pytest

from diagnostics.data.sources.grasp import SOURCE
from diagnostics.errors import DataFileError, UnknownLabelError

from .layouts import add_grasp, said

STAGES = [(1, 1), (1, 2), (1, 2), (-1, 2), (3, -1), (3, 5)]
PHASES = [(0, 3, "LPIL"), (4, 6, "Retzius_Space")]
STEPS = [
    (0, 1, "Id_Illiac_Vein_Artery"),
    (1, 4, "Dissection_Illiac_Lymph_Nodes"),
    (5, 6, "Prevessical_Dissection"),
]


def pictures(fps: int | None) -> list[str]:
    """Of six seconds: by number in the copy at one a second, or in the middle of each in an original."""
    return [f"{second:05d}" if fps is None else f"{round((second + 0.5) * fps):09d}" for second in range(6)]


@pytest.mark.parametrize(
    ("case", "fps"), [("CASE001", 45), ("CASE053", 30), ("CASE021", 30), ("CASE001", None), ("CASE014", None)]
)
def test_seconds_by_case(tmp_path, case, fps):
    rows = [(name, *stage) for name, stage in zip(pictures(fps), STAGES, strict=True)]
    add_grasp(tmp_path, case, rows, [(rows[1][0], "Prograsp Forceps"), (rows[1][0], "Large Needle Driver")])
    read = SOURCE.read(tmp_path, case)
    assert said(read.tracks["phases"]) == PHASES
    assert said(read.tracks["steps"]) == STEPS
    assert sorted(said(read.tracks["instruments"])) == [
        (1, 2, "Large Needle Driver"),
        (1, 2, "Prograsp Forceps"),
    ]
    assert dict(read.spacing) == {"instruments": 35.0}
    assert (read.base, read.seconds, read.whole, read.warnings) == ("seconds", 6.0, False, ())
    assert len(read.files) == 2


@pytest.mark.parametrize(
    ("case", "name", "second"),
    [
        ("CASE001", "000000068", 1),
        ("CASE001", "000001642", 36),
        ("CASE001", "000003218", 71),
        ("CASE053", "000000015", 0),
        ("CASE053", "000001065", 35),
        ("CASE053", "000002115", 70),
    ],
)
def test_the_published_masks_are_35_seconds_apart(tmp_path, case, name, second):
    add_grasp(tmp_path, case, [(name, 0, 0)], [(name, "Bipolar Forceps")])
    read = SOURCE.read(tmp_path, case)
    for track in read.tracks.values():
        assert [(run.start, run.end) for run in track.runs] == [(second, second + 1)]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_the_irregular_case_by_the_association(tmp_path, turned, nested):
    names = ["000000011", "000000090", "000000091", "000000140", "000000200", "000000205"]
    add_grasp(tmp_path, "CASE014", [(name, *stage) for name, stage in zip(names, STAGES, strict=True)])
    with pytest.raises(DataFileError, match=r"no file of the seconds of CASE014 \(1fps_to_30fps"):
        SOURCE.read(tmp_path, "CASE014")
    pairs = [(f"CASE014/{second:05d}.jpg", f"CASE014/{name}.jpg") for second, name in enumerate(names)]
    table = dict((b, a) if turned else (a, b) for a, b in pairs)
    other = {"CASE001/00000.jpg": "CASE001/000000022.jpg"}
    path = tmp_path / "1fps_to_30fps_association.json"
    path.write_text(json.dumps({"CASE014": table, "CASE001": other} if nested else {**other, **table}))
    read = SOURCE.read(tmp_path, "CASE014")
    assert said(read.tracks["phases"]) == PHASES
    assert [file.path.name for file in read.files][-1] == path.name
    del table[pairs[3][turned]]
    path.write_text(json.dumps({"CASE014": table}))
    with pytest.raises(DataFileError, match=r"no second of 'CASE014/000000140\.jpg'"):
        SOURCE.read(tmp_path, "CASE014")
    path.write_text(json.dumps({"CASE014": {"a": "b"}}))
    with pytest.raises(DataFileError, match="does not pair"):
        SOURCE.read(tmp_path, "CASE014")


def test_a_case_of_both_copies(tmp_path):
    """Stages of the copy at one a second, instruments of the other: both ways are told."""
    add_grasp(tmp_path, "CASE001", [("00036", 1, 1)], [("000001642", "Bipolar Forceps")])
    read = SOURCE.read(tmp_path, "CASE001")
    assert [said(track)[0][:2] for track in read.tracks.values()] == [(36, 37)] * 3
    assert read.time_base == "five digits are the second; nine digits: frame of the original // 45"


def test_an_instrument_without_a_label(tmp_path):
    tools = [("00000", "Bipolar Forceps"), ("00035", "Prograsp Forceps")]
    path = add_grasp(tmp_path, "CASE001", [("00000", 1, 1)], tools)
    short = path.with_name("grasp_short-term_train.json")
    short.write_text(short.read_text().replace('"category_id": 1', '"category_id": -1'))
    read = SOURCE.read(tmp_path, "CASE001")
    assert said(read.tracks["instruments"]) == [(35, 36, "Prograsp Forceps")]


def test_splits_are_joined_and_folds_stand_in_for_train(tmp_path):
    for split, case in (("fold1", "CASE001"), ("fold2", "CASE002"), ("test", "CASE041")):
        add_grasp(tmp_path, case, [("00000", 1, 1)], [("00000", "Bipolar Forceps")], split)
    assert list(SOURCE.find(tmp_path)) == ["CASE001", "CASE002", "CASE041"]
    assert SOURCE.read(tmp_path, "CASE002").files[0].path.name == "grasp_long-term_fold2.json"
    for case in ("CASE001", "CASE002"):
        add_grasp(tmp_path, case, [("00000", 2, 1)], [("00000", "Bipolar Forceps")], "train")
    read = SOURCE.read(tmp_path, "CASE002")
    assert [file.path.name for file in read.files] == [
        "grasp_long-term_train.json",
        "grasp_short-term_train.json",
    ]
    assert said(read.tracks["phases"]) == [(0, 1, "RPIL")]


def test_two_releases_claim_a_case(tmp_path):
    add_grasp(tmp_path / "2024", "CASE001", [("00000", 1, 1)])
    add_grasp(tmp_path / "before", "CASE001", [("00000", 2, 1)])
    with pytest.raises(DataFileError, match="Several files claim the phases and steps of CASE001"):
        SOURCE.read(tmp_path, "CASE001")
    add_grasp(tmp_path / "one", "CASE002", [("00000", 1, 1)])
    add_grasp(tmp_path / "one", "CASE002", [("00000", 1, 1)], split="test")
    with pytest.raises(DataFileError, match="Several files claim"):
        SOURCE.read(tmp_path / "one", "CASE002")


def test_a_second_of_two_phases_is_in_doubt(tmp_path):
    add_grasp(tmp_path, "CASE001", [("00000", 1, 1), ("00001", 1, 1), ("00001", 2, 1), ("00002", 1, 1)])
    read = SOURCE.read(tmp_path, "CASE001")
    assert said(read.tracks["phases"]) == [(0, 1, "LPIL"), (2, 3, "LPIL")]
    assert read.tracks["phases"].doubts == ((1, 2),)
    assert said(read.tracks["steps"]) == [(0, 3, "Id_Illiac_Vein_Artery")]
    assert read.warnings[0].startswith("phases: 2 rows dropped: one moment has two labels")


def test_the_files_own_categories_are_the_labels(tmp_path):
    path = add_grasp(tmp_path, "CASE001", [("00000", 1, 1)])
    whole = json.loads(path.read_text())
    one, two = whole["phases_categories"][1:3]
    one["id"], two["id"] = 2, 1
    one.update(name="phase 2", description="Left pelvic isolated lymphadenectomy")
    path.write_text(json.dumps(whole))
    assert said(SOURCE.read(tmp_path, "CASE001").tracks["phases"]) == [(0, 1, "RPIL")]
    one["description"] = "left pelvis"
    path.write_text(json.dumps(whole))
    with pytest.raises(UnknownLabelError, match=r"'phase 2' \(category of phases\)"):
        SOURCE.read(tmp_path, "CASE001")


def test_a_file_read_again_after_it_changed(tmp_path):
    path = add_grasp(tmp_path, "CASE001", [("00000", 1, 1)])
    assert said(SOURCE.read(tmp_path, "CASE001").tracks["phases"]) == [(0, 1, "LPIL")]
    path.write_text(path.read_text().replace('"phases": 1', '"phases": 10'))
    assert said(SOURCE.read(tmp_path, "CASE001").tracks["phases"]) == [(0, 1, "Bladder_Neck_Rec")]


@pytest.mark.parametrize(
    ("term", "old", "new", "error", "says"),
    [
        ("long", '"phases": 1', '"phases": 11', UnknownLabelError, "11 (annotation 0)"),
        ("long", '"steps": 1', '"steps": "1"', DataFileError, "'steps' is '1'"),
        ("long", "00000.jpg", "000.jpg", DataFileError, "neither five nor nine digits"),
        ("long", '"image_id": 1', '"image_id": 7', DataFileError, "not COCO-like"),
        ("long", '"images"', '"pictures"', DataFileError, "no lists"),
        ("long", '"name": "LPIL"', '"is": "LPIL"', DataFileError, "A category of phases has no name"),
        ("long", '{"id": 1, "name": "LPIL"}', '{"id": Infinity}', DataFileError, "not COCO-like"),
        ("short", "instruments_categories", "tools", DataFileError, "lists no instruments"),
        ("short", "Bipolar Forceps", "Bipolar", UnknownLabelError, "'Bipolar'"),
        ("short", '"category_id": 1', '"category_id": 9', UnknownLabelError, "9 (annotation 0)"),
        ("short", "{", "[", DataFileError, "not JSON"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, term, old, new, error, says):
    add_grasp(tmp_path, "CASE001", [("00000", 1, 1)], [("00000", "Bipolar Forceps")])
    path = tmp_path / "annotations" / f"grasp_{term}-term_train.json"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(error, match=path.name) as raised:
        SOURCE.read(tmp_path, "CASE001")
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("video", "stem"),
    [("CASE001", "CASE001"), ("case41", "CASE041"), ("grasp_case_053", "CASE053"), ("BBP01", None)],
)
def test_stems(video, stem):
    assert SOURCE.stem(video) == stem


def test_reworded_labels():
    assert SOURCE.label("phases", "Left pelvic isolated lymphadenectomy") == "LPIL"
    assert SOURCE.label("phases", "Retzius space") == "Retzius_Space"
    assert SOURCE.label("steps", "Vascular pedicle control") == "Clip_Pedicles"
    assert SOURCE.label("steps", "Prevesical dissection") == "Prevessical_Dissection"
