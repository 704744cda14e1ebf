from itertools import product

import numpy as np
import pytest

import probes
from diagnostics.scoring import statistics


def weighted_mean(weights, values):
    return weights @ values / weights.sum(axis=1)


def test_a_mean_is_probes_clustered_mean():
    rng = np.random.default_rng(0)
    values, clusters = rng.random(200), np.sort(rng.integers(0, 40, 200)).tolist()
    found = statistics.cluster_bootstrap(
        weighted_mean, values, clusters=clusters, vectorized=True, n_resamples=20_000
    )
    reference = probes.clustered_mean(values, clusters, n_resamples=20_000, expanded=True)
    width = reference.ci_high - reference.ci_low
    assert float(found.estimate) == pytest.approx(reference.mean, abs=1e-12)
    assert float(found.ci_low) == pytest.approx(reference.ci_low, abs=0.03 * width)
    assert float(found.ci_high) == pytest.approx(reference.ci_high, abs=0.03 * width)


def test_rows_and_weights_are_two_roads_to_the_same_draws():
    rng = np.random.default_rng(1)
    values, others = rng.random(30), rng.random(30)
    clusters = rng.integers(0, 8, 30).tolist()
    slow = statistics.cluster_bootstrap(
        lambda x, y: [x.mean(), (x * y).sum() / y.sum()], values, others, clusters=clusters, n_resamples=300
    )
    fast = statistics.cluster_bootstrap(
        lambda w, x, y: np.stack([w @ x / w.sum(axis=1), w @ (x * y) / (w @ y)], axis=1),
        values,
        others,
        clusters=clusters,
        n_resamples=300,
        vectorized=True,
    )
    assert slow.resampled == pytest.approx(fast.resampled)
    assert slow.estimate == pytest.approx(fast.estimate)
    assert slow.ci_low == pytest.approx(fast.ci_low)


def test_a_median_against_every_resample_of_three_videos():
    values, clusters = np.asarray([1.0, 2.0, 7.0, 4.0, 5.0]), np.asarray([0, 0, 1, 2, 2])
    every = [
        np.median(np.concatenate([values[clusters == video] for video in picked]))
        for picked in product(range(3), repeat=3)
    ]
    found = statistics.cluster_bootstrap(np.median, values, clusters=clusters.tolist(), n_resamples=20_000)
    assert set(found.resampled.tolist()) == set(every)
    for value in set(every):
        share = np.mean(np.asarray(every) == value)
        assert (found.resampled == value).mean() == pytest.approx(share, abs=0.015)


def test_chunks_do_not_change_the_draws(monkeypatch):
    from diagnostics.scoring.statistics import bootstrap

    def run():
        return statistics.cluster_bootstrap(
            weighted_mean, np.arange(9.0), clusters=list("aabbccdde"), n_resamples=50, vectorized=True
        ).resampled

    whole = run()
    monkeypatch.setattr(bootstrap, "_CHUNK", 27)
    assert run().tolist() == whole.tolist()


def test_undefined_items_and_resamples_are_counted():
    def share_of_first(x, y):
        return x.sum() / y.sum() if y.sum() else np.nan

    found = statistics.cluster_bootstrap(
        share_of_first,
        np.asarray([0.0, 1.0, np.nan, 1.0]),
        np.asarray([0.0, 1.0, 1.0, 1.0]),
        clusters=list("abcd"),
        n_resamples=2000,
    )
    assert (found.n, found.n_clusters, found.n_undefined) == (3, 3, 1)
    # All three draws hit the video whose denominator is zero once in 27 times.
    assert found.n_undefined_resamples / 2000 == pytest.approx(1 / 27, abs=0.017)
    assert float(found.ci_low) == float(found.ci_high) == 1.0


@pytest.mark.parametrize(("values", "estimate"), [([], np.nan), ([np.nan], np.nan), ([0.5], 0.5)])
def test_one_video_or_none(values, estimate):
    found = statistics.cluster_bootstrap(np.mean, np.asarray(values), clusters=["v"] * len(values))
    assert float(found.estimate) == pytest.approx(estimate, nan_ok=True)
    assert np.isnan([found.ci_low, found.ci_high]).all()


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"one length, got \[1, 2\]"):
        statistics.cluster_bootstrap(np.mean, np.ones(1), np.ones(2), clusters=["v"])
    with pytest.raises(ValueError, match="got none"):
        statistics.cluster_bootstrap(np.mean, clusters=[])
