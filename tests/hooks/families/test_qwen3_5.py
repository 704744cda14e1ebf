"""Hybrid models: what attends can be captured and blocked, what carries a state cannot, and says so."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hooks

from ...family_bench import FamilyBench, clip, make_bench

NAMES = ("qwen3_5", "qwen3_5_moe")
ATTENDING = (1, 3)


@pytest.fixture(params=NAMES)
def bench(request: pytest.FixtureRequest) -> FamilyBench:
    return make_bench(request.param)


def test_the_layers_that_attend_are_those_with_an_attention_module(bench):
    layers = bench.family.layers(bench.model)
    found = tuple(number for number, layer in enumerate(layers) if hasattr(layer, "self_attn"))
    assert bench.family.attention_layers(bench.model) == found == ATTENDING
    assert not bench.family.packs(bench.model)


@pytest.mark.parametrize("layers", [0, [1, 2], range(4)])
def test_edges_of_a_layer_without_attention_are_refused(bench, layers):
    tokens = bench.roles(bench.inputs(clip(4)), 4)
    with (
        pytest.raises(hooks.InterventionError, match=r"do not attend.*\[1, 3\]"),
        hooks.knock_out(bench.model, tokens, "video_to_last", layers=layers),
    ):
        pytest.fail("the block must not be entered")


def test_all_layers_are_those_that_attend_and_the_knockout_is_partial(bench):
    inputs = bench.inputs(clip(4))
    tokens = bench.roles(inputs, 4)
    with torch.no_grad(), hooks.knock_out(bench.model, tokens, "video_to_everything") as knockout:
        bench.model(**inputs)
    assert knockout.layers == ATTENDING
    assert knockout.partial


@pytest.mark.parametrize(("name", "left"), [("qwen3_5", True), ("qwen3_vl", False)])
def test_what_a_knockout_of_every_edge_leaves_of_the_video(name, left):
    """Text blind to the video says the same of another video; not where layers carry a state."""
    bench = make_bench(name)
    found = []
    for seed in (0, 1):
        inputs = bench.inputs(clip(4, seed=seed))
        tokens = bench.roles(inputs, 4)
        with torch.no_grad(), hooks.knock_out(bench.model, tokens, "video_to_everything") as knockout:
            found.append(bench.model(**inputs).logits[0, -1])
    assert (float((found[0] - found[1]).abs().max()) > 1e-5) == left
    assert knockout.partial == left


def test_heads_are_those_of_layers_that_attend(bench):
    inputs = bench.inputs(clip(4))
    tokens = bench.roles(inputs, 4)
    with (
        pytest.raises(hooks.InterventionError, match=r"no heads \[\(0, 1\)\].*layers that attend: \[1, 3\]"),
        hooks.scale_heads(bench.model, {(0, 1): 0.0}),
    ):
        pytest.fail("the block must not be entered")
    with torch.no_grad(), hooks.head_means(bench.model, tokens) as means:
        bench.model(**inputs)
    assert sorted({layer for layer, _ in means}) == list(ATTENDING)


def test_a_row_is_not_followed_back_through_layers_without_rows(bench):
    tokens = bench.roles(bench.inputs(clip(4)), 4)
    with (
        pytest.raises(hooks.UnsupportedModelError, match=r"Only layers \[1, 3\] of 4"),
        hooks.relevance(bench.model, tokens),
    ):
        pytest.fail("the block must not be entered")


def test_sink_scores_have_the_layers_of_the_rows(bench):
    inputs = bench.inputs(clip(4))
    tokens = bench.roles(inputs, 4)
    sinks = hooks.Sinks(dimensions=(3, 7), threshold=1.0, first_layer=0)
    with torch.no_grad(), hooks.attention_rows(bench.model, tokens, "last", sinks=sinks) as captured:
        bench.model(**inputs)
    with torch.no_grad(), hooks.residual(bench.model, tokens, positions="visual") as stream:
        bench.model(**inputs)
    assert captured.layers == ATTENDING
    wanted = [
        np.abs(stream.at(layer)[:, [3, 7]]).max(-1) / np.sqrt((stream.at(layer) ** 2).mean(-1) + 1e-6)
        for layer in ATTENDING
    ]
    assert np.allclose(captured.sink_score(), wanted, rtol=1e-4), "scores of the layers that attend"


def test_head_writes_are_what_attention_adds(bench):
    inputs = bench.inputs(clip(4))
    tokens = bench.roles(inputs, 4)
    added: list[torch.Tensor] = []
    layers = bench.family.layers(bench.model)
    handles = [
        bench.family.attention(layers[layer]).register_forward_hook(
            lambda _module, _args, output: added.append(output[0][0, -1])
        )
        for layer in ATTENDING
    ]
    with torch.no_grad(), hooks.head_writes(bench.model, tokens) as writes:
        bench.model(**inputs)
    for handle in handles:
        handle.remove()
    assert writes.layers == ATTENDING
    error = np.abs(writes.vectors().sum(axis=1) - torch.stack(added).numpy()).max()
    assert error < 1e-5, f"heads of a layer do not add up to its attention: {error:.1e}"


def test_rows_of_generated_tokens(bench):
    """Against eager attention of the whole sequence, prompt and reply."""
    inputs = bench.inputs(clip(4))
    tokens = bench.roles(inputs, 4)
    with (
        torch.no_grad(),
        hooks.attention_rows(bench.model, tokens, "last", generated=True, keep_rows=True) as captured,
    ):
        said = bench.model.generate(**inputs, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    longer = {**inputs, "input_ids": said[:, :-1]}
    for name in ("attention_mask", "mm_token_type_ids"):
        fill = torch.full((1, 3), int(name == "attention_mask"))
        longer[name] = torch.cat([inputs[name], fill], dim=1)
    with torch.no_grad():
        found = bench.eager(**longer, output_attentions=True).attentions
    attentions = [one for one in found if one is not None]
    of_unit = [tokens.visual[tokens.unit_tokens(unit)] for unit in range(tokens.n_units)]
    rows = torch.stack(attentions)[:, 0, :, -4:].numpy()
    wanted = np.stack([rows[..., at].sum(-1) for at in of_unit], axis=-1)
    error = np.abs(captured.row_unit_mass() - wanted).max()
    assert captured.row_positions.tolist() == list(range(len(tokens) - 1, len(tokens) + 3))
    assert error < 1e-5, f"rows of the last token and three generated ones: {error:.1e}"
