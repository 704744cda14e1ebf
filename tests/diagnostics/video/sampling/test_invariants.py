"""What every rule promises, for thousands of inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.data.items import Window
from diagnostics.video.sampling import SIGNALS, load_sampler, needs_of, sampler_names

from .conftest import SCORES, candidates_of, chosen, item_of, scores_of

EXACT = [
    ("uniform", {}),
    ("fps_cap", {}),
    ("random", {"seed": 3}),
    ("uniform_plus_evidence", {}),
    ("differential", {}),
    ("differential", {"min_gap": 7.0}),
    ("differential", {"metric": "feature"}),
    ("hybrid", {}),
    ("hybrid", {"min_gap": 3.5, "metric": "feature"}),
    ("oracle", {}),
    ("aks", {"strategy": "top"}),
    ("aks", {"strategy": "bin"}),
    ("aks", {"strategy": "ada", "threshold": 0.3}),
    ("aks", {"strategy": "ada"}),
    ("dks", {}),
    ("dks", {"relevance": 0.2}),
    ("wfs_sb", {"likeness": "time"}),
    ("wfs_sb", {}),
]
"""Rules that give exactly min(budget, candidates) frames."""

FEWER = [("aks", {"strategy": "ada_release"}), ("dks", {"padding": False}), ("oracle", {"short": "fewer"})]
"""Documented exceptions: at most that many."""

WINDOWS = (Window(3.0, 5.0), Window(40.0, 44.5))


def case(name: str, count: int, kind: str, seed: int):
    random = np.random.default_rng(seed)
    features = random.normal(size=(count, 3))
    features[random.random(count) < 0.05] = 0  # an empty picture has no direction
    change = np.abs(scores_of(kind, count, seed))
    change[:1] = np.inf
    return candidates_of(count, scores=scores_of(kind, count, seed), features=features, change=change)


@pytest.mark.parametrize(("name", "parameters"), [*EXACT, *FEWER], ids=str)
def test_a_choice_is_full_in_order_and_the_same_again(name, parameters):
    slow = name == "wfs_sb" or parameters.get("min_gap")

    @settings(deadline=None, max_examples=60 if slow else 150)
    @given(
        st.one_of(st.integers(0, 70), st.integers(0, 1000 if slow else 4000)),
        st.one_of(st.integers(1, 40), st.integers(1, 200 if slow else 600)),
        st.sampled_from(SCORES),
        st.integers(0, 10_000),
    )
    def holds(count, budget, kind, seed):
        candidates = case(name, count, kind, seed)
        item = item_of(*WINDOWS)
        places = chosen(name, candidates, item, budget=budget, **parameters)
        assert places == sorted(set(places)), "in order of time, each once"
        assert all(0 <= place < count for place in places)
        if (name, parameters) in EXACT:
            assert len(places) == min(budget, count), "never fewer while candidates remain"
        else:
            assert len(places) <= budget
        assert places == chosen(name, candidates, item, budget=budget, **parameters)

    holds()


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 3999, 4000])
@pytest.mark.parametrize("budget", [1, 2, 599, 600])
@pytest.mark.parametrize(("name", "parameters"), EXACT, ids=str)
def test_the_ends_of_the_ranges(name, parameters, count, budget):
    places = chosen(name, case(name, count, "ties", 1), item_of(*WINDOWS), budget=budget, **parameters)
    assert len(places) == min(budget, count)
    assert places == sorted(set(places))


def test_every_sampler_is_held_to_this():
    assert set(sampler_names()) == {name for name, _ in EXACT}
    for name in sampler_names():
        module = load_sampler(name)
        assert needs_of(module, module.Config()) <= SIGNALS


@pytest.mark.parametrize("name", ["aks", "dks", "wfs_sb"])
def test_a_missing_score_comes_last(name):
    """NaN among good scores is never taken while others remain, by rules that follow scores alone."""
    scores = np.full(64, np.nan)
    scores[10:26] = np.linspace(1, 2, 16)
    parameters = {"aks": {"strategy": "top"}, "dks": {"padding": False}, "wfs_sb": {"relevance_weight": 1.0}}
    features = np.eye(64)
    places = chosen(name, candidates_of(64, scores=scores, features=features), budget=8, **parameters[name])
    if name == "wfs_sb":
        assert len(set(places) & set(range(10, 26))) >= 4, "its segments may also lie elsewhere"
    else:
        assert places == list(range(18, 26))
