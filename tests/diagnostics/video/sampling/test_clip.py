"""Items that bound a clip: whatever the sampler, it chooses inside."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.data import load_items
from diagnostics.data.items import Item
from diagnostics.errors import EmptySelectionError
from diagnostics.video.index import VideoIndex
from diagnostics.video.sampling import random, select_frames, uniform

ITEM = Item("i", Path("v.mp4"), "v.mp4", "What?")


def index_of(n_frames: int, fps: float = 10.0) -> VideoIndex:
    numbers = np.arange(n_frames, dtype=np.int64)
    return VideoIndex(
        path="v.mp4",
        pts=numbers,
        time_base=Fraction(1, int(fps)),
        seconds=numbers / fps,
        fps=fps,
        duration=n_frames / fps,
        width=16,
        height=16,
        rotation=0,
        codec="h264",
        container="mov",
        reliable=True,
        key_pts=numbers,
        key_seek=numbers,
        open_gop=False,
        header_frames=n_frames,
    )


@settings(max_examples=60, deadline=None)
@given(
    start=st.floats(0, 25),
    length=st.floats(0.5, 20),
    budget=st.integers(1, 40),
    sampler=st.sampled_from([uniform, random]),
)
def test_only_frames_inside_are_shown(start, length, budget, sampler):
    index, clip = index_of(300), (start, start + length)
    chosen = select_frames(sampler, sampler.Config(budget=budget), index, replace(ITEM, clip=clip))
    inside = [n for n in range(300) if clip[0] <= n / 10 < clip[1]]
    assert set(chosen.frame_indices.tolist()) <= set(inside)
    assert len(chosen) == min(budget, len(inside))


def test_the_first_and_the_last_frame_of_the_clip_are_uniforms_ends():
    clipped = replace(ITEM, clip=(5.0, 10.0))
    chosen = select_frames(uniform, uniform.Config(budget=8), index_of(300), clipped)
    assert chosen.frame_indices[[0, -1]].tolist() == [50, 99]
    whole = select_frames(uniform, uniform.Config(budget=8), index_of(300), ITEM)
    assert whole.frame_indices[[0, -1]].tolist() == [0, 299]


def test_a_clip_after_the_end_is_told():
    with pytest.raises(EmptySelectionError, match=r"31 to 33 s .* 30\.000 s"):
        select_frames(uniform, uniform.Config(budget=4), index_of(300), replace(ITEM, clip=(31.0, 33.0)))


def test_jsonl_brings_a_clip(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text(
        '{"id": "a", "video": "v.mp4", "question": "?", "clip": [1.5, 4]}\n'
        '{"id": "b", "video": "v.mp4", "question": "?", "clip": [4, 1]}\n'
        '{"id": "c", "video": "v.mp4", "question": "?", "clip": 4}\n',
        encoding="utf-8",
    )
    loaded = load_items("jsonl", {"path": str(path)})
    assert [item.clip for item in loaded.items] == [(1.5, 4.0)]
    assert [error.item_id for error in loaded.rejected] == ["b", "c"]
