"""GLM-4.1V, 4.5V and 4.6V: video tokens that carry the image's placeholder, times behind their units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import hooks
from hooks import Kind

from ...family_bench import SIZE, FamilyBench, clip, make_bench, picture

NAMES = ("glm4v", "glm4v_moe", "glm46v")


@pytest.fixture(params=NAMES)
def bench(request: pytest.FixtureRequest) -> FamilyBench:
    return make_bench(request.param)


def test_times_stand_behind_their_units(bench):
    inputs = bench.inputs(clip(6))
    tokens = bench.map(inputs, 6)
    assert tokens.n_units == 3
    tenths = bench.name == "glm46v"
    for unit, second in enumerate([0, 20 / 3, 40 / 3]):
        at = np.flatnonzero((tokens.unit == unit) & (tokens.kind == Kind.TIMESTAMP))
        text = bench.tokenizer.decode(tokens.input_ids[at])
        assert text == (f"{second:.1f} seconds" if tenths else str(int(second)))
        assert tokens.unit_shown_seconds[unit] == pytest.approx(float(text.split()[0]))
        last = tokens.visual[tokens.unit_tokens(unit)][-1]
        assert at.tolist() == list(range(last + 2, last + 2 + len(at)))
    delimiters = bench.tokenizer.convert_ids_to_tokens(tokens.input_ids[tokens.kind == Kind.DELIMITER])
    around = ["<|begin_of_image|>", "<|end_of_image|>"] * 3
    assert delimiters == ["<|begin_of_video|>", *around, "<|end_of_video|>"]


def test_the_same_placeholder_is_video_between_a_video_s_markers_and_image_elsewhere(bench):
    inputs = bench.inputs(clip(4), images=[picture(seed=1)])
    tokens = bench.map(inputs, 4)
    placeholder = bench.model.config.image_token_id
    assert set(tokens.input_ids[tokens.visual]) == {placeholder}
    assert [int(tokens.kind[tokens.visual[first]]) for first in tokens.unit_first_token] == [
        Kind.IMAGE, Kind.VIDEO, Kind.VIDEO,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="do not match"), torch.no_grad():
        bench.model(**inputs)


@pytest.mark.parametrize("marker", ["<|begin_of_video|>", "<|end_of_video|>", "<|end_of_image|>"])
def test_a_prompt_without_a_marker_is_refused(bench, marker):
    inputs = bench.inputs(clip(4))
    ids = inputs["input_ids"].clone()
    place = int((ids[0] == bench.tokenizer.convert_tokens_to_ids(marker)).nonzero()[0])
    ids[0, place] = bench.tokenizer.encode("a")[0]
    with pytest.raises(hooks.TokenMapError):
        bench.map(inputs | {"input_ids": ids}, 4)


def test_a_unit_without_a_time_is_refused(bench):
    inputs = bench.inputs(clip(4))
    tokens = bench.map(inputs, 4)
    ids = inputs["input_ids"].clone()
    ids[0, torch.from_numpy(np.flatnonzero(tokens.kind == Kind.TIMESTAMP))] = bench.tokenizer.encode("a")[0]
    with pytest.raises(hooks.TokenMapError, match="No time stands behind unit 0"):
        bench.map(inputs | {"input_ids": ids}, 4)


@pytest.mark.parametrize(("stride", "same"), [(1, 2), (3, 0), (10, 0)])
def test_units_of_one_second_are_noticed(bench, stride, same):
    """At 3 frames a second, units of neighbouring frames begin 2/3 of a second apart."""
    shown = clip(6, stride=stride)
    told = bench.map(bench.inputs(shown), 6).unit_shown_seconds
    found = bench.family.notices(shown, bench.model)
    if bench.name == "glm46v":
        assert not found
        assert len(np.unique(told)) == 3
        return
    assert 3 - len(np.unique(told)) == (1 if same else 0)
    assert bool(found) == bool(same)
    assert not found or found[0].startswith("shared_times: 1 of 2 neighbouring units")


@pytest.mark.parametrize("frames", [2, 6, 9])
def test_a_limit_of_pixels_holds_for_each_frame(bench, frames):
    limit = 56 * 56
    video = bench.processor.video_processor
    size = bench.family.frame_limit(limit, frames + frames % 2, dict(video.size))
    assert bench.family.pixels_left(frames, size) == limit
    pixels = [np.moveaxis(clip(frames + frames % 2, (168, 224)).pixels, -1, 1)]
    _, rows, cols = video(pixels, size=size, do_sample_frames=False, return_tensors="pt")["video_grid_thw"][0]
    assert 0.4 * limit < int(rows * cols) * 14**2 <= limit
    small = [np.moveaxis(clip(2, (28, 28)).pixels, -1, 1)]
    grid = video(small, size=bench.family.frame_limit(limit, 2, dict(video.size)), do_sample_frames=False)
    assert grid["video_grid_thw"][0].tolist() == [1, 2, 2], "nothing is enlarged"


def test_head_writes_are_what_attention_adds(bench):
    """Behind the norm that the dense models have there."""
    inputs = bench.inputs(clip(4))
    tokens = bench.roles(inputs, 4)
    layers = bench.family.layers(bench.model)
    norms = [bench.family.attention_norm(layer) for layer in layers]
    assert all((norm is None) == (bench.name == "glm4v_moe") for norm in norms)
    added: list[torch.Tensor] = []

    def note(_module: torch.nn.Module, _args: tuple, output: Any) -> None:
        added.append((output[0] if isinstance(output, tuple) else output)[0, -1])

    handles = [
        (bench.family.attention(layer) if norm is None else norm).register_forward_hook(note)
        for layer, norm in zip(layers, norms, strict=True)
    ]
    with torch.no_grad(), hooks.head_writes(bench.model, tokens) as writes:
        bench.model(**inputs)
    for handle in handles:
        handle.remove()
    wanted = torch.stack(added).numpy()
    error = np.abs(writes.vectors().sum(axis=1) - wanted).max()
    assert error < 1e-5 * np.abs(wanted).max(), f"heads of a layer do not add up to what it adds: {error:.1e}"


def test_vision_features_are_what_the_tower_hands_to_its_merger(bench):
    inputs = bench.inputs(clip(4))
    tokens = bench.map(inputs, 4)
    given: list[torch.Tensor] = []
    merger = bench.family.vision(bench.model).merger
    handle = merger.register_forward_pre_hook(lambda _module, args: given.append(args[0]))
    with torch.no_grad(), hooks.visual_features(bench.model, tokens, sources=("vit",)) as features:
        bench.model(**inputs)
    handle.remove()
    assert len(features["vit"]) == tokens.n_visual
    assert np.array_equal(features["vit"], given[0].numpy())
    assert bench.family.shown_size(bench.processor, inputs) == (56, 84)
    assert SIZE == (64, 96), "the sizes above are of these frames, rounded to tokens of 28 pixels"
