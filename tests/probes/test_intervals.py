import numpy as np
import pytest
from scipy import stats

import probes


def test_against_scipys_bootstrap_of_clusters():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 8, size=30)
    groups = np.repeat(np.arange(30), sizes)
    values = rng.normal(size=30)[groups] + rng.normal(size=groups.size)
    ours = probes.clustered_mean(values, groups.tolist(), n_resamples=20_000)
    sums = np.bincount(groups, weights=values)
    theirs = stats.bootstrap(
        (sums, sizes),
        lambda s, n, axis: s.sum(axis=axis) / n.sum(axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=20_000,
    ).confidence_interval
    assert ours.mean == pytest.approx(values.mean(), abs=1e-12)
    width = theirs.high - theirs.low
    assert ours.ci_low == pytest.approx(theirs.low, abs=0.04 * width)
    assert ours.ci_high == pytest.approx(theirs.high, abs=0.04 * width)
    assert (ours.n, ours.n_groups) == (groups.size, 30)


def test_questions_about_one_video_are_not_independent():
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(20), 10)
    values = rng.normal(size=20)[groups]
    clustered = probes.clustered_mean(values, groups.tolist())
    naive = probes.clustered_mean(values, list(range(200)))
    assert clustered.ci_high - clustered.ci_low > 2 * (naive.ci_high - naive.ci_low)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(40), 3)
        values = rng.normal(size=40)[groups] + rng.normal(size=120)
        estimate = probes.clustered_mean(values, groups.tolist(), n_resamples=500, seed=seed)
        covered += estimate.ci_low <= 0 <= estimate.ci_high
    assert 176 <= covered <= 199, covered / 200  # 95% less the known shortfall of percentiles at 40 groups


def test_undefined_values_are_dropped_and_counted():
    estimate = probes.clustered_mean([1.0, np.nan, 3.0, np.nan], ["a", "a", "b", "c"])
    assert estimate.mean == 2.0
    assert (estimate.n, estimate.n_groups, estimate.n_undefined) == (2, 2, 2)
    assert estimate.ci_low == 1.0
    assert estimate.ci_high == 3.0


@pytest.mark.parametrize(("values", "mean"), [([0.2, 0.4], 0.3), ([], np.nan), ([np.nan], np.nan)])
def test_one_video_or_none_has_no_interval(values, mean):
    estimate = probes.clustered_mean(values, ["same"] * len(values))
    assert estimate.mean == pytest.approx(mean, nan_ok=True)
    assert np.isnan([estimate.ci_low, estimate.ci_high]).all()


def test_names_of_groups_do_not_change_the_interval():
    values = np.random.default_rng(2).random(12)
    numbers = [0, 1, 2, 3] * 3
    renamed = [("z", 9 - g) for g in numbers]
    assert probes.clustered_mean(values, numbers) == probes.clustered_mean(values, renamed)


def test_a_curve_is_its_points():
    values = np.random.default_rng(3).random((10, 4))
    values[2, 1] = np.nan
    groups = list("aabbccddee")
    curve = probes.clustered_curve(values, groups)
    point = probes.clustered_mean(np.delete(values[:, 3], 2), [g for i, g in enumerate(groups) if i != 2])
    assert (curve.n, curve.n_undefined) == (9, 1)
    assert curve.mean[3] == pytest.approx(point.mean)
    assert curve.ci_low[3] == pytest.approx(point.ci_low)
    assert curve.ci_high[3] == pytest.approx(point.ci_high)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="infinite"):
        probes.clustered_mean([1.0, np.inf], ["a", "b"])
    with pytest.raises(ValueError, match="belong to"):
        probes.clustered_mean([1.0], ["a", "b"])
    with pytest.raises(ValueError, match="confidence"):
        probes.clustered_mean([1.0], ["a"], confidence=1.0)


def difference_data(seed: int, shared: int, alone: int):
    """Two sets of items: `shared` videos have both, `alone` more each side; each video has a level."""
    rng = np.random.default_rng(seed)
    levels = rng.normal(size=shared + 2 * alone)
    left = np.repeat(np.arange(shared + alone), 3)
    right = np.repeat(np.r_[np.arange(shared), np.arange(shared + alone, shared + 2 * alone)], 2)
    values = [levels[of] + 0.3 * rng.normal(size=of.size) for of in (left, right)]
    return values[0], left.tolist(), values[1] + 0.5, right.tolist()


def test_a_difference_of_other_videos_is_scipys_two_sample_bootstrap():
    first, first_groups, second, second_groups = difference_data(0, shared=0, alone=25)
    ours = probes.clustered_difference(first, first_groups, second, second_groups, n_resamples=20_000)
    # Equally many items a video: the mean of the videos' means is the mean of the items.
    means = [
        np.array([np.mean(values[np.array(groups) == g]) for g in dict.fromkeys(groups)])
        for values, groups in ((first, first_groups), (second, second_groups))
    ]
    theirs = stats.bootstrap(
        means,
        lambda a, b, axis: b.mean(axis=axis) - a.mean(axis=axis),
        vectorized=True,
        method="percentile",
        n_resamples=20_000,
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.mean == pytest.approx(second.mean() - first.mean(), abs=1e-12)
    assert ours.ci_low == pytest.approx(theirs.low, abs=0.04 * width)
    assert ours.ci_high == pytest.approx(theirs.high, abs=0.04 * width)
    assert (ours.n, ours.n_groups) == (first.size + second.size, 25)


def test_what_shared_videos_have_in_common_is_no_noise():
    given = difference_data(1, shared=25, alone=0)
    joint = probes.clustered_difference(*given)
    apart = probes.clustered_difference(given[0], given[1], given[2], [f"other {g}" for g in given[3]])
    assert joint.mean == apart.mean
    assert joint.ci_high - joint.ci_low < 0.5 * (apart.ci_high - apart.ci_low)
    paired = probes.clustered_mean(
        [
            given[2][np.array(given[3]) == g].mean() - given[0][np.array(given[1]) == g].mean()
            for g in range(25)
        ],
        range(25),
    )
    assert (joint.ci_low, joint.ci_high) == pytest.approx((paired.ci_low, paired.ci_high), abs=1e-9)


@pytest.mark.parametrize(("shared", "alone"), [(0, 30), (30, 0), (15, 15)])
def test_the_interval_of_a_difference_covers_the_truth(shared, alone):
    covered = 0
    for seed in range(200):
        given = difference_data(seed, shared, alone)
        found = probes.clustered_difference(*given, n_resamples=500, seed=seed)
        covered += found.ci_low <= 0.5 <= found.ci_high
    assert 176 <= covered <= 199, covered / 200


def test_a_difference_without_two_videos_on_both_sides_has_no_interval():
    found = probes.clustered_difference([1.0, np.nan, 2.0], ["a", "b", "a"], [4.0, 6.0], ["a", "b"])
    assert (found.mean, found.n, found.n_groups, found.n_undefined) == (3.5, 4, 1, 1)
    assert np.isnan([found.ci_low, found.ci_high]).all()
    nothing = probes.clustered_difference([], [], [1.0], ["a"])
    assert np.isnan(nothing.mean)
    with pytest.raises(ValueError, match="infinite"):
        probes.clustered_difference([np.inf], ["a"], [1.0], ["a"])
