"""Captured rows against eager attention, and against a recomputation by hand from the layer's weights."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText, Qwen2VLConfig, Qwen3VLMoeConfig, StaticCache

import hooks

TOLERANCE = 1e-5
ROLES = ("question", "options", "last")


def _map(bench, inputs, **options):
    return hooks.token_map(bench.model, bench.processor, inputs, **options)


def _eager(bench, inputs, fresh):
    """Attention of the same weights under the eager implementation, [layer, batch, head, query, key]."""
    model = fresh(bench.name, "eager").model
    with torch.no_grad():
        output = model(**inputs, output_attentions=True)
    return torch.stack(output.attentions).double().numpy()


def _by_unit(attention, tokens):
    """[..., key] -> [..., unit] by a plain loop."""
    return np.stack(
        [
            attention[..., np.flatnonzero((tokens.unit == unit) & (tokens.row >= 0))].sum(-1)
            for unit in range(tokens.n_units)
        ],
        axis=-1,
    )


def _expect(captured, attention, tokens, roles=ROLES):
    """All that was captured against full attention [layer, head, query, key] of one sequence."""
    for role in roles:
        rows = attention[:, :, tokens.rows(role)]
        for found, wanted, name in (
            (captured.unit_mass(role), _by_unit(rows, tokens).mean(2), "unit"),
            (captured.token_mass(role), rows[..., tokens.visual].mean(axis=(1, 2)), "token"),
            (captured.rest_mass(role), 1 - rows[..., tokens.visual].sum(-1).mean(2), "rest"),
        ):
            assert found.shape == wanted.shape
            error = np.abs(found - wanted).max()
            assert error <= TOLERANCE, f"{name} mass of {role}: {error:.2e} > {TOLERANCE}"


PROMPTS = {
    "even": {"frames": 8},
    "odd": {"frames": 7},
    "two videos": {"frames": [4, 3], "sizes": [(2, 3), (1, 2)]},
    "image and video": {"frames": 4, "images": 1},
}


@pytest.mark.parametrize("prompt", list(PROMPTS))
def test_mass_equals_eager_attention(bench, fresh, prompt):
    inputs = bench.prompt(**PROMPTS[prompt])
    tokens = _map(
        bench,
        inputs,
        question="Which colour is the lesion near the end?",
        options=["A. red", "B. deep green"],
    )
    with torch.no_grad(), hooks.attention_rows(bench.model, tokens, rows=ROLES) as captured:
        bench.model(**inputs)
    attention = _eager(bench, inputs, fresh)[:, 0]
    _expect(captured, attention, tokens)
    assert captured.layers == (0, 1, 2)
    assert (captured.heads, captured.roles) == (4, ROLES)
    assert attention[..., tokens.visual].std() > 1e-3, "the test needs attention that is not uniform"


def test_logits_are_equal_bit_for_bit(bench):
    inputs = bench.prompt(frames=7)
    tokens = _map(bench, inputs)
    with torch.no_grad():
        plain = bench.model(**inputs).logits
        with hooks.attention_rows(bench.model, tokens, rows=ROLES[:1], keep_rows=True, value_weighted=True):
            observed = bench.model(**inputs).logits
        after = bench.model(**inputs).logits
    assert torch.equal(plain, observed)
    assert torch.equal(plain, after)


def test_verification_says_so(bench):
    inputs = bench.prompt(frames=7)
    report = hooks.verify_capture(bench.model, inputs, _map(bench, inputs), "last")
    assert (report.max_logit_difference, report.identical) == (0.0, True)
    assert (report.layers, report.heads, report.positions) == (3, 4, 1)
    assert report.max_row_sum_error < 1e-5


def test_verification_of_a_padded_batch_is_of_each_sequences_own_rows(fresh, padded_batch):
    """What a model gives at padding is nobody's: NaN here, as a softmax over no key at all."""
    bench = fresh()
    inputs = padded_batch(bench)
    maps = [_map(bench, inputs, row=row) for row in range(2)]
    early = np.flatnonzero(inputs["attention_mask"][0].numpy() == 0)[-1:]
    assert maps[1].kind[early[0]] != hooks.Kind.PADDING
    padding = (inputs["attention_mask"] == 0)[..., None]
    bench.model.model.language_model.norm.register_forward_hook(
        lambda _module, _args, output: output.masked_fill(padding, float("nan"))
    )
    rows = [maps[0].last, np.concatenate([early, maps[1].last])]
    report = hooks.verify_capture(bench.model, inputs, maps, rows)
    assert (report.max_logit_difference, report.identical) == (0.0, True)
    assert report.positions == 3


