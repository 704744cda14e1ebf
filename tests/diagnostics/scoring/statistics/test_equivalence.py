import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import DescrStatsW

from diagnostics.scoring import statistics


def test_singletons_are_statsmodels_tost():
    values = np.random.default_rng(0).normal(0.02, 0.2, 40)
    found = statistics.equivalence(values, range(40), margin=0.1, null=0.01)
    p, (_, lower, _), (_, upper, _) = DescrStatsW(values).ttost_mean(0.01 - 0.1, 0.01 + 0.1)
    assert (found.p, found.p_lower, found.p_upper) == pytest.approx((p, lower, upper), rel=1e-9)
    assert found.degrees_of_freedom == pytest.approx(39)
    low, high = DescrStatsW(values).tconfint_mean(alpha=0.1)
    assert (found.ci_low, found.ci_high) == pytest.approx((low, high))


def test_equal_videos_are_students_test_on_their_means():
    rng = np.random.default_rng(1)
    values, clusters = rng.normal(size=48) + np.repeat(rng.normal(size=12), 4), np.repeat(np.arange(12), 4)
    found = statistics.cluster_robust_mean(values, clusters.tolist())
    means = values.reshape(12, 4).mean(axis=1)
    assert found.standard_error == pytest.approx(means.std(ddof=1) / np.sqrt(12))
    assert found.degrees_of_freedom == pytest.approx(11)
    fit = sm.OLS(values, np.ones(48)).fit(cov_type="cluster", cov_kwds={"groups": clusters})
    # statsmodels' factor is k/(k-1) (n-1)/(n-p), and p is 1: the same for equal videos.
    assert found.standard_error == pytest.approx(float(fit.bse[0]))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=7), st.integers(0, 1000))
def test_unequal_videos_against_the_matrices_of_the_paper(sizes, seed):
    """CR2 and its degrees of freedom written out: (I - H)^(-1/2) of each video, and the spectrum of G."""
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    values = np.random.default_rng(seed).normal(size=clusters.size)
    n, hat = clusters.size, np.full((clusters.size, clusters.size), 1 / clusters.size)
    variance, directions = 0.0, []
    for video in range(len(sizes)):
        inside = clusters == video
        block = np.eye(inside.sum()) - hat[np.ix_(inside, inside)]
        eigenvalues, vectors = np.linalg.eigh(block)
        root = vectors @ np.diag(eigenvalues**-0.5) @ vectors.T
        variance += (np.ones(inside.sum()) @ root @ (values - values.mean())[inside] / n) ** 2
        directions.append((np.eye(n) - hat)[:, inside] @ root @ np.ones(inside.sum()) / n)
    spectrum = np.linalg.eigvalsh(np.asarray(directions) @ np.asarray(directions).T)
    found = statistics.cluster_robust_mean(values, clusters.tolist())
    assert found.standard_error == pytest.approx(np.sqrt(variance), rel=1e-8)
    assert found.degrees_of_freedom == pytest.approx(spectrum.sum() ** 2 / (spectrum**2).sum(), rel=1e-8)
    assert found.degrees_of_freedom <= len(sizes) - 1 + 1e-9


def test_the_verdict_is_the_interval_inside_the_margin():
    rng = np.random.default_rng(2)
    seen = set()
    for _ in range(60):
        values = rng.normal(rng.uniform(-0.2, 0.2), 0.3, 30)
        found = statistics.equivalence(values, [k // 3 for k in range(30)], margin=0.2)
        inside = found.ci_low > -0.2 and found.ci_high < 0.2
        assert (found.verdict == "equivalent") == inside
        seen.add(found.verdict)
    assert seen == {"equivalent", "not_shown"}


def test_a_true_difference_on_the_margin_is_called_equivalent_once_in_twenty():
    claimed = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        clusters = np.repeat(np.arange(25), 4)
        values = 0.1 + 0.1 * (rng.normal(size=25)[clusters] + rng.normal(size=100))
        claimed += statistics.equivalence(values, clusters.tolist(), margin=0.1).verdict == "equivalent"
    assert 6 <= claimed <= 36, claimed / 400  # 5% +- 3.5 standard errors


@pytest.mark.parametrize(
    ("value", "verdict", "p"),
    [(0.0, "equivalent", 0.0), (0.3, "not_shown", 1.0), (0.1, "undefined", np.nan)],
)
def test_constant_differences_take_the_limit(value, verdict, p):
    found = statistics.equivalence([value] * 6, list("aabbcd"), margin=0.1)
    assert (found.verdict, found.standard_error) == (verdict, 0.0)
    assert found.p == pytest.approx(p, nan_ok=True)
    assert (found.ci_low, found.ci_high) == pytest.approx((value, value))


@pytest.mark.parametrize("values", [[], [np.nan], [0.01, 0.02, 0.0]])
def test_fewer_than_two_videos_are_undefined(values):
    found = statistics.equivalence(values, ["v"] * len(values), margin=0.1)
    assert found.verdict == "undefined"
    assert np.isnan([found.p, found.ci_low, found.standard_error]).all()


def test_a_margin_is_positive():
    with pytest.raises(ValueError, match="positive, got 0"):
        statistics.equivalence([0.1, 0.2], "ab", margin=0)


@pytest.mark.parametrize("n", [2, 3, 5, 12, 340])
@pytest.mark.parametrize("alpha", [0.05, 0.01])
@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
def test_detectable_difference_against_scipys_noncentral_t(n, alpha, power):
    found = statistics.minimum_detectable_difference(n, 0.25, power=power, alpha=alpha)
    critical, shift = stats.t.isf(alpha / 2, n - 1), found / 0.5 * np.sqrt(n)
    # The far tail, at most half of alpha, is left out: scipy's is NaN there.
    assert stats.nct.sf(critical, n - 1, shift) == pytest.approx(power, abs=1e-3)


def test_detectable_difference_against_statsmodels_where_it_converges():
    for n, power in ((5, 0.8), (20, 0.9), (100, 0.8)):
        theirs = TTestPower().solve_power(nobs=n, alpha=0.05, power=power, alternative="two-sided")
        found = statistics.minimum_detectable_difference(n, 1.0, power=power)
        assert found == pytest.approx(float(theirs), rel=1e-3)


def test_a_difference_of_that_size_is_found_that_often():
    rng = np.random.default_rng(3)
    pilot = rng.normal(0, 0.4, 4000)
    size = statistics.minimum_detectable_difference(20, statistics.video_variance(pilot, range(4000)))
    samples = rng.normal(size, 0.4, (4000, 20))
    power = (stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05).mean()
    assert power == pytest.approx(0.8, abs=0.03)


def test_video_variance_is_that_of_the_means_of_equal_videos():
    values = np.random.default_rng(4).normal(size=30)
    found = statistics.video_variance(values, [k // 5 for k in range(30)])
    assert found == pytest.approx(values.reshape(6, 5).mean(axis=1).var(ddof=1))


def test_corner_cases_of_a_plan():
    assert statistics.minimum_detectable_difference(10, 0.0) == 0.0
    assert np.isnan(statistics.minimum_detectable_difference(1, 0.2))
    assert np.isnan(statistics.minimum_detectable_difference(10, float("nan")))
    with pytest.raises(ValueError, match="power"):
        statistics.minimum_detectable_difference(10, 0.2, power=0.01)
    with pytest.raises(ValueError, match="variance"):
        statistics.minimum_detectable_difference(10, -0.2)
