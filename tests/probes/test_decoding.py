"""Rows of a reply: measures against those of whole distributions, slopes against scipy, what is undefined."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import logit
from scipy.stats import linregress

import probes


def attention(rows: int = 6, units: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """[layer, head, row, unit], and what is left."""
    mass = np.random.default_rng(seed).dirichlet(np.ones(units + 1), (2, 3, rows))
    return mass[..., :-1], mass[..., -1]


@pytest.mark.parametrize("evidence", [[1, 0, 0, 1, 0], [0, 0, 1, 0, 0]])
def test_measures_are_those_of_the_whole_distribution(evidence) -> None:
    units, rest = attention()
    shows = np.array(evidence, dtype=bool)
    whole = probes.evidence_alignment(units, shows, rest_mass=rest)
    found = probes.decode_course(
        units.sum(-1),
        np.arange(100, 106),
        80,
        evidence_mass=units[..., shows].sum(-1),
        evidence_units=shows.sum(),
        units=5,
    ).measures()
    for name, expected in whole.measures().items():
        if name in found:
            assert np.abs(found[name] - expected).max() <= 1e-12, name
    assert {"evidence_mass", "evidence_share", "evidence_log_lift"} <= set(found) & set(whole.measures())
    assert np.abs(found["visual_mass"] - (1 - rest)).max() <= 1e-12


def test_uniform_attention_falls_and_its_lift_does_not() -> None:
    keys = np.arange(50, 60)
    course = probes.decode_course(30 / keys, keys, 30)
    assert (np.diff(course.visual_mass) < 0).all()
    assert np.abs(course.visual_log_lift).max() <= 1e-12
    advantage = 30 * np.e / (30 * np.e + keys - 30)
    assert np.abs(probes.decode_course(advantage, keys, 30).visual_log_lift - 1.0).max() <= 1e-12
    assert np.isnan(course.evidence_mass).all(), "nothing is said of evidence that nobody named"


def test_what_is_undefined() -> None:
    visual, evidence = np.array([0.5, 0.0, 1.0, 0.4]), np.array([0.1, 0.0, 1.0, 0.0])
    found = probes.decode_course(
        visual, np.arange(9, 13), 4, evidence_mass=evidence, evidence_units=1, units=4
    )
    assert np.isnan(found.visual_log_lift).tolist() == [False, True, True, False]
    assert found.evidence_share[[0, 2, 3]].tolist() == [0.2, 1.0, 0.0]
    assert np.isnan(found.evidence_share[1])
    assert np.isnan(found.evidence_log_lift).tolist() == [False, True, True, True]
    assert found.evidence_log_lift[0] == pytest.approx(logit(0.2) - logit(0.25))
    every = probes.decode_course(visual, np.arange(9, 13), 4, evidence_mass=visual, evidence_units=4, units=4)
    assert np.isnan(every.evidence_log_lift).all()
    assert every.evidence_share[0] == 1.0


VALUES = arrays(np.float64, (3, 9), elements=st.floats(-1, 1) | st.just(float("nan")))


@given(VALUES, st.integers(1, 8), st.integers(2, 5))
def test_slope_and_drift_are_those_of_scipy_and_numpy(values, first, least) -> None:
    found = probes.row_drift(values, slice(first, None), least=least)
    for row, own in enumerate(values):
        tail = own[first:]
        known = np.isfinite(tail)
        assert found.rows[row] == known.sum()
        if known.any() and np.isfinite(own[0]):
            assert found.drift[row] == pytest.approx(tail[known].mean() - own[0], abs=1e-12)
            assert found.decode[row] - found.prefill[row] == pytest.approx(found.drift[row], abs=1e-12)
        else:
            assert np.isnan([found.drift[row], found.decode[row], found.prefill[row]]).all()
        if known.sum() < least:
            assert np.isnan(found.slope[row])
        else:
            line = linregress(np.flatnonzero(known), tail[known])
            assert found.slope[row] == pytest.approx(line.slope, abs=1e-9)


def test_rows_after_the_prefill_by_default() -> None:
    found = probes.row_drift(np.array([9.0, 1.0, 2.0, 3.0, 4.0]))
    assert (float(found.drift), float(found.slope), int(found.rows)) == (-6.5, 1.0, 4)
    assert np.isnan(probes.row_drift(np.array([9.0])).drift)


def test_what_does_not_fit_is_refused() -> None:
    keys = np.arange(9, 12)
    for visual, more, told in (
        (np.ones(2), {}, "numbers of keys"),
        (np.ones(3) / 2, {"evidence_mass": np.ones(2), "evidence_units": 1, "units": 2}, "has shape"),
        (np.ones(3) / 2, {"evidence_mass": np.ones(3), "evidence_units": 1, "units": 2}, "more than that on"),
    ):
        with pytest.raises(ValueError, match=told):
            probes.decode_course(visual, keys, 4, **more)
    with pytest.raises(ValueError, match="10 visual tokens are not among"):
        probes.decode_course(np.ones(3) / 2, keys, 10)
    with pytest.raises(ValueError, match="at least 2 rows"):
        probes.row_drift(np.ones(3), least=1)
