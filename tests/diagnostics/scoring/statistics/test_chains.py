import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.scoring import statistics

share = st.one_of(st.floats(0, 1), st.just(float("nan")))


def five_levels(n=200, seed=0):
    rng = np.random.default_rng(seed)
    options = rng.integers(3, 6, n)
    names = ("chance", "text", "uniform", "evidence swapped in", "oracle matched")
    rates = (None, 0.3, 0.45, 0.6, 0.55)
    levels = {
        name: 1 / options if rate is None else (rng.random(n) < rate).astype(float)
        for name, rate in zip(names, rates, strict=True)
    }
    return levels, rng.integers(0, 40, n).tolist()


def test_steps_are_the_paired_differences_and_close():
    levels, clusters = five_levels()
    found = statistics.chain(levels, clusters, steps=statistics.EVIDENCE_STEPS)
    assert [step.name for step in found.steps] == list(statistics.EVIDENCE_STEPS)
    assert found.levels == (*levels, "1")
    total = sum(step.difference for step in found.steps)
    assert total == pytest.approx(1 - levels["chance"].mean(), abs=1e-12)
    columns = [*levels.values(), np.ones(200)]
    for step, start, end in zip(found.steps, columns, columns[1:], strict=False):
        alone = statistics.paired_difference(start, end, clusters)
        width = alone.ci_high - alone.ci_low
        assert step.difference == pytest.approx(alone.difference)
        # Other draws, since clusters are put in another order: 10,000 resamples know the ends to 3%.
        assert step.ci_low == pytest.approx(alone.ci_low, abs=0.03 * width)
        assert step.ci_high == pytest.approx(alone.ci_high, abs=0.03 * width)
        if step.end != statistics.PERFECT:
            assert step.p == pytest.approx(alone.p)
    assert np.isnan(found.steps[-1].p)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(share, share, share, st.integers(0, 4)), max_size=25))
def test_it_closes_on_any_outcomes(rows):
    levels = {name: [row[k] for row in rows] for k, name in enumerate(("chance", "text", "video"))}
    found = statistics.chain(levels, [row[3] for row in rows], n_resamples=20)
    total = sum(step.difference for step in found.steps)
    assert found.n + found.n_undefined == len(rows)
    assert total == pytest.approx(1 - found.means[0], abs=1e-12, nan_ok=True)
    assert np.isnan(total) == (found.n == 0)


def test_levels_are_on_the_same_items():
    found = statistics.chain({"chance": [0.25, 0.25, 0.25], "text": [1, np.nan, 0]}, "abc")
    assert (found.n, found.n_undefined) == (2, 1)
    assert found.means.tolist() == [0.25, 0.5, 1.0]
    assert [step.name for step in found.steps] == ["chance -> text", "text -> 1"]


def test_nothing_and_one_video():
    empty = statistics.chain({"chance": [], "text": []}, [])
    assert all(np.isnan(step.difference) for step in empty.steps)
    one = statistics.chain({"chance": [0.5], "text": [1.0]}, ["v"])
    assert [step.difference for step in one.steps] == [0.5, 0.0]
    assert all(np.isnan(step.ci_low) for step in one.steps)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="2 steps, but 1"):
        statistics.chain({"a": [1], "b": [1]}, ["v"], steps=["only"])
    with pytest.raises(ValueError, match=r"'a': 1, 'b': 2"):
        statistics.chain({"a": [1], "b": [1, 0]}, ["v"])
    with pytest.raises(ValueError, match="between 0 and 1"):
        statistics.chain({"a": [1.5]}, ["v"])
    with pytest.raises(ValueError, match="different names"):
        statistics.chain({"1": [1]}, ["v"])
    with pytest.raises(ValueError, match="different names"):
        statistics.chain({}, [])