def test_verification_notices_a_capture_that_changes_the_model(fresh, monkeypatch):
    bench = fresh()
    inputs = bench.prompt(frames=4)
    observe = hooks.attention._Session.observe

    def meddling(self, call):
        observe(self, call)
        call.value.mul_(1.01)

    monkeypatch.setattr(hooks.attention._Session, "observe", meddling)
    report = hooks.verify_capture(bench.model, inputs, _map(bench, inputs), "last")
    assert not report.identical
    assert report.max_logit_difference > 0


def test_rows_one_by_one(bench, fresh):
    inputs = bench.prompt(frames=7)
    tokens = _map(bench, inputs)
    with (
        torch.no_grad(),
        hooks.attention_rows(bench.model, tokens, tokens.question, keep_rows=True) as captured,
    ):
        bench.model(**inputs)
    rows = _eager(bench, inputs, fresh)[:, 0][:, :, tokens.question]
    assert captured.row_positions.tolist() == tokens.question.tolist()
    assert captured.row_counts == {"rows": len(tokens.question)}
    assert np.abs(captured.row_unit_mass() - _by_unit(rows, tokens)).max() <= TOLERANCE
    assert np.abs(captured.row_rest_mass() + captured.row_unit_mass().sum(-1) - 1).max() <= TOLERANCE
    assert np.abs(captured.row_unit_mass().mean(2) - captured.unit_mass("rows")).max() <= TOLERANCE


def test_many_rows_are_taken_in_chunks(bench, fresh, monkeypatch):
    monkeypatch.setattr(hooks.row_mass, "ROW_CHUNK", 5)
    inputs = bench.prompt(frames=7)
    tokens = _map(bench, inputs)
    everything = np.arange(len(tokens))
    with torch.no_grad(), hooks.attention_rows(bench.model, tokens, everything, keep_rows=True) as captured:
        bench.model(**inputs)
    attention = _eager(bench, inputs, fresh)[:, 0]
    assert np.abs(captured.row_unit_mass() - _by_unit(attention, tokens)).max() <= TOLERANCE
    assert np.abs(captured.unit_mass("rows") - _by_unit(attention, tokens).mean(2)).max() <= TOLERANCE


def test_roles_of_ones_own_may_share_rows(bench, fresh):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    last = len(tokens) - 1
    rows = {"tail": [last - 2, last], "end": last}
    with torch.no_grad(), hooks.attention_rows(bench.model, tokens, rows) as captured:
        bench.model(**inputs)
    attention = _by_unit(_eager(bench, inputs, fresh)[:, 0], tokens)
    assert np.abs(captured.unit_mass("tail") - attention[:, :, [last - 2, last]].mean(2)).max() <= TOLERANCE
    assert np.abs(captured.unit_mass("end") - attention[:, :, last]).max() <= TOLERANCE


def test_a_left_padded_batch(bench, fresh, padded_batch):
    inputs = padded_batch(bench)
    tokens = [_map(bench, inputs, row=row) for row in (0, 1)]
    with torch.no_grad():
        plain = bench.model(**inputs).logits
        with hooks.attention_rows(bench.model, tokens, rows=("question", "last")) as captured:
            observed = bench.model(**inputs).logits
    assert torch.equal(plain, observed)
    attention = _eager(bench, inputs, fresh)
    assert len(captured) == 2
    for row in (0, 1):
        _expect(captured[row], attention[:, row], tokens[row], ("question", "last"))


