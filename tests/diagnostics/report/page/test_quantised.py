"""Eight bits a number: what comes back, and how far off."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from diagnostics.report.page.quantised import quantised, restored

SHARES = arrays(np.float64, array_shapes(max_dims=3, max_side=5), elements=st.floats(0, 1e3))
EFFECTS = arrays(np.float64, array_shapes(max_dims=2, max_side=5), elements=st.floats(-1e3, 1e3))


@given(SHARES)
def test_a_share_comes_back_within_half_a_level(values: np.ndarray) -> None:
    told = quantised(values)
    back = restored(json.loads(json.dumps(told)))
    assert back.shape == values.shape
    scale = values.max()
    off = np.abs(np.sqrt(back / scale) - np.sqrt(values / scale)) if scale > 0 else np.abs(back)
    assert off.max() <= 0.5 / 254 + 1e-9, "half a level of the square root"


@given(EFFECTS)
def test_numbers_of_both_signs_keep_their_sign_and_zero(values: np.ndarray) -> None:
    back = restored(quantised(values))
    assert np.abs(back - values).max() <= np.abs(values).max() * 0.5 / 127 + 1e-9 or (values >= 0).all()
    assert (
        np.sign(back[np.abs(values) > np.abs(values).max() / 100])
        == np.sign(values[np.abs(values) > np.abs(values).max() / 100])
    ).all()
    assert (back[values == 0] == 0).all()


def test_undefined_stays_undefined() -> None:
    values = np.array([[0.5, np.nan], [np.inf, 0.0]])
    back = restored(quantised(values))
    assert np.isnan(back).tolist() == [[False, True], [True, False]]
    assert back[0, 0] == 0.5
    assert np.isnan(restored(quantised(np.full(3, np.nan)))).all()
