"""Boxes of evidence: MiniHorizon's against its own pictures, which patches they cover, bad input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diagnostics.data.items import Item
from diagnostics.data.minihorizon.files import content
from diagnostics.data.minihorizon.render import Scene
from diagnostics.data.minihorizon.settings import Config
from diagnostics.data.regions import Region, evidence_regions, patches_on
from diagnostics.errors import ItemError


@pytest.mark.parametrize("size", [(96, 96), (96, 128)])
def test_boxes_hold_the_lesions_that_are_drawn_and_little_else(tmp_path: Path, size: tuple[int, int]) -> None:
    config = Config(split="test", n_videos=6, height=size[0], width=size[1])
    procedures, items = content(config, tmp_path)
    by_video = {one.video: one for one in procedures}
    seen = 0
    for item in items:
        regions = evidence_regions(item)
        lesions = {(one.start_frame, one.end_frame) for one in by_video[item.video_id].lesions}
        assert item.evidence is not None
        windows = {(one.start_frame, one.end_frame) for one in item.evidence.windows}
        assert {(one.first, one.end) for one in regions} == windows & lesions
        if item.task in ("Hist", "Size", "Site"):
            assert len(regions) == 1, item.task
        if item.task != "Hist" or len(lesions) != 1:
            continue
        (region,) = regions
        scene = Scene(config.of_video(by_video[item.video_id].index), by_video[item.video_id])
        drawn = np.zeros(size, dtype=bool)
        for frame in np.linspace(region.first, region.end - 1, 5).astype(int):
            drawn |= scene.lesion_mask(int(frame))
        down, across = np.nonzero(drawn)
        top, left, bottom, right = (
            round(value * side)
            for value, side in zip(
                (region.top, region.left, region.bottom, region.right), (*size, *size), strict=True
            )
        )
        assert top <= down.min() <= down.max() < bottom
        assert left <= across.min() <= across.max() < right
        assert (bottom - top) - (np.ptp(down) + 1) <= 2 * 0.06 * 96 + 0.2 * np.ptp(down) + 4, (
            "and little more"
        )
        seen += 1
    assert seen >= 2


def test_which_patches_overlap() -> None:
    regions = (Region(10, 20, 0.0, 0.3, 0.26, 0.5), Region(40, 50, 0.9, 0.9, 1.0, 1.0))
    first = [[False, True, False, False], [False, True, False, False], *[[False] * 4] * 2]
    assert patches_on(regions, np.array([5, 10]), 4, 4).tolist() == first
    assert not patches_on(regions, np.array([-1, 20]), 4, 4).any()
    both = patches_on(regions, np.array([19, 49]), 4, 4)
    assert both.sum() == 3
    assert both[3, 3]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("all", "a list is expected"),
        ([{"frames": [3, 3], "box": [0, 0, 1, 1]}], "is no box"),
        ([{"frames": [0, 3], "box": [0, 0, 1, 1.2]}], "is no box"),
        ([{"frames": [0, 3.7], "box": [0, 0, 1, 1]}], "integer"),
        ([{"frames": [0, 3]}], "box"),
        ([{"frames": [0, 3], "box": [0, 0, 1]}], "unpack"),
        ([7], "subscriptable"),
    ],
)
def test_what_is_no_box_is_refused(written: object, told: str, tmp_path: Path) -> None:
    item = Item("q", tmp_path / "v.mp4", "v", "?", ("a", "b"), "A", metadata={"evidence_regions": written})
    with pytest.raises(ItemError, match=told):
        evidence_regions(item)
    assert evidence_regions(replace(item, metadata={})) == ()
