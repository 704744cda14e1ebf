"""The sentences say what the numbers say, and no more."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.report.claims import claims, separation
from diagnostics.store import Metric

LOW, HIGH = Metric(0.5, 0.4, 0.6, 8), Metric(0.9, 0.85, 0.95, 8)
BETWEEN = Metric(0.62, 0.55, 0.7, 8)
LONE, NOTHING = Metric(0.7, None, None, 1), Metric(None, None, None, 0)


def test_two_measures_of_which_the_same_is_true_share_a_sentence():
    (sentence,) = claims(["needle", "redundant"], {"unit": [LOW, HIGH], "patch": [LOW, HIGH]})
    assert sentence == (
        "Unit and patch are higher on redundant than on needle, with 95% intervals apart "
        "(unit 0.900 [0.850, 0.950] against 0.500 [0.400, 0.600]; "
        "patch 0.900 [0.850, 0.950] against 0.500 [0.400, 0.600])."
    )


def test_measures_that_disagree_get_a_sentence_each():
    apart, overlap = claims(["a", "b"], {"unit": [HIGH, LOW], "patch": [LOW, BETWEEN]})
    assert apart.startswith("Unit is higher on a than on b, with 95% intervals apart (")
    assert overlap.startswith("Patch is higher on b than on a, but the 95% intervals overlap (")


def test_what_is_not_known_is_not_claimed():
    (lone,) = claims(["a", "b"], {"unit": [LOW, LONE]})
    assert "higher on b" in lone
    assert "without two intervals" in lone
    assert "0.700 against" in lone
    assert claims(["a", "b"], {"unit": [LOW, NOTHING]}) == ["Unit is undefined on b."]
    assert claims(["a", "b"], {"unit": [LOW, LOW]}) == ["Unit is 0.500 on all of a and b."]


def test_of_many_runs_the_highest_and_the_lowest_are_told():
    (sentence,) = claims(["a", "b", "c"], {"unit": [BETWEEN, HIGH, LOW]})
    assert sentence.startswith("Unit is highest on b and lowest on c, with 95% intervals apart (")


def test_touching_intervals_overlap():
    assert separation(Metric(0.5, 0.4, 0.6, 2), Metric(0.7, 0.6, 0.8, 2)) == "overlap"
    assert separation(Metric(0.5, 0.4, 0.6, 2), Metric(0.7, 0.61, 0.8, 2)) == "apart"
    assert separation(LOW, Metric(0.7, float("nan"), float("nan"), 1)) == "unknown"


intervals = st.lists(st.floats(-1, 1), min_size=3, max_size=3).map(sorted)


@settings(max_examples=60, deadline=None)
@given(intervals, intervals)
def test_apart_means_that_no_value_lies_in_both(first, second):
    low, high = (Metric(m, lo, hi, 4) for lo, m, hi in (first, second))
    shared = max(first[0], second[0]) <= min(first[2], second[2])
    assert separation(low, high) == separation(high, low) == ("overlap" if shared else "apart")
    (sentence,) = claims(["x", "y"], {"m": [low, high]})
    assert ("apart" in sentence) == (not shared and first[1] != second[1])
    if first[1] > second[1]:
        assert "higher on x than on y" in sentence


@pytest.mark.parametrize("value", [-0.25])
def test_negative_numbers_have_a_minus_sign(value):
    (sentence,) = claims(["a", "b"], {"m": [Metric(value, None, None, 1), HIGH]})
    assert "\N{MINUS SIGN}0.250" in sentence
