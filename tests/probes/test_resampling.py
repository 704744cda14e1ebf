from itertools import product

import numpy as np
import pytest
from scipy import stats

import probes


def test_draws_are_those_of_drawing_groups_one_by_one():
    drawn = probes.group_draws(3, 60_000, np.random.default_rng(0))
    assert drawn.sum(axis=1).tolist() == [3] * 60_000
    expected = {}
    for picked in product(range(3), repeat=3):
        counts = tuple(np.bincount(picked, minlength=3).tolist())
        expected[counts] = expected.get(counts, 0) + 1 / 27
    found, times = np.unique(drawn, axis=0, return_counts=True)
    assert len(found) == len(expected) == 10
    for counts, count in zip(found.tolist(), times.tolist(), strict=True):
        # Four standard errors of a share of 60,000 draws.
        p = expected[tuple(counts)]
        assert count / 60_000 == pytest.approx(p, abs=4 * np.sqrt(p / 60_000))


def test_means_of_resamples_against_all_of_them_enumerated():
    values, groups = np.asarray([[1.0], [0.0], [0.0], [1.0], [1.0], [0.0]]), np.asarray([0, 0, 0, 1, 2, 2])
    every = []
    for picked in product(range(3), repeat=3):
        rows = np.concatenate([values[groups == group, 0] for group in picked])
        every.append(rows.mean())
    drawn = probes.resampled_group_means(values, groups, 3, n_resamples=40_000, seed=1)[:, 0]
    assert set(np.round(drawn, 12)) == set(np.round(every, 12))
    assert drawn.mean() == pytest.approx(np.mean(every), abs=4 * np.std(every) / 200)
    assert drawn.std() == pytest.approx(np.std(every), rel=0.03)


def test_expanded_percentiles_are_students_interval_where_the_resamples_are_normal():
    """Percentiles of N(m, s^2 (g-1)/g) widened for g groups are m +- t s, s the standard error."""
    normal = stats.norm(0.3, 0.1 * np.sqrt(7 / 8)).ppf((np.arange(400_000) + 0.5) / 400_000)
    low, high = probes.percentile_interval(normal, 0.95, expand_for=8)
    half = stats.t.ppf(0.975, 7) * 0.1
    assert float(low) == pytest.approx(0.3 - half, abs=1e-4)
    assert float(high) == pytest.approx(0.3 + half, abs=1e-4)
    plain_low, plain_high = probes.percentile_interval(normal, 0.95)
    assert float(plain_high - plain_low) == pytest.approx(2 * 1.959964 * 0.1 * np.sqrt(7 / 8), abs=1e-4)


def test_undefined_resamples_are_left_out_entry_by_entry():
    resampled = np.asarray([[1.0, np.nan], [2.0, np.nan], [np.nan, np.nan], [3.0, np.nan]])
    low, high = probes.percentile_interval(resampled, 0.5)
    assert (low[0], high[0]) == (1.5, 2.5)
    assert np.isnan([low[1], high[1]]).all()


def test_fewer_than_two_groups_have_no_interval():
    assert np.isnan(probes.percentile_interval(np.zeros((5, 2)), 0.95, expand_for=1)).all()


def test_a_wider_mean_for_few_groups():
    values = np.random.default_rng(3).random(8)
    plain = probes.clustered_mean(values, range(8))
    expanded = probes.clustered_mean(values, range(8), expanded=True)
    assert (plain.mean, plain.n) == (expanded.mean, expanded.n)
    ratio = (expanded.ci_high - expanded.ci_low) / (plain.ci_high - plain.ci_low)
    # t_7 / z * sqrt(8 / 7) = 1.29 where the resamples are normal; they are nearly so.
    assert 1.15 < ratio < 1.4


@pytest.mark.parametrize("n_groups", [7, 4500])
def test_means_are_those_of_fresh_draws_however_often_they_are_asked_for(n_groups):
    """4,500 groups by 2,000 resamples are more than is kept."""
    rng = np.random.default_rng(5)
    groups = np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, 50)])
    for seed, columns in ((0, 1), (1, 1), (0, 3), (0, 1)):
        values = rng.normal(size=(len(groups), columns))
        drawn = probes.group_draws(n_groups, 2000, np.random.default_rng(seed))
        weights = drawn[:, groups].astype(float)
        expected = weights @ values / weights.sum(axis=1, keepdims=True)
        found = probes.resampled_group_means(values, groups, n_groups, n_resamples=2000, seed=seed)
        np.testing.assert_allclose(found, expected, atol=1e-12, err_msg="tolerance 1e-12")
