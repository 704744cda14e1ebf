"""Patched states against the ends they must meet, against whole forwards, and against nnsight."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hooks

TOLERANCE = 2e-6
IDS = (30, 31, 32, 33)


def _case(bench, frames=8, **options):
    """Clean, corrupt with other pixels everywhere, and their map."""
    clean = bench.prompt(frames=frames, **options)
    corrupt = dict(clean)
    corrupt["pixel_values_videos"] = clean["pixel_values_videos"].flip(0)
    return clean, corrupt, hooks.token_map(bench.model, bench.processor, clean)


def _one_unit(bench, unit):
    """Corrupt in one temporal unit alone."""
    clean, corrupt, tokens = _case(bench)
    patches = len(clean["pixel_values_videos"]) // tokens.n_units
    mixed = clean["pixel_values_videos"].clone()
    here = slice(unit * patches, (unit + 1) * patches)
    mixed[here] = corrupt["pixel_values_videos"][here]
    return clean, dict(clean, pixel_values_videos=mixed), tokens


def _logits(bench, inputs):
    with torch.no_grad():
        return bench.model(**inputs, logits_to_keep=1, use_cache=False).logits[0, -1].float().numpy()


def _near(found, expected, what):
    error = np.abs(found - expected).max()
    assert error <= TOLERANCE, f"{what}: {error:.2e} > {TOLERANCE}"


def test_the_ends(bench):
    """Everything patched is the clean run, nothing patched the corrupt one, bit for bit."""
    clean, corrupt, tokens = _case(bench)
    everywhere = np.arange(len(tokens))
    a, b = _logits(bench, clean), _logits(bench, corrupt)
    assert np.abs(a - b).max() > 1e-2, "the test needs runs that differ"
    injections = len(hooks.family_of(bench.model).deepstack_layers(bench.model))
    for layer in range(3):
        found = hooks.patch(bench.model, clean, corrupt, tokens, layer, everywhere)
        assert np.array_equal(found, a), f"all streams patched, layer {layer}"
        without = hooks.patch(bench.model, clean, corrupt, tokens, layer, everywhere, deepstack="leak")
        assert np.array_equal(without, a) == (layer >= injections), f"no stream patched, layer {layer}"
        assert np.array_equal(hooks.patch(bench.model, clean, corrupt, tokens, layer, []), b)
        noised = hooks.patch(bench.model, clean, corrupt, tokens, layer, everywhere, direction="noising")
        assert np.array_equal(noised, b)


@pytest.mark.parametrize("deepstack", ["with", "leak"])
@pytest.mark.parametrize("direction", ["denoising", "noising"])
def test_a_grid_equals_patches_one_by_one(bench, deepstack, direction):
    clean, corrupt, tokens = _case(bench)
    sets = hooks.position_sets(tokens) | {
        "all": np.arange(len(tokens)),
        "none": np.array([], dtype=np.int64),
        "scattered": tokens.visual[::5][::-1],
    }
    how = {"deepstack": deepstack, "direction": direction}
    grid = hooks.patch_grid(bench.model, clean, corrupt, tokens, token_ids=IDS, sets=sets, chunk=13, **how)
    assert (grid.layers, grid.sets, grid.token_ids) == ((0, 1, 2), tuple(sets), IDS)
    assert grid.logits.shape == (3, len(sets), 4)
    _near(grid.clean, _logits(bench, clean)[list(IDS)], "clean")
    _near(grid.corrupt, _logits(bench, corrupt)[list(IDS)], "corrupt")
    for row, layer in enumerate(grid.layers):
        for column, (name, places) in enumerate(sets.items()):
            one = hooks.patch(bench.model, clean, corrupt, tokens, layer, places, **how)
            _near(grid.logits[row, column], one[list(IDS)], f"{name} at layer {layer}")
    assert np.ptp(grid.logits[:, :4], axis=(0, 1)).max() > 1e-3, "the test needs cells that differ"


@pytest.mark.parametrize("deepstack", ["with", "leak"])
@pytest.mark.parametrize("direction", ["denoising", "noising"])
def test_nnsight_agrees(bench, deepstack, direction):
    pytest.importorskip("nnsight")
    clean, corrupt, tokens = _case(bench)
    for layer, places in ((0, tokens.visual[3:9]), (1, tokens.visual[5:20]), (2, tokens.question)):
        how = {"deepstack": deepstack, "direction": direction}
        ours = hooks.patch(bench.model, clean, corrupt, tokens, layer, places, **how)
        theirs = hooks.patch_nnsight(bench.model, clean, corrupt, tokens, layer, places, **how)
        _near(ours, theirs, f"layer {layer}")


def test_the_order_of_sets_and_layers_tells_nothing(bench):
    clean, corrupt, tokens = _case(bench)
    sets = hooks.position_sets(tokens)
    turned = dict(reversed(sets.items()))
    one = hooks.patch_grid(bench.model, clean, corrupt, tokens, token_ids=IDS, sets=sets)
    other = hooks.patch_grid(
        bench.model, clean, corrupt, tokens, token_ids=IDS, sets=turned, layers=(2, 0, 1)
    )
    assert np.array_equal(one.logits, other.logits[[1, 2, 0]][:, ::-1])


def test_only_the_cells_asked_for_are_made(bench):
    clean, corrupt, tokens = _case(bench)
    sets = hooks.position_sets(tokens)
    asked = np.zeros((3, len(sets)), dtype=bool)
    asked[1, 2] = asked[2, 0] = True
    whole = hooks.patch_grid(bench.model, clean, corrupt, tokens, token_ids=IDS, sets=sets)
    some = hooks.patch_grid(bench.model, clean, corrupt, tokens, token_ids=IDS, sets=sets, cells=asked)
    assert np.array_equal(some.logits[asked], whole.logits[asked])
    assert np.isnan(some.logits[~asked]).all()
    assert some.forwards < whole.forwards / 3
    with pytest.raises(hooks.InterventionError, match="Cells are"):
        hooks.patch_grid(bench.model, clean, corrupt, tokens, token_ids=IDS, sets=sets, cells=asked[:2])


def test_cells_before_the_change_cost_nothing(bench):
    """One unit differs: earlier ones give the corrupt run for nothing, the rest cost what is said."""
    changed = 2
    clean, corrupt, tokens = _one_unit(bench, changed)
    sets = {f"unit:{unit}": places for unit, places in enumerate(
        tokens.visual[tokens.unit_tokens(unit)] for unit in range(tokens.n_units)
    )}  # fmt: skip
    grid = hooks.patch_grid(bench.model, clean, corrupt, tokens, token_ids=IDS, sets=sets)
    first = np.array([places[0] for places in sets.values()])
    assert (grid.first_changed[:, :changed] == -1).all()
    assert (grid.logits[:, :changed] == grid.corrupt).all()
    assert (grid.first_changed[:, changed] == first[changed]).all()
    assert (grid.first_changed[1:, changed + 1] == first[changed + 1]).all(), "later units attend to it"
    _near(grid.logits[0, changed], grid.clean, "the unit itself at layer 0")
    by_hand = sum(
        (3 - layer) / 3 * (len(tokens) - first[unit]) / len(tokens)
        for layer in range(3)
        for unit in range(changed, 4)
        if not (layer == 0 and unit > changed)
    )
    assert grid.forwards == pytest.approx(by_hand)
    assert hooks.expected_forwards(3, grid.layers, grid.first_changed, len(tokens)) == pytest.approx(by_hand)


def test_the_issues_arithmetic():
    """12 layers by 16 units: 55 forwards where all change, 21 on average where one does."""
    first = np.tile(np.arange(16), (12, 1))
    assert hooks.expected_forwards(12, range(12), first, 16) == pytest.approx(6.5 * 8.5)
    means = [
        hooks.expected_forwards(12, range(12), np.where(first < unit, -1, first), 16) for unit in range(16)
    ]
    assert np.mean(means) == pytest.approx(20.7, abs=0.05)


def test_the_leak_is_told(qwen3, qwen2_5):
    """What DeepStack still adds of the other video, against the streams themselves."""
    clean, corrupt, tokens = _case(qwen3)
    found = []
    for inputs in (clean, corrupt):
        with torch.no_grad(), hooks.layer_inputs.layer_inputs(qwen3.model, len(tokens), (0, 1)) as one:
            qwen3.model(**inputs)
        found.append(one)
    sets = {"unit:1": tokens.visual[tokens.unit_tokens(1)], "question": tokens.question}
    grid = hooks.patch_grid(qwen3.model, clean, corrupt, tokens, token_ids=IDS, sets=sets, deepstack="leak")
    here = tokens.unit_tokens(1)
    streams = [sum(one.streams[number][here].double() for number in (0, 1)) for one in found]
    states = [one.states[0][tokens.visual[here]].double() for one in found]
    expected = float((streams[0] - streams[1]).norm() / (states[0] - states[1]).norm())
    assert grid.leak[0, 0] == pytest.approx(expected, rel=1e-4)
    assert grid.leak[1, 0] > 0
    assert grid.leak[2, 0] == 0
    assert np.isnan(grid.leak[0, 1]), "nothing of the question changes before the first layer"
    assert (grid.leak[1:, 1] == 0).all()
    with_them = hooks.patch_grid(qwen3.model, clean, corrupt, tokens, token_ids=IDS, sets=sets)
    assert (with_them.leak[:, 0] == 0).all()
    clean, corrupt, tokens = _case(qwen2_5)
    other = hooks.patch_grid(qwen2_5.model, clean, corrupt, tokens, token_ids=IDS, deepstack="leak")
    assert (np.nan_to_num(other.leak) == 0).all()


def test_sets_cover_units_with_what_stands_beside_them(bench):
    inputs = bench.prompt(frames=8)
    tokens = hooks.token_map(bench.model, bench.processor, inputs, options=["A. red", "B. deep green"])
    wide, narrow = hooks.position_sets(tokens), hooks.position_sets(tokens, beside=False)
    assert list(wide) == [*(f"unit:{unit}" for unit in range(4)), "question", "options", "last"]
    assert np.array_equal(np.concatenate([narrow[f"unit:{unit}"] for unit in range(4)]), tokens.visual)
    beside = len(wide["unit:1"]) - len(narrow["unit:1"])
    assert (beside > 2) == (bench.name == "qwen3_vl"), "Qwen3-VL writes a time and delimiters for each unit"


def test_patching_under_other_hooks(bench):
    """Heads scaled in every run: a grid is that of the model as it then is."""
    clean, corrupt, tokens = _case(bench)

    def zero(_module, args):
        return (args[0] * torch.linspace(0, 1, args[0].shape[-1]), *args[1:])

    sets = {"unit:1": tokens.visual[tokens.unit_tokens(1)]}
    projection = bench.model.model.language_model.layers[1].self_attn.o_proj
    plain = hooks.patch_grid(bench.model, clean, corrupt, tokens, token_ids=IDS, sets=sets)
    handle = projection.register_forward_pre_hook(zero)
    try:
        grid = hooks.patch_grid(bench.model, clean, corrupt, tokens, token_ids=IDS, sets=sets)
        one = hooks.patch(bench.model, clean, corrupt, tokens, 1, sets["unit:1"])[list(IDS)]
    finally:
        handle.remove()
    _near(grid.logits[1, 0], one, "under another hook")
    assert np.abs(grid.logits - plain.logits).max() > 1e-4


def test_patching_with_edges_blocked(bench):
    """Under a knockout both roads patch the model that has it, and rows are captured of a patched run."""
    clean, corrupt, tokens = _case(bench)
    sets = {"unit:1": tokens.visual[tokens.unit_tokens(1)]}
    how = {"layers": (0, 1), "sets": sets, "token_ids": IDS}
    plain = hooks.patch_grid(bench.model, clean, corrupt, tokens, **how)
    with hooks.knock_out(bench.model, tokens, "video_to_last"):
        grid = hooks.patch_grid(bench.model, clean, corrupt, tokens, **how)
        for row, layer in enumerate(grid.layers):
            one = hooks.patch(bench.model, clean, corrupt, tokens, layer, sets["unit:1"])
            _near(grid.logits[row, 0], one[list(IDS)], f"layer {layer}")
    assert np.abs(grid.logits - plain.logits).max() > 1e-4, "the test needs a knockout that matters"
    width = bench.model.config.text_config.hidden_size
    put = {1: torch.zeros(len(sets["unit:1"]), width)}
    with (
        torch.no_grad(),
        hooks.layer_inputs.put_states(bench.model, len(tokens), sets["unit:1"], put),
        hooks.attention_rows(bench.model, tokens, "last") as captured,
        hooks.residual(bench.model, tokens, positions=sets["unit:1"]) as stream,
    ):
        bench.model(**corrupt)
    assert captured.unit_mass("last").shape[-1] == tokens.n_units
    assert np.abs(stream.at(0)).max() > 0


def test_everything_is_put_back_after_an_exception(fresh):
    bench = fresh()
    clean, corrupt, tokens = _case(bench)
    before = _logits(bench, corrupt)
    layers = bench.model.model.language_model.layers
    calls = 0

    def fail(*_):
        nonlocal calls
        calls += 1
        if calls > 3:
            raise RuntimeError("in the middle")

    handle = layers[2].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="in the middle"):
        hooks.patch_grid(bench.model, clean, corrupt, tokens, token_ids=IDS)
    handle.remove()
    with (
        pytest.raises(RuntimeError, match="mine"),
        hooks.layer_inputs.put_states(bench.model, len(tokens), np.array([3]), {1: torch.zeros(1, 48)}),
    ):
        raise RuntimeError("mine")
    assert bench.model.model.language_model.layers is layers
    assert not any(layer._forward_pre_hooks for layer in layers)
    assert not bench.model.model.language_model._forward_pre_hooks
    assert np.array_equal(_logits(bench, corrupt), before)


def test_states_put_in_where_no_forward_passes(bench):
    _, _, tokens = _case(bench)
    width = bench.model.config.text_config.hidden_size
    with (
        pytest.raises(hooks.SelfCheckError, match="Nothing was put"),
        hooks.layer_inputs.put_states(bench.model, len(tokens), np.array([3]), {1: torch.zeros(1, width)}),
    ):
        pass


def test_refusals(bench):
    clean, corrupt, tokens = _case(bench)
    grid = {"token_ids": IDS}
    other = bench.prompt(frames=8, question="Which other colour is it?")
    longer = bench.prompt(frames=10)
    smaller = dict(clean, video_grid_thw=clean["video_grid_thw"].flip(1))
    for wrong, what in ((other, "input_ids"), (longer, "input_ids"), (smaller, "video_grid_thw")):
        with pytest.raises(hooks.InterventionError, match=f"another {what}"):
            hooks.patch_grid(bench.model, clean, wrong, tokens, **grid)
    with pytest.raises(hooks.InterventionError, match="token map"):
        hooks.patch(bench.model, longer, longer, tokens, 0, [1])
    with pytest.raises(hooks.InterventionError, match=r"\[3\] do not exist"):
        hooks.patch(bench.model, clean, corrupt, tokens, 3, [1])
    with pytest.raises(hooks.InterventionError, match="lie outside"):
        hooks.patch(bench.model, clean, corrupt, tokens, 0, [len(tokens)])
    with pytest.raises(hooks.InterventionError, match="No layer"):
        hooks.patch_grid(bench.model, clean, corrupt, tokens, layers=(), **grid)
    with pytest.raises(hooks.InterventionError, match="No set"):
        hooks.patch_grid(bench.model, clean, corrupt, tokens, sets={}, **grid)
    size = bench.model.get_output_embeddings().weight.shape[0]
    with pytest.raises(hooks.InterventionError, match=f"vocabulary of {size}"):
        hooks.patch_grid(bench.model, clean, corrupt, tokens, token_ids=(size,))
    with pytest.raises(hooks.InterventionError, match="sideways"):
        hooks.patch(bench.model, clean, corrupt, tokens, 0, [1], direction="sideways")
