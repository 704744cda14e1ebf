"""Models that cannot be run in parts: `hooks.prefix` of them runs whole prompts, to the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hooks
from hooks.whole_prompt import WholePrompt

from ..family_bench import FamilyBench, clip, make_bench

WHOLE = ("qwen3_5", "gemma4", "molmo2")


@pytest.fixture(params=WHOLE)
def bench(request: pytest.FixtureRequest) -> FamilyBench:
    return make_bench(request.param)


def test_models_that_keep_all_that_lies_behind_are_run_in_parts():
    bench = make_bench("qwen3_vl")
    with hooks.prefix(bench.model, bench.inputs(clip(2))) as held:
        assert not isinstance(held, WholePrompt)
        held.rerun(10)
    assert held.forwards < 1


def test_a_rerun_is_a_whole_forward_under_whatever_is_open(bench):
    inputs = bench.inputs(clip(2))
    tokens = bench.roles(inputs, 2)
    plain = bench.run(inputs).logits[0, -1]
    with hooks.prefix(bench.model, inputs, layers=[1]) as held:
        assert isinstance(held, WholePrompt)
        assert float((held.logits - plain).abs().max()) <= 1e-5 * float(plain.abs().max())
        again = held.rerun(int(tokens.question[0]), layer=1)
        with hooks.knock_out(bench.model, tokens, "video_to_last"):
            blocked = held.rerun(int(tokens.last[0]), layer=1)
        assert held.forwards == 2
        with pytest.raises(hooks.UnsupportedModelError, match="cannot follow"):
            held.follow([5], len(tokens))
        with pytest.raises(hooks.InterventionError, match="not in a prompt"):
            held.rerun(len(tokens))
    assert torch.equal(again, held.logits)
    with torch.no_grad(), hooks.knock_out(bench.model, tokens, "video_to_last"):
        wanted = bench.model(**inputs).logits[0, -1]
    assert float((blocked - wanted).abs().max()) <= 1e-5 * float(wanted.abs().max())
    assert float((blocked - plain).abs().max()) > 1e-4 * float(plain.abs().max())


def test_states_are_put_in_where_they_are_all_a_layer_knows(bench):
    inputs, other = bench.inputs(clip(2)), bench.inputs(clip(2, seed=1))
    wanted = bench.run(other).logits[0, -1]
    with hooks.prefix(bench.model, inputs, layers=[1]) as held:
        if bench.family.beside_stream(bench.model):
            states = torch.zeros(len(inputs["input_ids"][0]), 64)
            with pytest.raises(hooks.UnsupportedModelError, match="Block edges or heads instead"):
                held.rerun(0, layer=1, states=states)
            return
        with hooks.prefix(bench.model, other, layers=[1]) as source:
            states = source.states[1]
            whole = held.rerun(0, layer=1, states=states)
            end = held.rerun(len(states) - 1, layer=1, states=states[-1:])
        with pytest.raises(hooks.InterventionError, match="states for the"):
            held.rerun(3, layer=1, states=states)
    assert float((whole - wanted).abs().max()) <= 1e-5 * float(wanted.abs().max())
    assert float((end - wanted).abs().max()) > 1e-5 * float(wanted.abs().max())


def test_a_grid_by_whole_forwards_is_patch_by_patch():
    bench = make_bench("qwen3_5")
    inputs, other = bench.inputs(clip(4)), bench.inputs(clip(4, seed=1))
    tokens = bench.roles(inputs, 4)
    sets = {"unit:0": tokens.visual[tokens.unit_tokens(0)], "question": tokens.question}
    grid = hooks.patch_grid(bench.model, inputs, other, tokens, token_ids=[30, 31], sets=sets, layers=[0, 2])
    for row, layer in enumerate((0, 2)):
        for column, places in enumerate(sets.values()):
            one = hooks.patch(bench.model, inputs, other, tokens, layer, places)[[30, 31]]
            assert np.abs(grid.logits[row, column] - one).max() <= 1e-5 * np.abs(one).max()
    assert grid.forwards == 3, "a cell that changes nothing costs nothing: the question at layer 0"
