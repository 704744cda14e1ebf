"""Knockout against eager attention with minus infinity on the same edges, written by plain loops."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import StaticCache

import hooks

TOLERANCE = 2e-5
VIDEO = {hooks.Kind.VIDEO, hooks.Kind.IMAGE}
BESIDE = {hooks.Kind.DELIMITER, hooks.Kind.TIMESTAMP}


@pytest.fixture(scope="module")
def eager():
    """The same weights under the eager implementation, once a family."""
    made = {}

    def of(bench):
        if bench.name not in made:
            made[bench.name] = copy.deepcopy(bench.model)
            made[bench.name].set_attn_implementation("eager")
        return made[bench.name]

    return of


def _map(bench, inputs, **options):
    return hooks.token_map(
        bench.model, bench.processor, inputs, options=["A. red", "B. deep green"], **options
    )


def _pairs(tokens, name, delimiters=True):
    """The edges of a path as a boolean matrix [query, key], position by position."""
    n = len(tokens)
    of_unit = [
        int(tokens.unit[i]) if tokens.kind[i] in VIDEO | (BESIDE if delimiters else set()) else -1
        for i in range(n)
    ]
    roles = {role: set(tokens.rows(role).tolist()) for role in ("question", "options", "last")}
    first = int(tokens.visual[0])
    wanted = np.zeros((n, n), dtype=bool)
    for q in range(n):
        for k in range(q + 1):
            video = of_unit[k] >= 0
            text = tokens.kind[q] == hooks.Kind.TEXT and q > first
            wanted[q, k] = {
                "cross_unit": video and of_unit[q] > of_unit[k],
                "video_to_question": video and q in roles["question"],
                "video_to_options": video and q in roles["options"],
                "video_to_last": video and q in roles["last"],
                "video_to_rest": video and text and not any(q in role for role in roles.values()),
                "video_to_everything": video and of_unit[q] < 0,
                "question_to_last": k in roles["question"] and q in roles["last"],
                "options_to_last": k in roles["options"] and q in roles["last"],
                "last_to_last": k in roles["last"] and q in roles["last"],
            }[name]
    return wanted


def _eager_logits(model, inputs, blocked, layers, heads=None):
    """Logits and attention [layer, head, query, key] of the eager model with edges at minus infinity."""
    n = blocked.shape[0]
    least = torch.finfo(torch.float32).min
    plain = torch.full((n, n), least).triu(1)
    mask = plain.repeat(4, 1, 1)
    for head in range(4) if heads is None else heads:
        mask[head] = plain.masked_fill(torch.from_numpy(blocked), least)

    def before(_module, args, kwargs):
        return args, kwargs | {"attention_mask": mask[None]}

    handles = [
        model.model.language_model.layers[layer].self_attn.register_forward_pre_hook(before, with_kwargs=True)
        for layer in layers
    ]
    try:
        with torch.no_grad():
            output = model(**inputs, output_attentions=True)
    finally:
        for handle in handles:
            handle.remove()
    return output.logits, torch.stack(output.attentions)[:, 0].double().numpy()


def _expect_equal(found, wanted, what):
    scale = float(wanted.abs().max())
    error = float((found - wanted).abs().max())
    assert error <= TOLERANCE * scale, f"{what}: {error:.2e} > {TOLERANCE * scale:.2e}"


@pytest.mark.parametrize("name", list(hooks.PATHS))
def test_every_path_equals_eager_attention_at_minus_infinity(bench, eager, name):
    inputs = bench.prompt(frames=5)
    tokens = _map(bench, inputs)
    with torch.no_grad():
        plain = bench.model(**inputs).logits
        with hooks.knock_out(bench.model, tokens, name) as knockout:
            found = bench.model(**inputs).logits
        after = bench.model(**inputs).logits
    wanted, _ = _eager_logits(eager(bench), inputs, _pairs(tokens, name), range(3))
    _expect_equal(found, wanted, name)
    matters = float((wanted - plain).abs().max()) / float(plain.abs().max())
    assert matters > 5 * TOLERANCE, "the test needs edges that matter"
    assert np.isfinite(knockout.blocked_mass).all()
    assert (knockout.blocked_mass > 0).all()
    assert torch.equal(plain, after)


@pytest.mark.parametrize("delimiters", [True, False])
@pytest.mark.parametrize("name", ["cross_unit", "video_to_everything"])
def test_times_and_delimiters_are_in_or_out(bench, eager, name, delimiters):
    inputs = bench.prompt(frames=5)
    tokens = _map(bench, inputs)
    with torch.no_grad(), hooks.knock_out(bench.model, tokens, name, delimiters=delimiters):
        found = bench.model(**inputs).logits
    wanted, _ = _eager_logits(eager(bench), inputs, _pairs(tokens, name, delimiters), range(3))
    _expect_equal(found, wanted, name)
    sizes = [hooks.edge_count(hooks.path_edges(tokens, name, delimiters=either)) for either in (True, False)]
    assert sizes[0] != sizes[1]


def test_some_layers_and_heads_and_captured_rows_in_both_nesting_orders(bench, eager):
    inputs = bench.prompt(frames=5)
    tokens = _map(bench, inputs)
    blocked = _pairs(tokens, "video_to_question") | _pairs(tokens, "question_to_last")
    wanted, attention = _eager_logits(eager(bench), inputs, blocked, (1, 2), (0, 3))
    paths = ("video_to_question", "question_to_last")
    outside = hooks.knock_out(bench.model, tokens, paths, layers=(1, 2), heads=(0, 3))
    inside = hooks.knock_out(bench.model, tokens, paths, layers=(1, 2), heads=(0, 3))
    everything = np.arange(len(tokens))
    with torch.no_grad():
        with outside, hooks.attention_rows(bench.model, tokens, everything, keep_rows=True) as first:
            found = bench.model(**inputs).logits
        with hooks.attention_rows(bench.model, tokens, everything, keep_rows=True) as second, inside:
            again = bench.model(**inputs).logits
    _expect_equal(found, wanted, "two heads of two layers")
    assert torch.equal(found, again)
    for captured in (first, second):
        by_unit = np.stack(
            [
                attention[..., (tokens.unit == unit) & (tokens.row >= 0)].sum(-1)
                for unit in range(tokens.n_units)
            ],
            axis=-1,
        )
        assert np.abs(captured.row_unit_mass() - by_unit).max() <= 1e-5
        assert captured.max_row_sum_error <= 1e-5
        question = captured.row_unit_mass()[:, :, tokens.question].max(axis=(2, 3))
        assert (question[1:, [0, 3]] == 0).all()
        assert (question[1:, [1, 2]] > 0).all()
        assert (question[0] > 0).all()


def test_several_knockouts_at_once_block_what_any_of_them_blocks(bench, eager):
    inputs = bench.prompt(frames=5)
    tokens = _map(bench, inputs)
    units = hooks.units_to_everything(tokens, [1])
    first = hooks.knock_out(bench.model, tokens, units, layers=range(2))
    second = hooks.knock_out(bench.model, tokens, "video_to_last", heads=(1,))
    with torch.no_grad(), first, second:
        found = bench.model(**inputs).logits
    n = len(tokens)
    evidence = np.zeros((n, n), dtype=bool)
    evidence[np.ix_(units.queries, units.keys)] = True
    evidence &= np.tri(n, dtype=bool)
    last = _pairs(tokens, "video_to_last")
    model = eager(bench)
    least = torch.finfo(torch.float32).min

    def masks(layer):
        mask = torch.full((n, n), least).triu(1).repeat(4, 1, 1)
        if layer < 2:
            mask[:, torch.from_numpy(evidence)] = least
        mask[1, torch.from_numpy(last)] = least
        return mask[None]

    handles = [
        layer.self_attn.register_forward_pre_hook(
            lambda _m, args, kwargs, i=i: (args, kwargs | {"attention_mask": masks(i)}), with_kwargs=True
        )
        for i, layer in enumerate(model.model.language_model.layers)
    ]
    try:
        with torch.no_grad():
            wanted = model(**inputs).logits
    finally:
        for handle in handles:
            handle.remove()
    _expect_equal(found, wanted, "two knockouts")
    assert {tokens.unit[k] for k in units.keys} == {1}
    later = (tokens.unit > 1) & (tokens.row >= 0)
    assert np.isin(np.flatnonzero(later), units.queries).all(), "later units are kept from it too"


def test_the_end_of_a_prompt_over_a_cache(bench):
    inputs = bench.prompt(frames=5)
    tokens = _map(bench, inputs)
    cut = int(tokens.question[3])  # queries of the path stand on both sides
    times = {name: inputs[name] for name in ("second_per_grid_ts",) if name in inputs}
    grids = {"video_grid_thw": inputs["video_grid_thw"]} | times
    positions, _ = bench.model.model.get_rope_index(inputs["input_ids"], inputs["mm_token_type_ids"], **grids)
    first = dict(inputs) | {
        name: inputs[name][:, :cut] for name in ("input_ids", "attention_mask", "mm_token_type_ids")
    }
    rest = {"input_ids": inputs["input_ids"][:, cut:], "position_ids": positions[..., cut:]}
    paths = ("video_to_question", "video_to_last")
    with torch.no_grad():
        with hooks.knock_out(bench.model, tokens, paths):
            whole = bench.model(**inputs, position_ids=positions).logits[:, cut:]
        with hooks.knock_out(bench.model, tokens, paths) as knockout:
            cache = bench.model(**first, position_ids=positions[..., :cut], use_cache=True).past_key_values
            parts = bench.model(**rest, past_key_values=cache).logits
    _expect_equal(parts, whole, "in parts")
    assert np.isfinite(knockout.blocked_mass).all()
    with torch.no_grad():
        cache = bench.model(**first, position_ids=positions[..., :cut], use_cache=True).past_key_values
        with (
            pytest.raises(hooks.SelfCheckError, match=r"3 in all\) never passed layer 0"),
            hooks.knock_out(bench.model, tokens, "video_to_question"),
        ):
            bench.model(**rest, past_key_values=cache)


@pytest.mark.parametrize("spare", [0, 2, 300])
def test_the_end_of_a_prompt_over_a_static_cache(bench, spare):
    """A piece stands where its mask says, not at the end of the cache's places."""
    inputs = bench.prompt(frames=5)
    tokens = _map(bench, inputs)
    times = {name: inputs[name] for name in ("second_per_grid_ts",) if name in inputs}
    grids = {"video_grid_thw": inputs["video_grid_thw"]} | times
    positions, _ = bench.model.model.get_rope_index(inputs["input_ids"], inputs["mm_token_type_ids"], **grids)
    cuts = [0, int(tokens.question[3]), int(tokens.last[-1]), len(tokens)]
    name = hooks.last_alone.cache_argument(bench.model.model.language_model)
    cache = StaticCache(config=bench.model.config.text_config, max_cache_len=len(tokens) + spare)
    paths = ("video_to_question", "video_to_last")
    with torch.no_grad():
        with hooks.knock_out(bench.model, tokens, paths):
            whole = bench.model(**inputs, position_ids=positions).logits[:, -1]
        with hooks.knock_out(bench.model, tokens, paths) as knockout:
            for start, end in pairwise(cuts):
                piece = {key: inputs[key][:, start:end] for key in ("input_ids", "mm_token_type_ids")}
                piece |= {"position_ids": positions[..., start:end], "use_cache": True, name: cache}
                if start == 0:
                    piece |= grids | {"pixel_values_videos": inputs["pixel_values_videos"]}
                parts = bench.model(**piece).logits[:, -1]
    _expect_equal(parts, whole, "in pieces")
    assert (knockout.blocked_mass > 0).all()


