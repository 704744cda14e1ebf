"""Rollout, relevancy and token activation against autograd and products of full eager matrices."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import numpy as np
import pytest
import torch

import hooks

TOLERANCE = 1e-4
ANSWER = 65


def _map(bench, inputs):
    return hooks.token_map(bench.model, bench.processor, inputs)


def _eager(bench, inputs, fresh, target=ANSWER):
    """Attention [layer, head, query, key] of the eager model and its gradient of one logit, by autograd."""
    model = fresh(bench.name, "eager").model
    output = model(**inputs, output_attentions=True)
    gradients = torch.autograd.grad(output.logits[0, -1, target], output.attentions)
    stack = lambda parts: torch.stack([part[0] for part in parts]).detach().double()  # noqa: E731
    return stack(output.attentions), stack(gradients)


def _last_row(matrices):
    """The last row of the product of full matrices [layer, query, key], the last layer on the left."""
    whole = torch.eye(matrices.shape[-1], dtype=torch.float64)
    for matrix in matrices:
        whole = matrix @ whole
    return whole[-1].numpy()


def _asked(bench, inputs, tokens, target=ANSWER):
    with hooks.relevance(bench.model, tokens) as found:
        logits = bench.model(**inputs, logits_to_keep=1).logits
        return found.relevancy(logits[0, -1, target]), found.rollout(), logits.detach()


@pytest.mark.parametrize("prompt", [{"frames": 7}, {"frames": [4, 3], "sizes": [(2, 3), (1, 2)]}])
def test_against_products_of_full_matrices(bench, fresh, prompt):
    inputs = bench.prompt(**prompt)
    tokens = _map(bench, inputs)
    relevancy, rollout, _ = _asked(bench, inputs, tokens)
    attention, gradient = _eager(bench, inputs, fresh)
    one = torch.eye(attention.shape[-1], dtype=torch.float64)
    expected = _last_row(one + (attention * gradient).clamp(min=0).mean(1))
    error = np.abs(relevancy - expected).max() / expected[:-1].max()
    assert error <= TOLERANCE, f"relevancy: {error:.2e} of its largest value"
    assert expected[tokens.visual].max() > 1e-3 * expected[:-1].max(), "the video must have a part in it"
    expected = _last_row((one + attention.mean(1)) / 2)
    assert np.abs(rollout - expected).max() <= TOLERANCE
    assert rollout.sum() == pytest.approx(1.0, abs=1e-5)


def test_sums_by_unit(bench):
    inputs = bench.prompt(frames=7)
    tokens = _map(bench, inputs)
    values = np.arange(len(tokens), dtype=np.float64)
    with hooks.relevance(bench.model, tokens, gradients=False) as found:
        bench.model(**inputs)
        units = found.units(values)
    wanted = [values[(tokens.unit == u) & (tokens.row >= 0)].sum() for u in range(tokens.n_units)]
    assert units.tolist() == wanted


def test_several_targets_of_one_forward_and_any_row(qwen3, fresh):
    inputs = qwen3.prompt(frames=4)
    tokens = _map(qwen3, inputs)
    with hooks.relevance(qwen3.model, tokens) as found:
        logits = qwen3.model(**inputs).logits[0, -1]
        first, second = (found.relevancy(logits[token]) for token in (ANSWER, ANSWER + 1))
    assert np.array_equal(second, _asked(qwen3, inputs, tokens, ANSWER + 1)[0])
    assert np.abs(first - second).max() > 1e-6
    row = int(tokens.question[2])
    with hooks.relevance(qwen3.model, tokens, row=row, gradients=False) as found:
        qwen3.model(**inputs)
        rollout = found.rollout()
    attention, _ = _eager(qwen3, inputs, fresh)
    one = torch.eye(attention.shape[-1], dtype=torch.float64)
    whole = one
    for matrix in attention.mean(1):
        whole = (one + matrix) / 2 @ whole
    assert np.abs(rollout - whole[row].numpy()).max() <= TOLERANCE
    assert rollout[row + 1 :].sum() == 0


def test_small_chunks_change_nothing(bench, monkeypatch):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    whole = _asked(bench, inputs, tokens)
    monkeypatch.setattr(sys.modules["hooks.relevance"], "ROW_CHUNK", 5)  # the package has the function there
    for one, other in zip(whole, _asked(bench, inputs, tokens), strict=True):
        assert np.abs(np.asarray(one) - np.asarray(other)).max() <= 1e-6


def test_the_model_is_as_it_was_after_an_exception_too(bench):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    learnt = [parameter.requires_grad for parameter in bench.model.parameters()]
    with torch.no_grad():
        plain = bench.model(**inputs, logits_to_keep=1).logits
    observed = _asked(bench, inputs, tokens)[2]
    assert torch.equal(plain, observed)
    with pytest.raises(RuntimeError, match="stop"), hooks.relevance(bench.model, tokens):
        raise RuntimeError("stop")
    assert [parameter.requires_grad for parameter in bench.model.parameters()] == learnt
    assert all(parameter.grad is None for parameter in bench.model.parameters())
    assert bench.model.config.text_config._attn_implementation == "sdpa"
    with torch.no_grad():
        assert torch.equal(plain, bench.model(**inputs, logits_to_keep=1).logits)


def test_it_works_inside_no_grad_and_inference_mode_and_beside_a_capture(bench):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    alone = _asked(bench, inputs, tokens)[0]
    with torch.no_grad():
        assert np.array_equal(_asked(bench, inputs, tokens)[0], alone)
    with torch.inference_mode(), hooks.attention_rows(bench.model, tokens, "last") as captured:
        assert np.array_equal(_asked(bench, inputs, tokens)[0], alone)
    assert captured.unit_mass("last").shape[-1] == tokens.n_units


@pytest.mark.parametrize("first", ["scale", "relevance"])
def test_a_scaled_head_has_its_share_of_the_gradient_whoever_came_first(bench, fresh, first):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    scale = hooks.scale_heads(bench.model, {(1, 2): 0.25})
    kept = hooks.relevance(bench.model, tokens)
    with ExitStack() as stack:
        opened = {
            name: stack.enter_context({"scale": scale, "relevance": kept}[name])
            for name in sorted(("scale", "relevance"), key=lambda name: name != first)
        }
        logits = bench.model(**inputs, logits_to_keep=1).logits
        found = opened["relevance"].relevancy(logits[0, -1, ANSWER])
    other = fresh(bench.name, "eager").model
    with torch.no_grad():
        columns = other.model.language_model.layers[1].self_attn.o_proj.weight.unflatten(1, (4, -1))
        columns[:, 2] *= 0.25
    output = other(**inputs, output_attentions=True)
    gradients = torch.autograd.grad(output.logits[0, -1, ANSWER], output.attentions)
    products = [(a[0] * g[0]).clamp(min=0).mean(0) for a, g in zip(output.attentions, gradients, strict=True)]
    one = torch.eye(len(tokens), dtype=torch.float64)
    expected = _last_row(one + torch.stack(products).detach().double())
    assert np.abs(found - expected).max() / expected[:-1].max() <= TOLERANCE
    assert np.abs(found - _asked(bench, inputs, tokens)[0]).max() / expected[:-1].max() > 10 * TOLERANCE


def test_rows_are_those_of_the_blocked_model(bench):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    plain = _asked(bench, inputs, tokens)
    with hooks.knock_out(bench.model, tokens, "video_to_everything", delimiters=False):
        relevancy, rollout, logits = _asked(bench, inputs, tokens)
    assert plain[0][tokens.visual].max() > 0
    assert relevancy[tokens.visual].max() == rollout[tokens.visual].max() == 0
    assert rollout.sum() == pytest.approx(1.0, abs=1e-5)
    assert not torch.equal(logits, plain[2])


def test_what_has_no_single_meaning_is_refused(qwen3):
    inputs = qwen3.prompt(frames=4)
    tokens = _map(qwen3, inputs)
    with pytest.raises(hooks.CaptureError, match="outside"), hooks.relevance(qwen3.model, tokens, row=10_000):
        pass
    with pytest.raises(hooks.SelfCheckError, match="never passed"), hooks.relevance(qwen3.model, tokens):
        pass
    with hooks.relevance(qwen3.model, tokens, gradients=False) as found:
        logits = qwen3.model(**inputs).logits[0, -1]
        with pytest.raises(hooks.CaptureError, match="No gradients"):
            found.relevancy(logits[0])
        with pytest.raises(hooks.CaptureError, match="twice"):
            qwen3.model(**inputs)
    with hooks.relevance(qwen3.model, tokens) as found:
        logits = qwen3.model(**inputs).logits[0, -1]
        for wrong in (logits, torch.tensor(1.0), logits[0].detach()):
            with pytest.raises(hooks.CaptureError, match="no scalar of the graph"):
                found.relevancy(wrong)
    with pytest.raises(hooks.CaptureError, match="the map has"), hooks.relevance(qwen3.model, tokens):
        qwen3.model(**qwen3.prompt(frames=2))


def test_token_activation_against_full_logits(bench):
    inputs = bench.prompt(frames=7)
    tokens = _map(bench, inputs)
    with torch.no_grad(), hooks.token_activation(bench.model, tokens, ANSWER) as found:
        logits = bench.model(**inputs).logits[0].double().numpy()
    context = np.concatenate([tokens.question, tokens.options])
    seen, places = set(), []
    for place in context.tolist():
        token = int(tokens.input_ids[place])
        if token != ANSWER and token not in seen:
            places.append(place)
        seen.add(token)
    own = np.maximum(logits[tokens.visual, ANSWER], 0)
    weights = np.maximum(logits[places, ANSWER], 0)
    maps = np.maximum(logits[tokens.visual][:, tokens.input_ids[places]], 0)
    mean = maps @ (weights / weights.sum())
    scale, *_ = np.linalg.lstsq(mean[:, None], own, rcond=None)
    expected = np.maximum(own - scale[0] * mean, 0)
    assert found.interference == pytest.approx(scale[0], rel=1e-4)
    assert np.abs(found.tokens - expected).max() <= TOLERANCE * expected.max()
    assert expected.max() > 0
    assert np.abs(found.units - tokens.unit_sum(expected)).max() <= TOLERANCE * expected.sum()


def test_token_activation_without_a_context_is_the_lens(qwen3):
    inputs = qwen3.prompt(frames=4)
    tokens = _map(qwen3, inputs)
    with (
        torch.no_grad(),
        hooks.token_activation(qwen3.model, tokens, ANSWER, context=np.array([], int)) as found,
    ):
        logits = qwen3.model(**inputs).logits[0]
    assert found.interference == 0.0
    expected = logits[tokens.visual, ANSWER].clamp(min=0).numpy()
    assert np.abs(found.tokens - expected).max() <= 1e-5


def test_token_activation_refuses_what_it_cannot_map(qwen3):
    inputs = qwen3.prompt(frames=4)
    tokens = _map(qwen3, inputs)
    with (
        pytest.raises(hooks.CaptureError, match="vocabulary"),
        hooks.token_activation(qwen3.model, tokens, 10**6),
    ):
        pass
    with (
        pytest.raises(hooks.CaptureError, match="Context positions"),
        hooks.token_activation(qwen3.model, tokens, 1, context=np.array([10_000])),
    ):
        pass
    with (
        pytest.raises(hooks.SelfCheckError, match="No forward"),
        hooks.token_activation(qwen3.model, tokens, 1),
    ):
        pass
    with torch.no_grad(), hooks.token_activation(qwen3.model, tokens, 1) as found:
        with pytest.raises(hooks.CaptureError, match="not been made"):
            _ = found.tokens
        qwen3.model(**inputs)
        with pytest.raises(hooks.CaptureError, match="second forward"):
            qwen3.model(**inputs)
