"""What every architecture family must show, on a tiny random model of its real class with its real processor.

What a family does not take is what the family says of itself (`most_videos`, `equal_videos`, `mixes_kinds`,
`attention_layers`, `beside_stream`), or refuses with a typed error; nothing is left out by a list. What was
shown is noted (`shown`), and is the table of docs/families.md: `make families-table` writes it.
"""

from __future__ import annotations

import copy
import inspect
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

import hooks
from diagnostics.data.items import Item
from diagnostics.models.backends import open_engine
from diagnostics.models.backends.requests import PromptSettings, Request
from diagnostics.models.config import BackendConfig, ModelConfig
from diagnostics.models.loading import load_model
from diagnostics.models.miniatures import miniatures
from diagnostics.models.prompting import letter_tokens, prepare_inputs
from diagnostics.video.selection import Frames, Selection, Slot
from hooks import Kind

from ..families_table import BEGIN, END, PAGE, render
from ..family_bench import QUESTION, SIZE, FamilyBench, clip, make_bench, picture, sound
from ..family_checks import (
    ROLES,
    TOLERANCE,
    additive_mask,
    covered,
    eager_attention,
    encoded,
    expect_captured,
    expect_encoder,
    expect_map,
    kind_of,
    near,
    without_attention,
)

ROOT = Path(__file__).resolve().parents[2]
PINNED = re.search(r"^transformers==(\S+)$", (ROOT / "constraints/core.txt").read_text(), re.M)
DEFAULT = PINNED is not None and PINNED[1] == transformers.__version__
NAMES = miniatures()
COUNTS = (1, 2, 3, 7, 16, 33)
SIZES = {
    "portrait": (96, 64),
    "landscape": (64, 160),
    "tiny": (20, 28),
    "odd": (61, 83),
    "square": (112, 112),
}
SHOWN: dict[str, dict[str, str]] = {}
"""What was shown so far, by model type and what it is."""
LACKING: dict[str, str] = {}
"""Model types that this version of transformers lacks, and what of theirs it has not."""
_LACKS = re.compile(r"cannot import name '(\w+)' from 'transformers|requires the (\w+) library")


def bench_of(name: str) -> FamilyBench:
    """Skips by name what another transformers lacks; with the one we pin, everything is there."""
    try:
        bench = make_bench(name)
    except ImportError as error:
        lacks = _LACKS.search(str(error))
        if DEFAULT or lacks is None:
            raise
        LACKING[name] = lacks[1] or lacks[2]
        pytest.skip(f"{name}: transformers {transformers.__version__} has no {LACKING[name]}")
    if not DEFAULT and (refusal := _refuses_video(name)):
        LACKING[name] = "video"
        pytest.skip(f"{name}: transformers {transformers.__version__} refuses its own video: {refusal}")
    return bench


@cache
def _refuses_video(name: str) -> str:
    """What a version says whose model does not take what its own processor returns (5.20 of gemma4)."""
    bench = make_bench(name)
    try:
        bench.run(bench.inputs(clip(2)))
    except ValueError as error:
        return str(error)
    return ""