def test_an_additive_mask_is_obeyed(bench, fresh):
    """Attention knockout hands the layers an additive mask: captured rows must see it."""
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    length = len(tokens)
    blocked = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)
    blocked[:, tokens.visual[:4]] = torch.finfo(torch.float32).min
    blocked.fill_diagonal_(0.0)

    def knock_out(model):
        def before(module, args, kwargs):
            return args, kwargs | {"attention_mask": blocked[None, None]}

        return [
            layer.self_attn.register_forward_pre_hook(before, with_kwargs=True)
            for layer in model.model.language_model.layers
        ]

    handles = knock_out(bench.model)
    try:
        with (
            torch.no_grad(),
            hooks.attention_rows(bench.model, tokens, rows=("question", "last")) as captured,
        ):
            bench.model(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    eager = fresh(bench.name, "eager").model
    knock_out(eager)
    with torch.no_grad():
        attention = torch.stack(eager(**inputs, output_attentions=True).attentions)[:, 0].double().numpy()
    _expect(captured, attention, tokens, ("question", "last"))
    assert captured.token_mass("last")[:, :4].max() == 0.0


def test_generated_rows(bench, fresh):
    inputs = bench.prompt(frames=7)
    tokens = _map(bench, inputs)
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False}
    plain = bench.model.generate(**inputs, **options)
    with hooks.attention_rows(bench.model, tokens, rows="last", generated=True, keep_rows=True) as captured:
        observed = bench.model.generate(**inputs, **options)
    assert torch.equal(plain, observed)
    reference = fresh(bench.name, "eager").model.generate(
        **inputs, **options, output_attentions=True, return_dict_in_generate=True
    )
    assert torch.equal(plain, reference.sequences)
    prefill = torch.stack(reference.attentions[0])[:, 0].double().numpy()
    assert np.abs(captured.unit_mass("last") - _by_unit(prefill[:, :, -1], tokens)).max() <= TOLERANCE
    steps = [torch.stack(step)[:, 0, :, 0].double().numpy() for step in reference.attentions[1:]]
    padded = [_by_unit(step[..., : len(tokens)], tokens) for step in steps]
    assert captured.row_counts == {"last": 1, "generated": 4}
    assert captured.row_positions.tolist() == [len(tokens) - 1, *range(len(tokens), len(tokens) + 4)]
    assert np.abs(captured.unit_mass("generated") - np.mean(padded, axis=0)).max() <= TOLERANCE
    assert np.abs(captured.row_unit_mass()[:, :, 1:] - np.stack(padded, axis=2)).max() <= TOLERANCE


def test_without_a_decode_step_the_generated_role_is_undefined_not_zero(bench):
    inputs = bench.prompt(frames=4)
    with (
        torch.no_grad(),
        hooks.attention_rows(bench.model, _map(bench, inputs), "last", generated=True) as captured,
    ):
        bench.model(**inputs)
    assert captured.row_counts["generated"] == 0
    assert np.isnan(captured.unit_mass("generated")).all()
    assert np.isfinite(captured.unit_mass("last")).all()


@pytest.mark.parametrize("additive", [False, True])
def test_where_a_call_stands_is_in_its_mask(additive):
    """Piece by piece of 9 positions, two of padding in front, over 9, 10 and 30 places."""
    for places, start, size in product((9, 10, 30), range(9), range(1, 5)):
        rows, columns = np.arange(start, start + size)[:, None], np.arange(places)[None]
        seen = torch.from_numpy((columns <= rows) & (columns >= 2) & (columns < 9 + size))
        mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
        found = hooks.blocking.first_query(9, size, places, mask if additive else seen)
        if rows.max() >= places:
            continue
        if rows.max() < 2:
            assert (found, found + size <= 2) == (0, True), "padding alone, where nothing is asked for"
        else:
            assert found == start
    assert hooks.blocking.first_query(9, 4, 30, None) == 0, "SDPA's own rule: aligned at the first key"
    assert hooks.blocking.first_query(9, 1, 12, None) == 11
    assert hooks.blocking.first_query(9, 9, 30, None) == 0


