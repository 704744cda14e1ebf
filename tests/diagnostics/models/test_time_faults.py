"""Faults about time reach a prompt's notices, and so the record's warnings, each once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diagnostics.models.loading import LoadedModel
from diagnostics.models.prompting import Prompt, prepare_inputs
from diagnostics.video.selection import Frames

from .conftest import a_question, a_video, uniform


def prompt(loaded: LoadedModel, frames: Frames) -> Prompt:
    return prepare_inputs(loaded, a_question(), frames, instruction="One letter.", max_new_tokens=4)


def kinds(found: Prompt) -> list[str]:
    return [notice.partition(":")[0] for notice in found.notices]


def with_clock(loaded: LoadedModel, **wrong: Any) -> LoadedModel:
    """The same model whose family tells the processor something else about the frames."""

    class Wrong(type(loaded.family)):
        def video_arguments(self, shown: Any) -> dict[str, Any]:
            arguments = super().video_arguments(shown)
            (metadata,) = arguments["video_metadata"]
            return arguments | {"video_metadata": [metadata | wrong]}

    given = {name: getattr(loaded.family, name) for name in loaded.family.__dataclass_fields__}
    return replace(loaded, family=Wrong(**given))


@pytest.mark.parametrize(("family", "kind"), [("qwen3_vl", "marker_mismatch"), ("qwen2_5_vl", "fps_lost")])
def test_a_rate_that_is_lost_is_in_the_notices(
    loaded: dict[str, LoadedModel], family: str, kind: str
) -> None:
    frames = uniform(8, fps=25, source_frames=2000)
    assert prompt(loaded[family], frames).notices == ()
    assert kinds(prompt(with_clock(loaded[family], fps=240.0), frames)) == [kind]


def test_what_the_family_says_is_not_said_again(loaded: dict[str, LoadedModel]) -> None:
    """Four frames an eighth of a second apart: the family foresees it, the positions show it."""
    dense = a_video([0.0, 0.125, 0.25, 0.375], fps=8, source_frames=80)
    assert kinds(prompt(loaded["qwen2_5_vl"], dense)) == ["shared_positions"]


def test_a_prompt_without_a_map_is_answered_and_said(loaded: dict[str, LoadedModel]) -> None:
    found = loaded["qwen3_vl"]

    class Unmapped(type(found.family)):
        tells_time = True

        def token_ids(self, model: Any) -> Any:
            return replace(super().token_ids(model), start=0)

    given = {name: getattr(found.family, name) for name in found.family.__dataclass_fields__}
    one = prompt(replace(found, family=Unmapped(**given)), uniform(4, fps=25, source_frames=250))
    assert kinds(one) == ["layout_unknown"]
    assert "not the delimiter 0" in one.notices[0]
