from __future__ import annotations

import numpy as np
import pytest
import torch

import hooks


def _map(bench, inputs, **options):
    return hooks.token_map(bench.model, bench.processor, inputs, **options)


@pytest.mark.parametrize(
    "prompt", [{"frames": 7}, {"frames": [4, 3], "sizes": [(2, 3), (3, 5)]}, {"images": 2}]
)
def test_projector_features_equal_the_merged_output_of_the_tower(bench, prompt):
    inputs = bench.prompt(**prompt)
    tokens = _map(bench, inputs)
    with torch.no_grad(), hooks.visual_features(bench.model, tokens) as features:
        bench.model(**inputs)
    found = features["projector"]
    assert found.dtype == np.float32
    with torch.no_grad():
        base = bench.model.model
        videos = base.get_video_features(inputs["pixel_values_videos"], inputs["video_grid_thw"])
        parts = list(videos.pooler_output)
        if "pixel_values" in inputs:
            images = base.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
            parts = [*images.pooler_output, *parts]
    assert np.array_equal(found, torch.cat(parts).numpy())


@pytest.mark.parametrize(
    "prompt", [{"frames": 7}, {"frames": [4, 3], "sizes": [(2, 3), (3, 5)]}, {"images": 2}]
)
def test_vit_features_lie_where_the_projector_s_do(bench, prompt):
    """Both towers merge after the last hidden state, so the merger applied to what was averaged must be
    followed token by token: checked by merging one window at a time."""
    inputs = bench.prompt(**prompt)
    tokens = _map(bench, inputs)
    tower = bench.model.model.visual
    merged = {}
    handle = tower.merger.register_forward_hook(
        lambda _m, args, output: merged.update({len(merged): (args[0], output)})
    )
    try:
        with torch.no_grad(), hooks.visual_features(bench.model, tokens, ("vit", "projector")) as features:
            bench.model(**inputs)
    finally:
        handle.remove()
    hidden = torch.cat([entry[0].unflatten(0, (-1, 4)).mean(1) for entry in merged.values()])
    outputs = torch.cat([entry[1] for entry in merged.values()])
    assert features["vit"].shape == (tokens.n_visual, 32)
    for token in range(tokens.n_visual):
        same = (outputs - torch.from_numpy(features["projector"][token])).abs().amax(1)
        window = int(same.argmin())
        assert same[window] == 0.0
        np.testing.assert_allclose(features["vit"][token], hidden[window].numpy(), atol=1e-6)


def test_layer_features_equal_transformers_hidden_states(bench):
    inputs = bench.prompt(frames=7)
    tokens = _map(bench, inputs)
    with (
        torch.no_grad(),
        hooks.visual_features(bench.model, tokens, ("layer:0", "layer:1", "layer:2")) as features,
    ):
        output = bench.model(**inputs, output_hidden_states=True)
    for layer in (0, 1):
        expected = output.hidden_states[layer + 1][0, tokens.visual].numpy()
        assert np.array_equal(features[f"layer:{layer}"], expected), layer
    normed = bench.model.model.language_model.norm(torch.from_numpy(features["layer:2"]))
    assert np.allclose(normed.detach().numpy(), output.hidden_states[3][0, tokens.visual].numpy(), atol=1e-6)


def test_only_the_prefill_counts(bench):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    with (
        torch.no_grad(),
        hooks.visual_features(bench.model, tokens, ("projector", "vit", "layer:1")) as plain,
    ):
        bench.model(**inputs)
    with hooks.visual_features(bench.model, tokens, ("projector", "vit", "layer:1")) as generated:
        bench.model.generate(**inputs, max_new_tokens=3, min_new_tokens=3, do_sample=False)
    for source in plain:
        assert np.array_equal(plain[source], generated[source]), source


def test_a_batch_gives_each_sequence_its_own(bench, padded_batch):
    inputs = padded_batch(bench)
    tokens = [_map(bench, inputs, row=row) for row in (0, 1)]
    with torch.no_grad(), hooks.visual_features(bench.model, tokens, ("projector", "vit")) as batch:
        bench.model(**inputs)
    alone = [bench.prompt(frames=2, size=(1, 2)), bench.prompt(frames=6, size=(2, 3))]
    for row, single in enumerate(alone):
        one = _map(bench, single)
        with torch.no_grad(), hooks.visual_features(bench.model, one, ("projector", "vit")) as features:
            bench.model(**single)
        for source in features:
            np.testing.assert_allclose(batch[row][source], features[source], atol=1e-5)