@pytest.mark.parametrize("spare", [0, 2, 300])
def test_a_static_cache_that_is_filled_in_pieces(bench, spare):
    """Places behind a piece are empty: where it stands is in its mask, not in the number of keys."""
    inputs = bench.prompt(frames=5)
    tokens = _map(bench, inputs)
    grids = {name: inputs[name] for name in ("video_grid_thw", "second_per_grid_ts") if name in inputs}
    positions, _ = bench.model.model.get_rope_index(inputs["input_ids"], inputs["mm_token_type_ids"], **grids)
    video, end = int(tokens.visual[-1]) + 1, len(tokens)
    cuts = [0, video, video + 4, video + 5, end]
    cache = StaticCache(config=bench.model.config.text_config, max_cache_len=end + spare)
    name = hooks.last_alone.cache_argument(bench.model.model.language_model)
    every = np.arange(end)
    with torch.no_grad():
        with hooks.attention_rows(bench.model, tokens, every, keep_rows=True) as whole:
            plain = bench.model(**inputs).logits
        with hooks.attention_rows(bench.model, tokens, every, keep_rows=True) as parts:
            for start, following in pairwise(cuts):
                given = {"input_ids": inputs["input_ids"][:, start:following]}
                given |= {"position_ids": positions[..., start:following], "use_cache": True, name: cache}
                if start == 0:
                    given |= grids | {"pixel_values_videos": inputs["pixel_values_videos"]}
                    given |= {"mm_token_type_ids": inputs["mm_token_type_ids"][:, :following]}
                logits = bench.model(**given).logits
    assert float((logits[:, -1] - plain[:, -1]).abs().max()) <= 2e-5 * float(plain.abs().max())
    assert parts.row_positions.tolist() == whole.row_positions.tolist() == every.tolist()
    assert np.abs(parts.row_unit_mass() - whole.row_unit_mass()).max() <= TOLERANCE
    assert np.abs(parts.unit_mass() - whole.unit_mass()).max() <= TOLERANCE


def test_a_static_cache_with_empty_places(bench):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    with torch.no_grad(), hooks.attention_rows(bench.model, tokens, rows=("question", "last")) as plain:
        bench.model(**inputs)
    with hooks.attention_rows(bench.model, tokens, rows=("question", "last")) as captured:
        bench.model.generate(**inputs, max_new_tokens=2, do_sample=False, cache_implementation="static")
    assert np.abs(captured.unit_mass() - plain.unit_mass()).max() <= TOLERANCE


def test_a_prompt_passed_in_parts_over_one_cache(bench):
    """Positions are given: transformers 5.24 continues Qwen2.5-VL elsewhere after a cached prefix than it
    does within one forward (docs/traps.md)."""
    inputs = bench.prompt(frames=7)
    tokens = _map(bench, inputs)
    cut = int(tokens.question[3])  # inside the question: a role's mean spans both parts
    roles = ("question", "last")
    times = {name: inputs[name] for name in ("second_per_grid_ts",) if name in inputs}
    grids = {"video_grid_thw": inputs["video_grid_thw"]} | times
    positions, _ = bench.model.model.get_rope_index(inputs["input_ids"], inputs["mm_token_type_ids"], **grids)
    first = dict(inputs) | {
        name: inputs[name][:, :cut] for name in ("input_ids", "attention_mask", "mm_token_type_ids")
    }
    with torch.no_grad(), hooks.attention_rows(bench.model, tokens, roles, keep_rows=True) as whole:
        bench.model(**inputs, position_ids=positions)
    with torch.no_grad(), hooks.attention_rows(bench.model, tokens, roles, keep_rows=True) as parts:
        cache = bench.model(**first, position_ids=positions[..., :cut], use_cache=True).past_key_values
        rest = inputs["input_ids"][:, cut:]
        bench.model(input_ids=rest, position_ids=positions[..., cut:], past_key_values=cache)
    for name in ("unit_mass", "rest_mass", "token_mass", "row_unit_mass"):
        assert np.abs(getattr(parts, name)() - getattr(whole, name)()).max() <= TOLERANCE, name
    assert parts.row_positions.tolist() == whole.row_positions.tolist()


