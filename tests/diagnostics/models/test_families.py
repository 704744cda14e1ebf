"""What each family is given: pixels, times and rotary positions, against arithmetic done here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import hooks
from diagnostics.experiments.drift_record import position_warnings
from diagnostics.models.loading import LoadedModel
from diagnostics.models.prompting import prepare_inputs
from diagnostics.video.selection import Frames
from hooks.families import family_named

from ...resizing import resized
from .conftest import FAMILIES, a_question, a_video, load, uniform


def inputs_of(loaded: LoadedModel, frames: Frames) -> dict[str, Any]:
    return prepare_inputs(loaded, a_question(), frames, instruction="One letter.", max_new_tokens=4).inputs


# -- pixels


@pytest.mark.parametrize("n", [2, 5, 7, 9, 12])
def test_qwen3_spends_its_budget_over_time_height_and_width(checkpoints: dict, n: int) -> None:
    loaded = load(checkpoints["qwen3_vl"], min_pixels=4_096, max_pixels=6 * 128 * 192)
    grid = inputs_of(loaded, uniform(n, fps=25, source_frames=250, size=(130, 200)))["video_grid_thw"]
    tall, wide = resized(n, 130, 200, factor=32, limits=(4_096, 6 * 128 * 192))
    assert grid.tolist() == [[-(-n // 2), tall // 16, wide // 16]]
    if n == 12:
        assert tall < 128, "twice the budget's frames must be smaller"


@pytest.mark.parametrize("n", [2, 7, 12])
def test_qwen2_5_spends_its_budget_on_each_frame(checkpoints: dict, n: int) -> None:
    limits = (28 * 28, 12 * 28 * 28)
    loaded = load(checkpoints["qwen2_5_vl"], min_pixels=limits[0], max_pixels=limits[1])
    grid = inputs_of(loaded, uniform(n, fps=25, source_frames=250, size=(130, 200)))["video_grid_thw"]
    tall, wide = resized(1, 130, 200, factor=28, limits=limits)
    assert grid.tolist() == [[-(-n // 2), tall // 14, wide // 14]]


@pytest.mark.parametrize("family", FAMILIES)
def test_small_frames_are_enlarged_to_the_lower_limit(checkpoints: dict, family: str) -> None:
    factor, frames = {"qwen3_vl": (32, 4), "qwen2_5_vl": (28, 1)}[family]
    limits = (40_000 * frames, 10**7)
    loaded = load(checkpoints[family], min_pixels=limits[0], max_pixels=limits[1])
    inputs = inputs_of(loaded, uniform(4, fps=25, source_frames=250, size=(56, 84)))
    tall, wide = resized(frames, 56, 84, factor=factor, limits=limits)
    assert inputs["video_grid_thw"].tolist() == [[2, 2 * tall // factor, 2 * wide // factor]]
    assert tall * wide * frames >= limits[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_single_frame_is_a_unit_with_an_empty_slot(loaded: dict, family: str) -> None:
    asked = loaded[family]
    inputs = inputs_of(asked, uniform(1, fps=25, source_frames=250, size=(336, 448)))
    tokens = hooks.token_map(asked.model, asked.processor, inputs, n_frames=1)
    assert tokens.unit_slots.tolist() == [[0, -1]]
    tall, wide = {"qwen3_vl": (10, 14), "qwen2_5_vl": (12, 16)}[family]
    assert tokens.unit_grid.tolist() == [[tall, wide]]
    first, second = inputs["pixel_values_videos"].unflatten(1, (3, 2, -1)).unbind(2)
    assert torch.equal(first, second)


def test_the_cap_on_each_frame_is_what_the_configuration_says(checkpoints: dict) -> None:
    """With the cap, two frames of a budget for 768 may not spend it all."""
    size = (1056, 1056)
    grids = {}
    for cap in (False, True):
        loaded = load(checkpoints["qwen3_vl"], cap_pixels_per_frame=cap, max_pixels=25_165_824)
        frames = uniform(2, fps=25, source_frames=250, size=size)
        (_, rows, cols) = inputs_of(loaded, frames)["video_grid_thw"][0].tolist()
        grids[cap] = rows * cols * 16 * 16
    assert grids[False] == 1056 * 1056
    assert grids[True] <= 768 * 32 * 32


# -- times


@pytest.mark.parametrize("n", [2, 7, 64])
@pytest.mark.parametrize(("fps", "total"), [(25.0, 250), (0.5, 7_200), (29.97, 120)])
def test_a_uniform_selection_is_told_as_published(loaded: dict, n: int, fps: float, total: int) -> None:
    """`2 / (n / total * fps)`: two frames a unit, n of `total` frames sampled (qwen-vl-utils, vLLM)."""
    frames = uniform(n, fps=fps, source_frames=total)
    (seconds,) = inputs_of(loaded["qwen2_5_vl"], frames)["second_per_grid_ts"]
    assert float(seconds) == pytest.approx(2 * total / fps / n, rel=1e-5)
    last_unit = 2 * ((n - 1) // 2)
    told = float(seconds) / 2 * last_unit
    assert abs(told - frames.selection.shown_seconds[last_unit]) <= total / fps / n + 1e-3, "within a slot"


@settings(deadline=None, max_examples=25)
@given(
    first=st.floats(0, 3_000),
    spacing=st.floats(0.1, 40),
    n=st.integers(3, 40),
)
def test_any_even_clock_is_told(loaded: dict, first: float, spacing: float, n: int) -> None:
    """A stretch of the video, or a clock that was changed: the spacing is that of what is shown."""
    seconds = (first + spacing * np.arange(n)).tolist()
    frames = a_video(seconds, fps=8, source_frames=40_000, size=(28, 28))
    arguments = family_named("qwen2_5_vl").video_arguments(frames.selection)["video_metadata"][0]
    told = arguments["total_num_frames"] / arguments["fps"] / len(arguments["frames_indices"])
    whole = 40_000 / 8 / n
    as_whole = abs(spacing * (n - 1) - whole * (n - 1)) <= whole + 1 / 8
    assert told == pytest.approx(whole if as_whole else spacing, rel=1e-6)
    assert abs(told - spacing) * (n - 1) <= whole + 1 / 8 + 1e-6
    assert (
        family_named("qwen2_5_vl").notices(frames.selection, loaded["qwen2_5_vl"].model) == []
        or 4 * spacing < 1
    )


def test_times_that_positions_cannot_tell_are_named(loaded: dict) -> None:
    def notices(*seconds: float) -> list[str]:
        frames = a_video(list(seconds), fps=8, source_frames=10_000)
        return family_named("qwen2_5_vl").notices(frames.selection, loaded["qwen2_5_vl"].model)

    assert notices(0.0, 2.0, 4.0, 6.1) == []
    assert notices(5.0) == []
    (uneven,) = notices(0.0, 2.0, 30.0, 32.0)
    assert uneven.startswith("uneven_spacing: frames lie 2.00 to 28.00 s apart")
    (backwards,) = notices(6.0, 4.0, 2.0, 0.0)
    assert backwards.startswith("uneven_spacing: frames lie -2.00 to -2.00 s apart")
    (shared,) = notices(0.0, 0.125, 0.25, 0.375)
    assert shared.startswith("shared_positions: temporal units lie 0.50 positions apart")


def test_qwen3_has_nothing_to_notice(loaded: dict) -> None:
    frames = a_video([6.0, 4.0, 30.0, 0.0], fps=8, source_frames=10_000)
    family = loaded["qwen3_vl"].family
    assert family.notices(frames.selection, loaded["qwen3_vl"].model) == []


# -- rotary positions


def seen_by_rotary(model: Any, inputs: dict[str, Any], **generate: Any) -> list[torch.Tensor]:
    """Positions [axis, position] that the model's own rotary code was called with, call by call."""
    seen: list[torch.Tensor] = []

    def note(_: Any, args: tuple, kwargs: dict) -> None:
        positions = kwargs["position_ids"] if "position_ids" in kwargs else args[1]
        seen.append(positions[-3:, 0].clone())

    handle = model.model.language_model.rotary_emb.register_forward_pre_hook(note, with_kwargs=True)
    try:
        with torch.inference_mode():
            model.generate(**inputs, **generate) if generate else model(**inputs)
    finally:
        handle.remove()
    return seen


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("n", "fps", "total"), [(7, 25.0, 250), (16, 0.5, 7_200)])
def test_the_largest_position_is_what_the_model_rotates_by(
    loaded: dict, family: str, n: int, fps: float, total: int
) -> None:
    asked = loaded[family]
    inputs = inputs_of(asked, uniform(n, fps=fps, source_frames=total))
    largest = asked.family.largest_position(asked.model, inputs)
    (prefill,) = seen_by_rotary(asked.model, inputs)
    assert largest == int(prefill.max())
    first, *steps = seen_by_rotary(asked.model, inputs, max_new_tokens=3, min_new_tokens=3, do_sample=False)
    assert torch.equal(first, prefill), "generation starts from the same positions"
    assert [step.tolist() for step in steps] == [[[largest + 1]] * 3, [[largest + 2]] * 3]


