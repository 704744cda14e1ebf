"""Courses of options with known crossings, by hand and by a slow loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import probes


def test_first_and_settled_differ_where_the_lead_is_lost_again():
    logits = np.array([[0, 1, 0], [2, 1, 0], [1, 3, 0], [5, 1, 0], [6, 1, 0.0]])
    course = probes.option_course(logits, 0)
    assert (course.first, course.settled) == (1.0, 3.0)
    assert course.on_top.tolist() == [False, True, False, True, True]
    other = probes.option_course(logits, 1)
    assert other.first == 0.0
    assert np.isnan(other.settled)
    never = probes.option_course(logits, 2)
    assert np.isnan(never.first)
    assert np.isnan(never.settled)


def test_probabilities_are_softmax_among_options():
    logits = np.array([[0.0, np.log(3)], [1000.0, 1000.0]])
    course = probes.option_course(logits, 1)
    assert np.allclose(course.probability, [[0.25, 0.75], [0.5, 0.5]], atol=1e-12)


def test_a_tie_is_nobodys():
    assert np.isnan(probes.option_course(np.zeros((3, 4)), 0).first)


def test_layers_may_have_numbers_of_their_own():
    course = probes.option_course(np.array([[0, 1], [1, 0.0]]), 0, layers=np.array([3, 8]))
    assert (course.first, course.settled) == (8.0, 8.0)


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 4))
def test_crossings_by_a_slow_loop(seed, n_layers, n_options):
    logits = np.random.default_rng(seed).integers(0, 3, (n_layers, n_options)).astype(float)
    for option in range(n_options):
        course = probes.option_course(logits, option)
        top = [all(row[option] > x for i, x in enumerate(row) if i != option) for row in logits]
        first = next((k for k in range(n_layers) if top[k]), float("nan"))
        settled = next((k for k in range(n_layers) if all(top[k:])), float("nan"))
        assert np.array_equal([course.first, course.settled], [first, settled], equal_nan=True)


def test_first_in_top_by_place():
    rank = np.array([[9, 4, 0], [5, 4, 9], [2, 9, 9]])
    assert np.array_equal(probes.first_in_top(rank, 5), [2, 0, 0])
    assert np.array_equal(probes.first_in_top(rank, 3), [2, np.nan, 0], equal_nan=True)
    assert np.array_equal(probes.first_in_top(rank[:, :, None], 3, layers=np.array([1, 2, 7]))[0], [7])


def test_word_share_is_among_the_words():
    log_probability = np.log(np.array([[[0.1, 0.3, 1e-9]]]))
    assert probes.word_share(log_probability, 1) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("logits", "option", "told"),
    [
        (np.zeros((2, 1)), 0, "two options"),
        (np.zeros(3), 0, "two options"),
        (np.zeros((2, 3)), 3, "no option 3"),
        (np.full((2, 3), np.inf), 0, "not finite"),
    ],
)
def test_bad_logits(logits, option, told):
    with pytest.raises(ValueError, match=told):
        probes.option_course(logits, option)


def test_bad_layers_and_top():
    with pytest.raises(ValueError, match="ascending"):
        probes.option_course(np.zeros((2, 3)), 0, layers=np.array([1, 1]))
    with pytest.raises(ValueError, match="hold nothing"):
        probes.first_in_top(np.zeros((2, 3), int), 0)
