"""Sink dimensions and scores against recomputation from the residual stream, and a planted sink."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hooks

TOLERANCE = 1e-5
HUGE = (5, 11)


def _map(bench, inputs):
    return hooks.token_map(bench.model, bench.processor, inputs)


@pytest.fixture
def planted(fresh):
    """A model whose first token and whose layer 1 make two dimensions huge: of some tokens by content."""

    def make(name):
        bench = fresh(name)
        text = bench.model.model.language_model
        with torch.no_grad():
            text.embed_tokens.weight[:, list(HUGE)] = 0.0
            first = bench.prompt(frames=4)["input_ids"][0, 0]
            text.embed_tokens.weight[first, list(HUGE)] = 40.0
        return bench

    return make


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen2_5_vl"])
def test_planted_dimensions_are_found(planted, name):
    bench = planted(name)
    tokens = _map(bench, bench.prompt(frames=4))
    sinks = hooks.find_sinks(bench.model, int(tokens.input_ids[0]))
    assert sinks.dimensions == HUGE
    width = bench.model.config.text_config.hidden_size
    assert sinks.threshold == pytest.approx(20 * np.sqrt(width / 4096))
    assert hooks.find_sinks(bench.model, int(tokens.input_ids[0]), threshold=1e3).dimensions == ()
    assert not any(module._forward_pre_hooks for module in bench.model.modules())


def test_the_first_token_is_the_same_in_every_prompt(bench):
    """The reason why dimensions do not depend on the item: the states of position 0 are those of it alone."""
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    with torch.no_grad(), hooks.residual(bench.model, tokens, positions=[0]) as stream:
        bench.model(**inputs)
    with torch.no_grad():
        alone = bench.model(input_ids=inputs["input_ids"][:, :1], output_hidden_states=True).hidden_states
    for layer in range(3):
        assert np.abs(stream.at(layer)[0] - alone[layer][0, 0].numpy()).max() <= TOLERANCE


def _phi(states, dimensions):
    return np.abs(states[..., dimensions]).max(-1) / np.sqrt((states.astype(float) ** 2).mean(-1) + 1e-6)


def test_scores_and_mass_against_the_residual_stream_and_eager_attention(bench, fresh):
    inputs = bench.prompt(frames=7)
    tokens = _map(bench, inputs)
    with torch.no_grad(), hooks.residual(bench.model, tokens, [0, 1, 2], positions="visual") as stream:
        bench.model(**inputs)
    phi = _phi(stream.states, [3, 9])
    sinks = hooks.Sinks((3, 9), threshold=float(np.median(phi)), first_layer=1)
    with (
        torch.no_grad(),
        hooks.attention_rows(
            bench.model, tokens, ("question", "last"), sinks=sinks, keep_rows=True
        ) as captured,
    ):
        observed = bench.model(**inputs).logits
    with torch.no_grad():
        plain = bench.model(**inputs).logits
        model = fresh(bench.name, "eager").model
        attention = torch.stack(model(**inputs, output_attentions=True).attentions)[:, 0].double().numpy()
    assert torch.equal(plain, observed)
    assert np.abs(captured.sink_score() - phi).max() <= TOLERANCE
    mask = phi > sinks.threshold
    mask[0] = False
    assert mask.any()
    assert not mask[1:].all()
    assert np.array_equal(sinks.of(captured.sink_score()), mask)
    each = attention[:, :, captured.row_positions][..., tokens.visual] * mask[:, None, None]
    assert np.abs(captured.row_sink_unit_mass() - tokens.unit_sum(each)).max() <= TOLERANCE
    for role in ("question", "last"):
        rows = attention[:, :, tokens.rows(role)][..., tokens.visual].mean(2)
        wanted = tokens.unit_sum(rows * mask[:, None])
        assert np.abs(captured.sink_unit_mass(role) - wanted).max() <= TOLERANCE
        # What can be made from the file alone for the mean over heads, at any threshold.
        filtered = tokens.unit_sum(captured.token_mass(role) * ~mask)
        per_head = captured.unit_mass(role) - captured.sink_unit_mass(role)
        assert np.abs(filtered - per_head.mean(1)).max() <= TOLERANCE


def test_generated_rows_have_sinks_too(bench):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    sinks = hooks.Sinks((3, 9), threshold=0.0, first_layer=0)
    with hooks.attention_rows(
        bench.model, tokens, "last", sinks=sinks, generated=True, keep_rows=True
    ) as captured:
        bench.model.generate(**inputs, max_new_tokens=4, do_sample=False, eos_token_id=None)
    assert captured.row_counts["generated"] == 3
    assert np.abs(captured.sink_unit_mass() - captured.unit_mass()).max() <= TOLERANCE
    assert np.abs(captured.row_sink_unit_mass() - captured.row_unit_mass()).max() <= TOLERANCE


def test_without_dimensions_nothing_is_a_sink(qwen3):
    inputs = qwen3.prompt(frames=4)
    tokens = _map(qwen3, inputs)
    with torch.no_grad(), hooks.sink_scores(qwen3.model, tokens, hooks.Sinks((), 1.0)) as scores:
        qwen3.model(**inputs)
    assert scores.score.shape == (3, tokens.n_visual)
    assert not scores.score.any()
    assert not scores.is_sink.any()


def test_misuse_is_told(qwen3):
    inputs = qwen3.prompt(frames=4)
    tokens = _map(qwen3, inputs)
    sinks = hooks.Sinks((1,), 1.0)
    with pytest.raises(hooks.CaptureError, match="no layer 3"):
        hooks.find_sinks(qwen3.model, 1, first_layer=3)
    with pytest.raises(hooks.CaptureError, match="share of layers"):
        hooks.find_sinks(qwen3.model, 1, share_of_layers=0)
    with pytest.raises(hooks.CaptureError, match="one sequence"):
        hooks.attention_rows(qwen3.model, [tokens, tokens], "last", sinks=sinks).__enter__()
    with torch.no_grad(), hooks.sink_scores(qwen3.model, tokens, sinks) as scores:
        with pytest.raises(hooks.CaptureError, match="are not there"):
            _ = scores.score
        qwen3.model(**inputs)
        with pytest.raises(hooks.CaptureError, match="twice"):
            qwen3.model(**inputs)
    with torch.no_grad(), hooks.attention_rows(qwen3.model, tokens, "last") as captured:
        qwen3.model(**inputs)
    with pytest.raises(hooks.CaptureError, match="find_sinks"):
        captured.sink_unit_mass()
