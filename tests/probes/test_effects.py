"""Effects of interventions against hand calculation and scikit-learn-free formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import probes

NUMBERS = st.floats(-30, 30)


def test_logit_difference_is_to_the_best_of_the_others():
    logits = np.array([[2.0, 5.0, 1.0], [0.0, -1.0, 4.0]])
    assert probes.logit_difference(logits, 1).tolist() == [3.0, -5.0]
    assert probes.logit_difference(logits[0], 0) == -3.0


@given(arrays(np.float64, (4, 3), elements=NUMBERS), st.integers(0, 2))
def test_probability_of_an_option(logits, gold):
    found = probes.option_probability(logits, gold)
    for row, value in zip(logits, found, strict=True):
        wanted = 1 / sum(math.exp(other - row[gold]) for other in row)
        assert value == pytest.approx(wanted, rel=1e-9)
    ahead = probes.logit_difference(logits, gold) > 1e-9
    assert (found[ahead] > 1 / 3).all()


def test_percent_change():
    found = probes.percent_change(np.array([0.2, 0.5, 0.3]), np.array([0.4, 0.25, 0.0]))
    assert found[:2].tolist() == [-50.0, 100.0]
    assert np.isnan(found[2]), "undefined is not zero"


def test_indirect_effect():
    found = probes.indirect_effect(np.array([-1.0, 3.0, 1.0, 5.0]), 3.0, -1.0)
    assert found.tolist() == [0.0, 1.0, 0.5, 1.5]
    assert np.isnan(probes.indirect_effect(np.array([1.0]), 2.0, 2.0005)).all()
    grid = probes.indirect_effect(np.zeros((2, 3)), np.array([[1.0], [2.0]]), np.array([[-1.0], [-2.0]]))
    assert grid.tolist() == [[0.5] * 3] * 2


@given(NUMBERS, NUMBERS, NUMBERS)
def test_noising_is_denoising_the_other_way_round(patched, clean, corrupt):
    if abs(clean - corrupt) < 1e-2:
        return
    one = probes.indirect_effect(np.array(patched), clean, corrupt)
    other = probes.indirect_effect(np.array(patched), corrupt, clean)
    assert float(one + other) == pytest.approx(1.0, abs=1e-9)


def test_drift_between_reading_and_writing():
    prefill = np.array([[0.2, 0.1, 0.1], [0.0, 0.0, 0.0], [0.0, 0.5, 0.0]])
    decode = np.array([[0.1, 0.2, 0.1], [0.1, 0.1, 0.1], [0.1, 0.1, 0.0]])
    found = probes.mass_drift(prefill, decode, np.array([True, False, False]))
    assert found.prefill[[0, 2]].tolist() == [0.5, 0.0]
    assert found.decode.tolist() == pytest.approx([0.25, 1 / 3, 0.5])
    assert found.share[0] == -0.25
    assert np.isnan(found.share[1])
    assert found.log_odds[0] == pytest.approx(-math.log(3))
    assert np.isnan(found.log_odds[1:]).all()
    half = probes.mass_drift(prefill, decode, np.array([0.5, 0.0, 0.0]))
    assert half.prefill[0] == 0.25
    for evidence in ([0, 0, 0], [1, 1, 1]):
        assert np.isnan(probes.mass_drift(prefill, decode, np.array(evidence)).share).all()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="option 2 of 2"):
        probes.logit_difference(np.zeros(2), 2)
    with pytest.raises(ValueError, match="option 0 of 1"):
        probes.option_probability(np.zeros((3, 1)), 0)
    with pytest.raises(ValueError, match="same number of units"):
        probes.mass_drift(np.zeros((2, 3)), np.zeros((2, 4)), np.zeros(3))
