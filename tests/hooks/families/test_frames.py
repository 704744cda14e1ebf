"""Families of one frame a unit whose prompts hold no times: what is said of it, what their towers cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ...family_bench import Clip, FamilyBench, clip, make_bench, picture

NAMES = ("internvl", "llava_onevision", "llava_next_video", "perception_lm")


@pytest.fixture(params=NAMES)
def bench(request: pytest.FixtureRequest) -> FamilyBench:
    return make_bench(request.param)


def at(seconds: list[float], fps: float = 30.0) -> Clip:
    """Frames at these times."""
    shown = clip(len(seconds))
    return Clip(shown.pixels, np.round(np.array(seconds) * fps).astype(int), fps, 10_000)


@pytest.mark.parametrize("seconds", [[4.0], [0.0, 2.0, 4.0, 6.0], [0.0, 3.33, 6.67, 10.0]])
def test_even_times_need_no_notice(bench, seconds):
    assert bench.family.notices(at(seconds), bench.model) == []


@pytest.mark.parametrize(
    ("seconds", "gaps"),
    [
        ([0.0, 1.0, 9.0], "1.00 to 8.00"),
        ([6.0, 4.0, 2.0, 0.0], "-2.00 to -2.00"),
        ([2.0, 2.0, 2.0], "0.00 to 0.00"),
    ],
)
def test_times_that_order_does_not_tell_are_said(bench, seconds, gaps):
    (notice,) = bench.family.notices(at(seconds), bench.model)
    assert notice.startswith(f"times_not_told: frames lie {gaps} s apart")


def test_times_change_nothing_in_the_prompt(bench):
    """The same frames at other times are the same prompt."""
    even = clip(4)
    late = Clip(even.pixels, np.array([0, 1, 50, 200]), even.source_fps, 300)
    assert torch.equal(bench.inputs(even)["input_ids"], bench.inputs(late)["input_ids"])


def test_the_tower_sees_as_many_pairs_as_are_counted(bench):
    """Queries times keys in every attention of the tower, counted in its forward."""
    inputs = bench.inputs(clip(3), images=[picture()])
    pairs = 0

    def count(_module: Any, args: tuple, kwargs: dict) -> None:
        nonlocal pairs
        states = args[0] if args else kwargs["hidden_states"]
        pairs += states.shape[0] * states.shape[1] ** 2

    handles = [
        module.register_forward_pre_hook(count, with_kwargs=True)
        for module in bench.family.vision(bench.model).modules()
        if type(module).__name__.endswith("Attention")
    ]
    bench.run(inputs)
    for handle in handles:
        handle.remove()
    vision = bench.model.config.vision_config
    grids = bench.family.grids(bench.model, inputs)
    assert sum(bench.family.vision_pairs(vision, grid) for grid in grids) == pairs


def test_pixel_limits_are_refused(bench):
    size = dict(bench.processor.video_processor.size)
    assert bench.family.size_limits(None, None, size) == size
    with pytest.raises(Exception, match="have the size of its processor"):
        bench.family.size_limits(None, 10_000, size)
