"""Attribution against exact patches of small changes; and that it leaves the weights alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hooks

RIGHT, OTHERS = 30, (31, 32)


def _case(bench, size):
    clean = bench.prompt(frames=8)
    noise = torch.randn(clean["pixel_values_videos"].shape, generator=torch.Generator().manual_seed(0))
    corrupt = dict(clean, pixel_values_videos=clean["pixel_values_videos"] + size * noise)
    return clean, corrupt, hooks.token_map(bench.model, bench.processor, clean)


def _difference(logits):
    return logits[..., 0] - logits[..., 1:].max(axis=-1)


def _both(bench, size, **how):
    clean, corrupt, tokens = _case(bench, size)
    grid = hooks.patch_grid(bench.model, clean, corrupt, tokens, token_ids=(RIGHT, *OTHERS), **how)
    screen = hooks.attribute(bench.model, clean, corrupt, tokens, right=RIGHT, others=OTHERS, **how)
    assert (screen.layers, screen.sets) == (grid.layers, grid.sets)
    base = grid.corrupt if how.get("direction", "denoising") == "denoising" else grid.clean
    return grid, screen, _difference(grid.logits) - _difference(base)


@pytest.mark.parametrize("deepstack", ["with", "leak"])
@pytest.mark.parametrize("direction", ["denoising", "noising"])
def test_it_is_the_first_order_of_the_exact_effect(bench, deepstack, direction):
    """In float64, the error falls with the square of the change: a hundred times for a tenth of it."""
    bench.model.double()
    try:
        errors, effects = [], []
        for size in (1e-3, 1e-4):
            _, screen, exact = _both(bench, size, deepstack=deepstack, direction=direction)
            errors.append(np.abs(screen.effect - exact).max())
            effects.append(np.abs(exact).max())
    finally:
        bench.model.float()
    assert errors[0] / effects[0] < 0.2, f"{errors} of {effects}"
    assert errors[1] / effects[1] < 0.03, f"{errors} of {effects}"


def test_the_ends_are_those_of_plain_forwards(bench):
    grid, screen, _ = _both(bench, 1.0)
    assert screen.clean == pytest.approx(float(_difference(grid.clean)), abs=1e-6)
    assert screen.corrupt == pytest.approx(float(_difference(grid.corrupt)), abs=1e-6)


def test_sets_add_up_and_layers_stand_alone(bench):
    clean, corrupt, tokens = _case(bench, 1.0)
    how = {"right": RIGHT, "others": OTHERS}
    parts = hooks.attribute(
        bench.model, clean, corrupt, tokens, sets=hooks.position_sets(tokens, beside=False, roles=()), **how
    )
    whole = hooks.attribute(bench.model, clean, corrupt, tokens, sets={"video": tokens.visual}, **how)
    np.testing.assert_allclose(parts.effect.sum(axis=1), whole.effect[:, 0], rtol=1e-4, atol=1e-6)
    late = hooks.attribute(
        bench.model, clean, corrupt, tokens, sets={"video": tokens.visual}, layers=(2, 1), **how
    )
    np.testing.assert_allclose(late.effect[:, 0], whole.effect[[2, 1], 0], rtol=1e-4, atol=1e-6)
    assert np.abs(whole.effect).min() > 1e-6


def test_the_model_is_left_as_it_was(fresh):
    bench = fresh()
    clean, corrupt, tokens = _case(bench, 1.0)
    asked = [weight.requires_grad for weight in bench.model.parameters()]
    with torch.no_grad():
        before = bench.model(**clean).logits
    screen = hooks.attribute(bench.model, clean, corrupt, tokens, right=RIGHT, others=OTHERS)
    with hooks.reuse_vision(bench.model, entries=2), torch.inference_mode():
        bench.model(**clean), bench.model(**corrupt)
        # Features that were encoded without gradients, even in inference mode, serve all the same.
        with torch.inference_mode(mode=False):
            again = hooks.attribute(bench.model, clean, corrupt, tokens, right=RIGHT, others=OTHERS)
    np.testing.assert_allclose(again.effect, screen.effect, rtol=1e-5, atol=1e-7)
    assert [weight.requires_grad for weight in bench.model.parameters()] == asked
    assert all(weight.grad is None for weight in bench.model.parameters())
    layers = bench.model.model.language_model.layers
    assert not any(layer._forward_pre_hooks for layer in layers)
    with torch.no_grad():
        assert torch.equal(bench.model(**clean).logits, before)


def _rows_of_the_last_mlp(bench):
    """Positions that each forward of the last layer's MLP runs, noted without a hook on the module."""
    mlp, seen = bench.model.model.language_model.layers[-1].mlp, []
    plain = mlp.forward

    def forward(hidden):
        seen.append(hidden.shape[1])
        return plain(hidden)

    mlp.forward = forward
    return mlp, seen


