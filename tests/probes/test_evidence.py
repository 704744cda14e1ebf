import numpy as np
import pytest
from scipy.special import logit, softmax

import probes


@pytest.mark.parametrize("n_units", [4, 8, 16, 32, 384])
@pytest.mark.parametrize("advantage", [-1.0, 0.0, 2.5])
@pytest.mark.parametrize("n_evidence", [1, 3])
def test_log_lift_recovers_a_planted_logit_advantage_at_every_budget(n_units, advantage, n_evidence):
    evidence = np.arange(n_units) < n_evidence
    mass = 0.3 * softmax(advantage * evidence)
    result = probes.evidence_alignment(mass, evidence)
    assert float(result.log_lift) == pytest.approx(advantage, abs=1e-9)
    if n_evidence == 1:  # the arithmetic in the module's docstring
        expected = n_units * np.exp(advantage) / (np.exp(advantage) + n_units - 1)
        assert float(result.lift) == pytest.approx(expected, rel=1e-9)


def test_lift_grows_with_the_budget_where_log_lift_does_not():
    lifts = []
    for n_units in (4, 8, 16, 32):
        evidence = np.arange(n_units) == 1
        lifts.append(float(probes.evidence_alignment(softmax(2.5 * evidence), evidence).lift))
    np.testing.assert_allclose(lifts, [3.2, 5.1, 7.2, 9.0], atol=0.05)


def test_written_out():
    mass = np.array([0.1, 0.2, 0.05, 0.05])
    result = probes.evidence_alignment(mass, np.array([False, True, True, False]))
    assert result.covered
    assert result.n_evidence_units == 2
    assert float(result.mass) == pytest.approx(0.25)
    assert float(result.share) == pytest.approx(0.625)
    assert float(result.lift) == pytest.approx(1.25)
    assert float(result.log_lift) == pytest.approx(logit(0.625) - logit(0.5), abs=1e-12)


def test_near_one_the_log_odds_keep_their_digits():
    mass = np.array([1.0, 1e-20])
    result = probes.evidence_alignment(mass, np.array([True, False]))
    assert float(result.log_lift) == pytest.approx(20 * np.log(10), rel=1e-12)


def test_no_evidence_shown_leaves_nothing_to_measure():
    result = probes.evidence_alignment(np.ones((2, 3)) / 6, np.zeros(3, dtype=bool))
    assert not result.covered
    measures = result.measures()
    np.testing.assert_array_equal(measures.pop("evidence_covered"), [0.0, 0.0])
    for name, values in measures.items():
        assert np.isnan(values).all(), name


def test_all_evidence_has_a_share_and_no_lift():
    result = probes.evidence_alignment(np.array([0.1, 0.3]), np.array([True, True]))
    assert float(result.mass) == pytest.approx(0.4)
    assert float(result.share) == pytest.approx(1.0)
    assert np.isnan(result.lift)
    assert np.isnan(result.log_lift)


def test_no_attention_on_the_video_and_no_bound_are_undefined_and_told_apart():
    mass = np.array([[0.0, 0.0], [0.5, 0.0], [0.0, 0.5], [0.1, 0.1]])
    result = probes.evidence_alignment(mass, np.array([True, False]))
    np.testing.assert_array_equal(np.isnan(result.share), [True, False, False, False])
    np.testing.assert_array_equal(np.isnan(result.mass), [True, False, False, False])
    np.testing.assert_array_equal(np.isnan(result.log_lift), [True, True, True, False])
    assert result.n_unbounded == 2


def test_slots_reduce_by_any_or_by_fraction():
    slots = np.array([[True, False], [False, False], [True, True], [True, False]])
    np.testing.assert_array_equal(probes.evidence_weights(slots), [1, 0, 1, 1])
    np.testing.assert_array_equal(probes.evidence_weights(slots, fractional=True), [0.5, 0, 1, 0.5])
    shown = np.array([[True, True], [True, True], [True, True], [True, False]])
    np.testing.assert_array_equal(
        probes.evidence_weights(slots, fractional=True, shown=shown), [0.5, 0, 1, 1]
    )
    hidden = np.zeros_like(shown)
    np.testing.assert_array_equal(probes.evidence_weights(slots, shown=hidden), np.zeros(4))


def test_fractional_evidence_under_uniform_attention_is_no_lift():
    slots = np.array([[True, False], [False, False], [True, True]])
    result = probes.evidence_alignment(np.ones(3) / 3, slots, fractional=True)
    assert result.n_evidence_units == 1.5
    assert float(result.share) == pytest.approx(0.5)
    assert float(result.lift) == pytest.approx(1.0)
    assert float(result.log_lift) == pytest.approx(0.0, abs=1e-12)


def test_mass_is_a_fraction_of_the_whole_row():
    result = probes.evidence_alignment(np.array([1.0, 1.0]), np.array([True, False]), rest_mass=np.array(2.0))
    assert float(result.mass) == pytest.approx(0.25)
    assert float(result.share) == pytest.approx(0.5)


def test_bad_evidence_is_refused():
    with pytest.raises(ValueError, match="for 2 units, attention for 3"):
        probes.evidence_alignment(np.ones(3), np.array([True, False]))
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        probes.evidence_weights(np.array([0.5, 2.0]), fractional=True)
