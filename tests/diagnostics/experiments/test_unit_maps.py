"""Maps over units and removals of one item, each against asking anew with pictures that were painted grey."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logit, softmax

import hooks
from diagnostics.data.items import Evidence, Item, Window
from diagnostics.errors import ItemError
from diagnostics.experiments.context import Context
from diagnostics.experiments.faithfulness import Config, Measurement
from diagnostics.experiments.inside import Look, look_inside, option_logits
from diagnostics.experiments.pairs import Pair
from diagnostics.experiments.showing import Source
from diagnostics.experiments.unit_maps import MAPS, Removal, maps_of, occlusion
from diagnostics.models.loading import load_model
from diagnostics.video.perturb import GREY
from diagnostics.video.reading import FrameReader
from diagnostics.video.selection import Frames

from ...checkpoints import qwen2_5_checkpoint
from ..video.conftest import Clips
from .engine import item_of, open_context, shown_by_frames, walked

UNITS = 4


@pytest.fixture(scope="module", params=["qwen3_vl", "qwen2_5_vl"])
def context(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    folder = tmp_path_factory.mktemp("removed")
    model = "tiny_random" if request.param == "qwen3_vl" else str(qwen2_5_checkpoint(folder / "model"))
    with open_context(folder / "run", (), model=model) as opened:
        yield opened


@pytest.fixture(scope="module")
def source(context: Context, tmp_path_factory: pytest.TempPathFactory) -> Source:
    clips = Clips(tmp_path_factory.mktemp("clips"))
    # Whole patches of each family, of 32 or 28 pixels, and as many as it would have: nothing is resized.
    size = (128, 96) if context.config.model.name == "tiny_random" else (448, 224)
    video: Path = clips.encode(clips.folder / "own.mp4", range(1000, 1040), size=size)
    windows = (Window(0.3, 0.5, 10, 16),)
    item: Item = item_of(
        video, options=("red", "blue", "green"), answer="B", evidence=Evidence(windows, "exact")
    )
    pair = Pair(item, {"frames": [0, 5, 10, 15, 20, 25, 30, 35]})
    with FrameReader() as reader:
        ((_, found),) = walked(context, reader, [pair], shown_by_frames)
    assert isinstance(found, Source)
    return found


@pytest.fixture
def removal(context: Context, source: Source) -> Iterator[Removal]:
    look = look_inside(context, source.item, source.frames)
    with hooks.reuse_units(context.model.model) as reuse:
        yield Removal.of(context, source, look, reuse, how="grey")


def anew(context: Context, source: Source, units: list[int], how: str = "grey") -> np.ndarray:
    """Option logits with both frames of some units painted over, nothing reused."""
    pixels = source.frames.pixels.copy()
    for unit in units:
        pixels[2 * unit : 2 * unit + 2] = GREY if how == "grey" else np.median(source.frames.pixels, axis=0)
    look = look_inside(context, source.item, Frames(pixels, source.frames.selection))
    return option_logits(context.model, look)


@pytest.mark.parametrize("grey", [[], [1], [0, 3], [0, 1, 2, 3]])
@pytest.mark.parametrize("how", ["grey", "median"])
def test_what_is_removed_is_what_is_painted_over(context, source, grey, how) -> None:
    without = np.isin(np.arange(UNITS), grey)
    expected = softmax(anew(context, source, grey, how))[1]
    look = look_inside(context, source.item, source.frames)
    with hooks.reuse_units(context.model.model) as reuse:
        odds = Removal.of(context, source, look, reuse, how=how)
        share = Removal.of(context, source, look, reuse, how=how, outcome="probability")
        assert odds(without) == pytest.approx(logit(expected), abs=1e-4)
        assert share(without) == pytest.approx(expected, abs=1e-5)
        assert odds(without) == odds(without)
    assert odds.forwards == 1


def test_another_model_than_the_run_s_is_the_one_asked(context, source) -> None:
    other = load_model(context.config.model)
    with torch.no_grad():
        for weights in other.model.parameters():
            weights.mul_(1.5)
    look = look_inside(context, source.item, source.frames, other)
    edges = hooks.units_to_everything(look.tokens, [1])
    expected = option_logits(other, look)
    with hooks.knock_out(other.model, look.tokens, edges):
        knocked_out = option_logits(other, look)
    with hooks.reuse_units(other.model) as reuse:
        removal = Removal.of(context, source, look, reuse, loaded=other)
        found = [removal(np.isin(np.arange(UNITS), units)) for units in ([], [1])]
    assert found == pytest.approx([logit(softmax(one)[1]) for one in (expected, knocked_out)], abs=1e-4)
    assert np.abs(expected - option_logits(context.model, look)).max() > 1e-3


@pytest.mark.parametrize("units", [[1], [0, 3], [0, 1, 2, 3]])
def test_what_is_knocked_out_does_not_matter_any_more(context, source, units) -> None:
    """Whatever picture a unit shows that nothing reads, the answer is the same, and is not the whole's."""
    look = look_inside(context, source.item, source.frames)
    without = np.isin(np.arange(UNITS), units)
    with hooks.reuse_units(context.model.model) as reuse:
        removal = Removal.of(context, source, look, reuse)
        found, whole = removal(without), removal(np.zeros(UNITS, bool))
    pixels = source.frames.pixels.copy()
    for unit in units:
        pixels[2 * unit : 2 * unit + 2] = GREY
    painted = look_inside(context, source.item, Frames(pixels, source.frames.selection))
    edges = hooks.units_to_everything(painted.tokens, units)
    with hooks.knock_out(context.model.model, painted.tokens, edges):
        expected = logit(softmax(option_logits(context.model, painted))[1])
    assert found == pytest.approx(expected, abs=1e-4)
    assert abs(found - whole) > 1e-5


