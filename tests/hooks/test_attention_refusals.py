"""What a capture refuses, what its self-checks find, and that it leaves the model as it was."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
import torch

import hooks


def _map(bench, inputs, **options):
    return hooks.token_map(bench.model, bench.processor, inputs, **options)


def _implementations(bench):
    model = bench.model
    text = {layer.self_attn.config._attn_implementation for layer in model.model.language_model.layers}
    return model.config._attn_implementation, model.model.visual.config._attn_implementation, text


UNTOUCHED = ("sdpa", "sdpa", {"sdpa"})


def test_the_implementation_is_switched_for_the_language_model_alone_and_put_back(bench):
    inputs = bench.prompt(frames=4)
    with torch.no_grad(), hooks.attention_rows(bench.model, _map(bench, inputs), "last"):
        top, vision, text = _implementations(bench)
        assert (top, vision) == ("sdpa", "sdpa")
        assert text != {"sdpa"}
        assert "flash" not in text.pop()
        bench.model(**inputs)
    assert _implementations(bench) == UNTOUCHED
    assert not hooks.attention_calls._ROUTES


def test_an_exception_inside_leaves_nothing_behind(bench):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)

    def fail(*_):
        raise RuntimeError("induced")

    handle = bench.model.model.language_model.layers[1].mlp.register_forward_pre_hook(fail)
    try:
        with (
            pytest.raises(RuntimeError, match="induced"),
            hooks.attention_rows(bench.model, tokens, "last") as dead,
        ):
            bench.model(**inputs)
    finally:
        handle.remove()
    assert _implementations(bench) == UNTOUCHED
    assert not hooks.attention_calls._ROUTES
    with pytest.raises(hooks.CaptureError, match="no result yet"):
        dead.unit_mass()
    with torch.no_grad(), hooks.attention_rows(bench.model, tokens, "last") as captured:
        bench.model(**inputs)
    assert np.isfinite(captured.unit_mass()).all()


def test_a_layer_that_goes_round_the_interface_is_named(fresh):
    bench = fresh()
    inputs = bench.prompt(frames=4)
    attention = bench.model.model.language_model.layers[1].self_attn
    attention.config = copy.deepcopy(attention.config)  # no longer the configuration that is switched
    with (
        torch.no_grad(),
        pytest.raises(hooks.SelfCheckError, match=r"Layers \[1\] of 3 never passed"),
        hooks.attention_rows(bench.model, _map(bench, inputs), "last"),
    ):
        bench.model(**inputs)


def test_a_capture_without_a_forward_is_an_error(bench):
    with (
        pytest.raises(hooks.SelfCheckError, match=r"Layers \[0, 1, 2\] of 3"),
        hooks.attention_rows(bench.model, _map(bench, bench.prompt(frames=4)), "last"),
    ):
        pass


def test_rows_of_a_prefix_that_was_cached_before_are_missed(bench):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    cut = int(tokens.question[2])
    first = dict(inputs) | {
        name: inputs[name][:, :cut] for name in ("input_ids", "attention_mask", "mm_token_type_ids")
    }
    with torch.no_grad():
        cache = bench.model(**first, use_cache=True).past_key_values
        with (
            pytest.raises(hooks.SelfCheckError, match=r"2 in all\) never passed layer 0"),
            hooks.attention_rows(bench.model, tokens, "question"),
        ):
            bench.model(
                input_ids=inputs["input_ids"][:, cut:],
                past_key_values=cache,
            )


def test_rows_that_do_not_sum_to_one_are_found(fresh):
    bench = fresh()
    inputs = bench.prompt(frames=4)
    with torch.no_grad():
        bench.model.model.language_model.layers[2].self_attn.q_norm.weight[3] = float("nan")
    tokens = _map(bench, inputs)
    with (
        torch.no_grad(),
        pytest.raises(hooks.SelfCheckError, match="layer 2, head 0"),
        hooks.attention_rows(bench.model, tokens, "last"),
    ):
        bench.model(**inputs)
    with torch.no_grad(), hooks.attention_rows(bench.model, tokens, "last", check=False) as captured:
        bench.model(**inputs)
    assert np.isnan(captured.max_row_sum_error)


def test_a_bin_counted_twice_is_found(bench, monkeypatch):
    """A fault in the binning itself, which no softmax check would see."""
    inputs = bench.prompt(frames=4)
    plain = hooks.row_mass.RowPlan.placed

    def faulty(self, device):
        visual, other = plain(self, device)
        other = other.clone()
        other[visual[:3]] = 1.0
        return visual, other

    monkeypatch.setattr(hooks.row_mass.RowPlan, "placed", faulty)
    with (
        torch.no_grad(),
        pytest.raises(hooks.SelfCheckError, match="misses 1 by"),
        hooks.attention_rows(bench.model, _map(bench, inputs), "last"),
    ):
        bench.model(**inputs)


def test_a_second_forward_in_one_capture_is_refused(bench):
    inputs = bench.prompt(frames=4)
    with torch.no_grad(), hooks.attention_rows(bench.model, _map(bench, inputs), "last") as captured:
        bench.model(**inputs)
        with pytest.raises(hooks.CaptureError, match="passed twice"):
            bench.model(**inputs)
    assert captured.row_counts == {"last": 1}
    assert _implementations(bench) == UNTOUCHED


def test_nested_and_concurrent_captures_of_one_model_are_refused(bench):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    errors = []

    def other_thread():
        try:
            with hooks.attention_rows(bench.model, tokens, "last"):
                pass
        except hooks.CaptureError as error:
            errors.append(error)

    with torch.no_grad(), hooks.attention_rows(bench.model, tokens, "last") as captured:
        with (
            pytest.raises(hooks.CaptureError, match="open already"),
            hooks.attention_rows(bench.model, tokens, "last"),
        ):
            pass
        thread = threading.Thread(target=other_thread)
        thread.start()
        thread.join()
        bench.model(**inputs)
    assert len(errors) == 1
    assert np.isfinite(captured.unit_mass()).all()


def test_two_models_may_be_captured_at_once(qwen3, qwen2_5):
    prompts = [(bench, bench.prompt(frames=4)) for bench in (qwen3, qwen2_5)]
    maps = [_map(bench, inputs) for bench, inputs in prompts]
    with torch.no_grad():
        alone = []
        for (bench, inputs), tokens in zip(prompts, maps, strict=True):
            with hooks.attention_rows(bench.model, tokens, "last") as captured:
                bench.model(**inputs)
            alone.append(captured.unit_mass())
        with (
            hooks.attention_rows(qwen3.model, maps[0], "last") as first,
            hooks.attention_rows(qwen2_5.model, maps[1], "last") as second,
        ):
            for bench, inputs in prompts:
                bench.model(**inputs)
    assert np.array_equal(first.unit_mass(), alone[0])
    assert np.array_equal(second.unit_mass(), alone[1])


@pytest.mark.parametrize("attention", ["eager"])
def test_a_model_that_does_not_run_sdpa_is_refused_by_name(fresh, attention):
    bench = fresh("qwen3_vl", attention)
    with (
        pytest.raises(hooks.UnsupportedModelError, match=r"Qwen3VLForConditionalGeneration.*'eager'.*sdpa"),
        hooks.attention_rows(bench.model, _map(bench, bench.prompt(frames=4)), "last"),
    ):
        pass


def test_a_model_outside_the_attention_interface_is_refused_by_name(fresh, monkeypatch):
    bench = fresh()
    tokens = _map(bench, bench.prompt(frames=4))
    monkeypatch.setattr(type(bench.model.model.language_model), "_supports_sdpa", False)
    with (
        pytest.raises(hooks.UnsupportedModelError, match=r"Qwen3VLForConditionalGeneration .* interface"),
        hooks.attention_rows(bench.model, tokens, "last"),
    ):
        pass


def test_a_model_with_attention_of_another_kind_is_refused(fresh):
    bench = fresh("qwen2_5_vl")
    bench.model.config.text_config.layer_types[1] = "chunked_attention"
    with (
        pytest.raises(hooks.UnsupportedModelError, match="attention of kind chunked_attention"),
        hooks.attention_rows(bench.model, _map(bench, bench.prompt(frames=4)), "last"),
    ):
        pass


@pytest.mark.parametrize(
    ("quirk", "message"),
    [
        ("softcap", "uses softcap"),
        ("s_aux", "uses s_aux"),
        ("sliding_window", "in a window of .* no mask that says so"),
    ],
)
def test_what_bends_the_softmax_is_refused_at_the_call(fresh, quirk, message):
    bench = fresh()
    inputs = bench.prompt(frames=4)
    attention = bench.model.model.language_model.layers[0].self_attn
    plain = attention.forward
    attention.forward = lambda *args, **kwargs: plain(*args, **kwargs | {quirk: torch.tensor(8.0)})
    with (
        torch.no_grad(),
        pytest.raises(hooks.UnsupportedModelError, match=message),
        hooks.attention_rows(bench.model, _map(bench, inputs), "last"),
    ):
        bench.model(**inputs)
    assert _implementations(bench) == UNTOUCHED


def test_output_attentions_under_a_capture_is_refused(bench):
    inputs = bench.prompt(frames=4)
    returned, message = None, ""
    try:
        with torch.no_grad(), hooks.attention_rows(bench.model, _map(bench, inputs), "last"):
            returned = bench.model(**inputs, output_attentions=True).attentions
    except hooks.CaptureError as error:
        message = str(error)
    # Qwen2.5-VL of transformers 5.16 drops the flag before attention is called: it warns and returns ().
    assert returned == () or "output_attentions" in message


def test_dropout_is_refused(fresh):
    bench = fresh()
    bench.model.train().config.text_config.attention_dropout = 0.1
    with (
        pytest.raises(hooks.CaptureError, match=r"model\.eval"),
        hooks.attention_rows(bench.model, _map(bench, bench.prompt(frames=4)), "last"),
    ):
        pass


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no rows"),
        ([10_000], "rows 10000 to 10000"),
        ([-1], "rows -1"),
        ({"generated": [3]}, "not a role of the prompt"),
    ],
)
def test_rows_that_make_no_sense_are_refused(bench, rows, message):
    with (
        pytest.raises(hooks.CaptureError, match=message),
        hooks.attention_rows(bench.model, _map(bench, bench.prompt(frames=4)), rows),
    ):
        pass


def test_a_batch_needs_a_map_for_each_sequence(bench, padded_batch):
    inputs = padded_batch(bench)
    tokens = _map(bench, inputs, row=1)
    with (
        torch.no_grad(),
        pytest.raises(hooks.CaptureError, match="runs 2 sequences, the capture has 1"),
        hooks.attention_rows(bench.model, tokens, "last"),
    ):
        bench.model(**inputs)
    with (
        pytest.raises(hooks.CaptureError, match="Generated rows of a batch"),
        hooks.attention_rows(bench.model, [tokens, tokens], "last", generated=True),
    ):
        pass


def test_another_prompt_than_the_mapped_one_is_refused(bench):
    tokens = _map(bench, bench.prompt(frames=4))
    with (
        torch.no_grad(),
        pytest.raises(hooks.CaptureError, match="passes the end at"),
        hooks.attention_rows(bench.model, tokens, "last"),
    ):
        bench.model(**bench.prompt(frames=8))


def test_what_was_not_asked_for_is_an_error_and_not_an_empty_array(bench):
    inputs = bench.prompt(frames=4)
    with (
        torch.no_grad(),
        hooks.attention_rows(bench.model, _map(bench, inputs), "last", token_mass=False) as captured,
    ):
        bench.model(**inputs)
    for method, option in (
        ("row_unit_mass", "keep_rows"),
        ("token_mass", "token_mass"),
        ("value_mass", "value_weighted"),
    ):
        with pytest.raises(hooks.CaptureError, match=f"{option}=True"):
            getattr(captured, method)()
    with pytest.raises(hooks.CaptureError, match=r"'question'.*Captured: last"):
        captured.unit_mass("question")


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(hooks.SelfCheckError("What.", remedy="Do.")))  # noqa: S301
    assert (str(error), type(error)) == ("What. Do.", hooks.SelfCheckError)
