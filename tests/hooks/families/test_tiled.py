"""LLaVA-OneVision and LLaVA-NeXT-Video: newlines that are no patches, pictures in tiles, a cut-out middle."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import hooks
from hooks import Kind

from ...family_bench import SIZE, FamilyBench, clip, make_bench, picture

NAMES = ("llava_onevision", "llava_next_video")
SIDE = {"llava_onevision": 5, "llava_next_video": 6}  # patches of a tile


@pytest.fixture(params=NAMES)
def bench(request: pytest.FixtureRequest) -> FamilyBench:
    return make_bench(request.param)


@pytest.fixture
def onevision() -> FamilyBench:
    return make_bench("llava_onevision")


@pytest.fixture
def next_video() -> FamilyBench:
    return make_bench("llava_next_video")


def embeddings(bench: FamilyBench, inputs: dict[str, Any]) -> np.ndarray:
    """What enters the language model, [position, dim]."""
    seen: list[torch.Tensor] = []
    handle = bench.family.text_model(bench.model).register_forward_pre_hook(
        lambda _module, _args, kwargs: seen.append(kwargs["inputs_embeds"]), with_kwargs=True
    )
    with handle:
        bench.run(inputs)
    return seen[0][0].numpy()


def newlines(bench: FamilyBench, inputs: dict[str, Any]) -> list[int]:
    """Where the model puts its newline embedding."""
    newline = bench.model.model.image_newline.detach().numpy()
    return np.flatnonzero((embeddings(bench, inputs) == newline).all(axis=-1)).tolist()


@pytest.mark.parametrize("size", [SIZE, (64, 200), (200, 64), (150, 150), (20, 28), (148, 148)])
def test_newlines_are_delimiters_and_everything_else_is_a_patch(bench, size):
    """A video and an image of any shape: the model's own newline embedding says where they are."""
    inputs = bench.inputs(clip(3), images=[picture(size)])
    tokens = bench.map(inputs, 3)
    assert np.flatnonzero(tokens.kind == Kind.DELIMITER).tolist() == newlines(bench, inputs)
    whole, tiles = tokens.unit_grid[:2].tolist()
    assert whole == [SIDE[bench.name]] * 2
    assert (tokens.unit_source[:2] == 0).all(), "two units of one image"
    ends = np.flatnonzero((tokens.kind == Kind.DELIMITER) & (tokens.unit == 1))
    assert len(ends) == tiles[0]
    last = tokens.visual[tokens.unit_tokens(1)]
    assert (tokens.col[ends - 1] == tiles[1] - 1).all(), "a newline after each row"
    assert len(last) == tiles[0] * tiles[1]


def test_the_tiles_grid_has_the_shape_of_the_picture(bench):
    """Without its padding: within one patch of the picture's own proportions."""
    for height, width in (SIZE, (64, 128), (128, 64), (90, 100)):
        tokens = bench.map(bench.inputs(images=[picture((height, width))]))
        rows, cols = tokens.unit_grid[1]
        assert abs(rows - cols * height / width) <= 2, (height, width, rows, cols)


def test_pictures_of_too_many_tiles_are_scaled_down(onevision):
    """The miniature allows two tiles' patches; 2 x 2 tiles have 10 x 10."""
    tokens = onevision.map(onevision.inputs(images=[picture((148, 148))]))
    assert tokens.unit_grid[1].tolist() == [7, 7], "10 over the root of 2, cut"


@pytest.mark.parametrize(("row", "col"), [(0, 0), (1, 2), (2, 1)])
def test_a_square_in_a_picture_is_found_in_both_looks_at_it(bench, row, col):
    plain = picture((74, 148) if bench.name == "llava_onevision" else (84, 168))
    height, width = plain.shape[:2]
    marked = plain.copy()
    # Inside one patch of the whole picture, and of its tiles, whose patches are half as wide.
    side = SIDE[bench.name]
    y, x = int((2 * row + 0.5) * height / side), int((2 * col + 0.25) * width / side)
    marked[y - 3 : y + 3, x - 3 : x + 3] = 255
    looks = []
    for one in (plain, marked):
        inputs = bench.inputs(images=[one])
        tokens = bench.map(inputs)
        with torch.no_grad(), hooks.visual_features(bench.model, tokens) as seen:
            bench.model(**inputs)
        looks.append(seen["projector"])
    change = np.abs(looks[1] - looks[0]).max(axis=-1)
    for unit in (0, 1):
        found = tokens.unit_picture(change, unit)
        rows, cols = found.shape
        at = np.unravel_index(np.argmax(found), found.shape)
        assert at == (int(y / height * rows), int(x / width * cols)), f"unit {unit}"


def test_several_pictures_given_as_one_sample_are_not_cut(onevision):
    pictures = [[np.moveaxis(picture(seed=seed), -1, 0) for seed in (0, 1)]]
    chat = "<image>\n<image>\nWhat?"
    inputs = dict(onevision.processor(text=[chat], images=pictures, return_tensors="pt"))
    tokens = onevision.map(inputs)
    assert tokens.unit_grid.tolist() == [[5, 5], [5, 5]]
    assert np.flatnonzero(tokens.kind == Kind.DELIMITER).tolist() == newlines(onevision, inputs)