class _Largest(TorchDispatchMode):
    """Notes the greatest number of elements that an operation made; views of something else are not made."""

    found = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        held = {one.untyped_storage().data_ptr() for one in args if isinstance(one, torch.Tensor)}
        for one in output if isinstance(output, tuple | list) else [output]:
            made = isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() not in held
            if made and one.dtype == torch.float32:
                self.found = max(self.found, one.numel())
        return output


def test_the_check_makes_no_float32_copy_of_all_keys(bench, monkeypatch):
    """One row is checked: at 100,000 positions of an 8B model all heads' keys would be 1.6 GB a layer."""
    inputs = bench.prompt(frames=5)
    tokens = _map(bench, inputs)
    check, seen = hooks.Knockout._check, []

    def watched(self, call, *args):
        bare = hooks.attention_calls.AttentionCall(
            call.layer, call.query, call.key.bfloat16(), call.value.bfloat16(),
            call.mask, call.scaling, call.blocked,
        )  # fmt: skip
        with _Largest() as largest:
            check(self, bare, *args)
        seen.append((largest.found, max(call.query.shape[1] * call.key.shape[2], call.key[0, 0].numel())))
        return 0.5

    monkeypatch.setattr(hooks.Knockout, "_check", watched)
    monkeypatch.setattr(hooks.knockout, "rounding", lambda _output: 1.0)  # keys were rounded above
    with torch.no_grad(), hooks.knock_out(bench.model, tokens, "video_to_question"):
        bench.model(**inputs)
    assert len(seen) == 3
    assert all(0 < found <= allowed for found, allowed in seen), seen


