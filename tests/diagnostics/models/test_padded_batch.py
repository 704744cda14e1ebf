"""Lone questions of different videos in one padded pass answer as if alone, and faults are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from diagnostics.errors import OutOfMemoryError, SharingError
from diagnostics.models.backends import hf, padded_batch
from diagnostics.models.backends.requests import Answer, PromptSettings, Request
from diagnostics.models.loading import LoadedModel
from diagnostics.video.selection import Frames

from .conftest import FAMILIES, a_question, uniform
from .test_hf_engine import alone, an_engine

SETTINGS = PromptSettings("Answer with one letter.", 6)
LENGTHS = (4, 9, 2, 6)
"""Frames of the four videos: prompts of four lengths, one with an odd last frame."""


@pytest.fixture(scope="module")
def shown() -> list[Frames]:
    return [uniform(n, fps=25, source_frames=250) for n in LENGTHS]


def requests(shown: Sequence[Frames], **changes: Any) -> list[Request]:
    settings = PromptSettings(**{"instruction": "Answer with one letter.", "max_new_tokens": 6} | changes)
    questions = ["Is it blue?", "Which of these is seen first? " * 3, "What colour?", "How many are there?"]
    return [
        Request(a_question(id=str(n), question=asked), {}, frames, settings)
        for n, (asked, frames) in enumerate(zip(questions, shown, strict=True))
    ]


def held(engine: hf.HfEngine, asked: Sequence[Request]) -> list[Answer]:
    futures = [future for request in asked for future in engine.submit([request])]
    assert not any(future.done() for future in futures), "they wait for each other"
    engine.flush()
    return [future.result(timeout=0) for future in futures]


@pytest.mark.parametrize("form", ["video", "images", "nothing"])
@pytest.mark.parametrize("family", FAMILIES)
def test_in_a_padded_batch_they_answer_as_alone(
    loaded: dict[str, LoadedModel], shown: list[Frames], family: str, form: str
) -> None:
    engine, notes = an_engine(loaded[family], batch=3)
    asked = requests(shown, form=form)
    found = held(engine, asked)
    for request, answer in zip(asked, found, strict=True):
        expected = alone(loaded[family], request)
        assert answer.text == expected.text, request.item.id
        assert (answer.n_new_tokens, answer.cut) == (expected.n_tokens, expected.cut)
        scale = np.abs(expected.option_logits).max()
        worst = np.abs(np.subtract(answer.option_logits, expected.option_logits)).max() / scale
        assert worst < 1e-5, f"logits differ by {worst:.2g} of the largest"
    assert len({answer.option_logits for answer in found}) == 4, "one could be taken for another"
    assert notes["batch"]["questions"] == 3
    assert notes["batch"]["max_logit_difference"] <= notes["batch"]["allowed"]


def test_those_of_like_length_go_together(
    loaded: dict[str, LoadedModel], shown: list[Frames], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = an_engine(loaded["qwen3_vl"], batch=2)
    passes: list[list[int]] = []
    plain = padded_batch.answer_padded

    def noted(loaded: Any, inputs: Any, *rest: Any) -> Any:
        passes.append([one["input_ids"].shape[1] for one in inputs])
        return plain(loaded, inputs, *rest)

    monkeypatch.setattr(hf, "answer_padded", noted)
    held(engine, requests(shown))
    assert [len(one) for one in passes] == [2, 2]
    flat = [length for one in passes for length in one]
    assert flat == sorted(flat)
    assert len(set(flat)) == 4


def test_questions_that_share_a_video_are_answered_at_once(
    loaded: dict[str, LoadedModel], shown: list[Frames]
) -> None:
    engine, notes = an_engine(loaded["qwen3_vl"], batch=2)
    group = [Request(a_question(id=name), {}, shown[0], SETTINGS) for name in "ab"]
    assert all(future.done() for future in engine.submit(group))
    assert set(notes) == {"sharing"}


def test_padding_that_is_seen_is_noticed(
    loaded: dict[str, LoadedModel], shown: list[Frames], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpadded(values: torch.Tensor, length: int, fill: int = 0) -> torch.Tensor:
        return torch.nn.functional.pad(values, (0, length - values.shape[-1]), value=fill)

    monkeypatch.setattr(padded_batch, "_padded", unpadded)
    engine, _ = an_engine(loaded["qwen3_vl"], batch=4)
    with pytest.raises(SharingError, match=r"backend\.batch=1"):
        held(engine, [*reversed(requests(shown))])


def test_out_of_memory_is_tried_alone_then_refused(
    loaded: dict[str, LoadedModel], shown: list[Frames], monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(hf, "answer_padded", exhausted)
    engine, _ = an_engine(loaded["qwen3_vl"], batch=4)
    for answer, request in zip(held(engine, requests(shown)), requests(shown), strict=True):
        assert answer.text == alone(loaded["qwen3_vl"], request).text
        assert any(notice.startswith("retried_alone") for notice in answer.notices)
    monkeypatch.setattr(hf, "answer", exhausted)
    futures = [future for request in requests(shown) for future in engine.submit([request])]
    engine.flush()
    assert all(isinstance(future.exception(timeout=0), OutOfMemoryError) for future in futures)
