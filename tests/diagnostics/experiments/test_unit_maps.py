"""Maps over units and removals of one item, each against asking anew with pictures that were painted grey."""

from __future__ import annotations

from collections.abc import Iterator
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
from diagnostics.experiments.inside import Look, look_inside, option_logits
from diagnostics.experiments.pairs import Pair
from diagnostics.experiments.showing import Source
from diagnostics.experiments.unit_maps import MAPS, Removal, maps_of, occlusion
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
    video: Path = clips.encode(clips.folder / "own.mp4", range(1000, 1040), size=(128, 96))
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
