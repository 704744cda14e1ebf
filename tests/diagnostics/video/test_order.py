"""Orders against what they promise, by looking at the slots alone."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.video.order import ORDERS, padded, reorder, whole_units
from diagnostics.video.selection import Selection, Slot


def selection(count: int) -> Selection:
    slots = tuple(Slot("v", 10 * place, 0.4 * place, 0.4 * place) for place in range(count))
    return Selection(slots, "made up", 25.0, 10 * count, 0.4 * count, count)


def frames(ordered: Selection) -> list[int]:
    return ordered.frame_indices.tolist()


@given(
    units=st.integers(1, 40),
    unit=st.integers(1, 3),
    order=st.sampled_from(ORDERS),
    seed=st.integers(0, 2**32 - 1),
    timestamps=st.sampled_from(["slot", "carry"]),
    blocks=st.integers(2, 9),
    window=st.integers(2, 17),
)
@settings(max_examples=300, deadline=None)
def test_every_order_keeps_the_pictures_the_units_and_the_clock_it_was_told(
    units, unit, order, seed, timestamps, blocks, window
):
    before = selection(units * unit)
    after = reorder(before, order, seed=seed, timestamps=timestamps, unit=unit, blocks=blocks, window=window)
    assert Counter(frames(after)) == Counter(frames(before))
    place = np.array(frames(after)).reshape(-1, unit) // 10
    assert (np.diff(place, axis=1) == 1).all(), "units stay whole, their inside in order"
    assert (place[:, 0] % unit == 0).all()
    if timestamps == "slot":
        assert np.array_equal(after.shown_seconds, before.shown_seconds)
    else:
        assert np.array_equal(after.shown_seconds, after.true_seconds)
    moved = place[:, 0] // unit
    pieces = {
        "blocks": min(blocks, units),
        "local": max(min(window, units - s) for s in range(0, units, window)),
    }
    if order == "original":
        assert after is before
    elif pieces.get(order, units) > 1:
        assert not np.array_equal(moved, np.arange(units)), "a drawn order is never the one they were in"
    again = reorder(before, order, seed=seed, timestamps=timestamps, unit=unit, blocks=blocks, window=window)
    assert again == after


def test_reversed_is_its_own_inverse_and_by_hand():
    before = selection(6)
    assert frames(reorder(before, "reversed")) == [50, 40, 30, 20, 10, 0]
    by_unit = reorder(before, "reversed", unit=2)
    assert frames(by_unit) == [40, 50, 20, 30, 0, 10]
    assert frames(reorder(by_unit, "reversed", unit=2)) == frames(before)


@given(units=st.integers(2, 60), blocks=st.integers(2, 9), seed=st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_blocks_are_runs_whose_inside_stays(units, blocks, seed):
    moved = np.array(frames(reorder(selection(units), "blocks", seed=seed, blocks=blocks))) // 10
    breaks = int((np.diff(moved) != 1).sum())
    assert breaks <= min(blocks, units) - 1
    lengths = np.diff(np.flatnonzero(np.r_[True, np.diff(moved) != 1, True]))
    assert lengths.min() >= units // min(blocks, units), "runs as equal as possible may only grow together"


@given(units=st.integers(2, 60), window=st.integers(2, 17), seed=st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_local_moves_nothing_out_of_its_window(units, window, seed):
    moved = np.array(frames(reorder(selection(units), "local", seed=seed, window=window))) // 10
    assert np.array_equal(moved // window, np.arange(units) // window)


def test_all_full_orders_of_three_but_the_identity_are_drawn_equally_often():
    drawn = Counter(tuple(frames(reorder(selection(3), "full", seed=seed))) for seed in range(2000))
    assert len(drawn) == 5
    assert max(abs(count - 400) for count in drawn.values()) < 5 * np.sqrt(400)


def test_half_a_unit_is_filled_with_the_last_slot_or_refused():
    odd = selection(5)
    assert frames(padded(odd, 2)) == [0, 10, 20, 30, 40, 40]
    assert padded(selection(6), 2) == selection(6)
    with pytest.raises(ValueError, match="5 slots are no whole number of units of 2"):
        reorder(odd, "full", unit=2)


@pytest.mark.parametrize(
    ("count", "asked", "told"),
    [
        (4, 4, []),
        (5, 5, ["repeated_frame"]),
        (5, 6, ["repeated_frame", "fewer_frames: 5 shown of 6 asked for"]),
        (1, 7, ["repeated_frame", "fewer_frames: 1 shown of 7 asked for"]),
    ],
)
def test_a_frame_that_fills_a_unit_is_none_of_those_asked_for(count, asked, told):
    before = dataclasses.replace(selection(count), requested=asked)
    after, notices = whole_units(before, 2)
    assert after.slots == padded(before, 2).slots
    assert len(notices) == len(told)
    assert all(notice.startswith(start) for notice, start in zip(notices, told, strict=True))
    assert len(after) == after.requested, "what is told here is not told again by a count of the slots"