@pytest.mark.parametrize("family", FAMILIES)
def test_positions_by_hand(loaded: dict, family: str) -> None:
    """Text counts on; a unit is a grid; what follows starts after the largest position before it."""
    asked = loaded[family]
    n, fps, total = 9, 0.5, 3_601
    inputs = inputs_of(asked, uniform(n, fps=fps, source_frames=total))
    (positions,) = seen_by_rotary(asked.model, inputs)
    merge = asked.model.config.vision_config.spatial_merge_size
    units, rows, cols = inputs["video_grid_thw"][0].tolist()
    rows, cols = rows // merge, cols // merge
    ids = inputs["input_ids"][0].tolist()
    video = asked.model.config.video_token_id
    start, unit, expected = 0, 0, []
    place = 0
    while place < len(ids):
        if ids[place] != video:
            expected.append([start] * 3)
            start, place = start + 1, place + 1
            continue
        held = units if family == "qwen2_5_vl" else 1
        for inner in range(held):
            time = int(inner * 2 * (2 * total / fps / n)) if family == "qwen2_5_vl" else 0
            expected += [
                [start + time, start + row, start + col] for row in range(rows) for col in range(cols)
            ]
        unit += held
        place += held * rows * cols
        start = max(max(position) for position in expected) + 1
    assert unit == units == 5
    assert positions.T.tolist() == expected
    if family == "qwen2_5_vl":
        assert positions.max() > 4 * 3 * total / fps / n, "the question lies after the video's last time"


