"""Frames shown whole and in slices: both on one picture, nothing lost."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from diagnostics.report.item_pictures import _heat
from diagnostics.report.slices import on_one_picture

NOTICE = (
    "in_slices: the first 2 rows and 3 columns of a frame's tokens show it whole, the rows below in 4 slices"
)


def stacked(whole: np.ndarray, fine: np.ndarray) -> np.ndarray:
    """Both below one another; NaN beside the narrower."""
    width = max(whole.shape[1], fine.shape[1])
    pad = [np.pad(one, ((0, 0), (0, width - one.shape[1])), constant_values=np.nan) for one in (whole, fine)]
    return np.concatenate(pad)


def test_without_a_notice_the_heat_stays():
    heat = np.arange(6.0).reshape(2, 3)
    assert on_one_picture(heat, ["shared_times: 2 of 4"]) is heat


def test_a_whole_token_is_spread_over_what_it_covers():
    whole, fine = np.zeros((2, 3)), np.zeros((4, 6))
    whole[1, 2] = 1.0
    found = on_one_picture(stacked(whole, fine), ["other: one", NOTICE])
    wanted = np.zeros((4, 6))
    wanted[2:, 4:] = 0.25
    assert found == pytest.approx(wanted)


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (5, 7), (2, 3), (3, 10)])
def test_sums_are_kept_whatever_divides(shape):
    generator = np.random.default_rng(0)
    whole, fine = generator.random((2, 3)), generator.random(shape)
    found = on_one_picture(stacked(whole, fine), [NOTICE])
    assert found.shape == shape
    assert found.sum() == pytest.approx(whole.sum() + fine.sum())
    assert (found >= fine).all()


def test_against_painting_both_pixel_by_pixel():
    generator = np.random.default_rng(1)
    whole, fine = generator.random((2, 3)), generator.random((5, 4))
    height, width = 2 * 5 * 6, 3 * 4 * 5  # pixels that every part is whole ones of
    canvas = sum(
        np.kron(one, np.ones((height // one.shape[0], width // one.shape[1]))) / (height * width / one.size)
        for one in (whole, fine)
    )
    wanted = canvas.reshape(5, height // 5, 4, width // 4).sum(axis=(1, 3))
    assert on_one_picture(stacked(whole, fine), [NOTICE]) == pytest.approx(wanted)


def test_a_unit_of_dropped_tokens_keeps_the_video_s_grid():
    """Its last tokens may be among the dropped: its own places do not say how large the grid is."""
    tokens = SimpleNamespace(
        unit_index=np.array([0, 0, 0, 0, 1]), row=np.array([0, 0, 1, 1, 0]), col=np.array([0, 1, 0, 1, 1])
    )
    heat = _heat(SimpleNamespace(tokens=tokens), np.arange(5.0), 1)
    assert heat[0, 1] == 4.0
    assert np.isnan(heat).sum() == 3
    assert heat.shape == (2, 2)
