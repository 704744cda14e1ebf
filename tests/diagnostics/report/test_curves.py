"""Curves on common grids, against plain loops."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import probes
from diagnostics.report.curves import (
    UNDEFINED,
    attention_over_time,
    band,
    evidence_over_time,
    gather,
    null_of_mean,
    unit_cells,
)
from diagnostics.store import Metric


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 20), st.integers(0, 99))
def test_a_bin_holds_the_mean_of_the_nearest_units_attention(units, bins, seed):
    rng = np.random.default_rng(seed)
    duration = 100.0
    seconds = rng.uniform(0, duration, (units, 2))
    share = rng.dirichlet(np.ones(units))
    curve = attention_over_time(share, seconds, duration, bins)
    times = (np.arange(500 * bins) + 0.5) / (500 * bins) * duration
    nearest = np.abs(seconds.mean(axis=1)[:, None] - times).argmin(axis=0)
    expected = (share[nearest] * units).reshape(bins, 500).mean(axis=1)
    # A bin holds at most `units` edges of the step function, each off by half a sample of at most `units`.
    np.testing.assert_allclose(curve, expected, atol=units**2 / 1000, err_msg="sampled 500 times a bin")


def test_uniform_attention_is_one_however_frames_were_chosen():
    crowded = np.array([[0.0], [1.0], [1.1], [1.2], [50.0], [99.0]])
    curve = attention_over_time(np.full(6, 1 / 6), crowded, 100.0, 7)
    np.testing.assert_allclose(curve, 1.0, rtol=1e-12)


def test_synthetic_units_take_no_time_and_unknown_durations_end_one_gap_later():
    seconds = np.array([[4.0, 6.0], [np.nan, np.nan], [0.0, 2.0]])
    edges, unit = unit_cells(seconds, float("nan"))
    assert unit.tolist() == [2, 0]
    np.testing.assert_allclose(edges, [0, 3, 8])
    assert np.isnan(attention_over_time(np.array([1.0]), np.array([[np.nan]]), 5.0, 4)).all()
    assert unit_cells(np.array([[0.0]]), float("nan"))[0].tolist() == [0, 1]


def test_evidence_fills_the_cell_of_its_unit():
    seconds = np.array([[5.0], [15.0], [25.0], [35.0]])
    shown = np.array([[False], [True], [False], [False]])
    np.testing.assert_allclose(evidence_over_time(shown, seconds, 40.0, 8), [0, 0, 1, 1, 0, 0, 0, 0])


def test_the_items_band_is_the_percentiles():
    values = np.random.default_rng(0).normal(size=(40, 3))
    mean, low, high = band(values, [str(i) for i in range(40)], "items")
    np.testing.assert_allclose(mean, values.mean(axis=0))
    for point in range(3):
        assert low[point] == pytest.approx(np.percentile(values[:, point], 2.5))
        assert high[point] == pytest.approx(np.percentile(values[:, point], 97.5))


def test_the_mean_band_agrees_with_scipys_bootstrap_and_knows_videos():
    values = np.random.default_rng(1).normal(size=(60, 1))
    alone = [str(i) for i in range(60)]
    _, low, high = band(values, alone, "mean")
    other = stats.bootstrap((values[:, 0],), np.mean, method="percentile", n_resamples=4000, rng=0)
    spread = other.confidence_interval.high - other.confidence_interval.low
    assert low[0] == pytest.approx(other.confidence_interval.low, abs=0.08 * spread)
    assert high[0] == pytest.approx(other.confidence_interval.high, abs=0.08 * spread)
    # Ten copies of each item say nothing new when they come from one video.
    copies, videos = np.repeat(values, 10, axis=0), np.repeat(alone, 10).tolist()
    _, copied_low, copied_high = band(copies, videos, "mean")
    np.testing.assert_allclose([copied_low[0], copied_high[0]], [low[0], high[0]], rtol=1e-12)


def test_bands_need_two_and_undefined_items_are_left_out():
    one = np.array([[0.1, 0.2]])
    for kind in ("mean", "items"):
        mean, low, high = band(one, ["v"], kind)
        np.testing.assert_allclose(mean, one[0])
        assert np.isnan([low, high]).all()
        with_gap = np.array([[1.0, 1.0], [3.0, 3.0], [np.nan, np.nan]])
        np.testing.assert_allclose(band(with_gap, ["a", "b", "c"], kind)[0], 2.0)


def test_gather_keeps_the_items_and_takes_the_runs_numbers(make_item, metrics):
    items = [make_item(0, 4), make_item(1, 16, video="video 0"), make_item(2, 1)]
    run = gather("name", items, metrics, grid_points=5, time_bins=10)
    assert (run.n_items, run.n_videos, run.n_units.tolist()) == (3, 2, [4, 16, 1])
    # At 4 units the grid's quarters are whole units: the curve is C(k) itself.
    np.testing.assert_allclose(run.cumulative[0], [0, *items[0].cumulative])
    np.testing.assert_allclose(run.cumulative[1, 2], items[1].cumulative[7])
    np.testing.assert_allclose(run.control[0], run.unit_grid, atol=1e-12)
    np.testing.assert_allclose(run.redundancy, [item.redundancy for item in items])
    assert run.unit_fraction[90] == metrics["unit_fraction_90"]
    assert run.unit_fraction[95] == UNDEFINED
    pooled = gather("name", items, metrics, pooling="pooled")
    assert pooled.unit_fraction[90] == metrics["unit_fraction_90_pooled"]
    assert pooled.unit_fraction[50] == UNDEFINED


def test_without_evidence_or_control_there_is_none(make_item):
    run = gather("name", [make_item(0, evidence=False, control=False)], {})
    assert run.evidence is None
    assert run.control is None
    mixed = gather("name", [make_item(0, control=False), make_item(1)], {})
    assert np.isnan(mixed.control[0]).all()
    assert np.isfinite(mixed.control[1]).all()


def test_metrics_that_are_nan_or_none_are_undefined(make_item):
    item = replace(make_item(0), cumulative=np.full(8, np.nan))
    run = gather("name", [item], {"patch_similarity": Metric(float("nan"), None, None, 0)})
    assert np.isnan(run.cumulative).all()


def test_the_null_of_a_mean_narrows_with_the_number_of_items():
    rng = np.random.default_rng(0)
    draws = rng.normal(0.002, 0.01, size=(25, 4000))

    def null(row: np.ndarray) -> probes.ShiftNull:
        low, high = np.quantile(row, [0.025, 0.975])
        observed = 0.03
        z = (observed - row.mean()) / row.std()
        return probes.ShiftNull(
            observed, float(row.mean()), float(low), float(high), float(z), 0.01, row.size
        )

    nulls = [null(row) for row in draws]
    low, high = null_of_mean(nulls)
    expected = np.quantile(draws.mean(axis=0), [0.025, 0.975])
    np.testing.assert_allclose([low, high], expected, atol=3e-4, err_msg="means of draws, one from each null")
    assert null_of_mean(nulls[:1]) == (nulls[0].low, nulls[0].high)
    absent = probes.ShiftNull(*[float("nan")] * 6, n_shifts=0)
    assert null_of_mean([absent]) is None
    assert null_of_mean([absent, nulls[0]]) == (nulls[0].low, nulls[0].high)
