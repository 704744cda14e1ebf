"""PerceptionLM: thumbnails before tiles, and one encoder that is called for images and for videos."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hooks

from ...family_bench import FamilyBench, clip, make_bench, picture


@pytest.fixture(scope="module")
def bench() -> FamilyBench:
    return make_bench("perception_lm")


@pytest.mark.parametrize(("row", "col"), [(0, 0), (0, 2), (1, 1)])
def test_the_thumbnail_comes_first_and_tiles_go_row_by_row(bench, row, col):
    """One bright square in one tile of two rows and three columns."""
    plain = picture((168, 252))
    marked = plain.copy()
    marked[row * 84 + 32 : row * 84 + 52, col * 84 + 32 : col * 84 + 52] = 255
    features = []
    for one in (plain, marked):
        inputs = bench.inputs(images=[one])
        tokens = bench.map(inputs)
        with torch.no_grad(), hooks.visual_features(bench.model, tokens) as seen:
            bench.model(**inputs)
        features.append(seen["projector"])
    change = tokens.unit_sum(np.abs(features[1] - features[0]).max(axis=-1))
    assert np.flatnonzero(change).tolist() == [0, 1 + 3 * row + col]


def test_tower_features_of_images_and_videos_in_one_prompt(bench):
    """Two calls of one method; each kind gets its own."""
    inputs = bench.inputs(clip(2), images=[picture((84, 84))])
    tokens = bench.map(inputs, 2)
    with torch.no_grad(), hooks.visual_features(bench.model, tokens, ["vit", "projector"]) as seen:
        bench.model(**inputs)
    tiles = torch.cat([inputs["pixel_values"][0], inputs["pixel_values_videos"][0]])
    with torch.no_grad():
        states = bench.model.model.vision_tower(tiles).last_hidden_state[:, 1:].numpy()
        projected = bench.model.model.get_image_features(tiles[None]).pooler_output
    expected = states.reshape(len(tiles), 3, 2, 3, 2, -1).mean(axis=(2, 4))
    assert tokens.n_units == len(tiles)
    for at, found in zip(tokens.visual, seen["vit"], strict=True):
        assert np.abs(found - expected[tokens.unit[at], tokens.row[at], tokens.col[at]]).max() < 1e-5
    assert np.abs(seen["projector"] - projected.flatten(0, 1).numpy()).max() < 1e-5


def test_a_third_call_of_the_encoder_is_refused(bench):
    inputs = bench.inputs(clip(2), images=[picture((84, 84))])
    tokens = bench.map(inputs, 2)
    with torch.no_grad(), hooks.visual_features(bench.model, tokens, ["vit"]):
        bench.model(**inputs)
        with pytest.raises(hooks.CaptureError, match="ran twice"):
            bench.model(**inputs)


def test_a_prompt_that_lost_tokens_is_refused(bench):
    inputs = bench.inputs(clip(3))
    ids = inputs["input_ids"].clone()
    ids[0, (ids[0] == bench.processor.video_token_id).nonzero()[-1]] = bench.tokenizer.encode("A")[0]
    with pytest.raises(hooks.TokenMapError, match="26 placeholders"):
        bench.map(inputs | {"input_ids": ids})
    with pytest.raises(hooks.TokenMapError, match="4 frames were given, the prompt shows 3"):
        bench.map(inputs, 4)
