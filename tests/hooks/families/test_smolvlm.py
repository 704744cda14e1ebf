"""SmolVLM: frames told from images by their clock times, tiles with the whole picture below, seconds cut."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch

import hooks
from hooks import Kind

from ...family_bench import QUESTION, FamilyBench, clip, make_bench, picture

SIDE = 3
TILE = 84
PATCH = 9
TOLERANCE = 1e-5


@pytest.fixture
def bench() -> FamilyBench:
    return make_bench("smolvlm")


def embedded(bench: FamilyBench, inputs: dict[str, Any], *, attention: bool = True) -> np.ndarray:
    """What enters the language model at the visual tokens."""
    tokens = bench.map(inputs)
    with torch.no_grad(), ExitStack() as stack:
        if not attention:
            for layer in bench.model.model.vision_model.encoder.layers:
                silent = layer.self_attn.register_forward_hook(
                    lambda _m, _a, out: (torch.zeros_like(out[0]), None)
                )
                stack.callback(silent.remove)
        features = stack.enter_context(hooks.visual_features(bench.model, tokens))
        bench.model(**inputs)
        stack.close()
    return features["projector"]


def test_tiles_lie_where_they_do_in_the_picture(bench):
    """A spot in an image of 2 x 2 tiles changes the token of its tile, and one of the whole picture below."""
    plain = picture((2 * TILE, 2 * TILE))
    inputs = bench.inputs(images=[plain])
    tokens = bench.map(inputs)
    assert tokens.unit_grid.tolist() == [[3 * SIDE, 2 * SIDE]]
    assert tokens.tokens_per_unit.tolist() == [5 * SIDE**2]
    window = SIDE * PATCH  # pixels of a token
    for tile, place in (((0, 1), (1, 2)), ((1, 0), (2, 0))):
        y, x = (tile[axis] * TILE + place[axis] * window + window // 2 for axis in (0, 1))
        spot = plain.copy()
        spot[y - 5 : y + 5, x - 5 : x + 5] ^= 255
        marked = bench.inputs(images=[spot])
        change = np.abs(
            embedded(bench, marked, attention=False) - embedded(bench, inputs, attention=False)
        ).max(-1)
        found = {tuple(at) for at in np.argwhere(np.nan_to_num(tokens.unit_picture(change, 0)) > 0).tolist()}
        tile_token = tile[0] * SIDE + place[0], tile[1] * SIDE + place[1]
        below = {at for at in found if at[0] >= 2 * SIDE}
        assert found - below == {tile_token}
        # The whole picture is half as large: the spot is five pixels of it, at half its place.
        assert (2 * SIDE + y // 2 // window, x // 2 // window) in below


def test_line_breaks_between_rows_of_tiles_belong_to_the_image(bench):
    tokens = bench.map(bench.inputs(images=[picture((TILE, TILE))]))
    first, last = int(tokens.visual[0]), int(tokens.visual[-1])
    inside = np.arange(first - 2, last + 2)
    assert set(tokens.kind[inside].tolist()) == {int(Kind.IMAGE), int(Kind.DELIMITER)}
    assert (tokens.unit[inside] == 0).all()


def test_images_of_other_shapes_have_other_tiles(bench):
    inputs = bench.inputs(images=[picture((TILE, 2 * TILE)), picture((2 * TILE, TILE), seed=1)])
    tokens = bench.map(inputs)
    assert tokens.unit_grid.tolist() == [[2 * SIDE, 2 * SIDE], [3 * SIDE, SIDE]]
    assert tokens.tokens_per_unit.tolist() == [3 * SIDE**2, 3 * SIDE**2]
    places = tokens.row * 100 + tokens.col
    for unit in range(2):
        own = places[tokens.visual[tokens.unit_tokens(unit)]]
        assert len(np.unique(own)) == len(own)


def test_an_unsplit_image_is_one_square(bench):
    chat = bench.processor.apply_chat_template(
        [
            {
                "role": "user",
                "content": [{"type": "image"}, {"type": "image"}, {"type": "text", "text": QUESTION}],
            }
        ],
        add_generation_prompt=True,
    )
    inputs = dict(
        bench.processor(
            text=[chat], images=[picture(), picture(seed=1)], do_image_splitting=False, return_tensors="pt"
        )
    )
    tokens = bench.map(inputs)
    assert tokens.unit_grid.tolist() == [[SIDE, SIDE]] * 2
    assert tokens.unit_source.tolist() == [0, 1]
    assert (tokens.kind[tokens.visual] == Kind.IMAGE).all()


def test_an_image_under_a_frame_s_caption_is_the_same_prompt_as_a_frame(bench):
    """Which it is cannot be told from what the processor returned; it is mapped as a frame."""
    chat = "\nFrame from 00:07:<image>\n" + QUESTION
    given = {"images": [picture()], "do_image_splitting": False, "return_tensors": "pt"}
    tokens = bench.map(dict(bench.processor(text=[chat], **given)))
    assert (tokens.kind[tokens.visual] == Kind.VIDEO).all()
    assert tokens.unit_shown_seconds.tolist() == [7.0]


def test_times_are_cut_to_whole_seconds(bench):
    fast = clip(5, fps=10.0, stride=7)  # 0.0, 0.7, 1.4, 2.1, 2.8 s
    inputs = bench.inputs(fast)
    tokens = bench.map(inputs, 5)
    assert tokens.unit_shown_seconds.tolist() == [0, 0, 1, 2, 2]
    (fault,) = hooks.layout_faults(bench.family, bench.model, inputs, tokens, fast)
    assert fault.startswith("shared_times: 2 of 4 ")
    hours = clip(3, fps=0.001, stride=5)  # 0, 5,000 and 10,000 s: minutes go on past the hour
    assert bench.map(bench.inputs(hours), 3).unit_shown_seconds.tolist() == [0.0, 5000.0, 10000.0]


def test_vit_tokens_are_means_of_their_patches(bench):
    inputs = bench.inputs(clip(3))
    tokens = bench.map(inputs, 3)
    with torch.no_grad(), hooks.visual_features(bench.model, tokens, ("vit",)) as features:
        bench.model(**inputs)
    with torch.no_grad():
        hidden = bench.model.model.vision_model(inputs["pixel_values"][0]).last_hidden_state.numpy()
    per_side = SIDE * SIDE
    squares = hidden.reshape(3, per_side, per_side, -1)
    for position, found in zip(tokens.visual, features["vit"], strict=True):
        y, x = SIDE * int(tokens.row[position]), SIDE * int(tokens.col[position])
        wanted = squares[tokens.unit[position], y : y + SIDE, x : x + SIDE].mean(axis=(0, 1))
        assert np.abs(found - wanted).max() <= TOLERANCE


def test_padding_pictures_are_not_counted(bench):
    """Of two rows the shorter video is filled up with pictures of zeros, which have no token."""
    inputs = bench.batch([([clip(2)], (), QUESTION), ([clip(4, seed=1)], (), QUESTION)])
    assert inputs["pixel_values"].shape[:2] == (2, 4)
    tokens = [bench.map(inputs, count, row=row) for row, count in enumerate((2, 4))]
    assert [one.n_units for one in tokens] == [2, 4]
    assert tokens[1].unit_feature_start.tolist() == [18, 27, 36, 45]
    with pytest.raises(hooks.TokenMapError, match="pictures of 3 x 3"):
        bench.map(inputs | {"pixel_values": inputs["pixel_values"][:1]}, 2, row=0)


def test_frames_the_processor_chose_by_itself_are_refused(bench):
    with pytest.raises(hooks.TokenMapError, match="the prompt shows 4"):
        bench.map(bench.inputs(clip(4)), 5)


def test_the_processor_s_own_template_is_used_for_videos(bench):
    message = [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": QUESTION}]}]
    chat = bench.processor.apply_chat_template(message, add_generation_prompt=True)
    assert chat.startswith("<|im_start|>User: <video>")
    assert chat.endswith("<end_of_utterance>\nAssistant:")
