"""Files appear whole or not at all."""

import pytest

from diagnostics.store.atomic import publish, write_text


def write_half(path):
    with publish(path) as temporary:
        temporary.write_text("half")
        raise OSError("the disk is full")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "summary.json"
    write_text(path, "old\n")
    with pytest.raises(OSError, match="disk is full"):
        write_half(path)
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("durable", [True, False])
def test_the_file_is_not_there_before_it_is_whole(tmp_path, durable):
    path = tmp_path / "table.csv"
    with publish(path, shard=3, durable=durable) as temporary:
        temporary.write_text("whole")
        assert not path.exists()
        assert temporary.parent == tmp_path, "a rename across file systems is a copy"
    assert path.read_text() == "whole"
    assert not temporary.exists()


def test_text_is_utf8_with_unix_line_ends_everywhere(tmp_path):
    write_text(tmp_path / "t.md", "ü\n")
    assert (tmp_path / "t.md").read_bytes() == b"\xc3\xbc\n"
