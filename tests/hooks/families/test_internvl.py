"""InternVL: frames that carry the image's placeholder, told from images by their numbers; tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import hooks
from hooks import Kind

from ...family_bench import QUESTION, FamilyBench, clip, make_bench, picture

TOKENS = 9  # of a tile of the miniature


@pytest.fixture(scope="module")
def bench() -> FamilyBench:
    return make_bench("internvl")


def prompt(bench: FamilyBench, user: str, **shown: Any) -> dict[str, Any]:
    """The processor's inputs of a user's turn written by hand, `@` for a placeholder of an image."""
    text = user.replace("@", bench.processor.image_token).replace("#", bench.processor.video_token)
    chat = f"<|im_start|>user\n{text}\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    return dict(bench.processor(text=[chat], return_tensors="pt", do_sample_frames=False, **shown))


def kinds(tokens: hooks.TokenMap) -> list[tuple[str, int]]:
    """Each source's kind and number of units."""
    first = tokens.unit_first_token
    return [
        (
            Kind(int(tokens.kind[tokens.visual[first[np.argmax(tokens.unit_source == source)]]])).name,
            int((tokens.unit_source == source).sum()),
        )
        for source in np.unique(tokens.unit_source)
    ]


def frames(count: int, seed: int = 0) -> np.ndarray:
    return np.moveaxis(clip(count, (84, 84), seed=seed).pixels, -1, 1)


def test_a_frame_stands_between_delimiters_with_its_number_before_it(bench):
    inputs = bench.inputs(clip(3))
    tokens = bench.map(inputs, 3)
    for unit in range(3):
        beside = np.flatnonzero((tokens.kind == Kind.DELIMITER) & (tokens.unit == unit))
        text = bench.tokenizer.decode(tokens.input_ids[beside].tolist())
        assert text == f"Frame{unit + 1}: <img></img>"
    between = np.flatnonzero((tokens.kind == Kind.TEXT) & (np.arange(len(tokens)) < tokens.visual[-1]))
    assert bench.tokenizer.decode(tokens.input_ids[between].tolist()) == "<|im_start|>user\n\n\n"
    assert np.isnan(tokens.unit_shown_seconds).all(), "no times are told"


def test_images_and_videos_are_told_apart_in_any_order(bench):
    square, wide = picture((84, 84), seed=1), picture((84, 168), seed=2)
    images = [np.moveaxis(one, -1, 0) for one in (wide, square)]
    inputs = prompt(bench, "@\n#\n@ and again\n#", images=images, videos=[frames(2), frames(2, 1)])
    tokens = bench.map(inputs, 2, 2)
    assert kinds(tokens) == [("IMAGE", 3), ("VIDEO", 2), ("IMAGE", 1), ("VIDEO", 2)]
    assert tokens.unit_slots[:, 0].tolist() == [0, 0, 0, 0, 1, 0, 0, 1]
    with torch.no_grad(), hooks.visual_features(bench.model, tokens, ["projector"]) as seen:
        bench.model(**inputs)
        merged = bench.model.model.get_image_features(pixel_values=inputs["pixel_values"]).pooler_output
    expected = merged.flatten(0, 1).numpy()
    assert np.array_equal(seen["projector"], expected[tokens.feature[tokens.visual]])


