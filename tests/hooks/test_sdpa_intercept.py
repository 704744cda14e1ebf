"""Capture and knockout of models whose own code calls SDPA: the numbers of the main road, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import _get_current_function_mode

import hooks
from diagnostics.models.miniatures import miniature
from hooks.families import family_of, use_family
from hooks.sdpa_intercept import _OPEN, close_interception, intercept

from ..family_bench import QUESTION, FamilyBench, clip, make_bench


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen3_omni_moe"])
def pair(request: pytest.FixtureRequest) -> tuple[FamilyBench, Any]:
    """A bench on the main road, and the same model on the other one."""
    bench = make_bench(request.param)
    twin, _ = miniature(request.param).make()
    twin.load_state_dict(bench.model.state_dict())
    use_family(twin, replace(family_of(twin), attention_road="sdpa"))
    return bench, twin


def test_both_roads_see_the_same(pair: tuple[FamilyBench, Any]) -> None:
    bench, twin = pair
    inputs = bench.inputs(clip(6))
    tokens = bench.roles(inputs)
    seen = []
    for model in (bench.model, twin):
        with (
            torch.no_grad(),
            hooks.attention_rows(
                model, tokens, ("question", "last"), keep_rows=True, value_weighted=True
            ) as captured,
        ):
            logits = model(**inputs).logits
        seen.append(
            (
                logits.numpy(),
                captured.unit_mass(),
                captured.rest_mass(),
                captured.token_mass(),
                captured.value_mass(),
                captured.row_unit_mass(),
            )
        )
    for one, other in zip(*seen, strict=True):
        assert np.array_equal(one, other)
    with torch.no_grad():
        assert np.array_equal(twin(**inputs).logits.numpy(), seen[1][0])
    assert hooks.verify_capture(twin, inputs, tokens, "question").identical
    assert not _OPEN


@pytest.mark.parametrize("heads", [None, [1, 2]])
def test_both_roads_knock_out_the_same(pair: tuple[FamilyBench, Any], heads: list[int] | None) -> None:
    bench, twin = pair
    inputs = bench.inputs(clip(6))
    tokens = bench.roles(inputs)
    seen = []
    for model in (bench.model, twin):
        with (
            torch.no_grad(),
            hooks.attention_rows(model, tokens, "question") as captured,
            hooks.knock_out(model, tokens, "video_to_question", layers=[0, 2], heads=heads) as knocked,
        ):
            logits = model(**inputs).logits
        seen.append((logits.numpy(), knocked.blocked_mass, captured.unit_mass()))
    for one, other in zip(*seen, strict=True):
        assert np.array_equal(one, other)
    with torch.no_grad():
        assert not np.array_equal(twin(**inputs).logits.numpy(), seen[1][0])


def test_generated_rows_and_a_padded_batch(pair: tuple[FamilyBench, Any]) -> None:
    bench, twin = pair
    inputs = bench.inputs(clip(4))
    tokens = bench.roles(inputs)
    batch = bench.batch([([clip(4)], (), QUESTION), ([clip(7)], (), QUESTION)])
    maps = [bench.roles(batch, row=row) for row in range(2)]
    seen = []
    for model in (bench.model, twin):
        with torch.no_grad(), hooks.attention_rows(model, tokens, "last", generated=True) as captured:
            said = model.generate(**inputs, max_new_tokens=3, min_new_tokens=3, do_sample=False)
        assert captured.row_counts == {"last": 1, "generated": 2}
        with torch.no_grad(), hooks.attention_rows(model, maps, "question") as several:
            model(**batch)
        seen.append((said.numpy(), captured.unit_mass(), several[0].unit_mass(), several[1].unit_mass()))
    for one, other in zip(*seen, strict=True):
        assert np.array_equal(one, other)


def test_a_failing_forward_leaves_nothing_behind(pair: tuple[FamilyBench, Any]) -> None:
    bench, twin = pair
    inputs = bench.inputs(clip(4))
    tokens = bench.roles(inputs)
    layer = family_of(twin).layers(twin)[1]

    def fail(*_: Any) -> None:
        raise RuntimeError("induced")

    inner = family_of(twin).output_projection(family_of(twin).attention(layer))
    handle = inner.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="induced"), hooks.attention_rows(twin, tokens, "last"):
        twin(**inputs)
    handle.remove()
    assert _get_current_function_mode() is None
    assert not _OPEN
    assert not hooks.attention_calls._ROUTES
    assert hooks.verify_capture(twin, inputs, tokens, "last").identical


def test_a_cache_that_lets_go_of_keys_is_refused(
    pair: tuple[FamilyBench, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of such a call have keys of unknown positions. A cache that holds all is read as ever."""
    bench, twin = pair
    inputs = bench.inputs(clip(4))
    tokens = bench.roles(inputs)
    given, places = len(tokens) - 1, torch.full((3, 1, 1), len(tokens))
    with torch.no_grad():
        cache = twin(**inputs, use_cache=True).past_key_values
        step = {"input_ids": inputs["input_ids"][:, -1:], "position_ids": places, "past_key_values": cache}
        cache.crop(-1)
        with hooks.attention_rows(twin, tokens, "last") as captured:
            twin(**step)
        assert captured.row_counts == {"last": 1}
        cache.crop(-1)
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys[:, :, -8:], layer.values[:, :, -8:]
        monkeypatch.setattr(cache, "get_seq_length", lambda *_, **__: given)
        with (
            pytest.raises(hooks.UnsupportedModelError, match="lets go of keys"),
            hooks.attention_rows(twin, tokens, "last"),
        ):
            twin(**step)