def test_a_second_prompt_s_pictures_are_counted_after_the_first_s(bench):
    prompts = [
        ([clip(2)], [picture()], "One?"),
        ([clip(2, seed=3)], [picture((200, 64), seed=2)], "And two?"),
    ]
    inputs = bench.batch(prompts)
    seen = []
    for row, (clips, images, question) in enumerate(prompts):
        tokens = bench.map(inputs, 2, row=row, question=question)
        with torch.no_grad():
            alone = bench.inputs(*clips, images=images, question=question)
            single = bench.map(alone, 2, question=question)
        assert tokens.kind[tokens.kind != Kind.PADDING].tolist() == single.kind.tolist()
        seen.append((tokens, alone, single))
    maps = [tokens for tokens, _, _ in seen]
    with torch.no_grad(), hooks.visual_features(bench.model, maps, ["projector", "vit"]) as together:
        bench.model(**inputs)
    for (_, alone, single), batched in zip(seen, together, strict=True):
        with torch.no_grad(), hooks.visual_features(bench.model, single, ["projector", "vit"]) as features:
            bench.model(**alone)
        for source in ("projector", "vit"):
            assert np.isfinite(features[source]).all()
            assert np.abs(batched[source] - features[source]).max() < 1e-4, source


def test_tower_features_of_a_video_are_pooled_patches(bench):
    """Windows of two by two; an odd side is pooled bilinearly, by hand here from its two neighbours."""
    inputs = bench.inputs(clip(2))
    tokens = bench.map(inputs, 2)
    frames = inputs["pixel_values_videos"][0]
    with torch.no_grad(), hooks.visual_features(bench.model, tokens, ["vit"]) as seen:
        bench.model(**inputs)
        layers = bench.model.model.vision_tower(frames, output_hidden_states=True).hidden_states
    weights = {
        "llava_next_video": np.kron(np.eye(3), [0.5, 0.5]),
        "llava_onevision": np.array([[2, 1, 0, 0, 0], [0, 0, 3, 0, 0], [0, 0, 0, 1, 2]]) / 3,
    }[bench.name]
    states = layers[-2][:, 1:] if bench.name == "llava_next_video" else layers[-1]
    side = SIDE[bench.name]
    patches = states.numpy().reshape(2, side, side, -1)
    expected = np.einsum("ri,cj,uijd->urcd", weights, weights, patches).reshape(len(seen["vit"]), -1)
    assert np.abs(seen["vit"] - expected).max() < 1e-5


def test_only_the_middle_square_of_a_frame_is_seen(next_video):
    plain = clip(2, (84, 168))
    outside, inside = plain.pixels.copy(), plain.pixels.copy()
    outside[:, :, :40] = outside[:, :, 128:] = 255
    inside[:, :, 44:50] = 255
    values = [
        next_video.inputs(clip(2, pixels=pixels))["pixel_values_videos"]
        for pixels in (plain.pixels, outside, inside)
    ]
    assert torch.equal(values[0], values[1])
    assert not torch.equal(values[0], values[2])


@pytest.mark.parametrize(
    ("height", "width", "shown"),
    [(84, 84, (84, 84)), (720, 1280, (720, 720)), (168, 126, (126, 126)), (10, 30, (10, 10))],
)
def test_what_is_left_of_a_frame_is_said(next_video, onevision, height, width, shown):
    assert next_video.family.middle_shown(next_video.processor, height, width) == shown
    assert onevision.family.middle_shown(onevision.processor, height, width) == (height, width)


def test_a_prompt_that_does_not_fit_its_pictures_is_refused(bench):
    inputs = bench.inputs(clip(3), images=[picture()])
    with pytest.raises(hooks.TokenMapError, match="4 frames were given, the prompt shows 3"):
        bench.map(inputs, 4)
    sizes = inputs | {"image_sizes": torch.tensor([[200, 64]])}
    with pytest.raises(hooks.TokenMapError, match="the images"):
        bench.map(sizes, 3)
    fewer = inputs | {"pixel_values_videos": inputs["pixel_values_videos"][:, :2]}
    with pytest.raises(hooks.TokenMapError, match="the videos"):
        bench.map(fewer)
    torn = inputs["input_ids"].clone()
    at = int((torn[0] == bench.model.config.video_token_id).nonzero()[4, 0])
    torn[0, [at, -1]] = torn[0, [-1, at]]
    with pytest.raises(hooks.TokenMapError, match="spread over positions"):
        bench.map(inputs | {"input_ids": torn}, 3)


def test_positions_that_are_divided_hold_more(next_video):
    """The 7B checkpoint: 4,096 positions of its base model, divided by 2.5."""
    text = SimpleNamespace(max_position_embeddings=4096)
    model = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: text))
    for rope, expected in (
        ({"rope_type": "linear", "factor": 2.5, "rope_theta": 1e4}, 10_240),
        ({"rope_type": "default", "rope_theta": 5e6}, 4096),
    ):
        text.rope_parameters = rope
        assert next_video.family.context(model) == expected
    assert next_video.family.context(next_video.model) == 65_536
