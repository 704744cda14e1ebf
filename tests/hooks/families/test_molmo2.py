"""Molmo2: pictures that see both ways, what placeholders add, two resolutions of an image, pooled patches."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch

import hooks
from hooks import Kind

from ...family_bench import QUESTION, FamilyBench, clip, make_bench, picture

PATCH = 14
CROP = 9 * PATCH
TOLERANCE = 1e-5


@pytest.fixture
def bench() -> FamilyBench:
    return make_bench("molmo2")


def features(bench: FamilyBench, inputs: dict[str, Any], source: str = "projector") -> np.ndarray:
    tokens = bench.map(inputs)
    with torch.no_grad(), hooks.visual_features(bench.model, tokens, (source,)) as found:
        bench.model(**inputs)
    return found[source]


def seen_pairs(bench: FamilyBench, inputs: dict[str, Any]) -> np.ndarray:
    """Which query sees which key, by eager attention that is not zero."""
    with torch.no_grad():
        attention = bench.eager(**inputs, output_attentions=True).attentions
    return torch.stack(attention)[:, 0].amax(dim=(0, 1)).numpy() > 0


def test_two_way_positions_are_those_that_see_later_ones(bench):
    inputs = bench.inputs(clip(4))
    tokens = bench.roles(inputs, 4)
    sees = seen_pairs(bench, inputs)
    block = tokens.two_way >= 0
    assert (sees == (np.tri(len(tokens), dtype=bool) | np.outer(block, block))).all()
    beside = np.isin(tokens.kind, (Kind.VIDEO, Kind.DELIMITER))
    assert (block == beside).all(), "times are text, and causal"
    qwen = make_bench("qwen3_vl")
    assert (qwen.map(qwen.inputs(clip(4)), 4).two_way == -1).all()


def test_rows_of_pictures_are_captured_both_ways(bench):
    inputs = bench.inputs(clip(4))
    tokens = bench.roles(inputs, 4)
    rows = tokens.visual[tokens.unit_tokens(0)]
    with torch.no_grad():
        with hooks.attention_rows(bench.model, tokens, rows=rows) as captured:
            bench.model(**inputs)
        attention = torch.stack(bench.eager(**inputs, output_attentions=True).attentions)[:, 0].numpy()
    wanted = np.stack(
        [
            attention[:, :, rows][..., tokens.visual[tokens.unit_tokens(unit)]].sum(-1).mean(-1)
            for unit in range(4)
        ],
        axis=-1,
    )
    assert np.abs(captured.unit_mass() - wanted[:, :, None]).max() <= TOLERANCE
    assert wanted[..., 3].min() > 0, "the first frame sees the last"


def test_edges_are_counted_both_ways(bench):
    inputs = bench.inputs(clip(4))
    tokens = bench.roles(inputs, 4)
    sees = seen_pairs(bench, inputs)
    for edges in [*hooks.path_edges(tokens, "cross_unit"), hooks.units_to_everything(tokens, [1])]:
        assert edges.count() == sees[np.ix_(edges.queries, edges.keys)].sum()
    assert hooks.units_to_everything(tokens, [3]).queries[0] < tokens.visual[0] + 1, (
        "the first frame reads the last"
    )


@pytest.mark.parametrize("unit", [0, 2, 3])
def test_nothing_is_left_of_a_unit_that_is_knocked_out(bench, unit):
    """Its pixels change, and the answer does not: there is no road left, through earlier frames neither."""
    plain = clip(4)
    pixels = plain.pixels.copy()
    pixels[unit] = 255 - pixels[unit]
    inputs, other = bench.inputs(plain), bench.inputs(clip(4, pixels=pixels))
    tokens = bench.roles(inputs, 4)
    found = []
    for one in (inputs, other):
        with hooks.knock_out(bench.model, tokens, hooks.units_to_everything(tokens, [unit])):
            found.append(bench.run(one).logits[0, -1])
    changed = (bench.run(inputs).logits - bench.run(other).logits)[0, -1].abs().max()
    left = (found[0] - found[1]).abs().max()
    assert float(changed) > 1e-4
    assert float(left) <= TOLERANCE


def test_no_unit_reads_another_once_they_are_cut_apart(bench):
    """The states of one frame do not change with another frame's pixels, earlier or later."""
    plain = clip(4)
    pixels = plain.pixels.copy()
    pixels[2] = 255 - pixels[2]
    tokens = bench.roles(bench.inputs(plain), 4)
    states = []
    for one in (plain, clip(4, pixels=pixels)):
        with (
            hooks.knock_out(bench.model, tokens, "cross_unit"),
            hooks.residual(bench.model, tokens) as stream,
        ):
            bench.run(bench.inputs(one))
        states.append(stream.at(len(bench.family.layers(bench.model))))
    change = np.abs(states[0] - states[1]).max(axis=-1)
    belongs = tokens.unit >= 0
    assert change[belongs & (tokens.unit != 2)].max() <= TOLERANCE
    assert change[tokens.unit == 2].max() > 1e-4


