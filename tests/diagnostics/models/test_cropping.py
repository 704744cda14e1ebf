"""Frames of which the middle alone is shown, or which are squeezed into one size: said, and drawn so."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diagnostics.models.config import ModelConfig
from diagnostics.models.cropping import cropped_notice, middle, shown_part
from diagnostics.models.loading import LoadedModel, load_model
from diagnostics.models.prompting import prepare_inputs

from .conftest import a_question, uniform


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIAGNOSTICS_CACHE", str(tmp_path_factory.mktemp("cache")))
        return load_model(ModelConfig("miniature", "miniature/llava_next_video", device="cpu"))


def prepared(loaded: LoadedModel, size: tuple[int, int], **options: Any) -> Any:
    frames = uniform(3, fps=25, source_frames=250, size=size)
    return prepare_inputs(
        loaded, a_question(), frames, instruction="One letter.", max_new_tokens=4, **options
    )


def test_the_record_says_what_is_left_of_the_frames(loaded: LoadedModel) -> None:
    assert prepared(loaded, (80, 80)).notices == ()
    assert prepared(loaded, (80, 160)).notices == ("cropped: of 160x80 only the middle 80x80 is shown",)
    assert prepared(loaded, (90, 160)).notices == (
        "cropped: of 160x90 only the middle 90x90 is shown",
        "fixed_size: 90x90 shown as 84x84, as frames of any shape are",
    )
    assert prepared(loaded, (90, 160), form="images").notices == (), "pictures are not cut"


@pytest.mark.parametrize("family", ["internvl", "llava_onevision", "molmo2", "perception_lm", "smolvlm"])
def test_frames_squeezed_into_one_size_are_said(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size is that of the pixels which the processor returned."""
    monkeypatch.setenv("DIAGNOSTICS_CACHE", str(tmp_path))
    squeezing = load_model(ModelConfig("miniature", f"miniature/{family}", device="cpu"))
    wide, square = (prepared(squeezing, size) for size in ((64, 160), (64, 64)))
    pixels = wide.inputs.get("pixel_values_videos", wide.inputs.get("pixel_values"))
    side = pixels.shape[-1]
    if family == "molmo2":  # [frame, patch, values]: a square of square patches in three colours
        side = math.isqrt(pixels.shape[1]) * math.isqrt(side // 3)
    said = f"fixed_size: 160x64 shown as {side}x{side}, as frames of any shape are"
    assert said in wide.notices
    assert not [notice for notice in square.notices if "fixed_size" in notice], "made larger alone"
    large = prepared(squeezing, (400, 400)).notices
    assert f"fixed_size: 400x400 shown as {side}x{side}, as frames of any shape are" in large


@pytest.mark.parametrize(("size", "shown"), [((90, 160), (90, 90)), ((200, 100), (100, 100))])
def test_a_thumbnail_is_cut_to_the_same_middle(size: tuple[int, int], shown: tuple[int, int]) -> None:
    height, width = size[0] // 2, size[1] // 2
    rows, cols = np.mgrid[:height, :width]
    thumbnail = np.stack([rows, cols, rows], axis=-1).astype(np.uint8)
    found = middle(thumbnail, shown_part(["other: words", *cropped_notice(size, shown)]))
    assert found.shape[:2] == (shown[0] // 2, shown[1] // 2)
    assert found[..., 0].mean() == pytest.approx((height - 1) / 2, abs=0.5), "as much is cut above as below"
    assert found[..., 1].mean() == pytest.approx((width - 1) / 2, abs=0.5)


def test_whole_frames_stay_whole() -> None:
    picture = np.zeros((4, 6, 3), np.uint8)
    assert shown_part(["uneven_spacing: 3"]) == (1.0, 1.0)
    assert middle(picture, (1.0, 1.0)).shape == picture.shape