# One attention module by itself


class Toy(nn.Module):
    """Attention as its author wrote it."""

    def __init__(self, attend: Callable[[Tensor, Tensor, Tensor], Tensor | None]) -> None:
        super().__init__()
        self.attend = attend

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor | None:
        return self.attend(query, key, value)


def parts(queries: int = 5, keys: int = 5, kv_heads: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def draw(heads: int, length: int) -> Tensor:
        return torch.randn(1, heads, length, 8, generator=generator)

    return draw(4, queries), draw(kv_heads, keys), draw(kv_heads, keys)


def seen_by(attend: Callable, *given: Tensor) -> tuple[Tensor, list[tuple[Any, float]]]:
    """The module's output, checked to be what it is without interception, and what was read."""
    toy = Toy(attend)
    read: list[tuple[Any, float]] = []

    def through(_module: Any, _q: Any, _k: Any, _v: Any, mask: Any, scaling: float, compute: Any) -> Tensor:
        read.append((mask, scaling))
        return compute()

    plain = toy(*given)
    intercept([toy], through)
    try:
        output = toy(*given)
    finally:
        close_interception([toy])
    assert torch.equal(output, plain)
    assert torch.equal(toy(*given), plain)
    assert len(read) == 1
    return output, read


@pytest.mark.parametrize("scale", [None, 0.3])
def test_a_causal_call_is_read(scale: float | None) -> None:
    _, [(mask, scaling)] = seen_by(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True),
        *parts(),
    )
    assert mask is None
    assert scaling == (8**-0.5 if scale is None else scale)


def test_a_mask_of_few_axes_is_read_as_torch_spreads_it() -> None:
    allowed = torch.ones(5, 7, dtype=torch.bool).tril(2)
    _, [(mask, _)] = seen_by(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, allowed, enable_gqa=True), *parts(5, 7)
    )
    assert mask.shape == (1, 1, 5, 7)
    assert torch.equal(mask[0, 0], allowed)
    row = torch.zeros(1, 7)
    row[0, :3] = float("-inf")
    _, [(mask, _)] = seen_by(
        lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=row, enable_gqa=True
        ),
        *parts(5, 7),
    )
    assert torch.equal(mask[0, 0], row.expand(5, 7))


