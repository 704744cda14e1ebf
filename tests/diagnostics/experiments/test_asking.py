"""Asking under conditions: what is encoded once answers as if encoded each time; measures by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from einops import rearrange
from scipy.special import logit, softmax

import hooks
from diagnostics.data.items import Evidence, Item, Window
from diagnostics.errors import ObservationError
from diagnostics.experiments.asking import Asking, log_odds
from diagnostics.experiments.context import Context
from diagnostics.experiments.pairs import Pair, measure_pairs
from diagnostics.experiments.showing import Library, Shown, Source, nothing
from diagnostics.models.backends.hf import answer
from diagnostics.models.prompting import prepare_inputs
from diagnostics.store.manifest import read_manifests
from diagnostics.video.order import reorder
from diagnostics.video.perturb import blank
from diagnostics.video.reading import FrameReader
from diagnostics.video.selection import Selection, Slot

from ...checkpoints import qwen2_5_checkpoint
from ..video.conftest import Clips
from .engine import item_of, open_context, slots_of, walked

N_FRAMES = 8


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Clips:
    return Clips(tmp_path_factory.mktemp("clips"))


@pytest.fixture(scope="module")
def item(clips: Clips) -> Item:
    video = clips.encode(clips.folder / "own.mp4", range(1000, 1040), size=(128, 96))
    windows = (Window(0.0, 0.3, 0, 9), Window(0.5, 0.6, 15, 16))
    return item_of(video, options=("red", "blue", "green"), answer="B", evidence=Evidence(windows, "exact"))


@pytest.fixture(scope="module")
def foil(clips: Clips) -> Path:
    return clips.encode(clips.folder / "foil.mp4", range(2000, 2040), size=(192, 96))


@pytest.fixture(scope="module", params=["qwen3_vl", "qwen2_5_vl"])
def context(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    folder = tmp_path_factory.mktemp("asked")
    model = "tiny_random" if request.param == "qwen3_vl" else str(qwen2_5_checkpoint(folder / "model"))
    with open_context(folder / "run", (), model=model) as opened:
        yield opened


def shows(item: Item, foil: Path) -> dict[str, dict[str, Any]]:
    """What each condition changes about eight uniform frames."""
    own = Selection(slots_of(item.video_id, [0, 5, 10, 15, 20, 25, 30, 35], 30), "test", 30.0, 40, 4 / 3, 8)
    swapped = (*own.slots[:2], Slot(item.video_id, 7, 7 / 30, 0.3), Slot(item.video_id, 8, 8 / 30, 0.5))
    # Frames of the foil with the same numbers as the video's own.
    foreign = [
        Slot("foil", slot.frame_index, slot.true_seconds, slot.shown_seconds) for slot in own.slots[4:]
    ]
    return {
        "original": {"selection": own},
        "again": {"selection": own},
        "by unit": {"selection": reorder(own, "full", seed=1, timestamps="slot", unit=2)},
        "by frame": {"selection": reorder(own, "reversed", timestamps="carry", unit=1)},
        "swapped": {"selection": replace(own, slots=(*swapped, *own.slots[4:]))},
        "blank": {"selection": blank(own)},
        "foil": {
            "selection": replace(own, slots=(*own.slots[:4], *foreign)),
            "sources": {"foil": foil},
            "foil": "C",
        },
        "jpeg": {"selection": own, "jpeg": 30},
        "odd": {"selection": replace(own, slots=own.slots[:5], requested=5)},
        "small": {"selection": own, "frame_pixels": 64 * 64},
        "images": {"selection": replace(own, slots=own.slots[:3]), "form": "images"},
        "nothing": {"selection": nothing(own), "form": "nothing"},
    }


@pytest.fixture(scope="module")
def sources(context: Context, item: Item, foil: Path) -> dict[str, Source]:
    told = shows(item, foil)

    def show(pair: Pair, library: Library) -> Shown:
        return Shown(library.checked(item), **told[pair.condition["shown"]])

    pairs = [Pair(item, {"shown": name}) for name in told]
    with FrameReader() as reader:
        found = dict(zip(told, (one for _, one in walked(context, reader, pairs, show)), strict=True))
    assert all(isinstance(one, Source) for one in found.values()), found
    return found  # type: ignore[return-value]


@pytest.fixture(scope="module")
def asked(context: Context, sources: dict[str, Source]) -> tuple[dict[str, dict[str, Any]], hooks.UnitReuse]:
    """The fields of each condition, all asked one after the other, and what was encoded."""
    with Asking(context) as asking:
        fields = {name: asking(Pair(source.item), source).fields for name, source in sources.items()}
        assert asking._reuse is not None
        return fields, asking._reuse


def alone(context: Context, source: Source) -> Any:
    """The reply without anything kept from another condition."""
    prompt = prepare_inputs(
        context.model,
        source.item,
        source.frames,
        instruction=context.config.backend.instruction,
        max_new_tokens=1,
        form=source.form,
        frame_pixels=source.frame_pixels,
    )
    return answer(context.model, prompt.inputs, source.item, 1)


def test_answers_are_those_of_each_condition_asked_alone(
    context: Context, sources: dict[str, Source], asked: tuple[dict[str, dict[str, Any]], hooks.UnitReuse]
) -> None:
    fields, _ = asked
    for name, source in sources.items():
        reply = alone(context, source)
        found = list(fields[name]["option_logprobs"].values())
        worst = np.abs(np.array(found) - reply.option_logprobs).max()
        assert worst < 1e-4, f"{name}: {worst}"
        assert fields[name]["raw"] == reply.text, name


def test_conditions_are_told_apart_by_the_model(
    asked: tuple[dict[str, dict[str, Any]], hooks.UnitReuse],
) -> None:
    """Otherwise the test above could not see a unit taken for another."""
    fields, _ = asked
    replies = {name: tuple(one["option_logprobs"].values()) for name, one in fields.items()}
    assert replies.pop("again") == pytest.approx(replies["original"], abs=1e-6)
    names = list(replies)
    for place, name in enumerate(names):
        for other in names[:place]:
            assert np.abs(np.subtract(replies[name], replies[other])).max() > 1e-4, (name, other)


def test_every_distinct_unit_is_encoded_once(
    sources: dict[str, Source], asked: tuple[dict[str, dict[str, Any]], hooks.UnitReuse]
) -> None:
    """Distinct by their pixels, which the names that units are reused by know nothing of."""
    _, reuse = asked
    distinct, shown = set(), 0
    for name, source in sources.items():
        if source.form != "video" or name == "again":  # the same prompt, which is not asked twice
            continue
        pixels = source.frames.pixels
        if len(pixels) % 2:
            pixels = np.concatenate([pixels, pixels[-1:]])
        for unit in rearrange(pixels, "(unit two) h w c -> unit (two h w c)", two=2):
            distinct.add((source.frame_pixels, unit.tobytes()))
            shown += 1
    # Qwen2.5-VL's `size` bounds each frame, so that the smaller frames are of another size there too.
    assert reuse.encoded == len(distinct)
    assert reuse.encoded + reuse.reused == shown


def test_log_odds_of_the_right_option_and_of_the_foil(
    context: Context, sources: dict[str, Source], asked: tuple[dict[str, dict[str, Any]], hooks.UnitReuse]
) -> None:
    fields, _ = asked
    for name, source in sources.items():
        logits = np.array(alone(context, source).option_logits)
        expected = logit(softmax(logits))
        measures = fields[name]["measures"]
        assert measures["gold_log_odds"] == pytest.approx(expected[1], abs=5e-4)
        if name == "foil":
            assert measures["foil_log_odds"] == pytest.approx(expected[2], abs=5e-4)
            assert measures["foil_answered"] == (fields[name]["answer"] == "C")
        else:
            assert not {"foil_log_odds", "foil_answered"} & set(measures)


def test_log_odds_by_hand() -> None:
    assert log_odds(np.log([0.5, 0.25, 0.25]), 0) == pytest.approx(0.0)
    assert log_odds(np.log([0.1, 0.9]), 0) == pytest.approx(np.log(1 / 9))
    assert log_odds(np.array([-1e4, 0.0, 0.0]), 0) == pytest.approx(-1e4 - np.log(2)), "no overflow"


def test_evidence_that_is_shown(asked: tuple[dict[str, dict[str, Any]], hooks.UnitReuse]) -> None:
    """Frames 0 to 8 and 15 are evidence; the eight frames are 0, 5, ..., 35."""
    fields, _ = asked
    expected = {
        "original": (3, 1.0, 1, 1),
        "swapped": (4, 0.5, 1, 0),
        "foil": (3, 1.0, 1, 1),
        "blank": (0, 0.0, 0, 0),
        "images": (2, 0.5, 1, 0),
    }
    names = ("evidence_slots", "windows_hit", "any_window_hit", "all_windows_hit")
    for shown, values in expected.items():
        assert tuple(fields[shown]["measures"][name] for name in names) == values, shown
    assert not set(names) & set(fields["nothing"]["measures"])


def test_a_record_says_what_the_prompt_held(
    asked: tuple[dict[str, dict[str, Any]], hooks.UnitReuse],
) -> None:
    fields, _ = asked
    assert (fields["original"]["n_units"], fields["odd"]["n_units"], fields["images"]["n_units"]) == (4, 3, 3)
    for name in ("original", "odd", "small", "images"):
        one = fields[name]
        assert one["n_visual_tokens"] == one["n_units"] * one["tokens_per_unit"]
        assert one["n_prompt_tokens"] > one["n_visual_tokens"]
        units = sum(t * h * w for t, h, w in one["grid"]) // 4
        assert units == one["n_visual_tokens"]
    assert fields["small"]["tokens_per_unit"] < fields["original"]["tokens_per_unit"]
    assert any("shrunk_by_pixel_limits" in told for told in fields["small"]["warnings"])
    assert "n_visual_tokens" not in fields["nothing"]
    assert fields["nothing"]["n_prompt_tokens"] < fields["images"]["n_prompt_tokens"]
    hashes = {name: one["prompt_sha256"] for name, one in fields.items()}
    assert hashes["original"] == hashes["again"] == hashes["by unit"] == hashes["blank"], (
        "one clock, one text"
    )
    assert len({hashes[name] for name in ("original", "odd", "small", "images", "nothing")}) == 5


def test_one_prompt_is_answered_once_whatever_its_conditions_are_called(
    context: Context, sources: dict[str, Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def counted(loaded: Any, inputs: Any, item: Item, max_new_tokens: int) -> Any:
        calls.append(item.id)
        return answer(loaded, inputs, item, max_new_tokens)

    monkeypatch.setattr("diagnostics.experiments.asking.answer", counted)
    original = sources["original"]
    # Held at more pixels than the frames have: the same prompt.
    large = context.model.family.pixels_left(8, dict(context.model.processor.video_processor.size))
    held = replace(original, frame_pixels=large or 10**6)
    with Asking(context) as asking:
        first = asking(Pair(original.item), original).fields
        for same in (sources["again"], replace(original, decode_seconds=9.0), held):
            again = asking(Pair(same.item), same).fields
            assert {k: v for k, v in again.items() if k != "seconds"} == {
                k: v for k, v in first.items() if k != "seconds"
            }
        assert len(calls) == 1
        others = [name for name in sources if name not in ("original", "again")]
        for name in others:
            asking(Pair(original.item), sources[name])
        assert len(calls) == 1 + len(others), "each of the others is another prompt"
        turned = replace(original.item, options=original.item.options[::-1])
        asking(Pair(turned), replace(original, item=turned))
        relettered = replace(original.item, answer="A")
        asking(Pair(relettered), replace(original, item=relettered))
        assert len(calls) == 3 + len(others)
        other = replace(original.item, id="another")
        asking(Pair(other), replace(original, item=other))
        assert calls[-1] == "another", "nothing is kept for the next item"


def test_no_hook_stays_behind(context: Context, sources: dict[str, Source]) -> None:
    base = context.model.model.model
    with Asking(context) as asking:
        asking(Pair(sources["original"].item), sources["original"])
        assert "get_video_features" in vars(base)
    assert "get_video_features" not in vars(base)


def test_attention_comes_of_the_same_forward(context: Context, sources: dict[str, Source]) -> None:
    """The same answers; the check of the capture in the manifest; measures of videos alone."""
    names = ("original", "by unit", "images", "nothing")
    with Asking(context, attention=True) as looking:
        looked = {name: looking(Pair(sources[name].item), sources[name]).fields for name in names}
    with Asking(context) as asking:
        plain = {name: asking(Pair(sources[name].item), sources[name]).fields for name in names}
    for name in names:
        assert looked[name]["option_logprobs"] == pytest.approx(plain[name]["option_logprobs"], abs=1e-4)
        assert ("entropy" in looked[name]["measures"]) == (name in ("original", "by unit"))
        assert "entropy" not in plain[name]["measures"]
    measures, shuffled = (looked[name]["measures"] for name in ("original", "by unit"))
    assert 0 <= measures["evidence_mass"] <= 1
    assert measures["unit_similarity"] == pytest.approx(shuffled["unit_similarity"], abs=1e-5)
    (manifest,) = read_manifests(context.folder.path)
    assert manifest.checks["capture"]["max_logit_difference"] < 1e-3


def test_a_model_that_cannot_be_observed_costs_the_pair_alone(
    tmp_path: Path, item: Item, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, calls = hooks.token_map, []

    def first_fails(*arguments: Any, **options: Any) -> hooks.TokenMap:
        calls.append(arguments)
        if len(calls) == 1:
            raise hooks.TokenMapError("a token is missing.", remedy="Report it.")
        return plain(*arguments, **options)

    monkeypatch.setattr(hooks, "token_map", first_fails)
    with ExitStack() as stack:
        context = stack.enter_context(open_context(tmp_path / "run", [item]))
        asking = stack.enter_context(Asking(context))
        pairs = [Pair(item, {"n": number}) for number in range(2)]
        measure_pairs(context, pairs, asking, "Asking")
        errors = {record.condition["n"]: record.error for record in context.folder.records()}
    assert errors[0] is not None
    assert errors[0].type == ObservationError.__name__
    assert errors[1] is None
