"""Seconds to frames and back."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnostics.data.sources._time import to_frames, to_seconds

RATES = st.sampled_from([1.0, 2.0, 24.0, 25.0, 30.0, 45.0, 60.0, 24000 / 1001, 30000 / 1001, 0.5])
EDGES = st.lists(st.integers(0, 7_200_000), min_size=2, max_size=12, unique=True).map(sorted)
"""Milliseconds, ascending."""


@pytest.mark.parametrize(
    ("span", "fps", "n_frames", "frames"),
    [
        ((2, 5), 25, 1000, ((50, 125),)),
        ((10.5, 20), 30, 1000, ((315, 600),)),
        ((1.51, 1.54), 25, 1000, ((38, 39),)),  # 37.75 and 38.5 to 38 and 39
        ((1.5, 1.51), 25, 1000, ((37, 38),)),  # both to 38: the frame in the middle, 37.625
        ((9, 99), 10, 100, ((90, 100),)),
        ((-3, 1), 10, 100, ((0, 10),)),
        ((100, 101), 10, 100, ()),
        ((5, 5), 10, 100, ()),
        ((6, 5), 10, 100, ()),
    ],
)
def test_by_hand(span, fps, n_frames, frames):
    assert to_frames([span], fps, n_frames) == frames


@given(EDGES, RATES, st.integers(1, 100_000))
def test_inside_the_video_half_open_in_order(edges, fps, n_frames):
    spans = [(low / 1000, high / 1000) for low, high in pairwise(edges)]
    found = to_frames(spans, fps, n_frames)
    assert all(0 <= first < end <= n_frames for first, end in found)
    assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(found))
    shown = {frame for first, end in found for frame in range(first, end)}
    for low, high in spans:  # a span of a frame's length or more holds just the frames whose middle it holds
        if high - low >= 1 / fps:
            middles = [
                k
                for k in range(int(low * fps) - 2, int(high * fps) + 3)
                if low * fps - 0.5 <= k < high * fps - 0.5
            ]
            for frame in middles:
                if 0 <= frame < n_frames and abs(frame + 0.5 - low * fps) > 1e-6:
                    assert frame in shown


@given(EDGES, st.sampled_from([1, 2, 24, 25, 30, 45]))
def test_edges_are_rounded_half_up(edges, fps):
    """By exact arithmetic, away from the halves that decimals miss."""
    low, high = edges[0], edges[-1]
    exact = [Fraction(edge * fps, 1000) + Fraction(1, 2) for edge in (low, high)]
    if any(number.denominator == 1 for number in exact) or int(exact[0]) == int(exact[1]):
        return
    ((first, end),) = to_frames([(low / 1000, high / 1000)], fps, 10**9)
    assert (first, end) == (
        exact[0].numerator // exact[0].denominator,
        exact[1].numerator // exact[1].denominator,
    )


@given(st.lists(st.integers(0, 500_000), min_size=2, max_size=10, unique=True).map(sorted), RATES)
def test_frames_come_back(edges, fps):
    spans = tuple(pairwise(edges))
    assert to_frames(to_seconds(spans, fps), fps, 500_001) == spans


@given(EDGES, RATES)
def test_a_rounded_edge_moves_by_half_a_frame_at_most(edges, fps):
    spans = [(low / 1000, high / 1000) for low, high in pairwise(edges)]
    back = to_seconds(to_frames(spans, fps, 10**9), fps)
    for (low, high), (first, end) in zip(spans, back, strict=True):
        widest = 0.5 / fps if high - low >= 1 / fps else 1 / fps
        assert abs(first - low) <= widest + 1e-6, "half a frame"
        assert abs(end - high) <= widest + 1e-6, "half a frame"


@pytest.mark.parametrize("fps", [0.0, -1.0, float("nan"), float("inf")])
def test_no_rate(fps):
    with pytest.raises(ValueError, match="fps"):
        to_frames([(0, 1)], fps, 10)
    with pytest.raises(ValueError, match="fps"):
        to_seconds([(0, 1)], fps)
