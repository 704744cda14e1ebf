import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from diagnostics.scoring import statistics


def by_hand(p_values):
    """Step down: the k-th smallest of m times m - k + 1, never less than the one before."""
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda each: p_values[each])):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = running
    return adjusted


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_against_statsmodels_and_by_hand(p_values):
    found = statistics.holm(p_values)
    rejected, adjusted, *_ = multipletests(p_values, method="holm")
    assert found.adjusted == pytest.approx(adjusted)
    assert found.adjusted == pytest.approx(by_hand(p_values))
    assert found.rejected.tolist() == rejected.tolist()


def test_an_undefined_test_is_no_member_of_the_family():
    found = statistics.holm({"a": 0.01, "b": float("nan"), "c": 0.04})
    assert found.adjusted == pytest.approx([0.02, np.nan, 0.04], nan_ok=True)
    assert found.rejected.tolist() == [True, False, True]
    assert (found.n, found.names) == (2, ("a", "b", "c"))


def test_an_empty_family():
    assert statistics.holm([]).n == 0
    assert np.isnan(statistics.holm([float("nan")]).adjusted).all()


def test_a_p_is_a_probability():
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        statistics.holm([0.1, 1.2])
