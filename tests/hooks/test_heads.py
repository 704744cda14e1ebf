"""Heads silenced, scaled and replaced, against edited weights and a plain computation."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import hooks

DIM = 16


def _map(bench, inputs):
    return hooks.token_map(bench.model, bench.processor, inputs)


def _layers(model):
    return model.model.language_model.layers


def _logits(model, inputs):
    with torch.no_grad():
        return model(**inputs).logits


def test_scaling_a_head_is_scaling_its_columns_of_the_output_projection(bench):
    inputs = bench.prompt(frames=5)
    plain = _logits(bench.model, inputs)
    with hooks.scale_heads(bench.model, {(0, 1): 0.0, (0, 2): 0.0, (2, 3): -1.5}):
        found = _logits(bench.model, inputs)
    edited = copy.deepcopy(bench.model)
    with torch.no_grad():
        for layer, head, factor in ((0, 1, 0.0), (0, 2, 0.0), (2, 3, -1.5)):
            columns = slice(head * DIM, (head + 1) * DIM)
            _layers(edited)[layer].self_attn.o_proj.weight[:, columns] *= factor
    wanted = _logits(edited, inputs)
    error = float((found - wanted).abs().max())
    assert error <= 1e-5 * float(wanted.abs().max()), f"{error:.2e}"
    assert float((plain - wanted).abs().max()) > 1e-3
    assert torch.equal(_logits(bench.model, inputs), plain)


def test_a_factor_of_one_changes_no_bit(bench):
    inputs = bench.prompt(frames=4)
    with hooks.scale_heads(bench.model, {(1, 2): 1.0}):
        found = _logits(bench.model, inputs)
    assert torch.equal(found, _logits(bench.model, inputs))


def _outputs(bench, inputs, layer):
    """What enters a layer's output projection, [position, head, dim], by a plain hook."""
    seen = []
    handle = _layers(bench.model)[layer].self_attn.o_proj.register_forward_pre_hook(
        lambda _m, args: seen.append(args[0][0].detach().unflatten(-1, (4, DIM)).clone())
    )
    try:
        _logits(bench.model, inputs)
    finally:
        handle.remove()
    return seen[0]


@pytest.mark.parametrize("where", ["all", "some"])
def test_mean_ablation_puts_the_mean_in_place(bench, where):
    inputs = bench.prompt(frames=5)
    tokens = _map(bench, inputs)
    positions = None if where == "all" else tokens.question
    plain = _outputs(bench, inputs, 1)
    with hooks.mean_ablate_heads(bench.model, [(1, 0), (1, 3)], positions):
        found = _outputs(bench, inputs, 1)  # a plain hook, added later, sees what the ablation left
    index = slice(None) if positions is None else positions
    for head in range(4):
        wanted = plain[:, head].clone()
        if head in (0, 3):
            wanted[index] = plain[index, head].mean(dim=0)
        assert float((found[:, head] - wanted).abs().max()) <= 1e-6
    assert float(plain[:, 0].std(dim=0).max()) > 1e-3, "the test needs outputs that vary"


def _padded(bench):
    """One prompt, and the same behind nine positions of padding."""
    alone = bench.prompt(frames=2, size=(1, 2))
    pads = {"input_ids": bench.tokenizer.pad_token_id, "attention_mask": 0, "mm_token_type_ids": 0}
    padded = {name: torch.nn.functional.pad(alone[name], (9, 0), value=pad) for name, pad in pads.items()}
    return alone, dict(alone) | padded


def test_padding_is_left_out_of_the_mean(bench):
    alone, padded = _padded(bench)
    with hooks.mean_ablate_heads(bench.model, [(1, 0), (2, 3)]):
        wanted, found = _logits(bench.model, alone), _logits(bench.model, padded)
    error = float((found[:, 9:] - wanted).abs().max()) / float(wanted.abs().max())
    assert error <= 2e-5, f"{error:.2e}"
    with (
        pytest.raises(hooks.InterventionError, match="are padding"),
        hooks.mean_ablate_heads(bench.model, [(1, 0)], np.arange(9)),
    ):
        _logits(bench.model, padded)


def test_each_sequence_of_a_padded_batch_has_its_own_mean(bench, padded_batch):
    batch, alone = padded_batch(bench), bench.prompt(frames=2, size=(1, 2))
    length = alone["input_ids"].shape[1]
    with hooks.mean_ablate_heads(bench.model, [(0, 1), (2, 3)]):
        wanted, found = _logits(bench.model, alone), _logits(bench.model, batch)[:1, -length:]
    error = float((found - wanted).abs().max()) / float(wanted.abs().max())
    assert error <= 2e-5, f"{error:.2e}"


