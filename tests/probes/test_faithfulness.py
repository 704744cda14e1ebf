"""Deletion and insertion curves: additive outcomes, where every area is known, and what cannot be ordered."""

import itertools

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import auc

import probes

WORTH = np.array([0.0, 3.0, 1.0, 0.0, 2.0, 0.5])


def left(without):
    """An outcome that is the sum of what is left: the best ordering is that of worth."""
    return float(WORTH[~without].sum())


def area(order, direction):
    curves = probes.removal_curves({"own": np.asarray(order)}, left, len(WORTH))["own"]
    return probes.curve_area(curves.fraction, getattr(curves, direction))


def test_areas_are_those_of_the_partial_sums():
    order = probes.ordering(WORTH)
    sums = np.concatenate([[0.0], np.cumsum(WORTH[order])])
    x = np.linspace(0, 1, 7)
    assert area(order, "insertion") == pytest.approx(auc(x, sums), abs=1e-12)
    assert area(order, "deletion") == pytest.approx(auc(x, WORTH.sum() - sums), abs=1e-12)


@pytest.mark.parametrize("direction", ["deletion", "insertion"])
def test_the_ends_are_random_and_oracle(direction):
    every = [area(order, direction) for order in itertools.permutations(range(6))]
    oracle, worst = area(probes.ordering(WORTH), direction), area(probes.ordering(-WORTH), direction)
    assert oracle == pytest.approx(min(every) if direction == "deletion" else max(every))
    random = float(np.mean(every))
    assert probes.normalised_area(random, random, oracle) == 0.0
    assert probes.normalised_area(oracle, random, oracle) == 1.0
    assert probes.normalised_area(worst, random, oracle) == pytest.approx(-1.0), "additive: as far below"


def test_an_outcome_that_the_units_do_not_move_is_undefined():
    assert np.isnan(probes.normalised_area(0.3, 0.5, 0.5))
    pooled = probes.pooled_normalised_area([0.3], [0.5], [0.5], ["a"])
    assert np.isnan(pooled.mean)


def test_each_set_is_asked_once_and_never_more_than_said():
    asked = []

    def outcome(without):
        asked.append(without.tobytes())
        return left(without)

    orders = {str(seed): np.random.default_rng(seed).permutation(6) for seed in range(5)}
    orders["again"] = orders["0"]
    curves = probes.removal_curves(orders, outcome, 3)
    assert len(asked) == len(set(asked)) <= probes.forwards_needed(6, 6, 3) == 2 + 2 * 6 * 2
    assert curves["again"].deletion.tolist() == curves["0"].deletion.tolist()
    for curve in curves.values():
        assert curve.fraction.tolist() == [0.0, 1 / 3, 2 / 3, 1.0]
        assert curve.deletion[0] == curve.insertion[-1] == WORTH.sum()
        assert curve.deletion[-1] == curve.insertion[0] == 0.0


@pytest.mark.parametrize(("units", "steps"), [(1, 1), (1, 9), (7, 3), (64, 8), (5, 50)])
def test_steps_run_from_none_to_all(units, steps):
    counts = probes.removal_steps(units, steps)
    assert counts[0] == 0
    assert counts[-1] == units
    assert len(counts) == min(units, steps) + 1
    assert np.ptp(np.diff(counts)) <= 1


def test_equal_scores_have_no_preferred_order():
    firsts = {int(probes.ordering(np.zeros(5), seed)[0]) for seed in range(40)}
    assert firsts == set(range(5))
    assert probes.ordering(np.array([1.0, 3.0, 2.0])).tolist() == [1, 2, 0]


def test_pooling_divides_after_the_mean_and_resamples_videos():
    random = np.random.default_rng(0)
    reach = np.array([2.0, 1e-7, 1.0, 3.0] * 5)
    found = 0.6 + 0.1 * random.normal(size=20)
    areas = found * reach
    areas[1::4] += 0.01  # an item that hardly moves: its own ratio would be 100,000
    zero = np.zeros(20)
    pooled = probes.pooled_normalised_area(areas, zero, reach, np.arange(20).tolist())
    assert pooled.mean == pytest.approx(areas.sum() / reach.sum(), abs=1e-12)
    assert pooled.ci_low < pooled.mean < pooled.ci_high
    assert pooled.ci_low > 0.4
    assert pooled.ci_high < 0.8
    assert (pooled.n, pooled.n_groups) == (20, 20)
    holed = probes.pooled_normalised_area(
        np.append(areas, np.nan), np.zeros(21), np.append(reach, 1), range(21)
    )
    assert (holed.mean, holed.n_undefined) == (pooled.mean, 1)


