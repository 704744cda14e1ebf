from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from diagnostics.scoring import statistics


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(2, 6)), min_size=1, max_size=9))
def test_mixed_options_against_every_pattern_of_guesses(rows):
    """The distribution of the number right, from all 2^n patterns; two-sided by small likelihoods."""
    correct, options = (list(column) for column in zip(*rows, strict=True))
    likelihood = np.zeros(len(rows) + 1)
    for pattern in product((0, 1), repeat=len(rows)):
        chances = [1 / o if hit else 1 - 1 / o for hit, o in zip(pattern, options, strict=True)]
        likelihood[sum(pattern)] += np.prod(chances)
    expected = likelihood[likelihood <= likelihood[sum(correct)] * (1 + 1e-7)].sum()
    found = statistics.against_chance(correct, options, range(len(rows)), n_resamples=10)
    assert found.p_independent == pytest.approx(min(1, expected), rel=1e-6)


def test_equal_options_are_the_binomial_test():
    correct = [1] * 30 + [0] * 70
    found = statistics.against_chance(correct, [4] * 100, range(100), n_resamples=10)
    assert found.p_independent == stats.binomtest(30, 100, 0.25).pvalue
    mixed = statistics.against_chance(correct, [4] * 99 + [5], range(100), n_resamples=10)
    assert mixed.p_independent == pytest.approx(found.p_independent, rel=0.1)


@pytest.mark.parametrize(("right", "n"), [(2, 39), (0, 47)])
def test_published_scores_below_chance_are_findings(right, n):
    found = statistics.against_chance([1] * right + [0] * (n - right), [4] * n, range(n))
    assert found.excess < 0
    assert found.p_independent < 0.01
    assert found.p_clustered < 0.01
    assert found.ci_high < 0


def test_a_videos_questions_that_stand_and_fall_together_are_one_piece_of_evidence():
    clusters = np.repeat(np.arange(8), 10)
    correct = np.isin(clusters, [0, 1, 2, 3]).astype(float)
    found = statistics.against_chance(correct, [4] * 80, clusters.tolist())
    assert (found.accuracy, found.chance, found.excess) == (0.5, 0.25, 0.25)
    assert found.p_independent < 1e-5
    assert found.p_clustered > 0.1
    # Four videos at +7.5 and four at -2.5: every flip listed.
    totals = [
        abs(sum(s * v for s, v in zip(signs, [7.5] * 4 + [-2.5] * 4, strict=True)))
        for signs in product((-1, 1), repeat=8)
    ]
    assert found.p_clustered == pytest.approx(np.mean(np.asarray(totals) >= 20 - 1e-9))


def test_guessing_is_found_out_once_in_twenty():
    independent = clustered = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        clusters, options = rng.integers(0, 40, 120), rng.integers(3, 6, 120)
        found = statistics.against_chance(
            rng.random(120) < 1 / options, options, clusters.tolist(), n_resamples=2
        )
        independent += found.p_independent <= 0.05
        clustered += found.p_clustered <= 0.05
    assert 3 <= independent <= 29, independent / 300
    assert 3 <= clustered <= 32, clustered / 300


def test_interval_and_excess_are_those_of_the_difference_from_chance():
    rng = np.random.default_rng(1)
    options, clusters = rng.integers(2, 6, 60), rng.integers(0, 15, 60).tolist()
    correct = rng.integers(0, 2, 60)
    found = statistics.against_chance(correct, options, clusters, n_resamples=500)
    paired = statistics.paired_difference(1 / options, correct, clusters, n_resamples=500)
    assert (found.excess, found.p_clustered) == pytest.approx((paired.difference, paired.p))
    assert (found.ci_low, found.ci_high) == pytest.approx((paired.ci_low, paired.ci_high))


@pytest.mark.parametrize("correct", [[], [np.nan, np.nan]])
def test_no_items_are_undefined(correct):
    found = statistics.against_chance(correct, [4] * len(correct), ["v"] * len(correct))
    numbers = (found.accuracy, found.excess, found.p_independent, found.p_clustered, found.ci_low)
    assert np.isnan(numbers).all()


def test_one_option_is_right_by_chance():
    found = statistics.against_chance([1, 1], [1, 1], "ab")
    assert (found.excess, found.p_independent, found.p_clustered) == (0, 1, 1)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="2 have options"):
        statistics.against_chance([1], [4, 4], ["v"])
    with pytest.raises(ValueError, match="at least one option"):
        statistics.against_chance([1], [0], ["v"])
    with pytest.raises(ValueError, match="0 or 1"):
        statistics.against_chance([0.5], [4], ["v"])