def test_every_map_is_one_number_a_unit(context, source, removal) -> None:
    sinks = hooks.find_sinks(context.model.model, int(removal.look.tokens.input_ids[0]), first_layer=0)
    found = maps_of(removal, tuple(MAPS), "question", sinks)
    assert list(found) == list(MAPS)
    assert all(values.shape == (UNITS,) and np.isfinite(values).all() for values in found.values())
    assert removal.forwards == 1 + 2 + 2 * UNITS

    def odds(*units: int) -> float:
        return float(logit(softmax(anew(context, source, list(units)))[1]))

    for unit in range(UNITS):
        lost = odds() - odds(unit)
        gained = odds(*(other for other in range(UNITS) if other != unit)) - odds(*range(UNITS))
        assert found["occlusion"][unit] == pytest.approx((lost + gained) / 2, abs=1e-4)
        assert occlusion(removal, "removed", 64)[unit] == pytest.approx(lost, abs=1e-4)
        assert occlusion(removal, "alone", 64)[unit] == pytest.approx(gained, abs=1e-4)
    assert removal.forwards == 1 + 2 + 2 * UNITS, "each set of units is asked once"


def test_one_forward_gives_what_each_hook_gives_alone(context, removal) -> None:
    model, look = context.model.model, removal.look
    found = maps_of(removal, ("attention", "relevancy", "rollout", "token_activation"), "last", None)
    with torch.no_grad(), hooks.attention_rows(model, look.tokens, "last") as captured:
        model(**look.inputs)
    assert np.abs(found["attention"] - captured.unit_mass("last").mean((0, 1))).max() <= 1e-5
    with torch.no_grad(), hooks.token_activation(model, look.tokens, look.letters[1]) as activation:
        model(**look.inputs)
    assert np.abs(found["token_activation"] - activation.units).max() <= 1e-4
    with hooks.relevance(model, look.tokens) as relevance:
        options = model(**look.inputs).logits[0, -1, list(look.letters)]
        expected = relevance.units(relevance.relevancy(torch.logit(options.softmax(0)[1])))
        rollout = relevance.units(relevance.rollout())
    assert np.abs(found["relevancy"] - expected).max() <= 1e-3 * expected.max()
    assert np.abs(found["rollout"] - rollout).max() <= 1e-5


def test_neighbours_share_a_forward_where_there_are_too_many(removal) -> None:
    found = maps_of(removal, ("occlusion",), "question", None, ends="removed", most_occlusions=2)
    assert removal.forwards == 1 + 2
    assert found["occlusion"][0] == found["occlusion"][1] != found["occlusion"][2] == found["occlusion"][3]


def test_a_role_without_tokens_is_refused(context, removal) -> None:
    look: Look = removal.look
    object.__setattr__(look.tokens, "question", np.array([], dtype=np.int64))
    with pytest.raises(ItemError, match="no question"):
        maps_of(removal, ("attention",), "question", None)


def some_patches(look: Look) -> np.ndarray:
    """All of unit 1, two of unit 0, one of unit 3."""
    tokens = look.tokens
    chosen = np.zeros(tokens.n_visual, dtype=bool)
    chosen[tokens.unit_tokens(1)] = True
    chosen[[1, 5, tokens.unit_tokens(3).start + 2]] = True
    return chosen


