"""Questions asked together, behind one prefix or padded side by side, answer as if alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from diagnostics.models.backends import hf, open_engine
from diagnostics.models.backends.padded_batch import answer_padded
from diagnostics.models.backends.requests import PromptSettings, Request
from diagnostics.models.config import BackendConfig
from diagnostics.models.loading import LoadedModel
from diagnostics.models.miniatures import miniature_checkpoint
from diagnostics.models.prompting import Form, prepare_inputs
from diagnostics.video.selection import Frames

from .conftest import a_question, a_video, load, uniform

SHARE = ("video_llama_3", "smolvlm", "molmo2", "internvl", "llava_onevision")
ALONE = ("minicpmv4_6", "minicpmv4_7", "qwen3_5")
"""Of which some layers carry a state past what a mask could keep apart."""
INSTRUCTION, NEW_TOKENS = "Answer with one letter.", 4
QUESTIONS = (
    a_question(id="short"),
    a_question(id="other", question="Is it blue or is it not?", options=("yes", "no")),
    a_question(id="long", question="Which of these is seen first in the upper left? " * 3),
)


@pytest.fixture(scope="module")
def frames() -> Frames:
    return uniform(4, fps=25, source_frames=250)


def alone(loaded: LoadedModel, request: Request, form: Form) -> hf.Reply:
    """transformers' own `generate` on the whole prompt."""
    prompt = prepare_inputs(
        loaded,
        request.item,
        request.frames,
        instruction=INSTRUCTION,
        max_new_tokens=NEW_TOKENS,
        form=form,
    )
    return hf.answer(loaded, prompt.inputs, request.item, NEW_TOKENS)


@pytest.mark.parametrize("form", ["video", "images"])
@pytest.mark.parametrize("name", [*SHARE, *ALONE])
def test_asked_in_one_group_they_answer_as_alone(name: str, form: Form, frames: Frames) -> None:
    loaded = load(miniature_checkpoint(name))
    notes: dict[str, Any] = {}
    engine = open_engine(lambda: loaded, loaded.config, BackendConfig(), notes.__setitem__)
    settings = PromptSettings(INSTRUCTION, NEW_TOKENS, form=form)
    group = [Request(item, {}, frames, settings) for item in QUESTIONS]
    found = [future.result() for future in engine.submit(group)]
    for request, one in zip(group, found, strict=True):
        wanted = alone(loaded, request, form)
        assert one.text == wanted.text
        worst = np.abs(np.subtract(one.option_logits, wanted.option_logits)).max()
        assert worst <= 5e-5 * np.abs(wanted.option_logits).max()
        assert one.together == (len(group) if name in SHARE else 1)
    assert loaded.family.packs(loaded.model) == (name in SHARE)
    assert notes["sharing"]["questions"] == (len(group) if name in SHARE else 1)
    assert ("reason" in notes["sharing"]) == (name in ALONE)


@pytest.mark.parametrize("form", ["video", "images"])
@pytest.mark.parametrize("name", [*SHARE, *ALONE])
def test_padded_side_by_side_each_has_its_own_pictures(name: str, form: Form) -> None:
    """Equally long prompts too, with which padding shows nothing: pictures must not be taken for others'."""
    loaded = load(miniature_checkpoint(name))
    counts = (4, 4, 4) if name == "llava_onevision" else (4, 4, 2)  # which stacks videos: equally many frames
    shown = [
        a_video(np.linspace(0, 10, count).tolist(), fps=25, source_frames=251, seed=seed)
        for seed, count in enumerate(counts)
    ]
    prompts = [
        prepare_inputs(
            loaded, item, frames, instruction=INSTRUCTION, max_new_tokens=NEW_TOKENS, form=form
        ).inputs
        for item, frames in zip([QUESTIONS[0], QUESTIONS[0], QUESTIONS[2]], shown, strict=True)
    ]
    found = answer_padded(loaded, prompts, NEW_TOKENS, set())
    with torch.inference_mode():
        wanted = [loaded.model(**one).logits[0, -1].float() for one in prompts]
    for one, alone_logits in zip(found, wanted, strict=True):
        scale = float(alone_logits.abs().max())
        assert float((one.first_logits - alone_logits).abs().max()) <= 5e-5 * scale
    assert float((wanted[0] - wanted[1]).abs().max()) > 1e-3 * float(wanted[0].abs().max()), "other pictures"