def test_one_causal_query_sees_the_first_key_as_torch_has_it() -> None:
    """`is_causal` counts from the upper left corner: with one query and several keys it leaves one."""
    _, [(mask, _)] = seen_by(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), *parts(1, 6)
    )
    assert mask[0, 0, 0].tolist() == [True, False, False, False, False, False]
    _, [(mask, _)] = seen_by(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, enable_gqa=True), *parts(1, 6)
    )
    assert mask is None


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = (part.repeat_interleave(2, dim=1) for part in (k, v))
    return (q @ k.transpose(-1, -2)).softmax(dim=-1) @ v


def twice(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    def call() -> Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    return call() + call()


def packed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q[0, :2], k[0], v[0], is_causal=True)


def both_ways(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, enable_gqa=True)


def dropping(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, dropout_p=0.5, is_causal=True, enable_gqa=True)


@pytest.mark.parametrize(
    ("attend", "error", "message"),
    [
        (by_hand, hooks.UnsupportedModelError, "Toy computes its attention without calling"),
        (twice, hooks.UnsupportedModelError, "more than once"),
        (packed, hooks.UnsupportedModelError, "not \\[batch, head, position, dim\\]"),
        (both_ways, hooks.UnsupportedModelError, "both directions"),
        (dropping, hooks.CaptureError, "at random"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(
    attend: Callable, error: type[Exception], message: str
) -> None:
    toy = Toy(attend)
    intercept([toy], lambda *given: given[-1]())
    try:
        with pytest.raises(error, match=message):
            toy(*parts())
    finally:
        close_interception([toy])
    assert _get_current_function_mode() is None
    assert toy(*parts()) is not None


@pytest.mark.parametrize(
    ("fault", "off", "dtype", "length"),
    [
        ("scaling", 1.01, torch.float32, 5),
        ("scaling", 2.0, torch.bfloat16, 5),
        ("scaling", 2.0, torch.bfloat16, 512),
        ("scaling", 1.2, torch.float16, 512),
        ("mask", 1.0, torch.float32, 5),
        ("mask", 1.0, torch.bfloat16, 5),
        ("lowest", 1.01, torch.float32, 5),
    ],
)
def test_arguments_that_were_misread_are_found(
    monkeypatch: pytest.MonkeyPatch, fault: str, off: float, dtype: torch.dtype, length: int
) -> None:
    """A fault in the reading itself: the output is then not the softmax over what was read. In the number
    types that models are run in too."""
    plain = hooks.sdpa_intercept._read

    def faulty(name: str, given: dict[str, Any]) -> tuple[Tensor | None, float]:
        mask, scaling = plain(name, given)
        if fault in ("scaling", "lowest"):
            return mask, scaling * off
        alone = torch.eye(length, dtype=torch.bool)[0]
        return torch.ones(1, 1, length, length, dtype=torch.bool).tril(-1) | alone, scaling

    monkeypatch.setattr(hooks.sdpa_intercept, "_read", faulty)
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    given: dict[str, Any] = {"is_causal": True}
    if fault == "lowest":  # as most code of checkpoints' own says what is not seen
        given = {"attn_mask": torch.zeros(length, length).masked_fill(later, torch.finfo(dtype).min)}
    toy = Toy(lambda q, k, v: scaled_dot_product_attention(q, k, v, enable_gqa=True, **given))
    intercept([toy], lambda *given: given[-1]())
    try:
        with pytest.raises(hooks.SelfCheckError, match="differs by"):
            toy(*(part.to(dtype) for part in parts(length, length)))
    finally:
        close_interception([toy])


@pytest.mark.parametrize("sharpness", [1.0, 8.0])
@pytest.mark.parametrize("length", [3, 64, 2048])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_number_type_passes_the_check(dtype: torch.dtype, length: int, sharpness: float) -> None:
    query, key, value = parts(length, length)
    given = [part.to(dtype) for part in (query * sharpness, key * sharpness, value)]
    seen_by(lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), *given)
