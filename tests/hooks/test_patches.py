"""Single visual tokens: every road out of some of them, and value-weighted attention on each."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hooks

from .conftest import OPTIONS, QUESTION

TOLERANCE = 2e-5


def mapped(bench):
    inputs = bench.prompt(frames=6)
    return inputs, hooks.token_map(bench.model, bench.processor, inputs, question=QUESTION, options=OPTIONS)


def test_every_later_position_but_the_patches_themselves(bench) -> None:
    _, tokens = mapped(bench)
    chosen = tokens.visual[[7, 2, 3]]
    edges = hooks.positions_to_everything(tokens, chosen)
    assert edges.keys.tolist() == sorted(chosen.tolist())
    real = np.flatnonzero(tokens.kind != hooks.Kind.PADDING)
    assert edges.queries.tolist() == [row for row in real if row > chosen.min() and row not in chosen]
    assert edges.generated
    # All of some units' tokens: their units without times and delimiters.
    units = hooks.units_to_everything(tokens, [0, 2], delimiters=False)
    same = hooks.positions_to_everything(
        tokens, np.flatnonzero(np.isin(tokens.unit, [0, 2]) & (tokens.row >= 0))
    )
    assert np.array_equal(same.keys, units.keys)
    assert np.array_equal(same.queries, units.queries)


@pytest.mark.parametrize("wrong", [[], [-1], [10**6], [2.5], np.array([False, True, True])])
def test_positions_that_are_not_there_are_refused(bench, wrong) -> None:
    _, tokens = mapped(bench)
    with pytest.raises(hooks.InterventionError, match="were asked for"):
        hooks.positions_to_everything(tokens, wrong)


def test_value_weighted_attention_by_patch(bench) -> None:
    """Adds up to that by unit, prompt rows and generated ones; one layer against its own values."""
    inputs, tokens = mapped(bench)
    values: dict[int, torch.Tensor] = {}
    layer = hooks.family_of(bench.model).layers(bench.model)[1]
    projection = hooks.family_of(bench.model).attention(layer).v_proj

    def keep(_module, _args, output) -> None:
        values.setdefault(1, output[0].double())

    handle = projection.register_forward_hook(keep)
    try:
        with hooks.attention_rows(
            bench.model, tokens, "last", value_weighted=True, generated=True, keep_rows=True
        ) as captured:
            bench.model.generate(**inputs, max_new_tokens=4, do_sample=False, eos_token_id=None)
    finally:
        handle.remove()
    assert captured.row_counts["generated"] == 3
    for role in ("last", "generated"):
        by_token, by_unit = captured.value_token_mass(role), captured.value_mass(role)
        error = np.abs(tokens.unit_sum(by_token) - by_unit.mean(1)).max()
        assert error <= TOLERANCE, f"{role} is off by {error}"
    heads = captured.heads
    n_kv = values[1].shape[-1] // hooks.family_of(bench.model).attention(layer).head_dim
    norms = values[1].unflatten(-1, (n_kv, -1)).norm(dim=-1).numpy()  # [position, kv_head]
    # One token a unit would be enough: mass of a unit lies between least and largest norm times attention.
    own = np.repeat(norms[tokens.visual], heads // n_kv, axis=1)  # [token, head]
    unit_mass = captured.unit_mass("last")[1]
    for unit in range(tokens.n_units):
        there = own[tokens.unit_tokens(unit)]
        mass = captured.value_token_mass("last")[1][tokens.unit_tokens(unit)].sum() * heads
        assert (unit_mass[:, unit] * there.min(0)).sum() - 1e-4 <= mass
        assert mass <= (unit_mass[:, unit] * there.max(0)).sum() + 1e-4


def test_value_weight_by_patch_is_asked_for(bench) -> None:
    inputs, tokens = mapped(bench)
    with torch.no_grad(), hooks.attention_rows(bench.model, tokens, "last") as captured:
        bench.model(**inputs)
    with pytest.raises(hooks.CaptureError, match="value_weighted was not asked for"):
        captured.value_token_mass()
    with (
        torch.no_grad(),
        hooks.attention_rows(bench.model, tokens, "last", value_weighted=True, token_mass=False) as captured,
    ):
        bench.model(**inputs)
    with pytest.raises(hooks.CaptureError, match="token_mass was not asked for"):
        captured.value_token_mass()