def test_images_captioned_like_frames_are_the_same_prompt_as_a_video(bench):
    """What cannot be told apart is one and the same to the model, and mapped as one."""
    shown = frames(3)
    video = prompt(bench, "#", videos=[shown])
    images = prompt(bench, "Frame1: @\nFrame2: @\nFrame3: @", images=list(shown))
    assert torch.equal(video["input_ids"], images["input_ids"])
    tokens = bench.map(images, 3)
    assert kinds(tokens) == [("VIDEO", 3)]
    assert tokens.unit.tolist() == bench.map(video, 3).unit.tolist()


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("@\n@", [("IMAGE", 1), ("IMAGE", 1)]),
        ("Frame2: @\nFrame3: @", [("IMAGE", 1), ("IMAGE", 1)]),
        ("Frame1: @\nFrame3: @", [("VIDEO", 1), ("IMAGE", 1)]),
        ("Frame1: @\nFrame1: @", [("VIDEO", 1), ("VIDEO", 1)]),
        ("Frame1: @\nand\nFrame2: @", [("VIDEO", 1), ("IMAGE", 1)]),
    ],
)
def test_only_frames_that_count_on_from_one_are_a_video(bench, user, expected):
    inputs = prompt(bench, user, images=list(frames(2)))
    assert kinds(bench.map(inputs)) == expected


def test_a_picture_of_several_tiles_is_an_image_whatever_stands_before_it(bench):
    wide = np.moveaxis(picture((84, 168)), -1, 0)
    assert kinds(bench.map(prompt(bench, "Frame1: @", images=[wide]))) == [("IMAGE", 3)]


@pytest.mark.parametrize(("row", "col"), [(0, 0), (0, 1), (1, 2)])
def test_tiles_go_row_by_row_and_the_thumbnail_comes_last(bench, row, col):
    """One bright square in one tile of two rows and three columns."""
    plain = picture((168, 252))
    marked = plain.copy()
    marked[row * 84 + 32 : row * 84 + 52, col * 84 + 32 : col * 84 + 52] = 255
    maps, features = [], []
    for one in (plain, marked):
        inputs = bench.inputs(images=[one])
        tokens = bench.map(inputs)
        with torch.no_grad(), hooks.visual_features(bench.model, tokens) as seen:
            bench.model(**inputs)
        maps.append(tokens)
        features.append(seen["projector"])
    change = maps[0].unit_sum(np.abs(features[1] - features[0]).max(axis=-1))
    assert np.flatnonzero(change).tolist() == [3 * row + col, 6]
    assert maps[0].n_units == 7


def test_tower_features_are_means_of_four_patches_in_their_place(bench):
    inputs = bench.inputs(clip(2), images=[picture((84, 84))])
    tokens = bench.map(inputs, 2)
    with torch.no_grad(), hooks.visual_features(bench.model, tokens, ["vit"]) as seen:
        bench.model(**inputs)
        states = bench.model.model.vision_tower(inputs["pixel_values"]).last_hidden_state[:, 1:].numpy()
    for at, found in zip(tokens.visual, seen["vit"], strict=True):
        patches = states[tokens.unit[at]].reshape(6, 6, -1)
        row, col = 2 * tokens.row[at], 2 * tokens.col[at]
        expected = patches[row : row + 2, col : col + 2].mean(axis=(0, 1))
        assert np.abs(found - expected).max() < 1e-5


def test_a_prompt_that_lost_tokens_is_refused(bench):
    inputs = bench.inputs(clip(3))
    stands = (inputs["input_ids"][0] == bench.processor.image_token_id).nonzero()[:, 0]
    cut = {name: value[:, : int(stands[-1])] for name, value in inputs.items() if name != "pixel_values"}
    with pytest.raises(hooks.TokenMapError, match="27"):
        bench.map(cut | {"pixel_values": inputs["pixel_values"]})
    with pytest.raises(hooks.TokenMapError, match="pixel_values"):
        bench.map({name: value for name, value in inputs.items() if name != "pixel_values"})
    with pytest.raises(hooks.TokenMapError, match="4 frames were given, the prompt shows 3"):
        bench.map(inputs, 4)
    bare = inputs["input_ids"].clone()
    bare[0, stands[0] - 1] = bench.tokenizer.encode("A")[0]
    with pytest.raises(hooks.TokenMapError, match="not one of"):
        bench.map(inputs | {"input_ids": bare})


def test_a_prompt_without_pictures_has_no_units(bench):
    inputs = bench.inputs()
    assert bench.map(inputs).n_units == 0
