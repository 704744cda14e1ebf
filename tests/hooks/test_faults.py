"""Faults about time, made on purpose; and a sound prompt of every family has none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import hooks
from diagnostics.models.miniatures import miniatures

from ..family_bench import Clip, FamilyBench, clip, make_bench


def faults(bench: FamilyBench, inputs: dict[str, Any], *shown: Clip, **options: Any) -> list[str]:
    tokens = bench.map(inputs, *(len(one) for one in shown))
    return hooks.layout_faults(bench.family, bench.model, inputs, tokens, shown, **options)


def kinds(found: list[str]) -> list[str]:
    return [one.partition(":")[0] for one in found]


def with_positions(bench: FamilyBench, inputs: dict[str, Any]) -> dict[str, Any]:
    """As `diagnostics.models.prompting` does: positions are given where the library's differ."""
    positions = bench.family.positions(bench.model, inputs)
    return inputs if positions is None else inputs | {"position_ids": positions}


@pytest.mark.parametrize("frames", [1, 2, 5, 8])
@pytest.mark.parametrize("name", miniatures())
def test_a_sound_prompt_has_no_fault(name, frames):
    """Frames more than a second apart: seconds are enough to tell them apart."""
    bench, given = make_bench(name), clip(frames)
    inputs = with_positions(bench, bench.inputs(given))
    assert faults(bench, inputs, given) == []


@pytest.mark.parametrize("name", miniatures())
def test_positions_past_training_are_said_for_every_family(name):
    bench, given = make_bench(name), clip(5)
    inputs = with_positions(bench, bench.inputs(given))
    largest = bench.family.largest_position(bench.model, inputs)
    assert faults(bench, inputs, given, trained_positions=largest + 1) == []
    (said,) = faults(bench, inputs, given, trained_positions=largest)
    assert said.startswith(f"positions_past_training: the largest position is {largest},")


@pytest.mark.parametrize("name", [name for name in miniatures() if hooks.families()[name].tells_time])
def test_a_written_time_that_is_another_frame_s(name):
    """The processor was told another rate than the frames were sampled at; and frames of one second."""
    bench, given = make_bench(name), clip(6)
    slow = replace(given, source_fps=given.source_fps / 3)
    inputs = with_positions(bench, bench.inputs(slow))
    found = faults(bench, inputs, given)
    assert kinds(found) == ["marker_mismatch"]
    assert "written times are not the frames'" in found[0]
    assert faults(bench, inputs, slow) == []


@pytest.mark.parametrize("name", [name for name in miniatures() if hooks.families()[name].tells_time])
def test_times_too_coarse_to_tell_units_apart(name):
    """A hundred frames a second: written with a digit after the point, or none, several are the same."""
    bench, given = make_bench(name), clip(6, fps=100.0, stride=1)
    found = faults(bench, with_positions(bench, bench.inputs(given)), given)
    assert kinds(found) == ["shared_times"]
    assert "though their frames differ in time" in found[0]


SPACED = ("qwen2_5_vl", "qwen2_5_omni", "qwen3_omni_moe")
"""Families that are told one spacing beside the text."""


@pytest.mark.parametrize("name", ["qwen3_vl", "molmo2", "video_llama_3"])
def test_whole_times_are_not_taken_for_cut_ones(name):
    """A time of 1.0 s is exact where tenths are written: frames 0.9 s later are others."""
    bench, given = make_bench(name), clip(6, fps=10.0, stride=20)
    inputs = with_positions(bench, bench.inputs(given))
    late = replace(given, frame_indices=given.frame_indices + 19)
    assert faults(bench, inputs, given) == []
    assert kinds(faults(bench, inputs, late)) == ["marker_mismatch"]


@pytest.mark.parametrize("name", miniatures())
def test_positions_are_those_the_model_makes(name):
    """Of inputs as the processor returned them, whatever spacing they tell."""
    bench = make_bench(name)
    inputs = bench.inputs(clip(8, fps=100.0, stride=3))
    entered = []
    handle = bench.family.text_model(bench.model).register_forward_pre_hook(
        lambda _module, _args, kwargs: entered.append(kwargs.get("position_ids")), with_kwargs=True
    )
    with torch.no_grad():
        bench.model(**inputs)
    handle.remove()
    expected = bench.family.model_positions(bench.model, inputs)
    found = torch.arange(expected.shape[-1])[None] if entered[0] is None else entered[0]
    found = found[None] if found.ndim == 2 else found[-3:]  # before the three axes stand text's positions
    assert torch.equal(*torch.broadcast_tensors(found.to(expected.dtype), expected))


def test_a_processor_s_own_engine_may_ask_without_a_model():
    shown = clip(6)
    uneven = replace(shown, frame_indices=np.array([0, 1, 2, 30, 40, 55]))
    for family in hooks.families().values():
        assert family.notices(shown, None) == []
        assert all(": " in notice for notice in family.notices(uneven, None))


@pytest.mark.parametrize("name", ["gemma4", "glm4v"])
def test_frames_of_one_time_are_not_said_to_differ(name):
    bench = make_bench(name)
    still = replace(clip(6), frame_indices=np.zeros(6, dtype=np.int64))
    dense = clip(6, fps=100.0, stride=1)
    assert bench.family.notices(still, bench.model) == []
    assert kinds(bench.family.notices(dense, bench.model)) == ["shared_times"]


@pytest.mark.parametrize("factor", [0.3, 4.0])
@pytest.mark.parametrize("name", SPACED)
def test_a_rate_that_did_not_reach_the_processor(name, factor):
    bench, given = make_bench(name), clip(8)
    inputs = bench.inputs(given)
    key = "second_per_grid_ts" if name == "qwen2_5_vl" else "video_second_per_grid"
    inputs[key] = torch.as_tensor(inputs[key]) * factor
    assert "fps_lost" in kinds(faults(bench, inputs, given))
    step = float(inputs[key].reshape(-1)[0])
    assert any(f"{step:.2f} s from unit to unit" in one for one in faults(bench, inputs, given))


@pytest.mark.parametrize("name", ["qwen2_5_vl", "qwen2_5_omni"])
def test_units_that_share_a_temporal_position(name):
    """Positions are whole numbers in these: dense frames collide."""
    bench, given = make_bench(name), clip(8, fps=100.0, stride=1)
    inputs = with_positions(bench, bench.inputs(given))
    (said,) = faults(bench, inputs, given)
    temporal = bench.family.model_positions(bench.model, inputs)[0].reshape(-1).numpy()
    tokens = bench.map(inputs, 8)
    first = temporal[tokens.visual[tokens.unit_first_token]]
    same = int((np.diff(first) == 0).sum())
    assert 0 < same <= 3
    assert said.startswith(f"shared_positions: {same} of 3 pairs")
    alike = replace(given, frame_indices=np.zeros(8, dtype=np.int64))
    assert "shared_positions" not in kinds(faults(bench, inputs, alike)), "the frames are of one time"


def test_two_videos_are_looked_at_one_by_one():
    bench, first, second = make_bench("qwen3_vl"), clip(4), clip(6, seed=1)
    inputs = bench.inputs(first, second)
    assert faults(bench, inputs, first, second) == []
    late = replace(second, source_fps=second.source_fps / 3)
    assert kinds(faults(bench, inputs, first, late)) == ["marker_mismatch"]
    with pytest.raises(hooks.CaptureError, match="1 selections were given for 2 videos"):
        hooks.layout_faults(bench.family, bench.model, inputs, bench.map(inputs, 4, 6), first)
