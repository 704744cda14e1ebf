"""Frames of which the middle alone is shown: said in the record, and drawn so."""

from __future__ import annotations

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
    assert prepared(loaded, (90, 90)).notices == ()
    assert prepared(loaded, (90, 160)).notices == ("cropped: of 160x90 only the middle 90x90 is shown",)
    assert prepared(loaded, (90, 160), form="images").notices == (), "pictures are not cut"


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
