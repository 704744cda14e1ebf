"""Answers are greedy and their option scores are the model's own, whatever the checkpoint would sample."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from diagnostics.models.backends.hf import answer
from diagnostics.models.loading import LoadedModel
from diagnostics.models.prompting import Prompt, prepare_inputs

from .conftest import FAMILIES, a_question, uniform


def prompt_of(loaded: LoadedModel, **changes: object) -> Prompt:
    frames = uniform(7, fps=25, source_frames=250)
    question = a_question(**changes)
    return prepare_inputs(loaded, question, frames, instruction="One letter.", max_new_tokens=12)


def by_hand(loaded: LoadedModel, prompt: Prompt, steps: int) -> tuple[list[int], torch.Tensor]:
    """Greedy decoding that runs the whole sequence again for each token: no cache, no `generate`."""
    inputs = dict(prompt.inputs)
    stop = loaded.model.generation_config.eos_token_id
    ids, first = inputs["input_ids"], None
    length = ids.shape[1]
    with torch.inference_mode():
        for _ in range(steps):
            logits = loaded.model(**inputs).logits[0, -1]
            first = logits if first is None else first
            token = logits.argmax().view(1, 1)
            inputs["input_ids"] = ids = torch.cat([ids, token], dim=1)
            inputs["attention_mask"] = torch.ones_like(ids)
            types = inputs["mm_token_type_ids"]
            inputs["mm_token_type_ids"] = torch.cat([types, torch.zeros_like(token)], dim=1)
            if "position_ids" in inputs:
                positions = inputs["position_ids"]
                inputs["position_ids"] = torch.cat([positions, positions[..., -1:] + 1], dim=-1)
            if int(token) in stop:
                break
    assert first is not None
    return ids[0, length:].tolist(), first


@pytest.mark.parametrize("family", FAMILIES)
def test_decoding_is_greedy_though_the_checkpoint_samples(
    loaded: dict[str, LoadedModel], family: str
) -> None:
    prompt = prompt_of(loaded[family])
    expected, _ = by_hand(loaded[family], prompt, 12)
    tokenizer = loaded[family].processor.tokenizer
    for seed in (0, 1):
        torch.manual_seed(seed)
        reply = answer(loaded[family], prompt.inputs, a_question(), 12)
        assert reply.n_tokens == len(expected)
        assert reply.text == tokenizer.decode(expected, skip_special_tokens=True).strip()


@pytest.mark.parametrize("family", FAMILIES)
def test_option_scores_are_the_log_softmax_of_a_forward(loaded: dict[str, LoadedModel], family: str) -> None:
    prompt = prompt_of(loaded[family])
    _, logits = by_hand(loaded[family], prompt, 1)
    tokenizer = loaded[family].processor.tokenizer
    (ids,) = zip(*(tokenizer.encode(letter) for letter in "ABC"), strict=True)
    reply = answer(loaded[family], prompt.inputs, a_question(), 4)
    expected = torch.log_softmax(logits.double(), dim=-1)[list(ids)]
    torch.testing.assert_close(torch.tensor(reply.option_logprobs).double(), expected, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(torch.tensor(reply.option_logits), logits[list(ids)], atol=1e-4, rtol=1e-5)


def test_a_penalty_on_repetition_does_not_bend_the_answer(loaded: dict[str, LoadedModel]) -> None:
    """With the checkpoint's own penalty the scores change: the test can tell the two apart."""
    asked = loaded["qwen2_5_vl"]
    prompt = prompt_of(asked)
    expected, _ = by_hand(asked, prompt, 12)
    with torch.inference_mode():
        length = prompt.n_tokens
        plain = asked.model.generate(**prompt.inputs, max_new_tokens=12, do_sample=False)[0, length:]
        bent = asked.model.generate(
            **prompt.inputs, max_new_tokens=12, do_sample=False, repetition_penalty=5.0
        )[0, length:]
    assert plain.tolist() == expected
    assert bent.tolist() != expected


def test_open_questions_have_no_option_scores(loaded: dict[str, LoadedModel]) -> None:
    question = a_question(options=(), answer=None)
    reply = answer(
        loaded["qwen3_vl"], prompt_of(loaded["qwen3_vl"], options=(), answer=None).inputs, question, 3
    )
    assert reply.option_logits == reply.option_logprobs == ()
    assert reply.n_tokens <= 3


_ASK = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.diagnostics.models.conftest import a_question, load, uniform
from diagnostics.models.backends.hf import answer
from diagnostics.models.prompting import prepare_inputs
loaded = load(Path({path!r}))
frames = uniform(7, fps=25, source_frames=250)
inputs = prepare_inputs(loaded, a_question(), frames, instruction="x", max_new_tokens=4).inputs
answer(loaded, inputs, a_question(), 4)
"""


@pytest.mark.parametrize("family", [*FAMILIES, "tiny"])
def test_nothing_is_printed_from_loading_to_answer(
    checkpoints: dict[str, Path], tmp_path: Path, family: str
) -> None:
    """In a process of its own: the libraries warn once a process, and pytest swallows warnings."""
    root = Path(__file__).resolve().parents[3]
    code = _ASK.format(root=str(root), path=str(checkpoints.get(family, family)))
    asked = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "DIAGNOSTICS_CACHE": str(tmp_path)},
    )
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout + asked.stderr == ""