def test_padding_is_known_from_a_mask_that_is_made_already(bench):
    """As `generate` hands one on with a static cache: [batch, one, query, key], with empty places behind."""
    alone, padded = _padded(bench)
    cache = {"max_new_tokens": 1, "do_sample": False, "cache_implementation": "static"}
    options = cache | {"output_logits": True, "return_dict_in_generate": True}
    with hooks.mean_ablate_heads(bench.model, [(1, 0), (2, 3)]):
        wanted = _logits(bench.model, alone)[:, -1]
        found = bench.model.generate(**padded, **options).logits[0]
    error = float((found - wanted).abs().max()) / float(wanted.abs().max())
    assert error <= 2e-5, f"{error:.2e}"


def test_means_over_several_prompts_stand_in_for_a_head(bench):
    prompts = [bench.prompt(frames=5, question=question) for question in ("Which colour?", "What colour?")]
    maps = [_map(bench, inputs) for inputs in prompts]
    same = [one for one in prompts if len(one["input_ids"][0]) == len(prompts[0]["input_ids"][0])]
    with hooks.head_means(bench.model, maps[0], maps[0].last) as means:
        for inputs in same:
            _logits(bench.model, inputs)
    assert means.count == len(same)
    assert len(means) == 12
    wanted = np.mean([_outputs(bench, inputs, 2)[-1, 3].numpy() for inputs in same], axis=0)
    assert np.abs(means[2, 3] - wanted).max() <= 1e-6
    with hooks.mean_ablate_heads(bench.model, {(2, 3): means[2, 3]}, maps[0].last):
        found = _outputs(bench, prompts[0], 2)
    plain = _outputs(bench, prompts[0], 2)
    assert np.abs(found[-1, 3].numpy() - wanted).max() <= 1e-6
    assert torch.equal(found[:-1], plain[:-1])


def test_with_knockouts_and_captures(bench):
    """A head that is silenced can be kept from anything: its attention still shows, its effect is gone."""
    inputs = bench.prompt(frames=5)
    tokens = _map(bench, inputs)
    heads = dict.fromkeys([(layer, 2) for layer in range(3)], 0.0)
    with hooks.scale_heads(bench.model, heads):
        silenced = _logits(bench.model, inputs)
        with (
            torch.no_grad(),
            hooks.knock_out(bench.model, tokens, "video_to_everything", heads=[2]),
            hooks.attention_rows(bench.model, tokens, "last") as captured,
        ):
            both = bench.model(**inputs).logits
    assert torch.equal(silenced, both)
    assert (captured.unit_mass("last")[:, 2] == 0).all()
    assert (captured.unit_mass("last")[:, [0, 1, 3]] > 0).all()


def test_an_exception_inside_leaves_nothing_behind(bench):
    inputs = bench.prompt(frames=4)
    plain = _logits(bench.model, inputs)
    with (
        pytest.raises(RuntimeError, match="induced"),
        hooks.scale_heads(bench.model, {(0, 0): 0.0}),
        hooks.mean_ablate_heads(bench.model, [(1, 0)]),
    ):
        raise RuntimeError("induced")
    assert torch.equal(_logits(bench.model, inputs), plain)
    assert not any(layer.self_attn.o_proj._forward_pre_hooks for layer in _layers(bench.model))


@pytest.mark.parametrize(
    ("attach", "message"),
    [
        (lambda m: hooks.scale_heads(m, {(3, 0): 0.0}), r"no heads \[\(3, 0\)\]"),
        (lambda m: hooks.scale_heads(m, {(0, -1): 0.0}), r"no heads \[\(0, -1\)\]"),
        (lambda m: hooks.scale_heads(m, {}), "No heads"),
        (lambda m: hooks.scale_heads(m, {(0, 0): float("nan")}), "not all finite"),
        (lambda m: hooks.mean_ablate_heads(m, [(0, 4)]), r"no heads \[\(0, 4\)\]"),
        (lambda m: hooks.mean_ablate_heads(m, {(0, 0): np.zeros(3)}), r"shape \(3,\)"),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_forward(bench, attach, message):
    with pytest.raises(hooks.InterventionError, match=message), attach(bench.model):
        pytest.fail("the block must not be entered")


def test_positions_and_forwards_that_are_missing_are_refused(bench):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    with (
        pytest.raises(hooks.InterventionError, match="not all in a forward"),
        hooks.mean_ablate_heads(bench.model, [(0, 0)], [len(tokens)]),
    ):
        _logits(bench.model, inputs)
    with (
        pytest.raises(hooks.SelfCheckError, match=r"Layers \[1\] were never run"),
        hooks.scale_heads(bench.model, {(1, 0): 0.0}),
    ):
        pass
    with (
        pytest.raises(hooks.SelfCheckError, match="never run"),
        hooks.head_means(bench.model, tokens),
    ):
        pass
    with pytest.raises(hooks.CaptureError, match="Positions"), hooks.head_means(bench.model, tokens, [-1]):
        pass
