import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import probes


@pytest.mark.parametrize("n_units", [1, 3, 7, 49, 128])
def test_the_curve_is_exact_at_whole_units(n_units):
    curve = probes.concentration(np.random.default_rng(n_units).random(n_units)).cumulative
    whole = np.arange(n_units + 1) / n_units
    for kind in ("linear", "step"):
        read = probes.cumulative_on_grid(curve, whole, kind=kind)
        np.testing.assert_allclose(read, np.concatenate([[0], curve]), atol=1e-12)
    grid = np.random.default_rng(0).random(50)
    np.testing.assert_allclose(
        probes.cumulative_on_grid(curve, grid), np.interp(grid, whole, np.append(0, curve)), atol=1e-12
    )
    steps = probes.cumulative_on_grid(curve, grid, kind="step")
    below = np.floor(grid * n_units).astype(int)
    np.testing.assert_allclose(steps, np.append(0, curve)[below], atol=1e-12)


def test_uniform_attention_is_the_diagonal_whatever_the_number_of_units():
    curves = [probes.concentration(np.ones(n)).cumulative for n in (3, 8, 50)]
    mean = probes.mean_cumulative_curve(curves, ["a", "b", "c"])
    np.testing.assert_allclose(mean.mean, mean.fraction, atol=1e-12)
    np.testing.assert_allclose(mean.ci_low, mean.fraction, atol=1e-12)
    assert (mean.n, mean.n_groups, mean.n_undefined) == (3, 3, 0)


def test_items_count_equally_and_undefined_ones_are_left_out():
    curves = [np.array([1.0]), np.array([0.5, 1.0]), np.full(4, np.nan)]
    mean = probes.mean_cumulative_curve(curves, [1, 2, 3], grid=np.array([0.0, 0.5, 1.0]), kind="step")
    np.testing.assert_allclose(mean.mean, [0.0, 0.25, 1.0])
    assert (mean.n, mean.n_undefined) == (2, 1)
    nothing = probes.mean_cumulative_curve([], [])
    assert nothing.n == 0
    assert np.isnan(nothing.mean).all()


def test_curve_grids_that_leave_the_units_are_refused():
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        probes.cumulative_on_grid(np.array([1.0]), np.array([1.1]))


units = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 10)), min_size=1, max_size=12)


@settings(max_examples=100, deadline=None)
@given(units, st.integers(1, 30), st.floats(0.1, 5000))
def test_the_time_grid_keeps_the_sum_and_the_place(stretches, n_bins, duration):
    a, b, values = np.array(stretches).T
    start, end = np.minimum(a, b) * duration, np.maximum(a, b) * duration
    binned = probes.on_time_grid(values, start, end, duration, n_bins)
    assert binned.sum() == pytest.approx(values.sum(), rel=1e-9, abs=1e-12)
    assert (binned >= 0).all()
    single = probes.on_time_grid(np.ones(1), start[:1], end[:1], duration, n_bins)
    centres = (np.arange(n_bins) + 0.5) / n_bins * duration
    assert abs(single @ centres - (start[0] + end[0]) / 2) <= duration / n_bins / 2 + 1e-9 * duration


def test_the_time_grid_written_out():
    values = np.array([[0.6, 0.4], [1.0, 0.0]])
    binned = probes.on_time_grid(values, np.array([0.0, 3.0]), np.array([3.0, 4.0]), 4.0, n_bins=2)
    np.testing.assert_allclose(binned, [[0.4, 0.6], [2 / 3, 1 / 3]])
    instants = probes.on_time_grid(
        np.array([1.0, 2.0, 4.0]), np.array([0, 2.0, 4.0]), np.array([0, 2.0, 4.0]), 4.0, 2
    )
    np.testing.assert_allclose(instants, [1.0, 6.0])
    with pytest.raises(ValueError, match="within the video"):
        probes.on_time_grid(np.ones(1), np.array([3.0]), np.array([5.0]), 4.0)
    with pytest.raises(ValueError, match="bins"):
        probes.on_time_grid(np.ones(1), np.zeros(1), np.ones(1), 4.0, 0)


def test_units_of_different_budgets_agree_on_the_grid():
    """The same attention density at 8 and at 64 units looks the same over time."""
    binned = []
    for n_units in (8, 64):
        start, end = probes.unit_intervals((np.arange(n_units) + 0.5) * 80 / n_units, 80.0)
        share = (end**2 - start**2) / 80**2
        binned.append(probes.on_time_grid(share, start, end, 80.0, n_bins=8))
    np.testing.assert_allclose(binned[0], binned[1], atol=1e-12)


def test_unit_intervals_tile_the_video_in_the_order_of_time():
    start, end = probes.unit_intervals(np.array([6.0, 1.0, 3.0]), 10.0)
    np.testing.assert_allclose(start, [4.5, 0.0, 2.0])
    np.testing.assert_allclose(end, [10.0, 2.0, 4.5])
    slots = np.array([[0.0, 2.0], [4.0, np.nan]])
    start, end = probes.unit_intervals(slots, 5.0)
    np.testing.assert_allclose(start, [0.0, 2.5])
    np.testing.assert_allclose(end, [2.5, 5.0])
    with pytest.raises(ValueError, match="needs a time"):
        probes.unit_intervals(np.array([np.nan, 1.0]), 5.0)