def test_decode_steps_are_kept_from_the_video_too(bench, eager):
    inputs = bench.prompt(frames=5)
    tokens = _map(bench, inputs)
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "output_logits": True}
    positions = []
    handle = bench.model.model.language_model.register_forward_pre_hook(
        lambda _m, _a, kwargs: positions.append(kwargs["position_ids"]), with_kwargs=True
    )
    try:
        with hooks.knock_out(bench.model, tokens, "video_to_everything"):
            found = bench.model.generate(**inputs, **options, return_dict_in_generate=True)
    finally:
        handle.remove()
    n, steps = len(tokens), 3
    longer = torch.cat([inputs["input_ids"], found.sequences[:, n : n + steps]], dim=1)
    types = torch.nn.functional.pad(inputs["mm_token_type_ids"], (0, steps))
    blocked = np.zeros((n + steps, n + steps), dtype=bool)
    blocked[:n, :n] = _pairs(tokens, "video_to_everything")
    blocked[n:, np.flatnonzero(tokens.unit >= 0)] = True
    given = dict(inputs) | {"input_ids": longer, "mm_token_type_ids": types}
    given |= {"attention_mask": torch.ones_like(longer), "position_ids": torch.cat(positions, dim=-1)}
    wanted, _ = _eager_logits(eager(bench), given, blocked, range(3))
    _expect_equal(torch.stack(found.logits, dim=1), wanted[:, n - 1 :], "four steps")


