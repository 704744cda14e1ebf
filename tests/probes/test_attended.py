import numpy as np
import pytest

from probes.attended import attended_test


def masses(n_heads: int = 12, n_units: int = 16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(n_units, 20.0), size=(3, n_heads // 3))


def one(place: int, n_units: int = 16) -> np.ndarray:
    return np.arange(n_units) == place


def test_one_looking_head_among_many_is_found():
    mass = masses()
    mass[1, 2] = 0.02
    mass[1, 2, 5] = 0.7
    found = attended_test(mass, one(5))
    assert found.attended
    assert len(found.null) == 15
    best = np.log(0.7 / (15 * 0.02)) - np.log(1 / 15)
    assert found.statistic == pytest.approx(best), "one head of twelve is the best tenth"
    assert found.best.tolist() == [[1, 2]], "layer 1, head 2"
    assert not attended_test(mass, one(6)).attended


def test_without_looking_evidence_is_attended_as_rarely_as_the_quantile_says():
    """Evidence has no privilege by its best heads: over many draws, false alarms are about one in sixteen."""
    alarms = [attended_test(masses(seed=seed), one(seed % 16)).attended for seed in range(400)]
    assert 0.02 < np.mean(alarms) < 0.12


def test_what_position_explains_is_no_attention_to_evidence():
    mass = masses()
    mass[..., 3] += 1.0
    assert attended_test(mass, one(3)).attended
    blank = masses(seed=1)
    blank[..., 3] += 1.0
    assert not attended_test(mass, one(3), baseline_mass=blank).attended


def test_several_units_and_their_statistic_by_hand():
    mass = np.array([[0.4, 0.3, 0.1, 0.1, 0.05, 0.05]])
    evidence = np.array([True, True, False, False, False, False])
    found = attended_test(mass, evidence, top=1.0, draws=50)
    assert found.statistic == pytest.approx(np.log(0.7 / 0.3) - np.log(0.5))
    assert found.null.max() == pytest.approx(np.log(0.2 / 0.8) - np.log(0.5))
    assert found.attended


@pytest.mark.parametrize("evidence", [np.zeros(6, bool), np.ones(6, bool), np.arange(6) < 4])
def test_undefined_is_not_unattended_in_silence(evidence):
    found = attended_test(np.full((2, 6), 0.1), evidence)
    assert not found.defined
    assert not found.attended


def test_heads_that_see_no_video_are_left_out():
    mass = masses()
    mass[0, 0] = 0.0
    assert attended_test(mass, one(2)).defined
    assert not attended_test(np.zeros((4, 6)), one(2, 6)).defined


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="16 units, attention for 6"):
        attended_test(np.full((2, 6), 0.1), one(2))
    with pytest.raises(ValueError, match="and its control"):
        attended_test(masses(), one(2), baseline_mass=masses(6))
