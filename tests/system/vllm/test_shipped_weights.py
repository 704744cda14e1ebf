"""The shipped tiny checkpoint in real vLLM, on the CPU: the prompts and the answers of transformers.

vLLM has another torch, another transformers and kernels of its own. What both are given is the chat text
and the decoded frames with their metadata; everything after that is each engine's own work.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diagnostics.data import minihorizon
from diagnostics.data.items import Item
from diagnostics.models.backends.hf import answer
from diagnostics.models.backends.requests import Reply
from diagnostics.models.config import ModelConfig
from diagnostics.models.loading import LoadedModel, load_model
from diagnostics.models.prompting import Prompt, prepare_inputs
from diagnostics.testbed import WEIGHTS
from diagnostics.video.reading import FrameReader
from diagnostics.video.sampling import select_frames, uniform
from diagnostics.video.selection import Frames, Selection

from .inside import run_inside

pytestmark = pytest.mark.system

N_ITEMS, CONTEXT, NEW_TOKENS = 24, 2048, 8
INSTRUCTION = "Answer with the letter of the correct option only."
BUDGETS = (16, 8, 7)
"""Of frames, in turn: an odd number leaves a unit half filled, which each engine fills by itself."""
TOLERANCE = 1e-3
"""In nats, on log-probabilities: float32 through different kernels."""


@dataclass(frozen=True)
class Asked:
    """One item, what transformers was given, and what it said."""

    item: Item
    frames: Frames
    prompt: Prompt
    reply: Reply


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model(ModelConfig(name="tiny", path="tiny", dtype="float32", device="cpu"))


@pytest.fixture(scope="module")
def asked(loaded: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> list[Asked]:
    cache = str(tmp_path_factory.mktemp("films"))
    items = minihorizon.load(minihorizon.Config(split="test", n_videos=4, cache=cache)).items[:N_ITEMS]
    assert len(items) == N_ITEMS
    with FrameReader() as reader:
        return [_ask(loaded, reader, number, item) for number, item in enumerate(items)]


def _ask(loaded: LoadedModel, reader: FrameReader, number: int, item: Item) -> Asked:
    """Every fourth item is asked without its options; every sixth is told the times of another clock."""
    if number % 4 == 3:
        item = replace(item, options=(), answer=None)
    budget = BUDGETS[number % len(BUDGETS)]
    selection = select_frames(uniform, uniform.Config(budget=budget), reader.index(item.video), item)
    if number % 6 == 5:
        selection = _slower(selection)
    frames = Frames(reader.read(item.video, selection.frame_indices), selection)
    prompt = prepare_inputs(loaded, item, frames, instruction=INSTRUCTION, max_new_tokens=NEW_TOKENS)
    return Asked(item, frames, prompt, answer(loaded, prompt.inputs, item, NEW_TOKENS))


def _slower(selection: Selection) -> Selection:
    """The same frames told at times that no frame number gives."""
    slots = tuple(replace(slot, shown_seconds=1.37 * slot.true_seconds + 0.2) for slot in selection.slots)
    return replace(selection, slots=slots)


@pytest.fixture(scope="module")
def answers(
    python: Path, loaded: LoadedModel, asked: list[Asked], tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """What vLLM says to the same items, in their order."""
    folder = tmp_path_factory.mktemp("vllm")
    request = {
        "checkpoint": str(WEIGHTS),
        "context": CONTEXT,
        "together": 8,
        "max_new_tokens": NEW_TOKENS,
        "items": [_request(loaded, one, folder, number) for number, one in enumerate(asked)],
    }
    (folder / "request.json").write_text(json.dumps(request))
    script = Path(__file__).with_name("ask.py")
    status = run_inside([str(python), str(script), str(folder)], folder / "log.txt")
    said = (folder / "log.txt").read_text()
    assert status == 0, said[-6000:]
    told = json.loads((folder / "answers.json").read_text())
    print(told["versions"], told["seconds"])
    return told["answers"]


def _request(loaded: LoadedModel, one: Asked, folder: Path, number: int) -> dict[str, Any]:
    """Text, frames [slot, height, width, 3] and the metadata that our family adapter writes."""
    np.save(folder / f"{number}.npy", one.frames.pixels)
    (metadata,) = loaded.family.video_arguments(one.frames.selection)["video_metadata"]
    tokenizer = loaded.processor.tokenizer
    return {
        "text": one.prompt.text,
        "frames": f"{number}.npy",
        "metadata": {**metadata, "frames_indices": metadata["frames_indices"].tolist()},
        "letter_ids": [tokenizer.encode(letter, add_special_tokens=False)[0] for letter in one.item.letters],
    }


def _pairs(asked: list[Asked], answers: list[dict[str, Any]]) -> Iterator[tuple[Asked, dict[str, Any]]]:
    return zip(asked, answers, strict=True)


def test_pictures_and_videos_are_normalised_alike() -> None:
    """vLLM normalises videos on the device, with the mean and deviation of the *image* processor.

    The published Qwen3-VL checkpoints have 0.5 in both, and so must this one: the class's own default for
    pictures is another, with which vLLM answers a quarter of the items differently.
    """
    saved = json.loads((WEIGHTS / "processor_config.json").read_text())
    picture, video = saved["image_processor"], saved["video_processor"]
    for name in ("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std"):
        assert picture[name] == video[name], name


def test_prompt_token_ids_are_equal(asked: list[Asked], answers: list[dict[str, Any]]) -> None:
    for one, told in _pairs(asked, answers):
        assert told["prompt_token_ids"] == one.prompt.inputs["input_ids"][0].tolist(), one.item.id


def test_answers_are_equal(asked: list[Asked], answers: list[dict[str, Any]]) -> None:
    ours = [one.reply.text for one in asked]
    assert [told["text"].strip() for told in answers] == ours
    assert [len(told["token_ids"]) for told in answers] == [one.reply.n_tokens for one in asked]
    # A model that says one thing to everything would agree with itself.
    assert len(set(ours)) > 4


def test_option_log_probabilities_are_equal(asked: list[Asked], answers: list[dict[str, Any]]) -> None:
    for one, told in _pairs(asked, answers):
        assert len(one.reply.option_logprobs) == len(one.item.options), one.item.id
        np.testing.assert_allclose(
            told["letter_logprobs"], one.reply.option_logprobs, rtol=0, atol=TOLERANCE, err_msg=one.item.id
        )
