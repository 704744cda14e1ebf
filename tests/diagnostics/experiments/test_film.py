"""The film strip that a run saves while the frames are at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diagnostics.data.items import Evidence, Item, Window
from diagnostics.experiments.film import Film, pictures_of_each, slots_of
from diagnostics.experiments.showing import Source
from diagnostics.store import RunFolder, config_hash, pair_stem, read_manifests, read_records
from diagnostics.video.selection import Frames, Selection, Slot

from .conftest import Run

CONFIG = {"exp": {"name": "mine"}}


def source(n_slots: int, form: str = "video", evidence: Evidence | None = None) -> Source:
    """Slot s is frame s, at second s, and grey of level s."""
    slots = tuple(Slot("v", number, float(number), float(number)) for number in range(n_slots))
    levels = np.arange(n_slots, dtype=np.uint8)[:, None, None, None]
    pixels = np.broadcast_to(levels, (n_slots, 12, 16, 3))
    item = Item("a", Path("v.mp4"), "v", "Which?", ("one", "two"), "A", evidence=evidence)
    return Source(
        item,
        Frames(pixels, Selection(slots, "all", 1.0, n_slots, float(n_slots), n_slots)),
        (12, 16),
        0.0,
        form,
    )


@pytest.mark.parametrize(
    ("conditions", "of_an_item", "each"),
    [(1, 64, 64), (2, 64, 32), (6, 64, 16), (1, 0, 0), (6, 5, 5), (1, 10, 10)],
)
def test_an_items_conditions_share_its_pictures(conditions: int, of_an_item: int, each: int) -> None:
    keys = [(f"item-{item}", str(condition)) for item in range(3) for condition in range(conditions)]
    assert pictures_of_each(keys, of_an_item) == each
    assert pictures_of_each([], 64) == 64


def test_nothing_is_saved_of_what_is_not_shown() -> None:
    assert slots_of(source(8, "nothing"), 64) == []
    assert slots_of(source(8), 0) == []
    assert slots_of(source(8, "images"), 64) == list(range(8))


def test_the_evidence_of_the_items_own_video_is_in_the_strip() -> None:
    shown = source(100, evidence=Evidence((Window(41.0, 42.5),)))
    assert {41, 42} <= set(slots_of(shown, 8))
    assert not {41, 42} <= set(slots_of(source(100), 8))


def test_a_strip_is_saved_while_a_pair_is_measured_and_slots_are_added(tmp_path: Path) -> None:
    with (
        RunFolder.open(tmp_path, CONFIG, config_hash(CONFIG), experiment="mine") as folder,
        Film(folder, 4) as film,
    ):
        with film.saved(("a", "-"), source(10), 1):
            pass
        film.add(("a", "-"), source(10), [np.int64(5)])
    saved = sorted((tmp_path / "thumbnails" / pair_stem("a", "-")).iterdir())
    assert [int(path.stem) for path in saved] == [0, 3, 5, 6, 9]
    for path in saved:
        with Image.open(path) as picture:
            assert np.abs(np.asarray(picture, int) - int(path.stem)).max() <= 2, (
                "the slot that it is named after"
            )


def test_questions_of_one_video_have_strips_of_their_own_evidence(tmp_path: Path) -> None:
    """And pictures that an earlier attempt saved of a pair go: they may be of something else."""
    keys, seconds = [("a", "-"), ("b", "-")], (41.0, 73.0)
    with (
        RunFolder.open(tmp_path, CONFIG, config_hash(CONFIG), experiment="mine") as folder,
        Film(folder, 4) as film,
    ):
        film.add(("b", "-"), source(10), [5])
        shown = [source(100, evidence=Evidence((Window(second, second + 1),))) for second in seconds]
        film.begin(list(zip(keys, shown, strict=True))).result()
    for key, second, other in zip(keys, seconds, reversed(seconds), strict=True):
        saved = {int(path.stem) for path in (tmp_path / "thumbnails" / pair_stem(*key)).iterdir()}
        assert len(saved) == 4
        assert second in saved
        assert not saved & {other, 5}


def test_a_full_disk_ends_the_run_and_not_the_item(tmp_path: Path) -> None:
    with (
        RunFolder.open(tmp_path, CONFIG, config_hash(CONFIG), experiment="mine") as folder,
        Film(folder, 4) as film,
    ):
        (tmp_path / "thumbnails").write_text("in the way")
        with pytest.raises(OSError, match="thumbnails"), film.saved(("a", "-"), source(10), 1):
            pass


def test_a_run_has_a_picture_of_every_unit_it_showed(small_run: Run) -> None:
    for record in read_records(small_run.folder):
        folder = small_run.folder / "thumbnails" / pair_stem(record.item_id, record.condition_id)
        assert {int(path.stem) for path in folder.iterdir()} == set(range(len(record.slots)))


def test_how_many_are_saved_is_no_part_of_what_a_run_is(small_run: Run) -> None:
    from diagnostics.config import run_config

    (manifest,) = read_manifests(small_run.folder)
    configs = [run_config({**manifest.config, "thumbnails": count}) for count in (0, 64)]
    assert [config.thumbnails for config in configs] == [0, 64]
    assert {config.hash for config in configs} == {manifest.config_hash}
