"""A held prompt's later positions against whole forwards of the same model."""

from __future__ import annotations

import weakref
from itertools import product

import numpy as np
import pytest
import torch

import hooks

TOLERANCE = 2e-6


def _case(bench, **options):
    inputs = bench.prompt(frames=8, **options)
    return inputs, hooks.token_map(bench.model, bench.processor, inputs)


def _logits(bench, inputs):
    with torch.no_grad():
        return bench.model(**inputs, use_cache=False).logits[0].float()


@pytest.mark.parametrize("chunk", [7, 1024])
def test_running_again_gives_a_forwards_logits(bench, chunk):
    inputs, tokens = _case(bench)
    plain = _logits(bench, inputs)[-1]
    boundary = int(tokens.visual[tokens.unit_first_token[2]])  # in the middle of what is a run in Qwen2.5
    with hooks.prefix(bench.model, inputs, layers=(0, 1, 2), chunk=chunk) as held:
        for first in (0, 1, boundary - 1, boundary, boundary + 1, len(tokens) - 1):
            for layer, last_alone in product((0, 1, 2), (False, True)):
                found = held.rerun(first, layer=layer, last_alone=last_alone)
                error = float((found - plain).abs().max())
                assert error <= TOLERANCE, f"from {first}, layer {layer}: {error:.2e} > {TOLERANCE}"


def test_states_put_in_are_those_that_run(bench):
    """One position's state exchanged at layer 1: against a forward with a hook on that layer."""
    inputs, tokens = _case(bench)
    place = int(tokens.visual[4])
    other = torch.randn(
        bench.model.config.text_config.hidden_size, generator=torch.Generator().manual_seed(1)
    )

    def put(_module, args):
        changed = args[0].clone()
        changed[0, place] = other
        return changed, *args[1:]

    plain = _logits(bench, inputs)[-1]
    handle = bench.model.model.language_model.layers[1].register_forward_pre_hook(put)
    expected = _logits(bench, inputs)[-1]
    handle.remove()
    with hooks.prefix(bench.model, inputs, layers=(1,)) as held:
        states = held.states[1][place - 3 :].clone()
        states[3] = other
        found = held.rerun(place - 3, layer=1, states=states)
        assert float((held.rerun(place - 3, layer=1) - plain).abs().max()) <= TOLERANCE, (
            "the held run changed"
        )
    error = float((found - expected).abs().max())
    assert error <= TOLERANCE, f"{error:.2e} > {TOLERANCE}"
    assert float((expected - plain).abs().max()) > 1e-3, "the test needs a state that matters"


def test_other_questions_follow_the_same_video(bench):
    inputs, tokens = _case(bench)
    cut = int(tokens.visual.max()) + 2
    other = bench.prompt(frames=8, question="And what stands at the beginning?", options=("A. a", "B. b"))
    expected = _logits(bench, other)[cut:]
    with hooks.prefix(bench.model, inputs) as held:
        found = held.follow(other["input_ids"][0, cut:], cut)
        again = held.follow(inputs["input_ids"][0, cut:], cut)
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) <= TOLERANCE
    assert float((again - _logits(bench, inputs)[cut:]).abs().max()) <= TOLERANCE


def test_text_behind_the_whole_prompt(bench):
    inputs, tokens = _case(bench)
    more = torch.tensor([40, 41, 42])
    longer = dict(inputs)
    longer["input_ids"] = torch.cat([inputs["input_ids"], more[None]], dim=1)
    longer["attention_mask"] = torch.ones_like(longer["input_ids"])
    longer["mm_token_type_ids"] = torch.nn.functional.pad(inputs["mm_token_type_ids"], (0, 3))
    with hooks.prefix(bench.model, inputs) as held:
        found = held.follow(more, len(tokens))
    assert float((found - _logits(bench, longer)[-3:]).abs().max()) <= TOLERANCE


def test_rows_are_captured_behind_a_held_prefix(bench):
    """A registered attention function sees the rows that run, with the offset of what is held."""
    inputs, tokens = _case(bench)
    with torch.no_grad(), hooks.attention_rows(bench.model, tokens, "question") as whole:
        bench.model(**inputs)
    with (
        hooks.prefix(bench.model, inputs, chunk=5) as held,
        hooks.attention_rows(bench.model, tokens, "question") as captured,
    ):
        held.rerun(int(tokens.question.min()) - 2)
    error = np.abs(captured.unit_mass() - whole.unit_mass()).max()
    assert error <= 1e-5, f"{error:.2e}"


