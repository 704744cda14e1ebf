"""REAL-Colon: one XML a frame, read, hashed and refused."""

from __future__ import annotations

import hashlib
import re

import pytest

from diagnostics.data.sources.real_colon import SOURCE
from diagnostics.errors import DataFileError, UnknownLabelError

from .layouts import add_real_colon, voc

LESIONS = {
    "1": ([*range(9, 13), 20], "5", "Sigmoid", "AD"),
    "2": (range(2, 11), "12.5", "Rectum", "SSL"),
}
"""Of a video of 24 frames; both are seen in frames 9 and 10. As text, frame 10 would come before frame 2."""

NEVER_SEEN = {"1": ((), "5", "Sigmoid", "AD")}

WINDOWS = {"001-002_1": ((9, 13), (20, 21)), "001-002_2": ((2, 11),)}


def windows(read):
    return {lesion.name: lesion.windows for lesion in read.lesions}


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("folder", ["annotations", "annotation"])
def test_frames_in_the_order_of_their_numbers(tmp_path, first, folder):
    add_real_colon(tmp_path, "001-002", 24, 29.97, LESIONS, first=first, folder=folder)
    read = SOURCE.read(tmp_path, "001-002")
    assert windows(read) == WINDOWS
    assert [lesion.name for lesion in read.lesions] == ["001-002_2", "001-002_1"]  # by appearance
    assert read.lesions[0].attributes == {
        "size": 12.5,
        "site": "Rectum",
        "histology": "SSL",
        "histology_extended": "some words",
    }
    assert (read.base, read.n_frames, read.fps, read.whole) == ("frames", 24, 29.97, True)
    assert read.seconds == pytest.approx(24 / 29.97)
    assert dict(read.labels) == {"bbps": 7.0}
    assert read.warnings == read.unseen == ()
    assert f"counted from {first}" in read.time_base
    assert read.label_version.endswith("v1.0_20230228")


def test_one_hash_of_the_folder_as_sha256sum_prints_it(tmp_path):
    folder = add_real_colon(tmp_path, "001-002", 12, 25, NEVER_SEEN)
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())
    ]
    read = SOURCE.read(tmp_path, "001-002")
    assert read.files[0].path == folder
    assert read.files[0].sha256 == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert [file.path.name for file in read.files[1:]] == ["video_info.csv", "lesion_info.csv"]
    assert read.lesions == ()
    assert read.unseen == ("001-002_1",)


def test_several_videos_and_archives_with_a_folder_of_their_own_name(tmp_path):
    add_real_colon(tmp_path, "001-002", 24, 29.97, LESIONS)
    inside = add_real_colon(tmp_path, "004-015", 6, 25, {"1": ([3], "4", "Cecum", "HP")})
    inside.rename(tmp_path / "moved")
    (tmp_path / "004-015_annotations").mkdir()
    (tmp_path / "moved").rename(tmp_path / "004-015_annotations" / "004-015_annotations")
    (tmp_path / "001-002_frames" / "001-002_annotations").mkdir(parents=True)
    (tmp_path / "001-002_frames" / "001-002_annotations" / "001-002_1.xml").write_text("never looked at")
    assert list(SOURCE.find(tmp_path)) == ["001-002", "004-015"]
    assert windows(SOURCE.read(tmp_path, "001-002")) == WINDOWS
    assert windows(SOURCE.read(tmp_path, "004-015")) == {"004-015_1": ((3, 4),)}
    add_real_colon(tmp_path / "again", "001-002", 3, 25, {})
    with pytest.raises(DataFileError, match=r"Several files claim the boxes of 001-002"):
        SOURCE.read(tmp_path, "001-002")


def test_lesions_that_only_one_side_knows(tmp_path):
    folder = add_real_colon(tmp_path, "001-002", 24, 25, LESIONS | {"3": ([], "3", "Cecum", "HP")})
    (folder / "001-002_5.xml").write_text(voc("001-002_5", ["001-002_9", "001-002_9", "001-002_2"]))
    read = SOURCE.read(tmp_path, "001-002")
    assert windows(read) == WINDOWS | {"001-002_9": ((5, 6),)}
    assert read.unseen == ("001-002_3",)
    assert {lesion.name: len(lesion.attributes) for lesion in read.lesions}["001-002_9"] == 0
    assert read.warnings == (
        "lesion 001-002_3 has no box in any frame",
        "lesion 001-002_9 has boxes, and no row in lesion_info.csv",
    )


def test_a_file_less_breaks_the_run_and_is_told(tmp_path):
    folder = add_real_colon(tmp_path, "001-002", 24, 25, LESIONS)
    (folder / "001-002_5.xml").unlink()
    read = SOURCE.read(tmp_path, "001-002")
    assert windows(read)["001-002_2"] == ((2, 5), (6, 11))
    assert "23 files reach frame 24, and num_frames is 24" in read.warnings[0]
    for frame in range(5):
        (folder / f"001-002_{frame}.xml").unlink()
    read = SOURCE.read(tmp_path, "001-002")
    assert windows(read)["001-002_2"] == ((6, 11),)
    assert "the first frame is 6, so 0 or 1 cannot be told apart" in read.warnings[0]


