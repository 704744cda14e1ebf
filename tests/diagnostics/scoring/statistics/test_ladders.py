from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from diagnostics.scoring import statistics

LEVELS = (4, 8, 16)


def all_orders(values, clusters):
    """Rising, falling and two-sided p over every order of the levels in every video, listed one by one."""
    ranks = np.arange(values.shape[1])
    sums = [values[np.asarray(clusters) == video].sum(axis=0) for video in sorted(set(clusters))]
    centred = [video - video.mean() for video in sums]
    observed = sum(float(video @ ranks) for video in centred)
    totals = np.asarray(
        [
            sum(float(video[list(order)] @ ranks) for video, order in zip(centred, orders, strict=True))
            for orders in product(permutations(range(values.shape[1])), repeat=len(sums))
        ]
    )
    return (
        (totals >= observed - 1e-9).mean(),
        (totals <= observed + 1e-9).mean(),
        (np.abs(totals) >= abs(observed) - 1e-9).mean(),
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 1)] * 3, st.integers(0, 3)), min_size=1, max_size=12))
def test_exact_p_against_every_order(rows):
    values = np.asarray([row[:3] for row in rows], float)
    clusters = [row[3] for row in rows]
    found = statistics.monotone_trend(values, LEVELS, clusters, n_resamples=50)
    assert found.method == "exact"
    assert (found.p_rising, found.p_falling, found.p) == pytest.approx(
        all_orders(values, clusters), abs=1e-12
    )


def test_with_single_items_and_ranks_it_is_pages_test():
    rng = np.random.default_rng(0)
    ranks = rng.permuted(np.tile([1.0, 2.0, 3.0, 4.0], (12, 1)), axis=1)
    ranks[:4] = [1, 2, 3, 4]
    found = statistics.monotone_trend(ranks, [1, 2, 3, 4], range(12), n_resamples=20_000)
    reference = stats.page_trend_test(ranks, ranked=True, method="exact")
    assert found.method == "monte_carlo"
    assert found.p_rising == pytest.approx(reference.pvalue, abs=4 * np.sqrt(reference.pvalue / 20_000))