def test_rank_agreement_is_one_minus_one_or_undefined():
    assert probes.rank_agreement(WORTH, 2 * WORTH + 1) == pytest.approx(1.0)
    assert probes.rank_agreement(WORTH, -WORTH) == pytest.approx(-1.0)
    assert np.isnan(probes.rank_agreement(WORTH, np.ones(6)))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: probes.ordering(np.array([1.0, np.nan])), "undefined"),
        (lambda: probes.removed(np.array([0, 0]), np.array([0, 2]), "deletion"), "every unit once"),
        (lambda: probes.removal_steps(0, 3), "at least one unit"),
        (lambda: probes.curve_area(np.array([0.0, 0.5]), np.array([1.0, 1.0])), "from fraction 0 to 1"),
        (lambda: probes.rank_agreement(WORTH, WORTH[:3]), "cannot be compared"),
        (lambda: probes.pooled_normalised_area([1.0], [0.0], [1.0], ["a", "b"]), "belong to 2 groups"),
    ],
)
def test_what_cannot_be_measured_is_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call()


def test_the_change_of_an_area_resamples_both_sides_together() -> None:
    """A map that keeps its place between random orderings and oracle has not moved, in any draw."""
    draws = np.random.default_rng(5)
    random, oracle = draws.normal(0, 1, 24), draws.normal(8, 1, 24)
    place = 0.7 * oracle + 0.3 * random
    videos = [f"video {item // 2}" for item in range(24)]
    still = probes.normalised_area_change(
        (place, random, oracle), (3 * place, 3 * random, 3 * oracle), videos
    )
    assert (still.mean, still.ci_low, still.ci_high) == pytest.approx((0, 0, 0), abs=1e-12)
    assert (still.n, still.n_groups) == (24, 12)
    noisy = 0.2 * oracle + 0.8 * random + draws.normal(0, 1, 24)
    moved = probes.normalised_area_change((place, random, oracle), (noisy, random, oracle), videos)
    assert moved.mean == pytest.approx((noisy - random).sum() / (oracle - random).sum() - 0.7)
    # Over one reach it is one ratio: (a - r)/(o - r) - (b - r)/(o - r) = ((a - b + r) - r)/(o - r).
    single = probes.pooled_normalised_area(noisy - place + random, random, oracle, videos)
    assert (moved.ci_low, moved.ci_high) == pytest.approx((single.ci_low, single.ci_high), abs=1e-9)


def test_the_interval_of_a_change_between_two_reaches_is_scipy_s() -> None:
    draws = np.random.default_rng(6)
    sides = [draws.normal(mean, 1, 40) for mean in (5, 0, 8, 1, -2, 20)]

    def change(a, r, o, b, s, p, axis=-1):
        a, r, o, b, s, p = (part.mean(axis=axis) for part in (a, r, o, b, s, p))
        return (b - s) / (p - s) - (a - r) / (o - r)

    theirs = stats.bootstrap(
        sides, change, paired=True, vectorized=True, method="percentile", n_resamples=20000, rng=0
    ).confidence_interval
    ours = probes.normalised_area_change(
        tuple(sides[:3]), tuple(sides[3:]), list(range(40)), n_resamples=20000
    )
    assert (ours.ci_low, ours.ci_high) == pytest.approx((theirs.low, theirs.high), abs=0.01)
    assert ours.mean == pytest.approx(change(*sides))
    sides[4][3] = np.nan
    holed = probes.normalised_area_change(tuple(sides[:3]), tuple(sides[3:]), list(range(40)))
    assert (holed.n, holed.n_undefined) == (39, 1)