def test_a_file_that_names_another_picture_has_no_boxes(tmp_path):
    folder = add_real_colon(tmp_path, "001-002", 24, 25, LESIONS)
    (folder / "001-002_5.xml").write_text(voc("001-002_6", ["001-002_2"]))
    read = SOURCE.read(tmp_path, "001-002")
    assert windows(read)["001-002_2"] == ((2, 5), (6, 11))
    assert "frame 5 names '001-002_6.jpg'" in read.warnings[0]


BOMB = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x "xxx"><!ENTITY y "&x;&x;">]><annotation>&y;</annotation>'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<annotation>", "not XML"),
        ("", "not XML"),
        ('<?xml version="1.0" encoding="shift_jis"?><annotation/>', "not XML: multi-byte"),
        ('<?xml version="1.0" encoding="latin-99"?><annotation/>', "not XML: unknown encoding"),
        (BOMB, "document type"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><annotation/>', "document type"),
        (voc("001-002_5", [""]), "no unique_id"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, text, says):
    folder = add_real_colon(tmp_path, "001-002", 24, 25, LESIONS)
    (folder / "001-002_5.xml").write_text(text)
    with pytest.raises(DataFileError, match=r"001-002_5\.xml") as raised:
        SOURCE.read(tmp_path, "001-002")
    assert says in str(raised.value)


def test_an_entity_in_another_encoding_is_refused_too(tmp_path):
    folder = add_real_colon(tmp_path, "001-002", 6, 25, {})
    (folder / "001-002_5.xml").write_bytes(BOMB.encode("utf-16"))
    with pytest.raises(DataFileError, match="document type"):
        SOURCE.read(tmp_path, "001-002")


def test_files_of_another_video_and_twice_the_same(tmp_path):
    folder = add_real_colon(tmp_path, "001-002", 6, 25, {})
    stray = folder / "001-003_1.xml"
    stray.write_text(voc("001-003_1", []))
    with pytest.raises(DataFileError, match="no frame of 001-002"):
        SOURCE.read(tmp_path, "001-002")
    stray.rename(folder / "001-002_05.xml")
    with pytest.raises(DataFileError, match="Two files are of frame 5"):
        SOURCE.read(tmp_path, "001-002")


@pytest.mark.parametrize(
    ("table", "old", "new", "says"),
    [
        ("video_info.csv", "001-002", "001-003", "0 rows are of 001-002"),
        ("video_info.csv", ",25,", ",fast,", "fps of 001-002 is 'fast'"),
        ("video_info.csv", ",24,", ",,", "'num_frames' is ''"),
        ("video_info.csv", "bbps", "score", "no column 'bbps'"),
        ("lesion_info.csv", "001-002_2", "001-002_1", "is there twice"),
        ("lesion_info.csv", "site", "place", "no column 'site'"),
    ],
)
def test_a_table_of_another_form_is_refused(tmp_path, table, old, new, says):
    add_real_colon(tmp_path, "001-002", 24, 25, LESIONS)
    path = tmp_path / table
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(DataFileError, match=re.escape(table)) as raised:
        SOURCE.read(tmp_path, "001-002")
    assert says in str(raised.value)
    path.unlink()
    with pytest.raises(DataFileError, match=rf"no file of the \w+ \({table}\)"):
        SOURCE.read(tmp_path, "001-002")


def test_regions_where_the_segmentation_is_there(tmp_path):
    add_real_colon(tmp_path, "001-002", 8, 25, NEVER_SEEN, first=1)
    rows = ["outside", "insertion", "insertion", "ceacum", "n.a.", "ascending", "uncertain", "rectum"]
    path = tmp_path / "temporal_segmentation" / "001-002.csv"
    path.parent.mkdir()
    lines = [f"001-002_{number}.jpg,{label}" for number, label in enumerate(rows, start=1)]
    path.write_text("\n".join(["frame_filename,GT", *sorted(lines)]))
    read = SOURCE.read(tmp_path, "001-002")
    assert [(run.start, run.end, run.label) for run in read.tracks["regions"].runs] == [
        (0, 1, "outside"),
        (1, 3, "insertion"),
        (3, 4, "ceacum"),
        (5, 6, "ascending"),
        (7, 8, "rectum"),
    ]
    assert read.files[-1].path == path
    path.write_text(path.read_text().replace("ceacum", "ceacun"))
    with pytest.raises(UnknownLabelError, match="Did you mean 'ceacum'"):
        SOURCE.read(tmp_path, "001-002")
    path.write_text(path.read_text().replace("001-002_", "001-003_"))
    with pytest.raises(DataFileError, match="no frame of 001-002"):
        SOURCE.read(tmp_path, "001-002")


@pytest.mark.parametrize(
    ("video", "stem"),
    [("002-010", "002-010"), ("real_colon_001-001", "001-001"), ("0002-0010", None), ("01", None)],
)
def test_stems(video, stem):
    assert SOURCE.stem(video) == stem


def test_reworded_labels():
    assert SOURCE.label("regions", "Cecum") == "ceacum"
    assert SOURCE.label("histology", "Sessile serrated lesion") == "SSL"
