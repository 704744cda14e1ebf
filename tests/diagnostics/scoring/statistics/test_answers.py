import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import probes
from diagnostics.scoring import statistics


def test_flips_count_answers_not_rightness():
    found = statistics.flip_rate(["A", "B", None, None, "C"], ["A", "C", "A", None, None])
    assert found.flipped.tolist() == [0, 1, 1, 0, 1]
    assert (found.rate, found.n, found.n_unanswered) == (0.6, 5, 3)


def test_flips_go_into_a_paired_difference_with_a_floor():
    before = ["A"] * 6
    floor = statistics.flip_rate(before, ["A"] * 5 + ["B"])
    shuffled = statistics.flip_rate(before, ["B"] * 4 + ["A", "B"])
    found = statistics.paired_difference(floor.flipped, shuffled.flipped, "abcdef")
    assert found.difference == pytest.approx(shuffled.rate - floor.rate)


def test_no_answers_have_no_flip_rate():
    assert np.isnan(statistics.flip_rate([], []).rate)
    with pytest.raises(ValueError, match="got 1 and 2"):
        statistics.flip_rate(["A"], ["A", "B"])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["A", "B", "C", "D", None]), max_size=30))
def test_entropy_against_scipy(letters):
    found = statistics.letter_entropy(letters, "ABCD")
    counts = [letters.count(letter) for letter in "ABCD"]
    assert list(found.counts.values()) == counts
    assert found.n + found.n_unanswered == len(letters)
    expected = stats.entropy(counts, base=2) if sum(counts) else np.nan
    assert found.entropy == pytest.approx(expected, nan_ok=True, abs=1e-12)
    assert found.normalised == pytest.approx(expected / 2, nan_ok=True, abs=1e-12)


def test_entropy_of_one_letter_and_of_strangers():
    assert statistics.letter_entropy(["A", "A"], "AB").entropy == 0
    assert np.isnan(statistics.letter_entropy(["A"], "A").normalised)
    with pytest.raises(ValueError, match="'E' is none of"):
        statistics.letter_entropy(["E"], "ABCD")
    with pytest.raises(ValueError, match="twice"):
        statistics.letter_entropy(["A"], "AA")


def test_accuracy_by_position():
    correct, positions = [1, 0, 1, 1, np.nan, 0], [0, 0, 1, 1, 1, 3]
    found = statistics.by_position(correct, positions, list("abcdef"), n_positions=4)
    assert [each.position for each in found] == [0, 1, 2, 3]
    assert [each.accuracy.mean for each in found] == pytest.approx([0.5, 1, np.nan, 0], nan_ok=True)
    assert [each.accuracy.n for each in found] == [2, 2, 0, 1]
    assert found[1].accuracy.n_undefined == 1
    assert found[0].accuracy == probes.clustered_mean([1.0, 0.0], "ab", expanded=True)


def test_positions_out_of_range_are_named():
    with pytest.raises(ValueError, match="0 to 1, got"):
        statistics.by_position([1], [2], ["v"], n_positions=2)
    with pytest.raises(ValueError, match="1 items have outcomes, 2 a position"):
        statistics.by_position([1], [0, 1], ["v"], n_positions=2)


def test_gauge_by_hand():
    found = statistics.gauge([0.4, 0.5, 0.6, 0.5], 0.8)
    # RS: 50, 62.5, 75, 62.5; deviations -12.5, 0, 12.5, 0.
    assert found.relative.tolist() == pytest.approx([50, 62.5, 75, 62.5])
    assert (found.range, found.variance, found.mean) == pytest.approx((25, 78.125, 62.5))
    assert found.composite == pytest.approx(4 * 25 + 3 * 37.5 + 3 * 78.125)


TEN = np.arange(10)


@pytest.mark.parametrize(
    ("relative", "shape"),
    [
        (np.full(10, 90.0), "stable"),
        (90 + 0.49 * TEN, "stable"),
        (90 + 0.51 * TEN, "neighbor"),
        (90 - 0.51 * TEN, "head"),
        # A line through 0.5 (x - 4.5)^2 leaves (0.5)^2 var((x - 4.5)^2) = 13.2; the parabola nothing.
        (80 + 0.5 * (TEN - 4.5) ** 2, "u_shaped"),
        (80 - 0.5 * (TEN - 4.5) ** 2, "u_shaped"),
        (80 + 5.0 * (-1.0) ** TEN, "volatile"),
        # +-1.7 and +-1.8 about a line, nearly at right angles to it: 2.9 and 3.2 squared.
        (80 + 1.7 * (-1.0) ** TEN, "stable"),
        (80 + 1.8 * (-1.0) ** TEN, "volatile"),
        ([90.0, 80.0], "undefined"),
    ],
)
def test_shapes_at_their_thresholds(relative, shape):
    assert statistics.gauge(np.asarray(relative) / 100, 1.0).shape == shape


@pytest.mark.parametrize(
    ("accuracies", "probe_only"),
    [([], 0.5), ([0.2, np.nan, 0.3], 0.5), ([0.1, 0.2, 0.3], 0.0), ([0.1], np.nan)],
)
def test_an_undefined_gauge(accuracies, probe_only):
    found = statistics.gauge(accuracies, probe_only)
    assert found.shape == "undefined"
    assert np.isnan([found.range, found.variance, found.mean, found.composite]).all()
    assert len(found.relative) == len(accuracies)


def test_accuracies_are_fractions():
    with pytest.raises(ValueError, match="fractions"):
        statistics.gauge([-0.1, 0.2, 0.3], 0.5)
