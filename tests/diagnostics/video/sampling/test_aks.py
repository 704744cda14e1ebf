"""AKS against a plain restatement, and against what was measured on the released code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .conftest import SCORES, candidates_of, chosen, scores_of


def ours(strategy, scores, budget, threshold, spread, depth):
    """The module's text, step by step, in lists."""
    count = len(scores)
    if count <= budget:
        return list(range(count))
    known = [s for s in scores if np.isfinite(s)] or [0.0]
    low, high = min(known), max(known)
    level = [low if np.isnan(s) else min(max(s, low), high) for s in scores]
    scaled = [(s - low) / (high - low) if high > low else 0.0 for s in level]
    rank = sorted(range(count), key=lambda i: (np.isnan(scores[i]), -np.nan_to_num(scores[i]), i))
    if strategy == "top":
        return sorted(rank[:budget])
    deepest = 0
    while deepest < depth and 2 ** (deepest + 1) <= budget:
        deepest += 1
    queue, leaves = [(list(range(count)), 0)], []
    while queue:
        places, at = queue.pop()
        values = [scaled[i] for i in places]
        best = sorted(values, reverse=True)[: budget // 2**at]
        stands = np.mean(best) - np.mean(values) > threshold and (spread is None or np.std(values) > spread)
        if at == deepest or (strategy == "ada" and stands):
            leaves.append((places, at))
        else:
            half = len(places) // 2
            queue += [(places[:half], at + 1), (places[half:], at + 1)]
    leaves.sort()
    share = {places[0]: budget // 2**at for places, at in leaves}
    by_mean = sorted(leaves, key=lambda leaf: -np.array([scaled[i] for i in leaf[0]]).mean())
    for places, _ in by_mean[: budget - sum(share.values())]:
        share[places[0]] += 1
    taken = [i for places, _ in leaves for i in [r for r in rank if r in set(places)][: share[places[0]]]]
    taken += [i for i in rank if i not in set(taken)][: budget - len(taken)]
    return sorted(taken)


@settings(deadline=None, max_examples=300)
@given(
    st.integers(0, 200),
    st.integers(1, 70),
    st.sampled_from(SCORES),
    st.sampled_from(["top", "bin", "ada"]),
    st.sampled_from([0.1, 0.3, 0.6, 0.8]),
    st.sampled_from([None, 0.05, 0.3]),
    st.integers(0, 6),
    st.integers(0, 10_000),
)
def test_the_module_s_text(count, budget, kind, strategy, threshold, spread, depth, seed):
    scores = scores_of(kind, count, seed)
    if kind == "infinite":
        scores = np.nan_to_num(scores, posinf=2, neginf=-2)
    told = {"strategy": strategy, "threshold": threshold, "spread": spread, "depth": depth}
    places = chosen("aks", candidates_of(count, scores=scores), budget=budget, **told)
    assert places == ours(strategy, scores.tolist(), budget, threshold, spread, depth)


def released(scores, budget, threshold, depth):
    """The published steps: breadth first, whole budget in the judgement, quotas rounded down."""
    if len(scores) < budget:
        return list(range(len(scores)))
    scaled = [(s - min(scores)) / (max(scores) - min(scores)) for s in scores]
    done, row = [], [(list(range(len(scores))), 0)]
    while row:
        below = []
        for places, at in row:
            values = [scaled[i] for i in places]
            best = sorted(values, reverse=True)[:budget]
            low = not places or sum(best) / len(best) - sum(values) / len(values) <= threshold
            half = len(places) // 2
            if low and at < depth:
                below += [(places[:half], at + 1), (places[half:], at + 1)]
            else:
                done.append((places, at))
        row = below
    taken = []
    for places, at in done:
        taken += sorted(places, key=lambda i: (-scaled[i], i))[: int(budget / 2**at)]
    return sorted(taken)


@settings(deadline=None, max_examples=200)
@given(
    st.integers(2, 300),
    st.sampled_from([1, 7, 8, 16, 32, 64, 100]),
    st.sampled_from(["spike", "ties", "waves", "noise"]),
    st.sampled_from([0.11, 0.31, 0.61, 0.83]),
    st.integers(0, 5),
    st.integers(0, 10_000),
)
def test_the_released_steps(count, budget, kind, threshold, depth, seed):
    scores = scores_of(kind, count, seed)
    if scores.max() == scores.min():
        scores[0] += 1
    told = {"strategy": "ada_release", "threshold": threshold, "depth": depth}
    places = chosen("aks", candidates_of(count, scores=scores), budget=budget, **told)
    assert places == released(scores.tolist(), budget, threshold, depth)


@pytest.mark.parametrize(("budget", "frames"), [(16, 0), (8, 0), (32, 32), (64, 64), (100, 96), (128, 128)])
def test_what_was_measured_on_the_released_code(budget, frames):
    """With its defaults 600 candidates end in 32 parts: budgets round down to multiples of 32."""
    scores = np.random.default_rng(0).random(600)
    candidates = candidates_of(600, scores=scores)
    assert len(chosen("aks", candidates, budget=budget, strategy="ada_release")) == frames
    assert len(chosen("aks", candidates, budget=budget, strategy="ada")) == budget


def test_a_spike_of_ten_frames_in_600_is_kept_whole_at_a_threshold_of_02_and_not_of_04():
    """Measured on the released code: the 32 best have mean .313, all 600 have .017."""
    scores = np.zeros(600)
    scores[300:310] = 1
    candidates = candidates_of(600, scores=scores)
    top = [*range(22), *range(300, 310)]  # the spike, and of equal scores the earliest
    assert chosen("aks", candidates, budget=32, strategy="top") == top
    for strategy in ("ada", "ada_release"):
        assert chosen("aks", candidates, budget=32, strategy=strategy, threshold=0.2) == top
        parts = chosen("aks", candidates, budget=32, strategy="ada_release", threshold=0.4)
        assert np.histogram(parts, bins=8, range=(0, 600))[0].tolist() == [4] * 8


def test_constant_scores_become_nan_in_the_release_and_zero_in_ours():
    candidates = candidates_of(640, scores=np.full(640, 0.25))
    assert len(chosen("aks", candidates, budget=64, strategy="ada_release")) == 64
    # Ties go to the earlier: two from the beginning of each of 32 parts of 20.
    assert chosen("aks", candidates, budget=64) == sorted([*range(0, 640, 20), *range(1, 640, 20)])


def test_the_remainder_goes_to_the_best_parts():
    scores = np.concatenate([np.full(10, 0.1), np.full(10, 0.9), np.full(10, 0.5), np.zeros(10)])
    # Depth 2: four parts of ten, 1 frame each, and 3 left over for the parts of highest mean.
    places = chosen("aks", candidates_of(40, scores=scores), budget=7, strategy="bin", depth=2)
    assert places == [0, 1, 10, 11, 20, 21, 30]