def test_left_padding_is_left_alone(bench, padded_batch):
    inputs = padded_batch(bench)
    short = {"input_ids", "attention_mask", "mm_token_type_ids"}
    alone = bench.prompt(frames=2, size=(1, 2))
    padded = dict(alone) | {name: inputs[name][:1] for name in short}
    maps = [_map(bench, one) for one in (alone, padded)]
    logits = []
    with torch.no_grad():
        for one, tokens in zip((alone, padded), maps, strict=True):
            with hooks.knock_out(bench.model, tokens, "video_to_everything"):
                logits.append(bench.model(**one).logits[:, -1])
    _expect_equal(logits[1], logits[0], "padded")


def test_gradients_flow_through_the_recomputed_rows(bench, eager):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    with hooks.knock_out(bench.model, tokens, ("video_to_last", "cross_unit"), layers=1):
        found = _gradients(bench.model, inputs)
    n = len(tokens)
    mask = torch.full((n, n), torch.finfo(torch.float32).min).triu(1)
    blocked = _pairs(tokens, "video_to_last") | _pairs(tokens, "cross_unit")
    mask[torch.from_numpy(blocked)] = torch.finfo(torch.float32).min
    model = eager(bench)
    handle = model.model.language_model.layers[1].self_attn.register_forward_pre_hook(
        lambda _m, args, kwargs: (args, kwargs | {"attention_mask": mask[None, None]}), with_kwargs=True
    )
    try:
        wanted = _gradients(model, inputs)
    finally:
        handle.remove()
    for one, other in zip(found, wanted, strict=True):
        _expect_equal(one, other, "gradient")


