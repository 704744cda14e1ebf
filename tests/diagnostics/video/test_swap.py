"""Swaps against what they promise: budget and clock untouched, evidence where asked for and nowhere else."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from diagnostics.data.items import Evidence, Item, Window
from diagnostics.errors import NoEvidenceError
from diagnostics.video.selection import Selection, Slot
from diagnostics.video.swap import evidence_units, near, place_units, thinned, without_evidence

FPS = 4.0


class Index:
    """What the swaps use of a `VideoIndex`: frame times and their number."""

    def __init__(self, n_frames: int) -> None:
        self.n_frames, self.seconds = n_frames, np.arange(n_frames) / FPS


def item(start: int, end: int, kind: str = "exact") -> Item:
    window = Window(start / FPS, end / FPS, start, end)
    return Item("q", Path("v.mp4"), "v", "What?", ("a", "b"), "A", evidence=Evidence((window,), kind))


def uniform(n_frames: int, budget: int) -> Selection:
    frames = np.rint(np.linspace(0, n_frames - 1, budget)).astype(int).tolist()
    slots = tuple(Slot("v", frame, frame / FPS, frame / FPS) for frame in frames)
    return Selection(slots, "uniform", FPS, n_frames, n_frames / FPS, budget)


cases = st.tuples(
    st.integers(40, 400), st.integers(1, 16), st.integers(0, 300), st.integers(1, 30), st.integers(1, 3)
)


@given(cases)
@settings(max_examples=200, deadline=None)
def test_evidence_taken_out_leaves_none_and_the_nearest_in_its_place(case):
    n_frames, units, start, length, unit = case
    assume(start + length < n_frames)
    asked, index, before = item(start, start + length), Index(n_frames), uniform(n_frames, units * unit)
    after = without_evidence(before, asked, index)
    assert not after.holds(asked.evidence).any()
    assert np.array_equal(after.shown_seconds, before.shown_seconds)
    for old, new in zip(before.frame_indices, after.frame_indices, strict=True):
        if start <= old < start + length:
            low, high = old - (start - 1), start + length - old
            distances = [
                d for d, frame in ((low, start - 1), (high, start + length)) if 0 <= frame < n_frames
            ]
            assert abs(new - old) == min(distances)
        else:
            assert new == old


def test_the_guard_band_is_kept_free_too_and_a_video_of_evidence_is_refused():
    asked, index = item(40, 48, "proxy"), Index(100)
    after = without_evidence(uniform(100, 100), asked, index, guard_seconds=1.0)
    assert not set(range(36, 52)) & set(after.frame_indices.tolist())
    with pytest.raises(NoEvidenceError, match="every frame lies in its evidence"):
        without_evidence(uniform(100, 4), item(0, 100), index)


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 12)), min_size=1, max_size=5),
    st.integers(1, 12),
    st.integers(1, 4),
)
@settings(max_examples=200, deadline=None)
def test_units_are_neighbours_in_one_window_and_shared_among_windows(gaps, count, unit):
    """Windows are told as (gap before, length); a unit never mixes two of them."""
    spans, at = [], 0
    for gap, length in gaps:
        spans.append((at + gap, at + gap + length))
        at += gap + length
    assume(any(end > start for start, end in spans))
    held = tuple(Window(s / FPS, e / FPS, s, e) for s, e in spans if e > s)
    asked = Item("q", Path("v.mp4"), "v", "What?", ("a", "b"), "A", evidence=Evidence(held, "exact"))
    units = [[slot.frame_index for slot in one] for one in evidence_units(asked, Index(at + 5), count, unit)]
    by_window = {span: 0 for span in spans if span[1] > span[0]}
    seen: set[int] = set()
    for frames in units:
        (span,) = [span for span in by_window if span[0] <= frames[0] < span[1]]
        by_window[span] += 1
        assert all(span[0] <= frame < span[1] for frame in frames)
        if span[1] - span[0] >= unit:
            assert frames == list(range(frames[0], frames[0] + unit)), "neighbours"
        assert not seen & set(frames), "no unit twice"
        seen |= set(frames)
    assert [frames[0] for frames in units] == sorted(frames[0] for frames in units)
    room = {span: max(1, (span[1] - span[0]) // unit) for span in by_window}
    assert len(units) == min(count, sum(room.values()))
    for span, found in by_window.items():  # nobody starves while another has two more
        assert found == room[span] or all(other <= found + 1 for other in by_window.values())


@given(cases, st.integers(1, 20))
@settings(max_examples=200, deadline=None)
def test_doses_are_whole_units_of_evidence_in_the_places_nearest_in_time(case, dose):
    n_frames, units, start, length, unit = case
    assume(start + length < n_frames)
    asked, index = item(start, start + length), Index(n_frames)
    removed = without_evidence(uniform(n_frames, units * unit), asked, index)
    wanted = min(dose, units)
    put = evidence_units(asked, index, wanted, unit)
    assert len(put) == max(1, min(wanted, length // unit)), "clipped to the evidence there is"
    places = near(removed, put, unit)
    after = place_units(removed, put, places, "test")
    assert np.array_equal(after.shown_seconds, removed.shown_seconds)
    held = after.holds(asked.evidence).reshape(-1, unit)
    assert held.all(axis=1).sum() == held.any(axis=1).sum() == len(put)
    changed = np.flatnonzero((after.frame_indices != removed.frame_indices).reshape(-1, unit).any(axis=1))
    assert set(changed) == set(places.tolist())
    shown = after.frame_indices[held.ravel()]
    assert (np.diff(shown) >= 0).all(), "in order of time"
    if length >= unit:
        assert len(set(shown.tolist())) == len(shown), "no frame of evidence twice"
    if len(put) == 1:  # the one place is the nearest of all
        clock = removed.shown_seconds.reshape(-1, unit).mean(axis=1)
        time = np.mean([slot.true_seconds for slot in put[0]])
        assert np.isclose(np.abs(clock - time).min(), abs(clock[places[0]] - time))


@given(cases, st.floats(0, 1), st.booleans(), st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_the_redundancy_dose_replaces_the_same_units_by_both_kinds(case, share, alike, seed):
    n_frames, units, start, length, unit = case
    assume(start + length < n_frames)
    asked, index = item(start, start + length), Index(n_frames)
    before = without_evidence(uniform(n_frames, units * unit), asked, index)
    keep = np.zeros(units, dtype=bool)
    keep[units // 2] = True
    wanted = round(share * (units - 1)) * unit
    assume(max(start, n_frames - start - length) >= wanted)  # a stretch without evidence is long enough
    options = {"unit": unit, "seed": seed}
    after = thinned(before, asked, index, share, keep, alike=alike, **options)
    other = thinned(before, asked, index, share, keep, alike=not alike, **options)
    assert np.array_equal(after.shown_seconds, before.shown_seconds)
    assert not after.holds(asked.evidence).any()
    assert (
        after.slots[units // 2 * unit : (units // 2 + 1) * unit]
        == before.slots[units // 2 * unit : (units // 2 + 1) * unit]
    )
    replaced = [
        {
            place
            for place in range(units)
            if c.frame_indices[place * unit] != before.frame_indices[place * unit]
        }
        for c in (after, other)
    ]
    assert all(len(one) <= wanted // unit for one in replaced)
    if alike and wanted:
        run = sorted(set(after.frame_indices.tolist()) - set(before.frame_indices.tolist()))
        assert not run or run[-1] - run[0] < max(FPS, unit), "near-duplicates come from one second"


def test_no_stretch_is_long_enough_for_near_duplicates():
    asked, index = item(1, 39), Index(40)
    keep = np.zeros(10, dtype=bool)
    with pytest.raises(NoEvidenceError, match="no stretch without evidence has 2 frames"):
        thinned(uniform(40, 20), asked, index, 1.0, keep, alike=True, unit=2, seed=0)


def test_items_without_evidence_are_refused_by_name():
    nothing = Item("q", Path("v.mp4"), "v", "What?", ("a", "b"), "A")
    with pytest.raises(NoEvidenceError, match="no frame lies in its evidence"):
        evidence_units(nothing, Index(50), 2, 2)
