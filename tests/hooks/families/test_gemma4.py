"""Gemma 4: sliding windows, layers that share keys and values, wide heads, capped logits, cut times."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import Gemma4ForConditionalGeneration

import hooks
from diagnostics.models.miniatures import miniature
from hooks import Kind

from ...family_bench import Clip, FamilyBench, clip, make_bench

WINDOW = 64
"""Tokens a sliding layer sees back here: about one frame."""
SLIDING, SHARED = (0, 2), (3, 4)


@pytest.fixture(scope="module", autouse=True)
def takes_video() -> None:
    """Transformers 5.20 refuses every video: what the model needs is not passed on to its encoder."""
    small = make_bench("gemma4")
    try:
        small.run(small.inputs(clip(1)))
    except ValueError as error:
        if not transformers.__version__.startswith("5.20.") or "num_frames_per_video" not in str(error):
            raise
        pytest.skip(f"transformers {transformers.__version__} takes no video: {error}")


@pytest.fixture(scope="module")
def bench() -> FamilyBench:
    return make_bench("gemma4")


def remade(**text: Any) -> FamilyBench:
    """The miniature with another language model, its weights random."""
    small = miniature("gemma4")
    tokenizer = small.tokenizer()
    config = small.config(tokenizer)
    shape = config.text_config.to_dict() | text
    remade = type(config)(**(config.to_dict() | {"text_config": shape}))
    torch.manual_seed(3)
    model = Gemma4ForConditionalGeneration._from_config(remade, attn_implementation="sdpa").eval()
    family = hooks.family_of(model)
    with torch.no_grad():  # less sharp, so that rounding stays rounding: see `make_bench`
        for layer in family.layers(model):
            layer.self_attn.q_norm.weight.mul_(0.5)
    return FamilyBench("gemma4", model, small.processor(tokenizer), family)


@pytest.fixture(scope="module")
def narrow() -> FamilyBench:
    return remade(sliding_window=WINDOW)


@pytest.fixture(scope="module")
def large() -> FamilyBench:
    """As the large checkpoints are: visual tokens see each other, nothing beside the residual stream."""
    return remade(
        sliding_window=WINDOW,
        use_bidirectional_attention="vision",
        num_kv_shared_layers=0,
        hidden_size_per_layer_input=0,
    )


def eager_rows(bench: FamilyBench, inputs: dict[str, Any]) -> np.ndarray:
    """[layer, head, query, key]"""
    with torch.no_grad():
        found = bench.eager(**inputs, output_attentions=True).attentions
    return torch.stack(found)[:, 0].numpy()


def by_unit(attention: np.ndarray, tokens: hooks.TokenMap) -> np.ndarray:
    parts = [tokens.visual[tokens.unit_tokens(unit)] for unit in range(tokens.n_units)]
    return np.stack([attention[..., at].sum(-1) for at in parts], axis=-1)


@pytest.mark.parametrize("name", ["narrow", "large"])
def test_rows_in_windows(name, request):
    bench = request.getfixturevalue(name)
    inputs = bench.inputs(clip(4))
    tokens = bench.roles(inputs, 4)
    middle = tokens.visual[tokens.unit_tokens(1)][:: tokens.tokens_per_unit[1] // 2][:2]
    rows = np.unique(np.concatenate([middle, tokens.question, tokens.last]))
    with torch.no_grad():
        plain = bench.model(**inputs).logits
        with hooks.attention_rows(bench.model, tokens, rows, keep_rows=True) as captured:
            observed = bench.model(**inputs).logits
    assert torch.equal(plain, observed)
    wanted = by_unit(eager_rows(bench, inputs)[:, :, rows], tokens)
    error = np.abs(captured.row_unit_mass() - wanted).max()
    assert error < 1e-5, f"{error:.1e}"
    last = captured.row_unit_mass()[:, :, -1]
    assert (last[list(SLIDING), :, :2] == 0).all(), "far frames are out of the window"
    assert (last[1] > 0).all(), "and in sight of full attention"
    ahead = by_unit(eager_rows(bench, inputs)[:, :, middle[:1]], tokens)[0, :, 0, 1]
    if name == "large":
        behind = eager_rows(bench, inputs)[0, :, middle[0], : middle[0] + 1].sum(-1)
        assert (behind < 0.999).all(), "a frame's tokens see later ones of their own frame"
        assert (ahead > 0).all()


def test_generated_rows_behind_a_cache_that_forgets(narrow):
    """Against eager attention of prompt and reply as one sequence."""
    inputs = narrow.inputs(clip(3))
    tokens = narrow.roles(inputs, 3)
    with (
        torch.no_grad(),
        hooks.attention_rows(
            narrow.model, tokens, ("question", "last"), generated=True, keep_rows=True
        ) as captured,
    ):
        said = narrow.model.generate(**inputs, max_new_tokens=5, min_new_tokens=5, do_sample=False)
    longer = {**inputs, "input_ids": said[:, :-1]}
    for name in ("attention_mask", "mm_token_type_ids"):
        longer[name] = torch.cat([inputs[name], torch.full((1, 4), int(name == "attention_mask"))], dim=1)
    attention = eager_rows(narrow, longer)
    wanted = by_unit(attention[:, :, captured.row_positions], tokens)
    error = np.abs(captured.row_unit_mass() - wanted).max()
    assert captured.row_counts["generated"] == 4
    assert error < 1e-5, f"{error:.1e}"
    visual = attention[:, :, captured.row_positions][..., tokens.visual].sum(-1)
    assert np.abs(captured.row_rest_mass() - (1 - visual)).max() < 1e-5
    assert (captured.unit_mass("generated")[list(SLIDING), :, 0] == 0).all()


def test_layers_that_share_keys_compute_every_row_under_a_capture(bench):
    """`generate` runs them for the last position alone, from some version on."""
    if not hasattr(bench.family.text_model(bench.model), "_maybe_slice_kv_shared_inputs"):
        pytest.skip(f"transformers {transformers.__version__} has no such short cut")
    inputs = bench.inputs(clip(3))
    tokens = bench.roles(inputs, 3)
    queries: dict[int, int] = {}
    layers = bench.family.layers(bench.model)

    def count(module: Any, _args: tuple, kwargs: dict) -> None:
        queries[module.layer_idx] = kwargs["hidden_states"].shape[1]

    handles = [layer.self_attn.register_forward_pre_hook(count, with_kwargs=True) for layer in layers]
    with torch.no_grad():
        plain = bench.model(**inputs, logits_to_keep=1, use_cache=False).logits
        assert {layer for layer, count in queries.items() if count == 1} == set(SHARED)
        with hooks.attention_rows(bench.model, tokens, ("question", "last"), keep_rows=True) as captured:
            observed = bench.model(**inputs, logits_to_keep=1, use_cache=False).logits
        assert set(queries.values()) == {len(tokens)}
        bench.model(**inputs, logits_to_keep=1, use_cache=False)
    for handle in handles:
        handle.remove()
    assert {layer for layer, count in queries.items() if count == 1} == set(SHARED), "the short cut is back"
    assert plain.shape == observed.shape
    assert float((plain - observed).abs().max()) <= 1e-5 * float(plain.abs().max())
    wanted = by_unit(eager_rows(bench, inputs)[:, :, captured.row_positions], tokens)
    assert np.abs(captured.row_unit_mass() - wanted).max() < 1e-5


def test_a_block_that_leaves_a_window_empty_is_refused(narrow):
    inputs = narrow.inputs(clip(3))
    tokens = narrow.roles(inputs, 3)
    near = hooks.Edges(tokens.last, np.arange(len(tokens) - WINDOW, len(tokens)))
    with (
        torch.no_grad(),
        pytest.raises(hooks.InterventionError, match="no key left in its layer's window"),
        hooks.knock_out(narrow.model, tokens, near, layers=0),
    ):
        narrow.model(**inputs)
    with torch.no_grad(), hooks.knock_out(narrow.model, tokens, near, layers=1) as knockout:
        narrow.model(**inputs)
    assert 0 < knockout.blocked_mass[0] < 1


def test_heads_are_as_wide_as_their_layer_has_them(bench):
    inputs = bench.inputs(clip(2))
    tokens = bench.roles(inputs, 2)
    with torch.no_grad(), hooks.head_means(bench.model, tokens) as means:
        plain = bench.model(**inputs).logits
    assert [len(means[layer, 0]) for layer in range(5)] == [16, 32, 16, 32, 32]
    with torch.no_grad(), hooks.mean_ablate_heads(bench.model, {(1, 2): means[1, 2]}):
        changed = bench.model(**inputs).logits
    assert float((plain - changed).abs().max()) > 0
    with (
        pytest.raises(hooks.InterventionError, match="Give 16 finite numbers"),
        hooks.mean_ablate_heads(bench.model, {(0, 2): means[1, 2]}),
    ):
        pytest.fail("the block must not be entered")


def test_head_writes_are_what_attention_adds_scaled_by_what_follows(bench):
    model = copy.deepcopy(bench.model)
    layers = bench.family.layers(model)
    for number, layer in enumerate(layers):
        layer.layer_scalar.fill_(0.5 + 0.25 * number)
    inputs = bench.inputs(clip(2))
    tokens = bench.roles(inputs, 2)
    added: list[torch.Tensor] = []
    handles = [
        layer.post_attention_layernorm.register_forward_hook(
            lambda _module, _args, output: added.append(output[0, -1])
        )
        for layer in layers
    ]
    with torch.no_grad(), hooks.head_writes(model, tokens) as writes:
        model(**inputs)
    for handle in handles:
        handle.remove()
    scales = [float(np.prod([0.5 + 0.25 * later for later in range(layer, 5)])) for layer in range(5)]
    wanted = torch.stack(added).numpy() * np.array(scales)[:, None]
    error = np.abs(writes.vectors().sum(axis=1) - wanted).max()
    assert error < 1e-5 * np.abs(wanted).max(), f"{error:.1e}"
    assert writes.attribution([5, 9]).shape == (5, 4, 2)


def test_the_lens_caps_logits_as_the_model_does(bench):
    model = copy.deepcopy(bench.model)
    model.config.text_config.final_logit_softcapping = 0.05
    inputs = bench.inputs(clip(1))
    with torch.no_grad(), hooks.residual(model, bench.map(inputs, 1), layers=[5], positions="last") as stream:
        logits = model(**inputs).logits[0, -1].numpy()
    assert 0.04 < np.abs(logits).max() <= 0.05
    seen = stream.unembed(range(8))
    assert np.abs(seen.logits[0, 0] - logits[:8]).max() < 1e-6


def test_patching_is_refused_where_layers_read_more_than_the_stream(bench, large):
    inputs = bench.inputs(clip(2))
    tokens = bench.roles(inputs, 2)
    with pytest.raises(hooks.UnsupportedModelError, match=r"an embedding of each token.*keys and values"):
        hooks.patch(bench.model, inputs, inputs, tokens, 1, tokens.question)
    assert large.family.beside_stream(large.model) is None


@pytest.mark.parametrize(
    ("indices", "told", "notice"),
    [
        ([0, 10, 20], ["00:00", "00:03", "00:06"], None),
        ([0, 1, 4], ["00:00", "00:00", "00:01"], "shared_times: 1 of 2"),
        ([180, 18_000, 360_000], ["01:00", "100:00", "2000:00"], None),
    ],
)
def test_times_are_minutes_and_seconds(bench, indices, told, notice):
    shown = Clip(clip(3).pixels, np.array(indices), source_fps=3.0, source_frames=400_000)
    inputs = bench.inputs(shown)
    tokens = bench.map(inputs, 3)
    for unit, text in enumerate(told):
        at = np.flatnonzero((tokens.unit == unit) & (tokens.kind == Kind.TIMESTAMP))
        # The space before a later frame's time may be one token with its first sign.
        assert bench.tokenizer.decode(tokens.input_ids[at]).strip() == text
    assert tokens.unit_shown_seconds.tolist() == [index // 3 for index in indices]
    found = bench.family.notices(shown, bench.model, inputs)
    assert bool(found) == bool(notice)
    assert not notice or found[0].startswith(notice)


def test_frames_that_were_sampled_again_are_refused(bench):
    with pytest.raises(hooks.TokenMapError, match="5 frames were given, the processor shows 4"):
        bench.map(bench.inputs(clip(4)), 5)


def test_sound_is_refused(bench):
    inputs = bench.inputs(clip(2))
    inputs["input_ids"][0, -2] = bench.model.config.audio_token_id
    with pytest.raises(hooks.TokenMapError, match="Sound is not mapped"):
        bench.map(inputs, 2)