@pytest.mark.parametrize("trained", [20_000, 32_768, None])
def test_hours_of_video_pass_the_trained_positions(checkpoints: dict, trained: int | None) -> None:
    """3.5 hours at 2 positions a second: about 25,000."""
    asked = load(checkpoints["qwen2_5_vl"], trained_positions=trained)
    hours = uniform(64, fps=8, source_frames=int(3.5 * 3600 * 8), size=(28, 28))
    inputs = inputs_of(asked, hours)
    largest = asked.family.largest_position(asked.model, inputs)
    assert 2 * 3.5 * 3600 * 62 / 64 < largest < 2 * 3.5 * 3600 + 200
    warnings = position_warnings(asked, inputs)
    if trained == 20_000:
        (warning,) = warnings
        assert warning == (
            f"positions_past_training: the largest position is {largest}, qwen2_5_vl was trained up to 20000"
        )
    else:
        assert warnings == []


def test_qwen3_does_not_grow_with_time(checkpoints: dict) -> None:
    asked = load(checkpoints["qwen3_vl"], trained_positions=2_000)
    inputs = inputs_of(asked, uniform(64, fps=8, source_frames=int(3.5 * 3600 * 8), size=(28, 28)))
    assert position_warnings(asked, inputs) == []
    tight = load(checkpoints["qwen3_vl"], trained_positions=200)
    assert len(position_warnings(tight, inputs)) == 1