@pytest.mark.parametrize("how", ["grey", "median"])
def test_patches_that_are_replaced_are_those_that_are_painted_over(context, source, how) -> None:
    look = look_inside(context, source.item, source.frames)
    chosen, tokens = some_patches(look), look.tokens
    rows, columns = tokens.unit_grid[0].tolist()
    pixels = source.frames.pixels.copy()
    height, width = pixels.shape[1] // rows, pixels.shape[2] // columns
    assert (rows * height, columns * width) == pixels.shape[1:3], "whole patches: nothing is resized"
    fill = np.median(source.frames.pixels, axis=0) if how == "median" else np.full(pixels.shape[1:], GREY)
    for position in tokens.visual[chosen]:
        down, across = int(tokens.row[position]) * height, int(tokens.col[position]) * width
        place = (slice(down, down + height), slice(across, across + width))
        for slot in tokens.unit_slots[tokens.unit[position]]:
            pixels[slot][place] = fill[place]
    painted = look_inside(context, source.item, Frames(pixels, source.frames.selection))
    expected = logit(softmax(option_logits(context.model, painted))[1])
    with hooks.reuse_units(context.model.model) as reuse:
        removal = Removal.of(context, source, look, reuse, how=how, level="patches")
        assert removal(chosen) == pytest.approx(expected, abs=1e-4)
        assert removal(np.zeros(removal.n_parts, bool)) != pytest.approx(expected, abs=1e-4)
        # All patches of some units are those units.
        units = Removal.of(context, source, look, reuse, how=how)
        whole = np.isin(tokens.unit[tokens.visual], [0, 2])
        assert removal(whole) == pytest.approx(units(np.isin(np.arange(UNITS), [0, 2])), abs=1e-5)


def test_nothing_later_reads_patches_that_are_knocked_out(context, source) -> None:
    look = look_inside(context, source.item, source.frames)
    tokens, chosen = look.tokens, some_patches(look)
    gone = {int(position) for position in tokens.visual[chosen]}
    # Row by row, from the words of the docstring.
    edges = [
        hooks.Edges(np.array([row]), np.array(sorted(keys)))
        for row in range(len(tokens))
        if row not in gone and (keys := {key for key in gone if key < row})
    ]
    with hooks.knock_out(context.model.model, tokens, edges):
        expected = logit(softmax(option_logits(context.model, look))[1])
    with hooks.reuse_units(context.model.model) as reuse:
        removal = Removal.of(context, source, look, reuse, level="patches")
        assert removal.n_parts == tokens.n_visual
        assert removal(chosen) == pytest.approx(expected, abs=1e-4)
        assert abs(removal(chosen) - removal(np.zeros(removal.n_parts, bool))) > 1e-5


def test_maps_over_patches_add_up_to_those_over_units(context, source) -> None:
    look = look_inside(context, source.item, source.frames)
    model, role = context.model.model, "question"
    sinks = hooks.Sinks((3, 9), threshold=0.9, first_layer=0)
    with hooks.reuse_units(model) as reuse:
        removal = Removal.of(context, source, look, reuse, level="patches")
        wanted = tuple(name for name in MAPS if name != "occlusion")
        found = maps_of(removal, wanted, role, sinks)
        by_occlusion = occlusion(removal, "removed", 6)
    assert all(values.shape == (look.tokens.n_visual,) for values in found.values())
    with (
        torch.no_grad(),
        hooks.attention_rows(model, look.tokens, role, value_weighted=True, sinks=sinks) as captured,
    ):
        model(**look.inputs)
    units = {
        "attention": captured.unit_mass(role),
        "value_weighted": captured.value_mass(role),
        "sink_filtered": captured.unit_mass(role) - captured.sink_unit_mass(role),
    }
    assert 0 < units["sink_filtered"].sum() < 0.999 * units["attention"].sum(), "some tokens are sinks"
    for name, mass in units.items():
        error = np.abs(look.tokens.unit_sum(found[name]) - mass.mean((0, 1))).max()
        assert error <= 1e-5 * max(1.0, mass.max()), f"{name} is off by {error}"
    with torch.no_grad(), hooks.token_activation(model, look.tokens, look.letters[1]) as activation:
        model(**look.inputs)
    assert np.abs(found["token_activation"] - activation.tokens).max() <= 1e-4
    # Six stretches: neighbours share a score, the fall over all of them.
    stretch = np.array_split(np.arange(look.tokens.n_visual), 6)[2]
    gone = np.isin(np.arange(look.tokens.n_visual), stretch)
    assert len(set(by_occlusion[stretch])) == 1
    with hooks.reuse_units(model) as reuse:
        removal = Removal.of(context, source, look, reuse, level="patches")
        fall = removal(np.zeros_like(gone)) - removal(gone)
    assert by_occlusion[stretch].sum() == pytest.approx(fall, abs=1e-4)


def test_boxes_that_cannot_be_read_are_refused_before_anything_is_removed(
    context, source, monkeypatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the model was run")

    for name in ("maps_of", "answered"):
        monkeypatch.setattr(f"diagnostics.experiments.faithfulness.{name}", never)
    wrong = replace(source.item, metadata={"evidence_regions": [{"frames": [10, 16], "box": [0, 0, 2, 2]}]})
    with ExitStack() as stack:
        measure = Measurement(context, Config(level="patches"), stack)
        with pytest.raises(ItemError, match="is no box"):
            measure(Pair(wrong), replace(source, item=wrong))