def test_the_slope_is_that_of_a_line_through_the_means():
    values = np.random.default_rng(1).random((30, 5))
    found = statistics.monotone_trend(values, range(5), [k // 3 for k in range(30)], n_resamples=100)
    line = stats.linregress(np.arange(5), values.mean(axis=0))
    assert found.slope == pytest.approx(line.slope)
    assert found.means == pytest.approx(values.mean(axis=0))
    assert found.ci_low < found.slope < found.ci_high


def test_turning_the_ladder_round_swaps_the_sides():
    rng = np.random.default_rng(2)
    values = (rng.random((60, 4)) < [0.3, 0.4, 0.5, 0.6]).astype(float)
    clusters = rng.integers(0, 20, 60).tolist()
    up = statistics.monotone_trend(values, range(4), clusters, n_resamples=4000)
    down = statistics.monotone_trend(values[:, ::-1], range(4), clusters, n_resamples=4000)
    assert up.slope == pytest.approx(-down.slope)
    assert up.p_rising < 0.01 < up.p_falling
    assert down.p_falling == pytest.approx(up.p_rising, abs=0.005)


def test_order_of_items_and_names_of_videos_do_not_matter():
    rng = np.random.default_rng(3)
    values, clusters = rng.integers(0, 2, (40, 4)).astype(float), rng.integers(0, 12, 40)
    order = rng.permutation(40)
    one = statistics.monotone_trend(values, range(4), clusters.tolist(), n_resamples=500)
    other = statistics.monotone_trend(
        values[order], range(4), [f"v{-c}" for c in clusters[order]], n_resamples=500
    )
    assert (one.p, one.ci_low) == pytest.approx((other.p, other.ci_low), abs=1e-12)
    best = statistics.best_level(values, range(4), clusters.tolist(), n_resamples=500)
    again = statistics.best_level(values[order], range(4), clusters[order].tolist(), n_resamples=500)
    assert best.probabilities == pytest.approx(again.probabilities)


def test_the_trend_keeps_its_level():
    rejected = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        clusters = np.repeat(np.arange(15), 4)
        # Levels differ from video to video, not on average: exchangeable within a video.
        values = rng.random((60, 4)) < rng.beta(0.5, 0.5, (15, 4))[clusters]
        found = statistics.monotone_trend(values, range(4), clusters.tolist(), n_resamples=199, seed=seed)
        rejected += found.p <= 0.05
    assert 3 <= rejected <= 29, rejected / 300  # 5% +- 3.6 standard errors


def test_best_level_against_every_resample_of_three_videos():
    values = np.asarray([[0, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 1], [1, 1, 0.0]])
    clusters = np.asarray([0, 0, 1, 1, 2])
    shares = np.zeros(3)
    for picked in product(range(3), repeat=3):
        means = np.concatenate([values[clusters == video] for video in picked]).mean(axis=0)
        best = means >= means.max() - 1e-12
        shares += best / best.sum() / 27
    found = statistics.best_level(values, LEVELS, clusters.tolist(), n_resamples=40_000)
    assert found.probabilities == pytest.approx(shares, abs=0.012)
    assert (found.level, found.mean) == (8, 0.6)
    assert (found.ci_low, found.ci_high) == (4, 16)


def test_a_clear_peak_is_found_and_a_flat_curve_is_not_sure():
    rng = np.random.default_rng(4)
    clusters = [k // 3 for k in range(600)]
    peak = (rng.random((600, 4)) < [0.3, 0.6, 0.4, 0.3]).astype(float)
    found = statistics.best_level(peak, [1, 2, 3, 4], clusters, n_resamples=1000)
    assert (found.level, found.ci_low, found.ci_high) == (2, 2, 2)
    assert found.probabilities[1] > 0.99
    flat = np.tile((rng.random((600, 1)) < 0.5).astype(float), 4)
    found = statistics.best_level(flat, [1, 2, 3, 4], clusters, n_resamples=1000)
    assert found.tied == (1.0, 2.0, 3.0, 4.0)
    assert found.probabilities == pytest.approx([0.25] * 4)
    assert (found.ci_low, found.ci_high) == (1, 4)


@pytest.mark.parametrize("function", [statistics.monotone_trend, statistics.best_level])
@pytest.mark.parametrize("values", [np.empty((0, 3)), np.full((2, 3), np.nan), []])
def test_no_items_are_undefined(function, values):
    found = function(values, LEVELS, ["v"] * len(values))
    assert (found.n, found.n_undefined) == (0, len(values))
    assert np.isnan(found.means).all()
    assert found.means.shape == (3,)
    assert np.isnan([found.ci_low, found.ci_high]).all()


def test_one_video_and_constant_outcomes():
    one = statistics.monotone_trend(np.asarray([[0.0, 0.0, 1.0]]), LEVELS, ["v"])
    assert (one.slope, one.p_rising, one.method) == (0.5, pytest.approx(1 / 3), "exact")
    assert np.isnan(one.ci_low)
    assert np.isnan(statistics.best_level(np.asarray([[0.0, 0.0, 1.0]]), LEVELS, ["v"]).probabilities).all()
    constant = statistics.monotone_trend(np.ones((6, 3)), LEVELS, "aabbcc")
    assert (constant.slope, constant.p, constant.p_rising, constant.ci_low) == pytest.approx(
        (0, 1, 1, 0), abs=1e-12
    )


def test_an_item_without_every_level_is_dropped_and_counted():
    values = np.asarray([[0, 1, np.nan], [0, 1, 1], [1, 1, 1.0]])
    found = statistics.monotone_trend(values, LEVELS, "abc")
    assert (found.n, found.n_clusters, found.n_undefined) == (2, 2, 1)
    assert found.means.tolist() == [0.5, 1, 1]


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="rising order"):
        statistics.monotone_trend(np.ones((2, 3)), [4, 16, 8], "ab")
    with pytest.raises(ValueError, match="at 3 levels, but 2"):
        statistics.best_level(np.ones((2, 3)), [4, 16], "ab")
