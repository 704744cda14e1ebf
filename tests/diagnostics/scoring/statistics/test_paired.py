import time
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as theirs

from diagnostics.scoring import statistics

outcome = st.sampled_from([0.0, 1.0, float("nan")])
paired_rows = st.lists(st.tuples(outcome, outcome, st.integers(0, 5)), max_size=30)


def all_flips(differences, clusters):
    """P(|sum| >= |observed|) over every sign of every video, listed one by one."""
    names = sorted(set(clusters))
    sums = [sum(d for d, c in zip(differences, clusters, strict=True) if c == name) for name in names]
    observed = abs(sum(sums)) - 1e-9
    totals = [
        abs(sum(s * x for s, x in zip(signs, sums, strict=True)))
        for signs in product((-1, 1), repeat=len(sums))
    ]
    return sum(total >= observed for total in totals) / len(totals)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 1), st.integers(0, 7)), min_size=1, max_size=25))
def test_exact_p_of_outcomes_against_every_flip(rows):
    differences, clusters = (list(column) for column in zip(*rows, strict=True))
    found = statistics.sign_flip(differences, clusters)
    assert found.method == "exact"
    assert found.p == pytest.approx(all_flips(differences, clusters), abs=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1 / 3, 0.05, np.pi])
def test_exact_p_of_means_over_seeds_and_of_real_numbers(scale):
    rng = np.random.default_rng(0)
    differences = rng.integers(-3, 5, 20) * scale
    clusters = np.repeat(np.arange(8), [1, 2, 3, 4, 1, 2, 3, 4]).tolist()
    found = statistics.sign_flip(differences, clusters)
    assert found.p == pytest.approx(all_flips(differences.tolist(), clusters), abs=1e-12)


def test_real_numbers_are_enumerated_where_few_and_drawn_where_many():
    rng = np.random.default_rng(1)
    few, many = rng.normal(0.4, 1, 10), rng.normal(0.15, 1, 60)
    listed = statistics.sign_flip(few, range(10))
    assert (listed.method, listed.p_floor) == ("exact", 2.0**-9)
    assert listed.p == pytest.approx(all_flips(few.tolist(), list(range(10))), abs=1e-12)
    drawn = statistics.sign_flip(many, range(60), n_resamples=20_000)
    assert drawn.method == "monte_carlo"
    assert drawn.p_floor == 1 / 20_001
    reference = stats.permutation_test(
        (many,), np.mean, permutation_type="samples", n_resamples=20_000, rng=np.random.default_rng(5)
    ).pvalue
    assert drawn.p == pytest.approx(reference, abs=4 * np.sqrt(reference / 10_000))


def test_convolution_and_drawing_agree_on_many_videos():
    rng = np.random.default_rng(2)
    clusters = rng.integers(0, 150, 500).tolist()
    differences = rng.choice([-1.0, 0.0, 1.0], 500, p=[0.15, 0.65, 0.2])
    exact = statistics.sign_flip(differences, clusters)
    # A hair of irrational noise keeps the sums from being fractions, so they are drawn.
    drawn = statistics.sign_flip(differences + 1e-5 * rng.normal(size=500), clusters, n_resamples=40_000)
    assert (exact.method, drawn.method) == ("exact", "monte_carlo")
    # The noise breaks the ties at the observed sum, of about the probability of one value.
    assert drawn.p == pytest.approx(exact.p, abs=0.05)
    assert drawn.p <= exact.p + 0.01


def test_few_videos_cannot_be_significant_and_say_so():
    found = statistics.paired_difference([0] * 30, [1] * 30, [n % 4 for n in range(30)])
    assert found.difference == 1.0
    assert found.p == found.p_floor == 0.125
    assert found.mcnemar.p < 1e-8


@settings(max_examples=25, deadline=None)
@given(paired_rows)
def test_invariances(rows):
    a, b, clusters = ([row[k] for row in rows] for k in range(3))
    found = statistics.paired_difference(a, b, clusters, n_resamples=200)
    swapped = statistics.paired_difference(b, a, clusters, n_resamples=200)
    order = np.random.default_rng(len(rows)).permutation(len(rows))
    moved = statistics.paired_difference(
        [a[k] for k in order],
        [b[k] for k in order],
        [f"video {9 - clusters[k]}" for k in order],
        n_resamples=200,
    )
    assert moved == found or np.isnan(found.ci_low)
    for name in ("difference", "ci_low", "ci_high", "p"):
        assert getattr(moved, name) == pytest.approx(getattr(found, name), nan_ok=True, abs=1e-12)
    assert swapped.p == pytest.approx(found.p, nan_ok=True)
    assert swapped.difference == pytest.approx(-found.difference, nan_ok=True)
    assert (swapped.mcnemar.gained, swapped.mcnemar.lost) == (found.mcnemar.lost, found.mcnemar.gained)
    assert found.n + found.n_undefined == len(rows)
    assert found.mean_b - found.mean_a == pytest.approx(found.difference, nan_ok=True, abs=1e-12)
    if found.n_clusters > 1:
        assert found.ci_low <= found.difference + 1e-12
        assert found.ci_high >= found.difference - 1e-12
    if found.n:
        assert found.p_floor <= found.p <= 1


