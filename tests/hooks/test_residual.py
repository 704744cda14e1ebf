"""The captured residual stream against transformers' own hidden states, and the lens against the logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hooks

TOLERANCE = 1e-5


def _map(bench, inputs):
    return hooks.token_map(bench.model, bench.processor, inputs)


def _plain(bench, inputs):
    with torch.no_grad():
        return bench.model(**inputs, output_hidden_states=True)


def _captured(bench, inputs, **options):
    with torch.no_grad(), hooks.residual(bench.model, _map(bench, inputs), **options) as stream:
        output = bench.model(**inputs)
    return stream, output


def _joined(features):
    return (features if isinstance(features, torch.Tensor) else torch.cat(list(features))).numpy()


def test_states_are_the_layers_inputs_with_deepstack(bench):
    """`hidden_states[k]` lacks what DeepStack adds after layer k - 1; added by hand, it is the capture."""
    inputs = bench.prompt(frames=7)
    tokens, layers = _map(bench, inputs), 3
    hidden = [state[0].numpy().copy() for state in _plain(bench, inputs).hidden_states[:layers]]
    stream, _ = _captured(bench, inputs)
    with torch.no_grad():
        encoded = bench.model.model.get_video_features(
            inputs["pixel_values_videos"], inputs["video_grid_thw"]
        )
    added = getattr(encoded, "deepstack_features", None) or ()
    assert len(added) == {"qwen3_vl": 2, "qwen2_5_vl": 0}[bench.name]
    for layer, features in enumerate(added):
        if layer + 1 < layers:
            before = np.abs(stream.at(layer + 1) - hidden[layer + 1]).max()
            assert before > 1e-3, "the addition must be large enough to tell"
            hidden[layer + 1][tokens.visual] += _joined(features)
    assert stream.layers == (0, 1, 2, 3)
    assert stream.deepstack == tuple(range(len(added)))
    assert stream.states.shape == (4, len(tokens), hidden[0].shape[1])
    assert stream.states.dtype == np.float32
    for layer in range(layers):
        error = np.abs(stream.at(layer) - hidden[layer]).max()
        assert error <= TOLERANCE, f"input of layer {layer}: {error:.2e}"


def test_the_last_state_is_before_the_norm(bench):
    inputs = bench.prompt(frames=4)
    plain = _plain(bench, inputs)
    stream, _ = _captured(bench, inputs, layers=[3])
    with torch.no_grad():
        normed = bench.model.model.language_model.norm(torch.from_numpy(stream.states[0]))
    assert torch.allclose(normed, plain.hidden_states[-1][0], atol=TOLERANCE)
    assert not torch.allclose(torch.from_numpy(stream.states[0]), plain.hidden_states[-1][0], atol=1e-2)


@pytest.mark.parametrize("sizes", [[(2, 3)], [(2, 3), (1, 2)]])
def test_units_are_the_mean_of_their_tokens(bench, sizes):
    inputs = bench.prompt(frames=[7, 4][: len(sizes)], sizes=sizes)
    tokens = _map(bench, inputs)
    whole, _ = _captured(bench, inputs)
    pooled, _ = _captured(bench, inputs, pool="unit")
    assert pooled.states.shape == (4, tokens.n_units, whole.states.shape[-1])
    assert pooled.positions is None
    for unit in range(tokens.n_units):
        own = whole.states[:, tokens.visual[tokens.unit_tokens(unit)]].mean(axis=1)
        assert np.abs(pooled.states[:, unit] - own).max() <= TOLERANCE


def test_chosen_positions_and_layers(bench):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    whole, _ = _captured(bench, inputs)
    some, _ = _captured(bench, inputs, layers=[2, 0], positions=("question", "last"))
    expected = np.concatenate([tokens.question, tokens.last])
    assert some.positions.tolist() == expected.tolist()
    assert some.layers == (2, 0)
    assert np.array_equal(some.states, whole.states[[2, 0]][:, expected])
    last, _ = _captured(bench, inputs, positions=[len(tokens) - 1])
    assert np.array_equal(last.states[:, 0], whole.states[:, -1])


def test_the_lens_at_the_last_layer_is_the_model(bench):
    inputs = bench.prompt(frames=4)
    stream, output = _captured(bench, inputs)
    logits = output.logits[0].double().numpy()
    ids = [3, 200, 11]
    seen = stream.unembed(ids, top=4)
    assert np.abs(seen.logits[-1] - logits[:, ids]).max() <= TOLERANCE
    normaliser = torch.logsumexp(output.logits[0].double(), -1).numpy()
    assert np.abs(seen.log_normaliser[-1] - normaliser).max() <= TOLERANCE
    probabilities = torch.softmax(output.logits[0].double(), -1).numpy()[:, ids]
    assert np.abs(np.exp(seen.log_probabilities[-1]) - probabilities).max() <= TOLERANCE
    greater = (logits[:, None, :] > logits[:, ids, None] + TOLERANCE).sum(-1)
    at_least = (logits[:, None, :] > logits[:, ids, None] - TOLERANCE).sum(-1)
    assert ((greater <= seen.rank[-1]) & (seen.rank[-1] <= at_least)).all()
    assert np.array_equal(seen.top_ids[-1, :, 0], logits.argmax(-1))
    assert (np.diff(seen.top_logits, axis=-1) <= 0).all()


def test_other_lenses(bench):
    inputs = bench.prompt(frames=4)
    stream, _ = _captured(bench, inputs, positions=("last",))
    weights = {
        "head": bench.model.lm_head.weight,
        "embedding": bench.model.get_input_embeddings().weight,
    }
    for lens, weight in weights.items():
        seen = stream.unembed([5], lens=lens)
        wanted = stream.states @ weight.detach().numpy().T
        assert np.abs(seen.logits - wanted[..., [5]]).max() <= TOLERANCE * np.abs(wanted).max()


def test_it_leaves_the_model_alone_and_composes(bench):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    with torch.no_grad():
        plain = bench.model(**inputs).logits
        with (
            hooks.residual(bench.model, tokens, pool="unit") as units,
            hooks.residual(bench.model, tokens, [3], positions="last") as last,
            hooks.attention_rows(bench.model, tokens, rows="last") as captured,
        ):
            observed = bench.model(**inputs).logits
    assert torch.equal(plain, observed)
    assert units.states.shape[:2] == (4, tokens.n_units)
    assert last.states.shape[:2] == (1, 1)
    assert captured.unit_mass("last").shape[0] == 3
    for module in bench.model.modules():
        assert not module._forward_pre_hooks


def test_generation_is_captured_at_its_prompt(bench):
    inputs = bench.prompt(frames=4)
    whole, _ = _captured(bench, inputs, positions="last")
    with hooks.residual(bench.model, _map(bench, inputs), positions="last") as stream:
        bench.model.generate(**inputs, max_new_tokens=3, do_sample=False)
    assert np.abs(stream.states - whole.states).max() <= TOLERANCE


def test_hooks_are_gone_after_an_exception(bench):
    inputs = bench.prompt(frames=4)
    with pytest.raises(KeyboardInterrupt), hooks.residual(bench.model, _map(bench, inputs)):
        raise KeyboardInterrupt
    assert not any(module._forward_pre_hooks for module in bench.model.modules())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"layers": [4]}, "do not exist"),
        ({"layers": [-1]}, "do not exist"),
        ({"layers": []}, "No layer"),
        ({"layers": "middle"}, "Unknown layers"),
        ({"positions": [10**6]}, "were asked for"),
        ({"positions": "answer"}, "No positions are called"),
        ({"positions": []}, "No position was asked for"),
        ({"pool": "unit", "positions": "last"}, "exclude"),
        ({"pool": "mean"}, "Unknown pooling"),
    ],
)
def test_what_does_not_exist_is_refused_before_the_forward(qwen3, options, told):
    inputs = qwen3.prompt(frames=4)
    with (
        pytest.raises(hooks.CaptureError, match=told),
        hooks.residual(qwen3.model, _map(qwen3, inputs), **options),
    ):
        raise AssertionError("opened")


def test_misuse_is_told(qwen3, padded_batch):
    inputs = qwen3.prompt(frames=4)
    tokens = _map(qwen3, inputs)
    with pytest.raises(hooks.SelfCheckError, match="never seen"), hooks.residual(qwen3.model, tokens):
        pass
    with torch.no_grad(), hooks.residual(qwen3.model, tokens, [0], positions="last") as stream:
        qwen3.model(**inputs)
        with pytest.raises(hooks.CaptureError, match="not been captured yet"):
            _ = stream.states
        with pytest.raises(hooks.CaptureError, match="passed twice"):
            qwen3.model(**inputs)
    batch = padded_batch(qwen3)
    rows = hooks.token_map(qwen3.model, qwen3.processor, batch, row=1)
    with (
        torch.no_grad(),
        pytest.raises(hooks.CaptureError, match="2 sequences"),
        hooks.residual(qwen3.model, rows),
    ):
        qwen3.model(**batch)
    for bad, told in (({"ids": [10**6]}, "does not exist"), ({"lens": "tuned"}, "Unknown lens")):
        with pytest.raises(hooks.CaptureError, match=told):
            stream.unembed(**bad)
    with pytest.raises(hooks.CaptureError, match="wide"):
        hooks.unembed(qwen3.model, np.zeros((2, 5), np.float32))
    with pytest.raises(hooks.UnsupportedModelError, match="no output head"):
        hooks.unembed(qwen3.model.model, stream.states)