def _gradients(model, inputs):
    """Of one logit, by the weights of layer 1's queries, keys and values."""
    attention = model.model.language_model.layers[1].self_attn
    weights = [part.weight for part in (attention.q_proj, attention.k_proj, attention.v_proj)]
    return torch.autograd.grad(model(**inputs).logits[0, -1, 5], weights)


def test_a_random_control_of_the_same_size(bench):
    inputs = bench.prompt(frames=9)
    tokens = _map(bench, inputs)
    evidence = np.flatnonzero((tokens.unit == 1) & (tokens.row >= 0))
    edges = hooks.Edges(tokens.question, evidence)
    (same,) = hooks.random_edges_like(tokens, edges, seed=3, rows="same")
    assert np.array_equal(same.queries, edges.queries)
    assert same.count() == edges.count()
    assert not np.isin(same.keys, edges.keys).any()
    assert (tokens.row[same.keys] >= 0).all(), "video for video"
    (again,) = hooks.random_edges_like(tokens, edges, seed=3, rows="same")
    (other,) = hooks.random_edges_like(tokens, edges, seed=4, rows="same")
    assert np.array_equal(same.keys, again.keys)
    assert not np.array_equal(same.keys, other.keys)
    for name in hooks.PATHS:
        path = hooks.path_edges(tokens, name)
        drawn = hooks.random_edges_like(tokens, path, seed=5)
        wanted = hooks.edge_count(path)
        assert abs(hooks.edge_count(drawn) - wanted) <= wanted / 8, name
        assert all((one.keys.max() < one.queries.min()) for one in drawn), "no row loses itself"
        with torch.no_grad(), hooks.knock_out(bench.model, tokens, drawn):
            bench.model(**inputs)
    whole = hooks.path_edges(tokens, "video_to_question")
    with pytest.raises(hooks.InterventionError, match='rows="any"'):
        hooks.random_edges_like(tokens, whole, seed=0, rows="same")


def test_windows_of_layers():
    assert hooks.layer_window(5, 3, 12) == (4, 5, 6)
    assert hooks.layer_window(5, 4, 12) == (3, 4, 5, 6)
    assert hooks.layer_window(0, 9, 6) == (0, 1, 2, 3, 4)
    assert hooks.layer_window(5, 3, 8, "inverse") == (0, 1, 2, 3, 7)
    assert hooks.layer_window(5, 3, 8, "top_down") == (5, 6, 7)
    assert hooks.layer_window(2, 3, 8, "bottom_up") == (0, 1, 2)
    for wrong in ((8, 3, 8), (-1, 3, 8), (2, 0, 8)):
        with pytest.raises(hooks.InterventionError):
            hooks.layer_window(*wrong)
    with pytest.raises(hooks.InterventionError, match="No layer lies outside"):
        hooks.layer_window(1, 9, 3, "inverse")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edges": "video_to_answer"}, "no path 'video_to_answer'"),
        ({"edges": []}, "No edges"),
        ({"edges": "video_to_last", "layers": 3}, "layers 0 to 2"),
        ({"edges": "video_to_last", "layers": ()}, "layers 0 to 2"),
        ({"edges": "video_to_last", "layers": "late"}, "'late' is no layer"),
        ({"edges": "video_to_last", "heads": [4]}, "heads 0 to 3"),
    ],
)
def test_what_does_not_exist_is_refused_before_any_forward(bench, options, message):
    tokens = _map(bench, bench.prompt(frames=4))
    with (
        pytest.raises(hooks.InterventionError, match=message),
        hooks.knock_out(bench.model, tokens, **options),
    ):
        pytest.fail("the block must not be entered")