def test_swapping_turns_the_interval_round():
    rng = np.random.default_rng(4)
    a, b, clusters = rng.integers(0, 2, 300), rng.integers(0, 2, 300), rng.integers(0, 60, 300).tolist()
    one = statistics.paired_difference(a, b, clusters, n_resamples=20_000)
    other = statistics.paired_difference(b, a, clusters, n_resamples=20_000)
    width = one.ci_high - one.ci_low
    assert other.ci_low == pytest.approx(-one.ci_high, abs=0.03 * width)
    assert other.ci_high == pytest.approx(-one.ci_low, abs=0.03 * width)


def test_interval_against_every_resample_of_four_videos():
    a, b = np.asarray([0, 1, 0, 0, 1, 1, 0, 1.0]), np.asarray([1, 1, 1, 0, 1, 0, 1, 1.0])
    clusters = np.asarray([0, 0, 0, 1, 2, 2, 3, 3])
    every = [
        np.concatenate([(b - a)[clusters == video] for video in picked]).mean()
        for picked in product(range(4), repeat=4)
    ]
    tail = stats.norm.cdf(np.sqrt(4 / 3) * stats.t.ppf(0.025, 3))
    found = statistics.paired_difference(a, b, clusters.tolist(), n_resamples=200_000)
    low, high = np.quantile(every, [tail, 1 - tail])
    assert found.ci_low == pytest.approx(low, abs=0.01)
    assert found.ci_high == pytest.approx(high, abs=0.01)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=40))
def test_mcnemar_against_scipy_and_statsmodels(rows):
    a, b = (np.asarray(column, float) for column in zip(*rows, strict=True))
    found = statistics.mcnemar(a, b)
    table = [[int(((a == i) & (b == j)).sum()) for j in (1, 0)] for i in (1, 0)]
    assert (found.lost, found.gained) == (table[0][1], table[1][0])
    assert found.p == pytest.approx(float(theirs(table, exact=True).pvalue), abs=1e-12)
    if found.gained + found.lost:
        assert found.p == stats.binomtest(found.lost, found.gained + found.lost).pvalue


def test_mcnemar_is_of_binary_outcomes_only():
    with pytest.raises(ValueError, match="0 or 1"):
        statistics.mcnemar(np.asarray([0.5]), np.asarray([1.0]))
    assert statistics.paired_difference([0.5, 0.2], [1, 0], "ab").mcnemar is None


@pytest.mark.parametrize("values", [[], [np.nan, np.nan]])
def test_nothing_to_compare_is_undefined(values):
    found = statistics.paired_difference(values, values, ["v"] * len(values))
    numbers = (
        found.mean_a,
        found.mean_b,
        found.difference,
        found.ci_low,
        found.ci_high,
        found.p,
        found.p_floor,
    )
    assert np.isnan(numbers).all()
    assert np.isnan(found.mcnemar.p)
    assert (found.method, found.n, found.n_undefined) == ("undefined", 0, len(values))


def test_one_video_has_a_difference_but_neither_interval_nor_evidence():
    found = statistics.paired_difference([0, 0, 1], [1, 1, 1], ["v"] * 3)
    assert found.difference == pytest.approx(2 / 3)
    assert np.isnan([found.ci_low, found.ci_high]).all()
    assert found.p == 1.0


def test_no_difference_anywhere():
    found = statistics.paired_difference([1, 0, 1], [1, 0, 1], "abc")
    assert (found.difference, found.ci_low, found.ci_high, found.p, found.mcnemar.p) == (0, 0, 0, 1, 1)


def test_rounding_is_not_a_difference():
    found = statistics.sign_flip([0.1, 0.2, -0.3, 0.3, -0.1, -0.2], ["v"] * 3 + ["w"] * 3)
    assert found.p == 1.0


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="same items, got 1 and 2"):
        statistics.paired_difference([1], [1, 0], ["v"])
    with pytest.raises(ValueError, match="2 have a video"):
        statistics.paired_difference([1], [1], ["v", "w"])
    with pytest.raises(ValueError, match="infinite outcomes"):
        statistics.paired_difference([1, np.inf], [1, 0], ["v", "w"])


def test_the_test_keeps_its_level_where_mcnemar_does_not():
    """Videos differ, items of one video go together, no difference on average: 5% rejected, not 30%."""
    ours = theirs_too = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        clusters = np.repeat(np.arange(30), 6)
        a, b = (rng.beta(0.4, 0.4, 30)[clusters] > rng.random(180) for _ in range(2))
        found = statistics.paired_difference(a, b, clusters.tolist(), n_resamples=2)
        ours += found.p <= 0.05
        theirs_too += found.mcnemar.p <= 0.05
    assert 4 <= ours <= 29, ours / 300  # 5% +- 3.6 standard errors
    assert theirs_too > 2 * ours + 15, theirs_too / 300


def test_a_benchmark_of_medhorizons_size_takes_less_than_a_second_of_cpu():
    rng = np.random.default_rng(0)
    clusters = np.concatenate([np.arange(340), rng.integers(0, 340, 913)]).tolist()
    a, b = (rng.random(1253) < p for p in (0.40, 0.45))
    noise = rng.normal(size=1253)
    for shift in (0.0, noise):
        started = time.process_time()
        statistics.paired_difference(a, b + shift, clusters, n_resamples=10_000)
        assert time.process_time() - started < 1.0
