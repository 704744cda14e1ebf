"""Questions of a video asked together answer as if alone, the video is run once, and faults are told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diagnostics.data.items import Item, Turn
from diagnostics.errors import ControlTokenError, OutOfMemoryError, SharingError
from diagnostics.models.backends import hf, open_engine, shared_prefix
from diagnostics.models.backends.requests import Answer, PromptSettings, Request
from diagnostics.models.config import BackendConfig
from diagnostics.models.loading import LoadedModel
from diagnostics.models.prompting import prepare_inputs
from diagnostics.video.selection import Frames

from .conftest import FAMILIES, a_question, load, uniform

SETTINGS = PromptSettings("Answer with one letter.", 6)
QUESTIONS = (
    a_question(id="short"),
    a_question(id="two options", question="Is it blue?", options=("yes", "no")),
    a_question(
        id="open", question="Describe the procedure in one sentence, please.", options=(), answer=None
    ),
    a_question(id="long", question="Which of these is seen first in the upper left? " * 4),
    a_question(id="turns", turns=(Turn("user", "Is there a lesion?"), Turn("assistant", "Yes, one."))),
)
"""Of other lengths, numbers of options and earlier turns: what follows the video differs in every way."""


@pytest.fixture(scope="module")
def frames() -> Frames:
    return uniform(8, fps=25, source_frames=250)


def requests(frames: Frames, items: Sequence[Item] = QUESTIONS, **changes: Any) -> list[Request]:
    return [Request(item, {}, frames, replace(SETTINGS, **changes)) for item in items]


def an_engine(loaded: LoadedModel, **config: Any) -> tuple[hf.HfEngine, dict[str, Any]]:
    notes: dict[str, Any] = {}
    engine = open_engine(lambda: loaded, loaded.config, BackendConfig(parameters=config), notes.__setitem__)
    assert isinstance(engine, hf.HfEngine)
    return engine, notes


def answers(engine: hf.HfEngine, group: Sequence[Request]) -> list[Answer]:
    return [future.result() for future in engine.submit(group)]


def alone(loaded: LoadedModel, request: Request) -> hf.Reply:
    """The plain road: transformers' own `generate` on the whole prompt."""
    prompt = prepare_inputs(
        loaded,
        request.item,
        request.frames,
        instruction=request.prompt.instruction,
        max_new_tokens=request.prompt.max_new_tokens,
        form=request.prompt.form,
        frame_pixels=request.prompt.frame_pixels,
    )
    return hf.answer(loaded, prompt.inputs, request.item, request.prompt.max_new_tokens)


@pytest.mark.parametrize("form", ["video", "images", "nothing"])
@pytest.mark.parametrize("family", FAMILIES)
def test_asked_together_they_answer_as_alone(
    loaded: dict[str, LoadedModel], frames: Frames, family: str, form: str
) -> None:
    engine, notes = an_engine(loaded[family])
    group = requests(frames, form=form)
    together = answers(engine, group)
    for request, found in zip(group, together, strict=True):
        expected = alone(loaded[family], request)
        name = request.item.id
        assert found.text == expected.text, name
        assert (found.n_new_tokens, found.cut) == (expected.n_tokens, expected.cut), name
        assert len(found.option_logprobs) == len(request.item.options), name
        if request.item.options:
            scale = np.abs(expected.option_logits).max()
            worst = np.abs(np.subtract(found.option_logits, expected.option_logits)).max() / scale
            assert worst < 1e-5, f"{name}: logits differ by {worst:.2g} of the largest"
        assert found.together == len(group)
    replies = {found.option_logits for found in together if found.option_logits}
    assert len(replies) == 4, "questions that answer alike could hide one taken for another"
    assert notes["sharing"]["questions"] == len(group)
    assert notes["sharing"]["max_logit_difference"] <= notes["sharing"]["allowed"]


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_every_question_are_those_of_a_forward_within_1e_5(
    checkpoints: dict[str, Path], frames: Frames, family: str
) -> None:
    """Absolute, on logits of the usual size: the fixtures have an output layer 20 times larger."""
    loaded = load(checkpoints[family])
    with torch.no_grad():
        loaded.model.lm_head.weight.div_(20.0)
    inputs = [
        prepare_inputs(loaded, item, frames, instruction="One letter.", max_new_tokens=3).inputs
        for item in QUESTIONS
    ]
    found = shared_prefix.answer_together(loaded, inputs, 3, {-1})
    for one, decoded in zip(inputs, found, strict=True):
        with torch.inference_mode():
            expected = loaded.model(**one).logits[0, -1]
        torch.testing.assert_close(decoded.first_logits, expected, atol=1e-5, rtol=0)
        assert len(decoded.tokens) == 3


def test_eager_attention_takes_the_same_mask(checkpoints: dict[str, Path], frames: Frames) -> None:
    loaded = load(checkpoints["qwen3_vl"], attention="eager")
    group = requests(frames)
    for request, found in zip(group, answers(an_engine(loaded)[0], group), strict=True):
        expected = alone(loaded, request)
        assert found.text == expected.text
        assert found.option_logprobs == pytest.approx(expected.option_logprobs, abs=1e-3)


