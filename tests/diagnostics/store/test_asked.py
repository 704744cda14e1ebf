"""`items.jsonl`: what was asked, in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from diagnostics.data.items import Evidence, Item, Turn, Window
from diagnostics.errors import DamagedRunError
from diagnostics.store.asked import ITEMS_FILE, read_items, write_items

ITEM = Item(
    id="a/b <c>",
    video=Path("/data/v.mp4"),
    video_id="v",
    question="two\nlines\u2028 \x00 👩🏽‍⚕️",
    options=("one", "two"),
    answer="B",
    task="t",
    task_family="f",
    evidence=Evidence((Window(1.0, 2.5, 30, 75),), "proxy"),
    turns=(Turn("user", "before"),),
    clip=(0.0, 9.0),
)


def test_items_come_back_but_for_their_videos_place(tmp_path: Path) -> None:
    plain = Item("p", Path("/data/w.mp4"), "w", "why?")
    write_items(tmp_path, [ITEM, plain])
    read = read_items(tmp_path)
    assert list(read) == ["a/b <c>", "p"]
    assert read[ITEM.id] == replace(ITEM, video=Path("v"))
    assert read["p"] == replace(plain, video=Path("w"))
    assert "/data" not in (tmp_path / ITEMS_FILE).read_text()


def test_a_run_without_words_has_no_items(tmp_path: Path) -> None:
    assert read_items(tmp_path) == {}


@pytest.mark.parametrize("line", ["{", "[]", '{"id": "x"}'])
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    write_items(tmp_path, [ITEM])
    with (tmp_path / ITEMS_FILE).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DamagedRunError, match="line 2"):
        read_items(tmp_path)