def test_cost_is_counted(bench):
    inputs, tokens = _case(bench)
    with hooks.prefix(bench.model, inputs, layers=(0, 2)) as held:
        assert held.forwards == 0, "the check is not a cell"
        held.rerun(0)
        held.rerun(len(tokens) - 6, layer=2)
    assert held.forwards == pytest.approx(1 + 6 / len(tokens) / 3)


def test_the_model_is_as_it_was_after_an_exception(fresh):
    bench = fresh()
    inputs, _ = _case(bench)
    before = _logits(bench, inputs)
    text = bench.model.model.language_model
    layers = text.layers

    def fail(*_):
        raise RuntimeError("in the middle")

    with hooks.prefix(bench.model, inputs, layers=(1,)) as held:
        handle = layers[2].register_forward_pre_hook(fail)
        with pytest.raises(RuntimeError, match="in the middle"):
            held.rerun(3, layer=1)
        handle.remove()
        assert text.layers is layers
        assert not any(layer._forward_pre_hooks for layer in layers)
    assert torch.equal(_logits(bench, inputs), before)


def test_a_model_that_adds_in_another_way_is_found_out(fresh):
    """What is added to a layer's output by somebody else is not run again: the check says so."""
    bench = fresh("qwen2_5_vl")
    inputs, tokens = _case(bench)
    whole = len(tokens)

    def add(_module, _args, output):
        return output + 0.5 if output.shape[1] == whole else output

    handle = bench.model.model.language_model.layers[1].register_forward_hook(add)
    with pytest.raises(hooks.SelfCheckError, match="plain forward"), hooks.prefix(bench.model, inputs):
        pass
    handle.remove()
    assert not bench.model.model.language_model._forward_pre_hooks


def test_refusals(bench, padded_batch):
    inputs, tokens = _case(bench)
    with (
        pytest.raises(hooks.InterventionError, match="2 prompts"),
        hooks.prefix(bench.model, padded_batch(bench)),
    ):
        pass
    with (
        pytest.raises(hooks.InterventionError, match=r"\[3\] do not exist"),
        hooks.prefix(bench.model, inputs, layers=(0, 3)),
    ):
        pass
    with hooks.prefix(bench.model, inputs) as held:
        with pytest.raises(hooks.InterventionError, match="not held"):
            held.rerun(0, layer=1)
        with pytest.raises(hooks.InterventionError, match="not in a prompt"):
            held.rerun(len(tokens))
        with pytest.raises(hooks.InterventionError, match="2 states"):
            held.rerun(0, states=held.states[0][:2])
        with pytest.raises(hooks.InterventionError, match="all pictures"):
            held.follow([30], int(tokens.visual.max()))
        with pytest.raises(hooks.InterventionError, match="holds pictures"):
            held.follow(inputs["input_ids"][0], int(tokens.visual.max()) + 1)


def test_the_last_layer_runs_at_one_position(bench):
    """With `last_alone`, its MLP sees one position, the others' keys and values all the same."""
    inputs, _ = _case(bench)
    seen = []
    mlp = bench.model.model.language_model.layers[2].mlp
    with hooks.prefix(bench.model, inputs, layers=(0, 2)) as held:
        handle = mlp.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[1]))
        held.rerun(5, last_alone=True)
        held.rerun(5, layer=2, last_alone=True)
        handle.remove()
    assert seen == [1, 1]


def test_keys_and_values_are_let_go_of_at_the_end(bench):
    """Dropped, not filled with zeros as `reset` of a cache did before transformers 5.20."""
    inputs, _ = _case(bench)
    with hooks.prefix(bench.model, inputs) as held:
        keys = [weakref.ref(layer.keys) for layer in held._layers]
        values = [weakref.ref(layer.values) for layer in held._layers]
        assert all(one() is not None for one in (*keys, *values))
    assert all(one() is None for one in (*keys, *values))
