"""Qwen2-VL: units are numbered, times are not told, text goes on after the video's largest position."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ...family_bench import Clip, clip, make_bench

FRAMES = 16


@pytest.fixture
def bench():
    return make_bench("qwen2_vl")


def test_text_goes_on_after_the_largest_position_of_the_video(bench):
    inputs = bench.inputs(clip(FRAMES))
    tokens = bench.map(inputs, FRAMES)
    positions = bench.family.positions(bench.model, inputs)[:, 0].numpy()
    first, last = tokens.visual[0], tokens.visual[-1]
    rows, cols = tokens.unit_grid[0]
    assert max(rows, cols) < FRAMES // 2, "the test needs a video longer than its frames are wide"
    assert positions[:, : first + 1].tolist() == [list(range(first + 1))] * 3
    assert (positions[0, tokens.visual] == first + tokens.unit[tokens.visual]).all()
    assert (positions[1, tokens.visual] == first + tokens.row[tokens.visual]).all()
    assert (positions[2, tokens.visual] == first + tokens.col[tokens.visual]).all()
    after = first + FRAMES // 2
    assert positions[:, last + 1 :].tolist() == [list(range(after, after + len(tokens) - last - 1))] * 3
    told = inputs | {"position_ids": torch.tensor(positions)[:, None]}
    assert bench.family.largest_position(bench.model, told) == positions.max()


def test_positions_are_the_library_s_where_the_two_agree(bench):
    """Videos no longer than their frames are wide, and images."""
    for inputs in (bench.inputs(clip(4)), bench.inputs(images=[clip(1).pixels[0]])):
        found = bench.family.positions(bench.model, inputs)
        names = ("input_ids", "mm_token_type_ids", "image_grid_thw", "video_grid_thw", "attention_mask")
        given = {name: inputs[name] for name in names if name in inputs}
        wanted, _ = bench.model.model.get_rope_index(**given)
        assert torch.equal(found, wanted)


@pytest.mark.parametrize(
    ("indices", "notice"),
    [
        ([0, 10, 20, 30], None),
        ([0, 10, 21, 30], None),
        ([0, 10, 80, 90], "times_not_told: frames lie 3.33 to 23.33 s apart"),
        ([30, 20, 10, 0], "times_not_told"),
        ([5], None),
    ],
)
def test_times_that_cannot_be_told_are_noticed(bench, indices, notice):
    shown = Clip(clip(len(indices)).pixels, np.array(indices), source_fps=3.0, source_frames=100)
    found = bench.family.notices(shown, bench.model)
    assert [one.startswith(notice) for one in found] == [True] if notice else not found