@pytest.mark.parametrize("direction", ["denoising", "noising"])
def test_the_last_layer_runs_at_one_position_and_gives_the_same(bench, direction):
    """Against whole layers, which are run where something is attached that would miss positions."""
    clean, corrupt, tokens = _case(bench, 1.0)
    with torch.no_grad():
        bench.model(**clean, output_hidden_states=True)  # leaves idle hooks of transformers' own behind
    mlp, seen = _rows_of_the_last_mlp(bench)

    def screen(attached=None):
        handle = None if attached is None else attached.register_forward_hook(lambda *_: None)
        try:
            return hooks.attribute(
                bench.model, clean, corrupt, tokens, right=RIGHT, others=OTHERS, direction=direction
            )
        finally:
            if handle is not None:
                handle.remove()

    layers = bench.model.model.language_model.layers
    try:
        short = screen()
        assert seen == [1, 1]
        for part in (layers[-1].self_attn.o_proj, bench.model.model.language_model.norm, bench.model):
            seen.clear()
            whole = screen(part)
            assert seen == [len(tokens)] * 2
            np.testing.assert_allclose(short.effect, whole.effect, rtol=1e-4, atol=1e-6)
            assert (short.clean, short.corrupt) == pytest.approx((whole.clean, whole.corrupt), abs=1e-5)
    finally:
        del mlp.forward
    assert type(layers[-1]) is type(layers[0])
    last = np.abs(short.effect[-1])
    assert last.max() > 1e-6, "the last layer's keys and values carry effects too"


def test_edges_blocked_in_the_last_layer_stay_blocked(bench):
    """A knockout has rows of its own to see: whole layers then, and no effect past its block."""
    clean, corrupt, tokens = _case(bench, 1.0)
    sets = {"video": tokens.visual}
    with hooks.knock_out(bench.model, tokens, "video_to_everything", layers=2):
        cut = hooks.attribute(bench.model, clean, corrupt, tokens, right=RIGHT, others=OTHERS, sets=sets)
    free = hooks.attribute(bench.model, clean, corrupt, tokens, right=RIGHT, others=OTHERS, sets=sets)
    assert cut.effect[2, 0] == 0
    assert abs(free.effect[2, 0]) > 1e-6


def test_where_visual_features_enter_after_the_last_layer(fresh):
    """DeepStack adds them to positions that a last layer run at one would not have."""
    bench = fresh()
    text = bench.model.model.language_model
    text.layers = text.layers[:2]
    bench.model.config.text_config.num_hidden_layers = 2
    clean, corrupt, tokens = _case(bench, 1.0)
    sets = {"video": tokens.visual}
    found = hooks.attribute(bench.model, clean, corrupt, tokens, right=RIGHT, others=OTHERS, sets=sets)
    assert np.isfinite(found.effect).all()
    assert found.layers == (0, 1)


def test_refusals(bench):
    clean, corrupt, tokens = _case(bench, 1.0)
    for right, others in ((RIGHT, ()), (RIGHT, (RIGHT, 31))):
        with pytest.raises(hooks.InterventionError, match="right token"):
            hooks.attribute(bench.model, clean, corrupt, tokens, right=right, others=others)
    with pytest.raises(hooks.InterventionError, match="do not exist"):
        hooks.attribute(bench.model, clean, corrupt, tokens, right=RIGHT, others=OTHERS, layers=(7,))
    with pytest.raises(hooks.InterventionError, match="another input_ids"):
        hooks.attribute(bench.model, clean, bench.prompt(frames=6), tokens, right=RIGHT, others=OTHERS)