def or_skip(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Inputs; skips where the processor of another transformers than we pin cannot stack these videos."""
    try:
        return make()
    except (ValueError, RuntimeError) as error:
        if DEFAULT:
            raise
        pytest.skip(f"transformers {transformers.__version__} takes equally long videos alone: {error}")


@pytest.fixture(params=NAMES)
def bench(request: pytest.FixtureRequest) -> FamilyBench:
    return bench_of(request.param)


@pytest.fixture
def shown(bench: FamilyBench) -> Callable[[str, str], None]:
    """Notes what the bench's family has shown, for the table."""
    return SHOWN.setdefault(bench.name, {}).__setitem__


@pytest.fixture(scope="module", autouse=True)
def results() -> Iterator[None]:
    """Write what was shown to the file that `FAMILIES_JSON` names, once all is run."""
    yield
    if path := os.environ.get("FAMILIES_JSON"):
        found = {"transformers": transformers.__version__, "shown": SHOWN, "lacking": LACKING}
        Path(path).write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def test_every_family_has_a_miniature():
    known = hooks.families()
    tested = {known[name].name for name in NAMES if name in known}
    assert {family.name for family in known.values()} - tested == set(), "families that are not tested"
    assert set(NAMES) <= set(known), "miniatures without a family"


# The token map


@pytest.mark.parametrize("frames", COUNTS)
def test_every_video_token_is_covered_once(bench, frames):
    inputs = bench.inputs(clip(frames))
    tokens = bench.map(inputs, frames)
    expect_map(bench, inputs, tokens, frames)
    expect_encoder(bench, inputs, tokens)


@pytest.mark.parametrize("shape", list(SIZES))
def test_frames_of_any_shape(bench, shape):
    inputs = bench.inputs(clip(3, SIZES[shape]))
    tokens = bench.map(inputs, 3)
    expect_map(bench, inputs, tokens, 3)
    expect_encoder(bench, inputs, tokens)


@settings(max_examples=6, derandomize=True, deadline=None)
@given(
    frames=st.integers(1, 9),
    height=st.integers(16, 180),
    width=st.integers(16, 180),
)
@pytest.mark.parametrize("name", NAMES)
def test_any_count_and_size(name, frames, height, width):
    bench = bench_of(name)
    inputs = bench.inputs(clip(frames, (height, width)))
    expect_map(bench, inputs, bench.map(inputs, frames), frames)


@pytest.mark.parametrize(("second", "size"), [(4, SIZE), (4, (96, 64)), (3, SIZE)])
def test_two_videos_in_one_prompt(bench, second, size):
    clips = clip(4), clip(second, size, seed=1)
    few, uneven = bench.family.most_videos == 1, bench.family.equal_videos and second != 4
    if few or uneven:
        with pytest.raises((ValueError, hooks.HooksError)):
            bench.map(bench.inputs(*clips), 4, second)
        return
    inputs = or_skip(lambda: bench.inputs(*clips))
    tokens = bench.map(inputs, 4, second)
    expect_map(bench, inputs, tokens, 4, second)
    features = encoded(bench, inputs, tokens)
    alone = [bench.inputs(one) for one in clips]
    wanted = [
        encoded(bench, one, bench.map(one, len(given))) for one, given in zip(alone, clips, strict=True)
    ]
    assert np.abs(features - np.concatenate(wanted)).max() <= TOLERANCE, (
        "the videos' own embeddings, in order"
    )


def test_images_alone(bench):
    """Oracle evidence is shown as pictures."""
    inputs = bench.inputs(images=[picture(), picture((96, 64), seed=1)])
    tokens = bench.map(inputs)
    expect_map(bench, inputs, tokens)
    encoded(bench, inputs, tokens)
    assert len(np.unique(tokens.unit_source)) == 2
    assert (tokens.unit_slots[:, 0] == 0).all(), "a picture shows itself"
    assert (tokens.kind[tokens.visual] == Kind.IMAGE).all()


def test_an_image_and_a_video(bench):
    if not bench.family.mixes_kinds:
        with pytest.raises((ValueError, hooks.HooksError)):  # the processor, the map or the model
            _run_mixed(bench)
        return
    inputs = bench.inputs(clip(4), images=[picture(seed=1)])
    tokens = bench.map(inputs, 4)
    expect_map(bench, inputs, tokens, 4)
    assert [kind_of(tokens, source) for source in (0, 1)] == [Kind.IMAGE, Kind.VIDEO]
    features = encoded(bench, inputs, tokens)
    video, image = bench.inputs(clip(4)), bench.inputs(images=[picture(seed=1)])
    wanted = encoded(bench, image, bench.map(image)), encoded(bench, video, bench.map(video, 4))
    assert np.abs(features - np.concatenate(wanted)).max() <= TOLERANCE


def _run_mixed(bench: FamilyBench) -> None:
    mixed = bench.inputs(clip(4), images=[picture()])
    bench.map(mixed, 4)
    bench.run(mixed)


# Time and order


@pytest.mark.parametrize("frames", [1, 4, 7])
def test_units_are_told_their_frames_times(bench, frames):
    """What is told lies between the times of the unit's first and last frame, to the digits it has."""
    given = clip(frames)
    tokens = bench.map(bench.inputs(given), frames)
    told = tokens.unit_shown_seconds
    assert np.isfinite(told).all() or (np.isnan(told).all() and not bench.family.tells_time)
    if np.isnan(told).all():
        return
    seconds = [given.shown_seconds[slots[slots >= 0]] for slots in tokens.unit_slots]
    cut = 1.0 if bench.family.whole_seconds(bench.model) else 0.05
    for unit, own in enumerate(seconds):
        assert own.min() - cut < told[unit] < own.max() + 0.051, (
            f"unit {unit} shows {own}, is told {told[unit]}"
        )
    assert (np.diff(told) > 0).all()
    beside = {int(unit) for unit in tokens.unit[tokens.kind == Kind.TIMESTAMP]}
    assert beside == (set(range(tokens.n_units)) if bench.family.tells_time else set())


@pytest.mark.parametrize("frames", [6, 7])
def test_reversed_frames(bench, frames):
    """Of an even number of frames, units are shown in reverse. Of an odd number the processor repeats the
    last: units of two frames pair others when they are reversed, and the repeated one is another."""
    per_unit = bench.family.slots_per_unit(bench.model)
    forth = clip(frames)
    back = clip(frames, pixels=forth.pixels[::-1])
    numbers = {}
    for name, one, indices in (("forth", forth, range(frames)), ("back", back, range(frames)[::-1])):
        tokens = bench.map(bench.inputs(one), frames)
        frame = np.array(list(indices))
        numbers[name] = [sorted(frame[slots[slots >= 0]].tolist()) for slots in tokens.unit_slots]
    if frames % per_unit == 0:
        assert numbers["back"] == numbers["forth"][::-1]
        return
    assert numbers["forth"][-1] == [frames - 1], "the last frame is alone in its unit"
    assert numbers["back"][-1] == [0], "now the first one is"
    assert numbers["back"] != numbers["forth"][::-1]


def test_reversed_units_have_each_other_s_embeddings(bench):
    """Frames alike within each unit, so that reversing them is reversing units."""
    per_unit, units = bench.family.slots_per_unit(bench.model), 4
    scenes = clip(units).pixels
    forth = np.repeat(scenes, per_unit, axis=0)
    found = []
    for pixels in (forth, forth[::-1]):
        inputs = bench.inputs(clip(len(pixels), pixels=pixels))
        tokens = bench.map(inputs, len(pixels))
        features = encoded(bench, inputs, tokens)
        found.append([features[tokens.unit_tokens(unit)] for unit in range(units)])
    for unit, (one, other) in enumerate(zip(found[0], found[1][::-1], strict=True)):
        error, size = np.abs(one - other).max(), np.abs(one).max()
        assert error <= TOLERANCE * size, f"unit {unit}: {error:.1e} of {size:.1e}"
    differs = np.abs(found[0][0] - found[0][1]).max() / np.abs(found[0][0]).max()
    assert differs > 10 * TOLERANCE, "the test needs scenes that differ"


# One bright square


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_bright_square_is_found_at_its_token(bench, place):
    plain = clip(6)
    inputs = bench.inputs(plain)
    tokens = bench.map(inputs, 6)
    unit = 1
    rows, cols = (int(side) for side in tokens.unit_grid[unit])
    row, col = (0, 0) if place == "first" else (rows - 1, max(cols - 2, 0))
    height, width = SIZE
    y, x = int((row + 0.5) * height / rows), int((col + 0.5) * width / cols)
    reach = max(1, int(min(height / rows, width / cols) / 8))
    pixels = plain.pixels.copy()
    pixels[tokens.unit_slots[unit][-1], y - reach : y + reach, x - reach : x + reach] = 255
    marked = bench.inputs(clip(6, pixels=pixels))
    assert (marked["input_ids"] == inputs["input_ids"]).all()

    change = np.abs(encoded(bench, marked, tokens) - encoded(bench, inputs, tokens)).max(axis=-1)
    with without_attention(bench.family.vision(bench.model)):
        alone = np.abs(encoded(bench, marked, tokens) - encoded(bench, inputs, tokens)).max(axis=-1)
    outside = np.ones(tokens.n_visual, dtype=bool)
    outside[tokens.unit_tokens(unit)] = False
    assert change[outside].max() == 0, "another unit has changed"
    at = np.nanargmax(tokens.unit_picture(change, unit))
    assert np.unravel_index(at, (rows, cols)) == (row, col), "the change is greatest elsewhere"
    here = tokens.unit_picture(alone, unit)
    assert here[row, col] > 0
    here[row, col] = 0
    assert np.nanmax(here) == 0, "other tokens change without attention"


# Attention, and interventions on it


@pytest.mark.parametrize("frames", [7, 8])
def test_captured_mass_is_that_of_eager_attention(bench, frames, shown):
    inputs = bench.inputs(clip(frames))
    tokens = bench.roles(inputs, frames)
    plain = bench.run(inputs).logits
    with torch.no_grad(), hooks.attention_rows(bench.model, tokens, rows=ROLES) as captured:
        observed = bench.model(**inputs).logits
    assert torch.equal(plain, observed), "capture changed the logits"
    attention = eager_attention(bench, inputs)[:, 0]
    assert captured.layers == bench.family.attention_layers(bench.model)
    expect_captured(captured, attention, tokens)
    assert attention[..., tokens.visual].std() > 1e-4, "the test needs attention that is not uniform"
    shown("capture", covered(bench))


@pytest.mark.parametrize("name", ["video_to_question", "cross_unit"])
def test_knockout_is_eager_attention_at_minus_infinity(bench, name, shown):
    inputs = bench.inputs(clip(6))
    tokens = bench.roles(inputs, 6)
    n = len(tokens)
    blocked = np.zeros((n, n), dtype=bool)
    for edges in hooks.path_edges(tokens, name):
        blocked[np.ix_(edges.queries, edges.keys)] = True
    block = tokens.two_way
    blocked &= np.tri(n, dtype=bool) | ((block[:, None] == block) & (block >= 0))
    assert blocked.any()
    layers, attending = bench.family.layers(bench.eager), bench.family.attention_layers(bench.eager)
    plain = bench.run(inputs).logits
    with torch.no_grad(), hooks.knock_out(bench.model, tokens, name, layers=attending) as knockout:
        found = bench.model(**inputs).logits
    with torch.no_grad(), ExitStack() as stack:
        for layer in attending:
            attention = bench.family.attention(layers[layer])
            handle = attention.register_forward_pre_hook(additive_mask(bench, blocked), with_kwargs=True)
            stack.callback(handle.remove)
        wanted = bench.eager(**inputs).logits
    near(found, wanted, name)
    assert float((wanted - plain).abs().max()) > 1e-4 * float(plain.abs().max()), "edges that matter"
    assert (knockout.blocked_mass > 0).all()
    assert knockout.partial == (len(attending) < len(layers))
    assert torch.equal(bench.run(inputs).logits, plain)
    shown("knockout", "partial" if knockout.partial else "yes")


def test_a_silenced_head_is_a_projection_without_its_columns(bench, shown):
    inputs = bench.inputs(clip(4))
    attending = bench.family.attention_layers(bench.model)
    heads = {(attending[0], 1): 0.0, (attending[-1], 3): -1.5}
    with hooks.scale_heads(bench.model, heads):
        found = bench.run(inputs).logits
    edited = copy.deepcopy(bench.model)
    n_heads = bench.family.text_model(edited).config.num_attention_heads
    with torch.no_grad():
        for (layer, head), factor in heads.items():
            attention = bench.family.attention(bench.family.layers(edited)[layer])
            weight = bench.family.output_projection(attention).weight
            width = weight.shape[1] // n_heads
            weight[:, head * width : (head + 1) * width] *= factor
        wanted = edited(**inputs).logits
    near(found, wanted, "heads")
    plain = bench.run(inputs).logits
    assert float((wanted - plain).abs().max()) > 1e-4 * float(plain.abs().max()), "heads that matter"
    shown("heads", covered(bench))


# The residual stream


def test_states_are_transformers_hidden_states(bench, shown):
    inputs = bench.inputs(clip(7))
    tokens = bench.map(inputs, 7)
    with torch.no_grad(), hooks.residual(bench.model, tokens) as stream:
        output = bench.model(**inputs, output_hidden_states=True)
    n = len(bench.family.layers(bench.model))
    after = set(bench.family.deepstack_layers(bench.model))
    scale = float(output.hidden_states[-1].abs().max())
    for layer in range(n):
        if layer - 1 in after:
            continue  # transformers notes the state before DeepStack adds to it: tests/hooks/test_residual.py
        error = np.abs(stream.at(layer) - output.hidden_states[layer][0].numpy()).max()
        assert error <= TOLERANCE * scale, f"input of layer {layer}: {error:.1e}"
    with torch.no_grad():
        normed = bench.family.final_norm(bench.model)(torch.from_numpy(stream.at(n)))
    near(normed, output.hidden_states[-1][0], "the last state, normed")
    shown("residual", "yes")


def test_the_lens_at_the_last_layer_is_the_model(bench, shown):
    inputs = bench.inputs(clip(4))
    tokens = bench.map(inputs, 4)
    with (
        torch.no_grad(),
        hooks.residual(bench.model, tokens, layers=[len(bench.family.layers(bench.model))]) as s,
    ):
        logits = bench.model(**inputs).logits[0]
    seen = s.unembed([3, 200, 11], top=1)
    near(torch.from_numpy(seen.logits[0]), logits[:, [3, 200, 11]], "lens")
    assert (seen.top_ids[0, :, 0] == logits.argmax(-1).numpy()).all()
    shown("lens", "yes")


def test_patched_states_make_one_run_the_other(bench, shown):
    inputs = bench.inputs(clip(4))
    other = bench.inputs(clip(4, seed=1))
    corrupt = {
        name: other[name] if name.startswith("pixel_values") else value for name, value in inputs.items()
    }
    tokens = bench.roles(inputs, 4)
    clean, changed = bench.run(inputs).logits[0, -1], bench.run(corrupt).logits[0, -1]
    assert float((clean - changed).abs().max()) > 0, "the test needs runs that differ"
    everywhere = np.arange(len(tokens))
    if bench.family.beside_stream(bench.model):
        with pytest.raises(hooks.UnsupportedModelError):
            hooks.patch(bench.model, inputs, corrupt, tokens, 0, everywhere)
        shown("patching", "no")
        return
    for layer in range(len(bench.family.layers(bench.model))):
        found = hooks.patch(bench.model, inputs, corrupt, tokens, layer, everywhere)
        near(torch.from_numpy(found), clean, f"everything patched at layer {layer}")
        found = hooks.patch(bench.model, inputs, corrupt, tokens, layer, [])
        near(torch.from_numpy(found), changed, f"nothing patched at layer {layer}")
    ids = (30, 31)
    sets = {"unit:0": tokens.visual[tokens.unit_tokens(0)], "question": tokens.question}
    grid = hooks.patch_grid(bench.model, inputs, corrupt, tokens, token_ids=ids, sets=sets)
    for row, layer in enumerate(grid.layers):
        for column, places in enumerate(sets.values()):
            one = hooks.patch(bench.model, inputs, corrupt, tokens, layer, places)[list(ids)]
            near(torch.from_numpy(grid.logits[row, column]), torch.from_numpy(one), "a cell of the grid")
    shown("patching", "yes")


def test_sound_is_mapped_as_its_own_kind(bench, shown):
    if Kind.AUDIO not in bench.family.placeholders(bench.model):
        shown("audio", "no")
        return
    given = clip(4)
    inputs = bench.inputs(given, sounds=[sound(1.0), sound(2.5, seed=1)])
    tokens = bench.roles(inputs, 4)
    expect_map(bench, inputs, tokens, 4)
    silent = bench.roles(bench.inputs(given), 4)
    assert tokens.visual.tolist() == silent.visual.tolist()
    stands = inputs["input_ids"][0].numpy() == bench.family.placeholders(bench.model)[Kind.AUDIO]
    assert tokens.audio.tolist() == np.flatnonzero(stands).tolist()
    assert len(tokens.audio) > 0
    assert (tokens.unit[tokens.audio] == -1).all()
    with torch.no_grad(), hooks.attention_rows(bench.model, tokens, rows=ROLES) as captured:
        heard = bench.model(**inputs).logits
    expect_captured(captured, eager_attention(bench, inputs)[:, 0], tokens)
    other = bench.inputs(given, sounds=[sound(1.0, seed=2), sound(2.5, seed=3)])
    assert not torch.equal(bench.run(other).logits, heard), "the sound is heard"
    shown("audio", "yes")


# Batches


def test_a_batch_of_two_equal_prompts(bench):
    alone = bench.inputs(clip(4))
    inputs = bench.batch([([clip(4)], (), QUESTION)] * 2)
    tokens = [bench.roles(inputs, 4, row=row) for row in (0, 1)]
    wanted = bench.roles(alone, 4)
    for one in tokens:
        assert one.kind.tolist() == wanted.kind.tolist()
        assert one.unit_slots.tolist() == wanted.unit_slots.tolist()
    with torch.no_grad(), hooks.attention_rows(bench.model, tokens, rows=ROLES) as captured:
        logits = bench.model(**inputs).logits
    near(logits[0], bench.run(alone).logits[0], "first")
    near(logits[1], logits[0], "second")
    attention = eager_attention(bench, alone)[:, 0]
    for row in (0, 1):
        expect_captured(captured[row], attention, tokens[row])


def test_left_padding(bench):
    """Two prompts of other lengths: the shorter is padded, and its map moves with it."""
    second = 4 if bench.family.equal_videos else 7
    longer = "Is it so? " + QUESTION
    inputs = or_skip(lambda: bench.batch([([clip(4)], (), QUESTION), ([clip(second, seed=1)], (), longer)]))
    counts = 4, second
    tokens = [bench.roles(inputs, count, row=row) for row, count in enumerate(counts)]
    padding = int((tokens[0].kind == Kind.PADDING).sum())
    assert padding > 0
    assert not (tokens[1].kind == Kind.PADDING).any()
    alone = bench.inputs(clip(4))
    wanted = bench.roles(alone, 4)
    # From the first visual token on: smolvlm's prompt begins with the largest number of frames of its batch.
    begins = int(tokens[0].visual[0]), int(wanted.visual[0])
    assert tokens[0].kind[begins[0] :].tolist() == wanted.kind[begins[1] :].tolist()
    assert tokens[0].unit[begins[0] :].tolist() == wanted.unit[begins[1] :].tolist()
    with torch.no_grad():
        plain = bench.model(**inputs).logits
        with hooks.attention_rows(bench.model, tokens, rows=ROLES) as captured:
            observed = bench.model(**inputs).logits
    assert torch.equal(plain, observed)
    attention = eager_attention(bench, inputs)
    for row in (0, 1):
        expect_captured(captured[row], attention[:, row], tokens[row])


# The whole road, and the page


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIAGNOSTICS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def test_questions_are_answered(bench, shown, cache):
    """A checkpoint on disk, loaded and asked as a person's own: two questions of a video through the engine,
    against one whole forward each."""
    config = ModelConfig(
        name=bench.name, path=f"miniature/{bench.name}", dtype="float32", device="cpu", local_files_only=True
    )
    loaded = load_model(config)
    slots = tuple(Slot("v", index * 10, index * 10 / 3, index * 10 / 3) for index in range(4))
    frames = Frames(clip(4).pixels, Selection(slots, "test", 3.0, 40, 40 / 3, 4))
    options = ("white", "green", "blue")
    items = [
        Item(id=text, video=Path("v.mp4"), video_id="v", question=text, options=options, answer="A")
        for text in (QUESTION, "Is it so?")
    ]
    notes: dict = {}
    engine = open_engine(lambda: loaded, config, BackendConfig(), notes.__setitem__)
    asked = PromptSettings("Answer with the letter.", 3)
    with engine:
        futures = engine.submit([Request(item, {}, frames, asked) for item in items])
        engine.flush()
        answers = [future.result() for future in futures]
    for item, answer in zip(items, answers, strict=True):
        prompt = prepare_inputs(loaded, item, frames, instruction=asked.instruction, max_new_tokens=3)
        with torch.no_grad():
            logits = loaded.model(**prompt.inputs).logits[0, -1]
        wanted = logits[letter_tokens(loaded.processor.tokenizer, item)]
        near(torch.tensor(answer.option_logits), wanted, item.id)
        assert answer.n_prompt_tokens == prompt.n_tokens
        assert 1 <= answer.n_new_tokens <= 3
    assert answers[0].option_logits != answers[1].option_logits
    shown("accuracy", "yes")


def test_the_table_of_the_page_is_what_was_shown(request):
    if not DEFAULT:
        pytest.skip("the page is about the version of transformers that is pinned")
    about = {name for name, test in globals().items() if "shown" in _parameters(test)}
    ran = {
        (item.originalname, item.callspec.params["bench"])
        for item in request.session.items
        if item.path == request.path and "shown" in item.fixturenames
    }
    if ran != {(test, name) for test in about for name in NAMES}:
        pytest.skip("only a part of the suite was run")
    text = PAGE.read_text()
    table = text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip()
    assert table == render(SHOWN).strip(), "run `make families-table`"


def _parameters(test: object) -> set[str]:
    wanted = inspect.isfunction(test) and test.__name__.startswith("test_")
    return set(inspect.signature(test).parameters) if wanted else set()
