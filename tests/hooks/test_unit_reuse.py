"""Units encoded once: the same logits as without, whatever order and company they are shown in."""

import numpy as np
import pytest
import torch

import hooks


def rows(bench, inputs, units):
    """The prompt with the video's units in another order (units have equally many patches)."""
    patches = inputs["pixel_values_videos"].unflatten(0, (int(inputs["video_grid_thw"][0, 0]), -1))
    return dict(inputs) | {"pixel_values_videos": patches[units].flatten(0, 1).clone()}


@pytest.mark.parametrize("size", [(2, 3), (4, 4)])
def test_a_shuffled_video_is_put_together_from_units(bench, size):
    inputs = bench.prompt(frames=8, size=size)
    order = [2, 0, 3, 1]
    shuffled, doubled = rows(bench, inputs, order), rows(bench, inputs, [1, 1, 0, 3])
    with torch.no_grad():
        expected = [bench.model(**one).logits for one in (inputs, shuffled, doubled)]
        with hooks.reuse_units(bench.model) as reuse:
            found = []
            for one, names in ((inputs, range(4)), (shuffled, order), (doubled, [1, 1, 0, 3])):
                with reuse.units(list(names)):
                    found.append(bench.model(**one).logits)
    assert (reuse.encoded, reuse.reused) == (4, 8)
    for a, b in zip(expected, found, strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    assert not torch.allclose(expected[0], expected[1], atol=1e-3), "the order must matter to the test"
    assert "get_video_features" not in vars(bench.model.model)


def test_only_what_is_new_is_encoded(bench):
    inputs = bench.prompt(frames=6)
    other = dict(inputs) | {"pixel_values_videos": inputs["pixel_values_videos"].clone()}
    per_unit = len(other["pixel_values_videos"]) // 3
    other["pixel_values_videos"][per_unit : 2 * per_unit] *= -0.5
    calls = []
    handle = bench.model.model.visual.register_forward_hook(
        lambda module, given, output: calls.append(len(given[0]) // per_unit)
    )
    with torch.no_grad(), hooks.reuse_units(bench.model) as reuse:
        with reuse.units(["a", "b", "c"]):
            bench.model(**inputs)
        with reuse.units(["a", "new", "c"]):
            found = bench.model(**other).logits
        handle.remove()
    with torch.no_grad():
        assert torch.allclose(found, bench.model(**other).logits, atol=1e-5)
    assert calls == [3, 1, 3], "three units; the new one; the whole once, to check that units stand alone"
    assert (reuse.encoded, reuse.reused) == (4, 2)


def test_without_names_nothing_is_reused_and_wrong_names_are_refused(bench):
    inputs = bench.prompt(frames=4)
    with torch.no_grad(), hooks.reuse_units(bench.model) as reuse:
        bench.model(**inputs)
        bench.model(**inputs)
        assert (reuse.encoded, reuse.reused) == (0, 0)
        with reuse.units(["only one"]), pytest.raises(hooks.CaptureError, match="1 units were named"):
            bench.model(**inputs)


def test_a_tower_that_mixes_units_is_refused(bench):
    inputs = bench.prompt(frames=4)

    def mix(module, given, output):
        output.last_hidden_state = output.last_hidden_state + output.last_hidden_state.mean(0)
        return output

    handle = bench.model.model.visual.register_forward_hook(mix)
    try:
        with torch.no_grad(), hooks.reuse_units(bench.model) as reuse:
            with reuse.units(["a", "b"]):
                bench.model(**inputs)
            with reuse.units(["a", "c"]), pytest.raises(hooks.SelfCheckError, match="mixes units"):
                bench.model(**inputs)
    finally:
        handle.remove()


def test_memory_is_bounded_and_features_are_seen(bench):
    inputs = bench.prompt(frames=6)
    tokens = hooks.token_map(bench.model, bench.processor, inputs)
    with torch.no_grad():
        with hooks.visual_features(bench.model, tokens, ("projector", "vit")) as plain:
            bench.model(**inputs)
        with hooks.reuse_units(bench.model, most_bytes=1) as reuse:
            for _ in range(2):
                with (
                    reuse.units(["a", "b", "c"]),
                    hooks.visual_features(bench.model, tokens, ("projector", "vit")) as features,
                ):
                    bench.model(**inputs)
            assert len(reuse._held) == 1
    for name in ("projector", "vit"):
        assert np.allclose(plain[name], features[name], atol=1e-5)