def _hooks(bench):
    return [(*module._forward_hooks, *module._forward_pre_hooks) for module in bench.model.modules()]


def test_misuse_is_an_error_and_leaves_no_hook(bench):
    inputs = bench.prompt(frames=4)
    tokens = _map(bench, inputs)
    before = _hooks(bench)
    for source in ("attention", "layer:3", "layer:-1"):
        with pytest.raises(hooks.CaptureError), hooks.visual_features(bench.model, tokens, (source,)):
            pass
    with (
        pytest.raises(hooks.SelfCheckError, match="never seen"),
        hooks.visual_features(bench.model, tokens, ("vit",)),
    ):
        pass
    with torch.no_grad(), hooks.visual_features(bench.model, tokens, ("projector", "layer:1")):
        bench.model(**inputs)
        with pytest.raises(hooks.CaptureError, match="passed twice"):
            bench.model(**inputs)
    assert _hooks(bench) == before
    assert "get_video_features" not in vars(bench.model.model)


def test_one_encoding_serves_several_questions_bit_for_bit(bench):
    first = bench.prompt(frames=7, question="What is it?")
    second = bench.prompt(frames=7, question="Where is it, then?")
    second["pixel_values_videos"] = first["pixel_values_videos"]
    calls = []
    handle = bench.model.model.visual.register_forward_hook(lambda *_: calls.append(1))
    try:
        with torch.no_grad():
            plain = [bench.model(**inputs).logits for inputs in (first, second)]
            calls.clear()
            with hooks.reuse_vision(bench.model) as reuse:
                again = [bench.model(**inputs).logits for inputs in (first, second, first)]
    finally:
        handle.remove()
    assert len(calls) == 1
    assert (reuse.encoded, reuse.reused) == (1, 2)
    assert all(torch.equal(a, b) for a, b in zip([*plain, plain[0]], again, strict=True))


def test_other_pixels_other_grids_and_changed_pixels_are_encoded_again(bench):
    inputs = bench.prompt(frames=4, size=(2, 3))
    turned = dict(inputs) | {"video_grid_thw": inputs["video_grid_thw"][:, [0, 2, 1]]}
    copied = dict(inputs) | {"pixel_values_videos": inputs["pixel_values_videos"].clone()}
    with torch.no_grad():
        expected = [bench.model(**one).logits for one in (inputs, turned, copied)]
        with hooks.reuse_vision(bench.model) as reuse:
            found = [bench.model(**one).logits for one in (inputs, turned, copied)]
            assert (reuse.encoded, reuse.reused) == (3, 0)
            copied["pixel_values_videos"].mul_(0.5)
            changed = bench.model(**copied).logits
        assert reuse.encoded == 4
        assert torch.equal(changed, bench.model(**copied).logits)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert not torch.equal(changed, expected[2])


def test_what_repr_leaves_out_is_not_compared():
    """Two lists of large tensors read alike; so code that takes pictures as a list is never answered from
    memory."""
    first, second = [torch.zeros(2000)], [torch.zeros(2000)]
    second[0][1000] = 1.0
    assert repr(first) == repr(second)
    assert not hooks.features._is_plain(first)
    assert hooks.features._is_plain(["full", (1, 2.0), None, torch.float32])


def test_reuse_works_in_inference_mode_with_features_and_attention(bench):
    with torch.inference_mode():
        inputs = bench.prompt(frames=4)
        tokens = _map(bench, inputs)
        results = []
        with hooks.reuse_vision(bench.model) as reuse:
            for _ in range(2):
                with (
                    hooks.visual_features(bench.model, tokens, ("projector", "vit")) as features,
                    hooks.attention_rows(bench.model, tokens, "question") as captured,
                ):
                    bench.model(**inputs)
                results.append((features["projector"], features["vit"], captured.unit_mass()))
    assert (reuse.encoded, reuse.reused) == (1, 1)
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))
    assert "get_video_features" not in vars(bench.model.model)