def test_impossible_edges_are_refused(bench):
    tokens = _map(bench, bench.prompt(frames=4))
    n = len(tokens)
    for make, message in (
        (lambda: hooks.Edges([n - 1], np.arange(n)), "no key left"),
        (lambda: hooks.Edges([3], [n - 1]), "nothing would be blocked"),
        (lambda: hooks.Edges([n], [0]), f"of {n}"),
        (lambda: hooks.Edges([], [0]), "no queries"),
        (lambda: hooks.Edges([3], [0.5]), "whole positions"),
        (lambda: hooks.units_to_everything(tokens, [2]), "units 0 to 1"),
    ):
        with (
            pytest.raises(hooks.InterventionError, match=message),
            hooks.knock_out(bench.model, tokens, make()),
        ):
            pytest.fail("the block must not be entered")
    half = hooks.Edges([n - 1], np.arange(n // 2))
    other = hooks.Edges([n - 1], np.arange(n // 2, n))
    with (
        hooks.attention_calls.attached(bench.model, hooks.family_of(bench.model), watcher=_Nothing()),
        pytest.raises(hooks.InterventionError, match="no key left"),
        hooks.knock_out(bench.model, tokens, [half, other]),
    ):
        pytest.fail("the block must not be entered")
    assert not hooks.attention_calls._ROUTES


class _Nothing:
    def observe(self, call):
        pass


def test_an_exception_inside_leaves_nothing_behind(bench):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    with torch.no_grad():
        plain = bench.model(**inputs).logits
        with (
            pytest.raises(RuntimeError, match="induced"),
            hooks.attention_rows(bench.model, tokens, "last"),
            hooks.knock_out(bench.model, tokens, "video_to_last"),
        ):
            raise RuntimeError("induced")
        assert torch.equal(bench.model(**inputs).logits, plain)
    assert bench.model.config.text_config._attn_implementation == "sdpa"
    assert not hooks.attention_calls._ROUTES


def test_a_knockout_that_is_not_written_is_found(bench, monkeypatch):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    monkeypatch.setattr(hooks.blocking.BlockPlan, "write_over", lambda _self, output, *_: output)
    with (
        torch.no_grad(),
        pytest.raises(hooks.SelfCheckError, match="from what it is without the blocked keys"),
        hooks.knock_out(bench.model, tokens, "video_to_last"),
    ):
        bench.model(**inputs)


def test_without_a_forward_and_for_a_batch_it_is_an_error(bench, padded_batch):
    tokens = _map(bench, bench.prompt(frames=4))
    with (
        pytest.raises(hooks.SelfCheckError, match="never passed layer 0"),
        hooks.knock_out(bench.model, tokens, "video_to_last"),
    ):
        pass
    inputs = padded_batch(bench)
    with (
        torch.no_grad(),
        pytest.raises(hooks.InterventionError, match="2 sequences"),
        hooks.knock_out(bench.model, _map(bench, inputs, row=1), "video_to_last"),
    ):
        bench.model(**inputs)


def test_a_layer_that_does_not_attend_is_refused_where_its_family_says_it_does(fresh):
    bench = fresh("qwen2_5_vl")
    tokens = _map(bench, bench.prompt(frames=4))
    bench.model.config.text_config.layer_types[1] = "linear_attention"
    with (
        pytest.raises(hooks.UnsupportedModelError, match="attention of kind linear_attention"),
        hooks.knock_out(bench.model, tokens, "video_to_last"),
    ):
        pytest.fail("the block must not be entered")
