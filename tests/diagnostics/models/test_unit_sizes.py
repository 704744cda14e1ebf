"""What a prompt says of its units, which is what records say, is what its token map says."""

from __future__ import annotations

import pytest

import hooks
from diagnostics.experiments.answering import _units
from diagnostics.models.backends.requests import Answer
from diagnostics.models.loading import LoadedModel
from diagnostics.models.miniatures import miniature_checkpoint
from diagnostics.models.prompting import Form, Prompt, prepare_inputs
from diagnostics.video.selection import Frames

from .conftest import a_question, load, uniform


def ask(loaded: LoadedModel, frames: Frames, form: Form) -> Prompt:
    return prepare_inputs(
        loaded, a_question(), frames, instruction="One letter.", max_new_tokens=4, form=form
    )


def recorded(prompt: Prompt) -> dict[str, int]:
    return _units(
        Answer("A", n_visual_tokens=prompt.n_visual, grid=prompt.grids, unit_sizes=prompt.unit_sizes)
    )


@pytest.mark.parametrize("name", ["internvl", "llava_onevision", "minicpmv4_6", "perception_lm"])
def test_records_of_answers_and_token_maps_count_alike(name: str) -> None:
    """Newlines are no visual tokens; a large frame of MiniCPM-V is one unit of several grids."""
    loaded = load(miniature_checkpoint(name))
    frames = uniform(3, fps=10, source_frames=30, size=(360, 640))
    cases: tuple[tuple[Form, int | None], ...] = (("video", 3), ("images", None))
    for form, told in cases:
        prompt = ask(loaded, frames, form)
        tokens = hooks.token_map(loaded.model, loaded.processor, prompt.inputs, n_frames=told)
        assert prompt.unit_sizes == tuple(tokens.tokens_per_unit.tolist())
        assert prompt.n_visual == tokens.n_visual
        assert recorded(prompt)["n_units"] == tokens.n_units
        if form == "video":
            assert recorded(prompt) == {"n_units": 3, "tokens_per_unit": prompt.n_visual // 3}


def test_units_of_which_tokens_are_dropped_have_no_one_size() -> None:
    """The second frame is the first, the third another: the mean of their tokens is a whole number."""
    loaded = load(miniature_checkpoint("video_llama_3"))
    frames = uniform(3, fps=10, source_frames=30, size=(56, 84))
    pixels = frames.pixels.copy()
    pixels[1] = pixels[0]
    prompt = ask(loaded, Frames(pixels, frames.selection), "video")
    assert prompt.unit_sizes is not None
    first, second, third = prompt.unit_sizes
    assert (second, third) == (1, first)
    assert recorded(prompt) == {"n_units": 3}


def test_text_alone_has_none() -> None:
    loaded = load(miniature_checkpoint("qwen3_vl"))
    prompt = ask(loaded, uniform(3, fps=10, source_frames=30), "nothing")
    assert (prompt.unit_sizes, prompt.n_visual, recorded(prompt)) == ((), 0, {})


def test_an_engine_that_tells_grids_alone() -> None:
    told = Answer("A", n_visual_tokens=12, grid=((2, 4, 6),))
    assert _units(told) == {"n_units": 2, "tokens_per_unit": 6}
    assert _units(Answer("A", n_visual_tokens=13, grid=((2, 4, 6),))) == {"n_units": 2}
    assert _units(Answer("A", n_visual_tokens=12)) == {}
