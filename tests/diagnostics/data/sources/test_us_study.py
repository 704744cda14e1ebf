"""US-Study: a table of one row a study."""

from __future__ import annotations

import pytest

from diagnostics.data.sources.us_study import SOURCE
from diagnostics.errors import DataFileError

from .layouts import add_us_study


def test_a_label_of_the_whole_study(tmp_path):
    path = add_us_study(tmp_path, "01-lus", "contraction")
    add_us_study(tmp_path, "06-lus.mp4", "none")
    (tmp_path / "patients.csv").write_text("patient,age\n1,30\n")
    assert SOURCE.find(tmp_path) == {"01-lus": (path,), "06-lus": (path,)}
    read = SOURCE.read(tmp_path, "06-lus")
    assert dict(read.labels) == {"contraction": "none"}
    assert (dict(read.tracks), read.lesions, read.seconds) == ({}, (), None)
    assert read.files[0].path == path


def test_bad_tables(tmp_path):
    path = add_us_study(tmp_path, "01-lus", "contraction")
    add_us_study(tmp_path, "01-lus", "none")
    add_us_study(tmp_path, "01-lus.mp4", "none")
    with pytest.raises(DataFileError, match="Lines 2 and 3 both claim 01-lus"):
        SOURCE.read(tmp_path, "01-lus")
    (tmp_path / "again.csv").write_text("Video,Label\n01-lus,contraction\n")
    with pytest.raises(DataFileError, match="Several files claim the label of 01-lus"):
        SOURCE.read(tmp_path, "01-lus")
    path.write_text("study,answer\n01-lus,contraction\n")
    (tmp_path / "again.csv").unlink()
    with pytest.raises(DataFileError, match="columns video,label"):
        SOURCE.find(tmp_path)


@pytest.mark.parametrize(
    ("video", "stem"), [("01-lus", "01-lus"), ("30_LUS", "30-lus"), ("01", None), ("lus", None)]
)
def test_stems(video, stem):
    assert SOURCE.stem(video) == stem