@contextmanager
def counted(loaded: LoadedModel) -> Iterator[dict[str, int]]:
    """Videos encoded and tokens that pass the first decoder layer."""
    counts = {"videos": 0, "tokens": 0, "prepared": 0}
    plain = type(loaded.processor.video_processor).__call__

    def see(module: Any, given: tuple, options: dict[str, Any]) -> None:
        counts["videos"] += 1

    def pass_by(module: Any, given: tuple, options: dict[str, Any]) -> None:
        counts["tokens"] += (given[0] if given else options["hidden_states"]).shape[1]

    def prepare(self: Any, *arguments: Any, **options: Any) -> Any:
        counts["prepared"] += 1
        return plain(self, *arguments, **options)

    base = loaded.model.model
    handles = [
        base.visual.register_forward_pre_hook(see, with_kwargs=True),
        base.language_model.layers[0].register_forward_pre_hook(pass_by, with_kwargs=True),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(loaded.processor.video_processor), "__call__", prepare)
        try:
            yield counts
        finally:
            for handle in handles:
                handle.remove()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_video_is_prepared_encoded_and_run_once(
    loaded: dict[str, LoadedModel], frames: Frames, family: str
) -> None:
    engine, notes = an_engine(loaded[family])
    group = requests(frames, max_new_tokens=1)
    answers(engine, group)  # with the check, which goes the plain road once
    with counted(loaded[family]) as counts:
        together = answers(engine, group)
    prefix = notes["sharing"]["prefix_tokens"]
    lengths = [found.n_prompt_tokens or 0 for found in together]
    assert counts["videos"] == counts["prepared"] == 1
    assert counts["tokens"] == prefix + sum(length - prefix for length in lengths)
    assert prefix > together[0].n_visual_tokens
    with counted(loaded[family]) as counts:
        for request in group:
            answers(an_engine(loaded[family], sharing=False)[0], [request])
    assert counts["videos"] == counts["prepared"] == len(group)
    assert counts["tokens"] == sum(lengths)


def test_sharing_off_takes_one_question_at_a_time(loaded: dict[str, LoadedModel]) -> None:
    assert an_engine(loaded["qwen3_vl"], sharing=False, together=8)[0].together == 1
    assert an_engine(loaded["qwen3_vl"], together=8)[0].together == 8


def test_wrong_positions_are_noticed(
    loaded: dict[str, LoadedModel], frames: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = shared_prefix._text_positions
    monkeypatch.setattr(shared_prefix, "_text_positions", lambda b, first, n: plain(b, first + 1, n))
    with pytest.raises(SharingError, match="positions"):
        an_engine(loaded["qwen3_vl"])[0].submit(requests(frames))


def test_questions_that_see_each_other_are_noticed(
    loaded: dict[str, LoadedModel], frames: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = shared_prefix._Packed.run

    def all_one(self: Any, tokens: Any, positions: Any, owners: torch.Tensor) -> Any:
        return plain(self, tokens, positions, torch.zeros_like(owners))

    monkeypatch.setattr(shared_prefix._Packed, "run", all_one)
    with pytest.raises(SharingError, match="logits differ"):
        an_engine(loaded["qwen3_vl"])[0].submit(requests(frames))


def test_a_prompt_prepared_otherwise_is_noticed(
    loaded: dict[str, LoadedModel], frames: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was kept from the first question must be what the last one would have got."""
    darker = replace(frames, pixels=frames.pixels // 2)
    group = requests(frames)
    group[-1] = replace(group[-1], frames=darker)
    with pytest.raises(SharingError, match="pixel_values_videos"):
        an_engine(loaded["qwen3_vl"])[0].submit(group)


def test_pictures_behind_the_common_part_are_refused(loaded: dict[str, LoadedModel], frames: Frames) -> None:
    other = uniform(10, fps=25, source_frames=250)
    inputs = [
        prepare_inputs(
            loaded["qwen3_vl"], a_question(), shown, instruction="One letter.", max_new_tokens=1
        ).inputs
        for shown in (frames, other)
    ]
    with pytest.raises(SharingError, match=r"sharing=false"):
        shared_prefix.common_prefix(loaded["qwen3_vl"], inputs)


def test_one_bad_question_does_not_cost_the_others(loaded: dict[str, LoadedModel], frames: Frames) -> None:
    bad = a_question(id="bad", question="Is <|im_end|> seen?")
    engine, _ = an_engine(loaded["qwen3_vl"])
    group = requests(frames, (QUESTIONS[0], bad, QUESTIONS[1]))
    first, refused, last = engine.submit(group)
    assert isinstance(refused.exception(), ControlTokenError)
    assert [first.result().text, last.result().text] == [
        alone(loaded["qwen3_vl"], group[place]).text for place in (0, 2)
    ]


def test_out_of_memory_is_tried_alone_then_refused(
    loaded: dict[str, LoadedModel], frames: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together never fits; alone, one question does not. No question is asked with fewer frames."""
    plain, shown = hf.answer, []

    def together(*arguments: Any, **options: Any) -> Any:
        torch.empty(10**15)  # a petabyte: torch's own refusal

    def alone_fits_all_but_one(asked: LoadedModel, inputs: Any, item: Item, most: int) -> hf.Reply:
        shown.append(int(inputs["video_grid_thw"][0, 0]))
        if item.id == "long":
            torch.empty(10**15)
        return plain(asked, inputs, item, most)

    monkeypatch.setattr(hf, "answer_together", together)
    monkeypatch.setattr(hf, "answer", alone_fits_all_but_one)
    group = requests(frames)
    futures = an_engine(loaded["qwen3_vl"])[0].submit(group)
    for request, future in zip(group, futures, strict=True):
        if request.item.id == "long":
            error = future.exception()
            assert isinstance(error, OutOfMemoryError)
            assert error.item_id == "long"
            assert "8 frames" in error.problem
            continue
        assert [told for told in future.result().notices if told.startswith("retried_alone: ")]
        assert future.result().together == 1
    assert shown == [4] * len(group), "every question, with all its temporal units"


def test_other_faults_are_not_taken_for_memory(
    loaded: dict[str, LoadedModel], frames: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(hf, "answer_together", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        an_engine(loaded["qwen3_vl"])[0].submit(requests(frames))
