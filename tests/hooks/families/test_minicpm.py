"""MiniCPM-V 4.6 and 4.7: frames in slices, read from the prompt; two merges; positions on a canvas."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch

import hooks
from hooks import Kind

from ...family_bench import QUESTION, FamilyBench, clip, make_bench, picture

NAMES = ("minicpmv4_6", "minicpmv4_7")
PATCH = 14
TOKEN = 4 * PATCH
SIDE = 112
TOLERANCE = 1e-5


@pytest.fixture(params=NAMES)
def bench(request: pytest.FixtureRequest) -> FamilyBench:
    return make_bench(request.param)


@pytest.fixture
def canvas() -> FamilyBench:
    return make_bench("minicpmv4_7")


def embedded(bench: FamilyBench, inputs: dict[str, Any], *, source: str = "projector") -> np.ndarray:
    tokens = bench.map(inputs)
    with torch.no_grad(), hooks.visual_features(bench.model, tokens, (source,)) as features:
        bench.model(**inputs)
    return features[source]


def without_vision_attention(bench: FamilyBench, stack: ExitStack) -> None:
    tower = bench.model.model.vision_tower
    for module in [*(layer.self_attn for layer in tower.encoder.layers), tower.vit_merger.self_attn]:
        silent = module.register_forward_hook(lambda _m, _a, out: (torch.zeros_like(out[0]), None))
        stack.callback(silent.remove)


def expected_views(size: tuple[int, int], processor: Any) -> list[tuple[int, int, int, int]]:
    """First row and column, rows and columns of each picture of one frame, by the processor's own rules."""
    limits = {"scale_resolution": processor.scale_resolution}
    grid = processor.get_sliced_grid(size, processor.max_slice_nums, processor.scale_resolution)
    whole = processor.find_best_resize(size, **limits, patch_size=PATCH, allow_upscale=grid is None)
    rows, cols = (side // TOKEN for side in whole)
    views = [(0, 0, rows, cols)]
    if grid is not None:
        refined = processor.get_refine_size(size, grid, **limits, patch_size=PATCH, allow_upscale=True)
        high, wide = (side // parts // TOKEN for side, parts in zip(refined, grid, strict=True))
        views += [(rows + y * high, x * wide, high, wide) for y in range(grid[0]) for x in range(grid[1])]
    return views


@pytest.mark.parametrize("size", [(96, 96), (240, 320), (300, 110), (100, 400), (225, 224)])
def test_slices_lie_below_the_whole_frame(bench, size):
    inputs = bench.inputs(clip(3, size))
    tokens = bench.map(inputs, 3)
    views = expected_views(size, bench.processor.video_processor)
    for unit in range(3):
        at = tokens.visual[tokens.unit_tokens(unit)]
        wanted = [
            (top + row, left + col)
            for top, left, rows, cols in views
            for row in range(rows)
            for col in range(cols)
        ]
        assert list(zip(tokens.row[at].tolist(), tokens.col[at].tolist(), strict=True)) == wanted
        assert tuple(tokens.unit_grid[unit]) == (
            max(top + rows for top, _, rows, _ in views),
            max(left + cols for _, left, _, cols in views),
        )


def test_a_spot_is_in_the_whole_frame_and_in_one_slice(bench):
    size = (2 * SIDE, 2 * SIDE)  # 2 x 2 slices of 2 x 2 tokens, resized by nothing
    plain = clip(3, size)
    inputs = bench.inputs(plain)
    tokens = bench.map(inputs, 3)
    assert tokens.unit_grid.tolist() == [[6, 4]] * 3
    y, x = 2 * TOKEN + 20, TOKEN + 20  # token row 2 and column 1 of the slices' canvas
    pixels = plain.pixels.copy()
    pixels[1, y : y + 8, x : x + 8] ^= 255
    marked = bench.inputs(clip(3, pixels=pixels))
    with ExitStack() as stack:
        without_vision_attention(bench, stack)
        change = np.abs(embedded(bench, marked) - embedded(bench, inputs)).max(axis=-1)
    outside = np.ones(tokens.n_visual, dtype=bool)
    outside[tokens.unit_tokens(1)] = False
    assert change[outside].max() == 0
    found = {tuple(at) for at in np.argwhere(np.nan_to_num(tokens.unit_picture(change, 1)) > 0).tolist()}
    assert {at for at in found if at[0] >= 2} == {(2 + 2, 1)}
    assert (1, 0) in found, "the whole frame is half as large"


def test_delimiters_and_line_breaks_belong_to_their_frame(bench):
    tokens = bench.map(bench.inputs(clip(2, (2 * SIDE, 2 * SIDE))), 2)
    first, last = int(tokens.visual[0]) - 1, int(tokens.visual[-1]) + 1
    inside = np.arange(first, last + 1)
    assert set(tokens.kind[inside].tolist()) == {int(Kind.VIDEO), int(Kind.DELIMITER)}
    assert sorted(set(tokens.unit[inside].tolist())) == [0, 1]
    assert (np.diff(tokens.unit[inside]) >= 0).all()


def test_vit_tokens_are_means_of_what_the_merger_merges(bench):
    """The tower's own states, cut up by hand; and the merger's first norm knows them as its input."""
    inputs = bench.inputs(clip(2, (2 * SIDE, SIDE + TOKEN)))
    tokens = bench.map(inputs, 2)
    found = embedded(bench, inputs, source="vit")
    sizes = inputs["target_sizes_videos"]
    with torch.no_grad():
        tower = bench.model.model.vision_tower(inputs["pixel_values_videos"], target_sizes=sizes)
    hidden, wanted, start = tower.last_hidden_state[0].numpy(), [], 0
    for rows, cols in (sizes // 2).tolist():
        block = hidden[start : start + rows * cols].reshape(rows, cols, -1)
        start += rows * cols
        wanted += [
            block[y : y + 2, x : x + 2].mean(axis=(0, 1))
            for y in range(0, rows, 2)
            for x in range(0, cols, 2)
        ]
    assert start == len(hidden)
    assert len(wanted) == tokens.n_visual
    assert np.abs(found - np.stack(wanted)).max() <= TOLERANCE


def test_a_second_video_begins_where_something_stands_between(bench):
    clips = clip(2), clip(3, (2 * SIDE, 2 * SIDE), seed=1)
    tokens = bench.map(bench.inputs(*clips), 2, 3)
    assert tokens.unit_source.tolist() == [0, 0, 1, 1, 1]


def test_adjacent_videos_of_4_7_are_one(canvas):
    """Nothing stands between them: that they are two is not in what the processor returned."""
    frames = clip(2)
    arguments = canvas.family.video_arguments(frames)
    arguments["video_metadata"] = arguments["video_metadata"] * 2
    pixels = np.moveaxis(frames.pixels, -1, 1)
    inputs = canvas.processor(
        text=["<|video_pad|><|video_pad|>\n" + QUESTION],
        videos=[pixels, pixels],
        return_tensors="pt",
        **arguments,
    )
    assert canvas.map(dict(inputs)).unit_source.tolist() == [0, 0, 0, 0]
    with pytest.raises(hooks.TokenMapError, match="2 entries for 1 videos"):
        canvas.map(dict(inputs), 2, 2)


def test_stacked_frames_are_refused(bench):
    inputs = bench.inputs(clip(3))
    bench.processor.video_processor.stack_frames = 3
    try:
        with pytest.raises(hooks.TokenMapError, match="stack"):
            bench.map(inputs, 3)
    finally:
        bench.processor.video_processor.stack_frames = 1


def test_four_times_the_tokens(bench):
    """`downsample_mode` is the processor's and the model's; where they differ the map says so."""
    frames = clip(2)
    text = bench.processor.apply_chat_template(
        [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": QUESTION}]}],
        add_generation_prompt=True,
    )
    inputs = dict(
        bench.processor(
            text=[text],
            videos=[np.moveaxis(frames.pixels, -1, 1)],
            downsample_mode="4x",
            return_tensors="pt",
            **bench.family.video_arguments(frames),
        )
    )
    with pytest.raises(hooks.TokenMapError, match="downsample_mode"):
        bench.map(inputs, 2)
    inputs["downsample_mode"] = "4x"
    tokens = bench.map(inputs, 2)
    assert tokens.tokens_per_unit.tolist() == [inputs["target_sizes_videos"][0].prod() // 4] * 2
    with torch.no_grad(), hooks.visual_features(bench.model, tokens, ("projector", "vit")) as features:
        logits = bench.model(**inputs).logits
    assert bool(logits.isfinite().all())
    assert len(features["vit"]) == tokens.n_visual


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target_sizes_videos": torch.tensor([[8, 8]])}, "target_sizes_videos 1"),
        ({"target_sizes_videos": torch.tensor([[8, 8], [8, 4], [8, 8]])}, "size gives 2 x 1"),
        ({"target_sizes_videos": torch.tensor([[8, 8], [8, 6], [8, 8]])}, "does not divide"),
    ],
)
def test_sizes_of_another_prompt_are_refused(bench, change, words):
    with pytest.raises(hooks.TokenMapError, match=words):
        bench.map(bench.inputs(clip(3)) | change, 3)


def test_only_the_attending_layers_have_rows(bench):
    inputs = bench.inputs(clip(3))
    tokens = bench.map(inputs, 3)
    with torch.no_grad(), hooks.attention_rows(bench.model, tokens, rows="question") as captured:
        bench.model(**inputs)
    assert captured.layers == (1, 3)
    types = bench.model.config.text_config.layer_types
    assert [types[layer] for layer in captured.layers] == ["full_attention"] * 2
    assert len(types) == 4


def test_positions_are_those_the_language_model_is_given(bench):
    """Of 4.6 one a token; of 4.7 on the canvas of each frame."""
    inputs = bench.inputs(clip(3, (2 * SIDE, 2 * SIDE)))
    positions = bench.family.model_positions(bench.model, inputs)
    seen: list[Any] = []
    text = bench.family.text_model(bench.model)
    handle = text.register_forward_pre_hook(
        lambda _m, _a, kwargs: seen.append(kwargs.get("position_ids")), with_kwargs=True
    )
    bench.run(inputs)
    handle.remove()
    length = inputs["input_ids"].shape[1]
    if bench.name == "minicpmv4_6":
        assert seen == [None]
        assert positions.tolist() == [[list(range(length))]]
        return
    assert torch.equal(positions, seen[0])
    assert positions.shape == (3, 1, length)
    assert bench.family.largest_position(bench.model, inputs) < length - 1, (
        "pictures take fewer positions than tokens"
    )


def test_uneven_times_are_not_told(bench):
    even, uneven = clip(4), clip(4)
    object.__setattr__(uneven, "frame_indices", np.array([0, 1, 50, 51]))
    assert bench.family.notices(even, bench.model) == []
    (notice,) = bench.family.notices(uneven, bench.model)
    assert notice.startswith("times_not_told")


def test_slices_are_told_of(bench):
    """Which rows show the whole frame: the report lays both on one picture by it."""
    large, small = clip(3, (240, 320)), clip(3)
    inputs = bench.inputs(large)
    (notice,) = bench.family.notices(large, bench.model, inputs)
    whole, *slices = expected_views((240, 320), bench.processor.video_processor)
    assert notice.startswith(f"in_slices: the first {whole[2]} rows and {whole[3]} columns ")
    assert notice.endswith(f" in {len(slices)} slices")
    assert bench.family.notices(small, bench.model, bench.inputs(small)) == []


def test_images_of_any_shape(bench):
    sizes = [(60, 90), (2 * SIDE, 2 * SIDE), (100, 400)]
    tokens = bench.map(bench.inputs(images=[picture(size, seed=seed) for seed, size in enumerate(sizes)]))
    assert tokens.unit_source.tolist() == [0, 1, 2]
    for unit, size in enumerate(sizes):
        views = expected_views(size, bench.processor.video_processor)
        assert tokens.tokens_per_unit[unit] == sum(rows * cols for _, _, rows, cols in views)