def test_prompts_with_pictures_are_not_run_in_parts(bench):
    """Nothing of them stays as it is held: each rerun is a whole forward. Text alone is causal."""
    inputs = bench.inputs(clip(4))
    middle = int(bench.map(inputs, 4).visual[20])
    with hooks.prefix(bench.model, inputs, layers=[1]) as held:
        again = held.rerun(middle, layer=1)
        assert held.forwards == 1
    assert float((again - bench.run(inputs).logits[0, -1]).abs().max()) <= TOLERANCE
    text = bench.batch([((), (), QUESTION)])
    with hooks.prefix(bench.model, text, layers=[1]) as held:
        held.rerun(held.length // 2, layer=1)
        assert held.forwards < 1


def test_placeholders_keep_their_own_embedding(bench):
    inputs = bench.inputs(clip(3))
    tokens = bench.map(inputs, 3)
    with torch.no_grad():
        own = bench.family.embedding(bench.model)(inputs["input_ids"][0, tokens.visual])
        (added,) = bench.model.model.get_video_features(
            inputs["pixel_values_videos"], inputs["video_token_pooling"], inputs["video_grids"]
        ).pooler_output
    assert (
        np.abs(features(bench, inputs) - (own + added[tokens.feature[tokens.visual]]).numpy()).max()
        <= TOLERANCE
    )


def test_an_image_at_two_resolutions(bench):
    """A spot changes one token of the low resolution, and of the high one it pools, below."""
    size = (3 * 7 * PATCH - 5 * PATCH, CROP)  # two crops of 126 pixels that overlap by 28
    plain = picture(size)
    inputs = bench.inputs(images=[plain])
    tokens = bench.map(inputs)
    low_rows, low_cols, high_rows, high_cols = inputs["image_grids"][0].tolist()
    assert (low_rows, low_cols) == (5, 5)
    assert tokens.unit_grid.tolist() == [[low_rows + high_rows, max(low_cols, high_cols)]]
    canvas = 2 * 7 * PATCH + 2 * PATCH
    assert high_rows == canvas // PATCH // 2
    y = int(0.75 * size[0])
    spot = plain.copy()
    spot[y - 3 : y + 3, 60:66] ^= 255
    marked = bench.inputs(images=[spot])
    with ExitStack() as stack:
        for layer in bench.model.model.vision_tower.layers:
            silent = layer.self_attn.register_forward_hook(
                lambda _m, _a, out: (torch.zeros_like(out[0]), None)
            )
            stack.callback(silent.remove)
        change = np.abs(features(bench, marked) - features(bench, inputs)).max(axis=-1)
    found = {tuple(at) for at in np.argwhere(np.nan_to_num(tokens.unit_picture(change, 0)) > 0).tolist()}
    patches = {"low": y / size[0] * 9, "high": y / size[0] * canvas / PATCH}
    low = {at for at in found if at[0] < low_rows}
    # 9 patches are pooled by two with one of padding behind; 16 leave none.
    assert int(patches["low"] // 2) in {row for row, _ in low}
    assert low_rows + int(patches["high"] // 2) in {row for row, _ in found - low}
    assert len(low) <= 4
    assert len(found - low) <= 4


def test_marks_between_rows_belong_to_the_image(bench):
    tokens = bench.map(bench.inputs(images=[picture((200, 200))]))
    inside = np.arange(int(tokens.visual[0]) - 1, int(tokens.visual[-1]) + 3)
    assert set(tokens.kind[inside].tolist()) == {int(Kind.IMAGE), int(Kind.DELIMITER)}
    assert (tokens.unit[inside] == 0).all()
    assert (tokens.two_way[inside] == 0).all()


def test_vit_tokens_are_means_of_the_patches_a_token_is_pooled_from(bench):
    inputs = bench.inputs(clip(3))
    tokens = bench.map(inputs, 3)
    with torch.no_grad():
        hidden = bench.model.model.vision_tower(inputs["pixel_values_videos"]).last_hidden_state.numpy()
    squares = hidden.reshape(3, 9, 9, -1)
    for position, found in zip(tokens.visual, features(bench, inputs, "vit"), strict=True):
        y, x = 3 * int(tokens.row[position]), 3 * int(tokens.col[position])
        wanted = squares[tokens.unit[position], y : y + 3, x : x + 3].mean(axis=(0, 1))
        assert np.abs(found - wanted).max() <= TOLERANCE


def test_windows_at_the_edge_hold_fewer_patches(bench):
    """Of an image's 9 x 9 patches, pooled by two, the padding counts for nothing."""
    inputs = bench.inputs(images=[picture((CROP, CROP))])
    pooling = inputs["image_token_pooling"].numpy()
    assert (pooling < 0).any()
    with torch.no_grad():
        hidden = (
            bench.model.model.vision_tower(inputs["pixel_values"]).last_hidden_state.flatten(0, 1).numpy()
        )
    wanted = np.stack([hidden[row[row >= 0]].mean(axis=0) for row in pooling])
    assert np.abs(features(bench, inputs, "vit") - wanted).max() <= TOLERANCE


def test_times_that_rounding_makes_one(bench):
    close = clip(4, fps=100.0, stride=4)  # 0.00, 0.04, 0.08, 0.12 s
    inputs = bench.inputs(close)
    tokens = bench.map(inputs, 4)
    assert tokens.unit_shown_seconds == pytest.approx([0.0, 0.0, 0.1, 0.1])
    (fault,) = hooks.layout_faults(bench.family, bench.model, inputs, tokens, close)
    assert fault.startswith("shared_times: 2 of 3 ")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"video_grids": torch.tensor([[4, 3, 2]])}, "placeholders"),
        ({"video_grids": torch.tensor([[3, 3, 4]])}, "stand among|delimiter|beside"),
        ({"image_grids": torch.tensor([[3, 3, 3, 3]])}, "videos and images"),
        ({"mm_token_type_ids": None}, None),
    ],
)
def test_grids_of_another_prompt_are_refused(bench, change, words):
    inputs = {name: value for name, value in (bench.inputs(clip(4)) | change).items() if value is not None}
    if words is None:
        assert (bench.map(inputs, 4).two_way == -1).all(), "the model is given no block"
        assert not np.triu(seen_pairs(bench, inputs), 1).any()
        return
    with pytest.raises(hooks.TokenMapError, match=words):
        bench.map(inputs)


def test_types_of_another_prompt_are_refused(bench):
    inputs = bench.inputs(clip(4))
    types = inputs["mm_token_type_ids"].clone()
    types[0, -1] = 1
    with pytest.raises(hooks.TokenMapError, match="mm_token_type_ids"):
        bench.map(inputs | {"mm_token_type_ids": types}, 4)
