"""WFS-SB against a plain restatement that has its own wavelet transform and its own peaks."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import pywt
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.errors import ScoresError
from diagnostics.video.sampling.wfs_sb import boundaries, level, shares

from .conftest import candidates_of, chosen, scores_of

# Daubechies' orthogonal scaling filter of four vanishing moments (Ten Lectures on Wavelets, table 6.1).
SCALING = np.array(
    [
        0.2303778133088964, 0.7148465705529154, 0.6308807679298587, -0.0279837694168599,
        -0.1870348117190931, 0.0308413818355607, 0.0328830116668852, -0.0105974017850690,
    ]
)  # fmt: skip


def analyse(signal, filter_):
    """Convolve the half-point symmetric extension and keep every second value."""
    count, taps = len(signal), len(filter_)
    out = []
    for k in range((count + taps - 1) // 2):
        total = 0.0
        for j in range(taps):
            place = (2 * k + 1 - j) % (2 * count)
            total += filter_[j] * signal[place if place < count else 2 * count - 1 - place]
        out.append(total)
    return np.array(out)


def synthesise(low, high):
    """One step back: the adjoint of `analyse` without extension."""
    taps = len(SCALING)
    out = np.zeros(2 * len(low) + taps - 2)
    wave = np.array([(-1) ** (j + 1) * SCALING[taps - 1 - j] for j in range(taps)])
    for k in range(len(low)):
        out[2 * k : 2 * k + taps] += low[k] * SCALING + high[k] * -wave
    return out[taps - 2 : len(out) - taps + 2]


def detail_of(signal, depth):
    """The coarsest detail alone, transformed back, by explicit filters."""
    taps = len(SCALING)
    wave = np.array([(-1) ** (j + 1) * SCALING[taps - 1 - j] for j in range(taps)])
    approximation, lengths = np.asarray(signal, float), []
    for _ in range(depth):
        lengths.append(len(approximation))
        detail = analyse(approximation, -wave[::-1])
        approximation = analyse(approximation, SCALING[::-1])
    back = synthesise(np.zeros_like(detail), detail)
    for length in reversed(lengths[:-1]):
        back = back[: (length + taps - 1) // 2] if len(back) != (length + taps - 1) // 2 else back
        back = synthesise(back, np.zeros_like(back))
    return back[: len(signal)]


def peaks_of(height):
    """Local maxima with a height, a prominence and a distance, the highest first, by definition."""
    count = len(height)
    floor, range_ = height.mean() + 0.5 * height.std(), height.max() - height.min()
    tops = []
    for i in range(1, count - 1):
        if height[i] > height[i - 1] and height[i] > height[i + 1] and height[i] >= floor:
            tops.append(i)
    tops.sort(key=lambda i: height[i])
    far, kept = max(5, int(0.02 * count)), []
    for i in reversed(tops):
        if all(abs(i - j) >= far for j in kept):
            kept.append(i)
    prominent = []
    for i in sorted(kept):
        left = right = height[i]
        j = i
        while j >= 0 and height[j] <= height[i]:
            left, j = min(left, height[j]), j - 1
        j = i
        while j < count and height[j] <= height[i]:
            right, j = min(right, height[j]), j + 1
        if height[i] - max(left, right) >= 0.05 * range_:
            prominent.append(i)
    return prominent


def likeness(features, a, b):
    if features is None:
        return math.exp(-abs(a - b) / 10)
    return float(features[a] @ features[b] / np.linalg.norm(features[a]) / np.linalg.norm(features[b]))


def add_best(taken, places, worth, features):
    free = [i for i in places if i not in taken]
    value = {i: 0.5 * worth[i] - 0.5 * max(likeness(features, i, t) for t in taken) for i in free}
    return max(free, key=lambda i: (round(value[i], 9), -i))


def restated(x, budget, features, cuts):
    """Steps 6 to 11 of the notes, in lists, given the boundaries."""
    count = len(x)
    if not len(cuts):
        uniform = [int(v) for v in np.linspace(0, count - 1, budget // 2)]
        rest = [i for i in sorted(range(count), key=lambda i: (-x[i], i)) if i not in uniform]
        return sorted(uniform + rest[: budget - len(uniform)])
    borders = [0, *cuts, count]
    segments = [range(a, b) for a, b in pairwise(borders)]
    worth = 2 * x - 1
    taken = []
    importance = [
        0.4 * len(s) / count + 0.2 * x[s].mean() + 0.3 * x[s].max() + 0.1 * x[s].var() / (x.var() + 1e-8)
        for s in segments
    ]
    if len(segments) > 3:
        bar = max(0.05, np.mean(importance) - 1.2 * np.std(importance))
        keep = [k for k, v in enumerate(importance) if v >= bar] or range(len(segments))
        segments, importance = [segments[k] for k in keep], [importance[k] for k in keep]
    weight = [math.exp(v) for v in importance]
    exact = [w / sum(weight) * budget for w in weight]
    share = [math.floor(v) for v in exact]
    order = sorted(range(len(exact)), key=lambda k: (share[k] - exact[k], -k))
    for k in order[: budget - sum(share)]:
        share[k] += 1
    for segment, wanted in zip(segments, share, strict=True):
        if wanted:
            own = [max(segment, key=lambda i: (worth[i], -i))]
            while len(own) < min(wanted, len(segment)):
                own.append(add_best(own, segment, worth, features))
            taken += own
    while len(taken) < budget:
        taken.append(add_best(taken, range(count), worth, features))
    return sorted(taken)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(17, 160),
    st.integers(1, 24),
    st.sampled_from(["waves", "noise", "spike"]),
    st.booleans(),
    st.integers(0, 10_000),
)
def test_the_steps(count, budget, kind, by_time, seed):
    random = np.random.default_rng(seed)
    scores = scores_of(kind, count, seed) + 0.01 * random.random(count)
    features = None if by_time else random.normal(size=(count, 4))
    x = (scores - scores.min()) / (scores.max() - scores.min())
    cuts = peaks_of(np.abs(detail_of(x, level(count))))
    assert boundaries(x).tolist() == cuts
    signals = {"scores": scores} if by_time else {"scores": scores, "features": features}
    told = {"budget": budget, "likeness": "time" if by_time else "features"}
    places = chosen("wfs_sb", candidates_of(count, **signals), **told)
    expected = list(range(count)) if count <= budget else restated(x, budget, features, cuts)
    assert places == expected


@pytest.mark.parametrize("count", [17, 64, 101, 160])
def test_the_filters_of_this_page_are_pywavelets(count):
    """So that `test_the_steps` compares boundaries by two transforms."""
    signal = np.random.default_rng(count).random(count)
    bands = pywt.wavedec(signal, "db4", mode="symmetric", level=level(count))
    alone = [band * (place == 1) for place, band in enumerate(bands)]
    expected = pywt.waverec(alone, "db4", mode="symmetric")[:count]
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(np.abs(detail_of(signal, level(count))), np.abs(expected), atol=1e-9)


@pytest.mark.parametrize(
    ("count", "depth"), [(1, 1), (8, 1), (15, 1), (16, 1), (32, 2), (128, 4), (600, 6), (3600, 8)]
)
def test_levels(count, depth):
    assert level(count) == depth


def test_a_constant_curve_has_no_boundaries():
    for count in (16, 128, 600):
        assert len(boundaries(np.full(count, 0.3))) == 0, "rounding noise is not detail"
    # Half evenly spaced, and of equal scores the earliest.
    flat = candidates_of(100, scores=np.ones(100), features=np.ones((100, 2)))
    assert chosen("wfs_sb", flat, budget=6) == [0, 1, 2, 3, 49, 99]


def test_the_largest_remainders_by_hand():
    x = np.concatenate([np.zeros(10), np.ones(10)])
    # Importances .2 and .2 + .2 + .3: softmax .378 and .622 of five frames, 1.89 and 3.11.
    segments, wanted = shares(x, [0, 10, 20], 5, 1.0)
    assert segments == [(0, 10), (10, 20)]
    assert wanted.tolist() == [2, 3]


def test_scores_as_given_lie_between_0_and_1():
    candidates = candidates_of(40, scores=np.linspace(-0.2, 0.3, 40), features=np.eye(40))
    with pytest.raises(ScoresError, match="min_max"):
        chosen("wfs_sb", candidates, budget=4, scale="as_given")
    assert len(chosen("wfs_sb", candidates, budget=4)) == 4
