"""Small pictures: which slots make a film strip, and what a picture may weigh."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diagnostics.store.thumbnails import LARGEST, film_slots, write_thumbnails


def test_a_short_video_is_shown_whole() -> None:
    assert film_slots(np.zeros(64, bool), 64) == list(range(64))
    assert film_slots(np.zeros(0, bool), 64) == []


def test_a_unit_is_shown_by_its_first_slot_of_evidence() -> None:
    evidence = np.zeros(9, bool)
    evidence[[3, 6, 7]] = True
    assert film_slots(evidence, 5, per_unit=2) == [0, 3, 4, 6, 8]


def test_the_evidence_of_a_long_video_is_in_the_strip_and_the_rest_is_spread() -> None:
    evidence = np.zeros(2048, bool)
    evidence[1001:1005] = True
    slots = np.array(film_slots(evidence, 64, per_unit=2))
    assert len(slots) == 64
    assert (np.diff(slots) > 0).all()
    assert {1001, 1002, 1004} <= set(slots.tolist()), "one slot of each of the three units"
    others = slots[~evidence[slots]]
    assert (others[0], others[-1]) == (0, 2046)
    # 61 pictures over 1,021 units: their distances differ by rounding, and by the units of evidence.
    assert set(np.diff(others).tolist()) <= {32, 34, 36, 38, 40}


def test_evidence_all_over_takes_half_of_the_strip() -> None:
    evidence = np.arange(1000) < 900
    slots = film_slots(evidence, 10)
    assert len(slots) == 10
    assert sum(slot >= 900 for slot in slots) >= 1
    assert film_slots(np.ones(1000, bool), 1) == [0]


@pytest.mark.parametrize("shape", [(160, 160), (1080, 1920), (90, 20)])
def test_noise_weighs_no_more_than_a_picture_may(tmp_path: Path, shape: tuple[int, int]) -> None:
    """No picture compresses worse."""
    noise = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    flat = np.full((*shape, 3), 90, np.uint8)
    paths = write_thumbnails(tmp_path, [noise, flat], [3, 8])
    assert [path.name for path in paths] == ["00003.jpg", "00008.jpg"]
    assert all(path.stat().st_size <= LARGEST for path in paths)
    with Image.open(paths[0]) as picture, Image.open(paths[1]) as other:
        assert max(picture.size) <= 160
        assert picture.size[0] / picture.size[1] == pytest.approx(shape[1] / shape[0], rel=0.03)
        assert np.abs(np.asarray(other, int) - 90).max() <= 3