def test_value_weighting_against_eager_attention_and_the_values_of_a_hook(bench, fresh):
    inputs = bench.prompt(frames=7)
    tokens = _map(bench, inputs)
    values = []
    handles = [
        layer.self_attn.v_proj.register_forward_hook(lambda _m, _a, output: values.append(output[0]))
        for layer in bench.model.model.language_model.layers
    ]
    try:
        with (
            torch.no_grad(),
            hooks.attention_rows(bench.model, tokens, "question", value_weighted=True) as captured,
        ):
            bench.model(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    lengths = torch.stack(values).unflatten(-1, (2, -1)).norm(dim=-1)  # [layer, key, kv head]
    lengths = lengths.repeat_interleave(2, dim=-1).permute(0, 2, 1).double().numpy()
    rows = _eager(bench, inputs, fresh)[:, 0][:, :, tokens.question].mean(2) * lengths
    scale = rows.sum(-1).max()
    assert np.abs(captured.value_mass("question") - _by_unit(rows, tokens)).max() <= TOLERANCE * scale
    total = captured.value_mass("question").sum(-1) + captured.value_rest_mass("question")
    assert np.abs(total - rows.sum(-1)).max() <= TOLERANCE * scale


def test_a_third_road_from_the_weights_of_one_layer(bench):
    """Projections, norms and rotation by hand in float64 from the hidden states a hook saw."""
    inputs = bench.prompt(frames=7)
    tokens = _map(bench, inputs)
    attention = bench.model.model.language_model.layers[1].self_attn
    seen = {}
    handle = attention.register_forward_pre_hook(lambda _m, _a, kwargs: seen.update(kwargs), with_kwargs=True)
    try:
        with torch.no_grad(), hooks.attention_rows(bench.model, tokens, "question") as captured:
            bench.model(**inputs)
    finally:
        handle.remove()
    hidden = seen["hidden_states"][0].double()
    cos, sin = (_over_one_sequence(part).double() for part in seen["position_embeddings"])

    def project(linear, norm):
        out = hidden @ linear.weight.double().T
        out = out if linear.bias is None else out + linear.bias.double()
        out = out.unflatten(-1, (-1, 16)).transpose(0, 1)
        if norm is not None:
            out = out / (out.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight.double()
        swapped = torch.cat([-out[..., 8:], out[..., :8]], dim=-1)
        return out * cos + swapped * sin

    q = project(attention.q_proj, getattr(attention, "q_norm", None))
    k = project(attention.k_proj, getattr(attention, "k_norm", None)).repeat_interleave(2, dim=0)
    scores = q @ k.transpose(1, 2) / 4.0
    scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    rows = scores.softmax(-1).detach().numpy()[:, tokens.question]
    error = np.abs(captured.unit_mass("question")[1] - _by_unit(rows, tokens).mean(1)).max()
    assert error <= TOLERANCE, f"{error:.2e} > {TOLERANCE}"


def _over_one_sequence(part):
    """[position, dim]. Later versions mix the three axes before attention, Qwen2.5-VL of 5.16 inside."""
    if part.ndim == 3:
        return part[0]
    pieces = part.split([4, 2, 2] * 2, dim=-1)
    return torch.cat([piece[axis % 3, 0] for axis, piece in enumerate(pieces)], dim=-1)


def test_nnsight_sees_the_same_attention(qwen3):
    """Queries and keys as nnsight reads them at the attention call, then a plain softmax."""
    nnsight = pytest.importorskip("nnsight")
    inputs = qwen3.prompt(frames=4)
    tokens = _map(qwen3, inputs)
    with torch.no_grad(), hooks.attention_rows(qwen3.model, tokens, "question") as captured:
        qwen3.model(**inputs)
    wrapped = nnsight.NNsight(qwen3.model)
    with torch.no_grad(), wrapped.trace(**inputs):
        call = wrapped.model.language_model.layers[2].self_attn.source.attention_interface_1.inputs
        q, k = call[0][1].save(), call[0][2].save()
    scores = q[0].double() @ k[0].double().repeat_interleave(2, dim=0).transpose(1, 2) / 4.0
    scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    rows = scores.softmax(-1).detach().numpy()[:, tokens.question]
    error = np.abs(captured.unit_mass("question")[2] - _by_unit(rows, tokens).mean(1)).max()
    assert error <= TOLERANCE, f"{error:.2e} > {TOLERANCE}"


def test_half_precision_and_autocast_still_recompute_in_float32(fresh):
    bench = fresh()
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    rows = np.arange(len(tokens))
    seen = []
    observe = hooks.attention._Session.observe

    def noting(self, call):
        seen.append((call.query[0].double(), call.key[0].double()))
        observe(self, call)

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(hooks.attention._Session, "observe", noting)
        with (
            torch.autocast("cpu", torch.bfloat16),
            hooks.attention_rows(bench.model.bfloat16(), tokens, rows, keep_rows=True) as captured,
        ):
            bench.model(**inputs)
    for layer, (q, k) in enumerate(seen):
        scores = q @ k.repeat_interleave(2, dim=0).transpose(1, 2) / 4.0
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
        expected = _by_unit(scores.softmax(-1).numpy(), tokens)
        assert np.abs(captured.row_unit_mass()[layer] - expected).max() <= TOLERANCE


@pytest.mark.parametrize("member", ["qwen3_vl_moe", "qwen2_vl"])
def test_the_other_members_of_the_families(qwen3, qwen2_5, member):
    """Model types that share a family's layout: mass against their own eager attention."""
    bench, config = _member(member, qwen3, qwen2_5)
    torch.manual_seed(3)
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="sdpa").eval()
    assert model.config.model_type == member
    inputs = bench.prompt(frames=7)
    tokens = hooks.token_map(model, bench.processor, inputs, n_frames=7)
    inputs.pop("second_per_grid_ts", None)
    with torch.no_grad():
        plain = model(**inputs).logits
        with (
            hooks.visual_features(model, tokens, ("projector", "vit", "layer:1")) as features,
            hooks.attention_rows(model, tokens, rows=("question", "last")) as captured,
        ):
            observed = model(**inputs).logits
        assert torch.equal(plain, observed)
        model.set_attn_implementation("eager")
        attention = torch.stack(model(**inputs, output_attentions=True).attentions)[:, 0].double().numpy()
    _expect(captured, attention, tokens, ("question", "last"))
    assert [len(features[source]) for source in features] == [tokens.n_visual] * 3


def _member(member, qwen3, qwen2_5):
    base = qwen3 if member == "qwen3_vl_moe" else qwen2_5
    plain = base.model.config
    special = {name: getattr(plain, name) for name in plain.to_dict() if name.endswith("_token_id")}
    special = {
        name: value for name, value in special.items() if name.startswith(("image", "video", "vision"))
    }
    text, vision = plain.text_config.to_dict(), plain.vision_config.to_dict()
    for part in (text, vision):
        part.pop("model_type")
    if member == "qwen3_vl_moe":
        text |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
        return base, Qwen3VLMoeConfig(text_config=text, vision_config=vision, **special)
    vision = {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "patch_size": 14}
    return base, Qwen2VLConfig(text_config=text, vision_config=vision, **special)
