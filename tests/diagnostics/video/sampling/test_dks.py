"""DKS against a plain restatement, and the padding by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.video.sampling.dks import pad

from .conftest import candidates_of, chosen


def walk(scores, features, budget, similarity, relevance):
    """ViLAMP's greedy rule in lists."""
    accepted = []
    for place in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        if len(accepted) == budget or scores[place] < relevance:
            break
        a = features[place]
        if all(
            np.dot(a, features[b]) / (math.hypot(*a) * math.hypot(*features[b])) <= similarity
            for b in accepted
        ):
            accepted.append(place)
    return sorted(accepted)


def padded(accepted, count, budget):
    """The released padding by trying every spacing from 1 up."""
    gaps, start = [], 0
    for place in [*accepted, count]:
        if place > start:
            gaps.append((start, place - 1))
        start = place + 1
    missing = min(budget, count) - len(accepted)
    spacing = 1
    while sum(math.ceil((b - a + 1) / spacing) - 1 for a, b in gaps) > missing:
        spacing += 1
    taken = set(accepted)
    for a, b in gaps:
        inner = math.ceil((b - a + 1) / spacing) - 1
        step = math.ceil((b - a + 1) / (inner + 1))
        taken |= {min(a + step * (i + 1), b) for i in range(inner)}
    for place in range(count - 1, -1, -1):
        if len(taken) < min(budget, count):
            taken.add(place)
    return sorted(taken)


@settings(deadline=None, max_examples=200)
@given(
    st.integers(1, 120),
    st.integers(1, 50),
    st.sampled_from([2, 3, 6]),
    st.sampled_from([0.2, 0.5, 0.85, 0.97]),
    st.sampled_from([-1.0, 0.3, 0.8]),
    st.integers(0, 10_000),
)
def test_the_module_s_text(count, budget, dim, similarity, relevance, seed):
    random = np.random.default_rng(seed)
    scores, features = np.round(random.random(count), 2), random.normal(size=(count, dim))
    candidates = candidates_of(count, scores=scores, features=features)
    told = {"budget": budget, "similarity": similarity, "relevance": relevance}
    accepted = walk(scores.tolist(), features.tolist(), budget, similarity, relevance)
    if accepted:
        assert chosen("dks", candidates, padding=False, **told) == accepted
        assert chosen("dks", candidates, padding=True, **told) == padded(accepted, count, budget)


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 400), st.integers(1, 80), st.integers(0, 10_000), st.floats(0, 0.3))
def test_padding(count, budget, seed, density):
    accepted = np.flatnonzero(np.random.default_rng(seed).random(count) < density)[:budget]
    assert pad(accepted, count, budget).tolist() == padded(accepted.tolist(), count, budget)


def test_padding_measured_on_the_released_code():
    assert pad(np.array([50]), 100, 8).tolist() == [13, 26, 39, 50, 64, 77, 90, 99]
    assert pad(np.array([2]), 5, 32).tolist() == [0, 1, 2, 3, 4]


def test_a_look_alike_is_passed_over_by_hand():
    features = [[1, 0], [0.99, 0.1], [0, 1], [-1, 0]]
    scores = [0.9, 0.8, 0.5, 0.1]
    candidates = candidates_of(4, scores=scores, features=features)
    assert chosen("dks", candidates, budget=3, padding=False) == [0, 2, 3]
    assert chosen("dks", candidates, budget=3, padding=False, relevance=0.3) == [0, 2]
    assert chosen("dks", candidates, budget=3, relevance=0.3) == [0, 2, 3], (
        "padded at the end of the last gap"
    )


@pytest.mark.parametrize("padding", [True, False])
def test_nothing_relevant_is_evenly_spaced(padding):
    candidates = candidates_of(101, scores=np.zeros(101), features=np.eye(101))
    assert chosen("dks", candidates, budget=5, relevance=0.5, padding=padding) == [0, 25, 50, 75, 100]
