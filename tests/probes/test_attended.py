import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.attended import attended_test, sets_like


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


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_stretches_of_alike_neighbours_raise_no_more_alarms(correlation: float):
    """Attention that drifts along the video, blind to five neighbouring units of evidence."""
    generator = np.random.default_rng(0)
    alarms = []
    for _ in range(200):
        logs = generator.normal(size=(16, 64))
        for place in range(1, 64):
            logs[:, place] += correlation * logs[:, place - 1]
        evidence = np.zeros(64, dtype=bool)
        start = generator.integers(0, 60)
        evidence[start : start + 5] = True
        alarms.append(attended_test(np.exp(logs), evidence).attended)
    assert 0.03 < np.mean(alarms) < 0.2, "one in ten is what the level says"


@settings(deadline=None)
@given(
    st.lists(st.booleans(), min_size=1, max_size=24).map(lambda values: np.array(values, dtype=bool)),
    st.integers(0, 5),
)
def test_other_sets_are_as_many_as_long_and_clear_of_the_evidence(evidence, seed):
    def stretches(mask):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
        return (edges[1::2] - edges[::2]).tolist()

    sets = sets_like(evidence, 20, seed)
    assert len(np.unique(sets, axis=0)) == len(sets) <= 20
    for other in sets:
        assert other.sum() == evidence.sum()
        assert not (other & evidence).any()
        longest = max(stretches(evidence))
        assert max(stretches(other)) >= longest


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
    found = attended_test(mass, evidence, top=1.0, level=0.25)
    assert found.statistic == pytest.approx(np.log(0.7 / 0.3) - np.log(0.5))
    assert len(found.null) == 3, "the other neighbours"
    assert found.null.max() == pytest.approx(np.log(0.2 / 0.8) - np.log(0.5))
    assert (found.p, found.threshold, found.attended) == (0.25, found.null.max(), True)
    assert not attended_test(mass, evidence, top=1.0).defined, "three sets cannot come to one in ten"


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
