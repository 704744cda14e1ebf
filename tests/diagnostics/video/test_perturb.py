from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.video.perturb import (
    blank,
    blank_frames,
    fill,
    permuted,
    permuted_frames,
)
from diagnostics.video.selection import BLANK, Frames, Selection, Slot


def selection_of(frames, source="film") -> Selection:
    slots = tuple(Slot(source, int(f), f / 25, f / 25) for f in frames)
    return Selection(slots, "uniform(budget=9)", 25.0, 1000, 40.0, len(slots))


def pixels_of(frames) -> np.ndarray:
    """Pictures whose every value is their frame number."""
    return np.broadcast_to(np.asarray(frames, np.uint8)[:, None, None, None], (len(frames), 4, 6, 3))


def test_blank_keeps_the_shown_times_and_shows_grey():
    selection = selection_of([0, 10, 20])
    empty = blank(selection)
    assert {slot.source for slot in empty.slots} == {BLANK}
    assert empty.frame_indices.tolist() == [-1, -1, -1]
    assert np.isnan(empty.true_seconds).all()
    np.testing.assert_array_equal(empty.shown_seconds, selection.shown_seconds)
    assert empty.rule == "uniform(budget=9); blank"
    assert (fill(empty, pixels_of, size=(4, 6)).pixels == 128).all()
    with pytest.raises(ValueError, match="size"):
        fill(empty, pixels_of)
    shown = blank_frames(Frames(pixels_of([0, 10, 20]), selection))
    assert (shown.pixels == 128).all()
    assert shown.pixels.shape == (3, 4, 6, 3)
    assert shown.selection.rule == empty.rule


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.sampled_from(["slot", "carry"]))
def test_permuted_moves_pictures_and_says_where_their_times_went(count, seed, timestamps):
    selection = selection_of(np.arange(count) * 3)
    moved = permuted(selection, seed, timestamps)
    assert sorted(moved.frame_indices) == selection.frame_indices.tolist()
    if count > 1:
        assert moved.frame_indices.tolist() != selection.frame_indices.tolist()
    np.testing.assert_array_equal(moved.true_seconds, moved.frame_indices / 25)
    expected = selection.shown_seconds if timestamps == "slot" else moved.true_seconds
    np.testing.assert_array_equal(moved.shown_seconds, expected)
    assert permuted(selection, seed, timestamps) == moved, "the same seed gives the same order"


def test_permuting_pictures_agrees_with_permuting_slots():
    selection = selection_of([5, 10, 15, 20, 25])
    at_hand = permuted_frames(Frames(pixels_of([5, 10, 15, 20, 25]), selection), seed=3)
    read = fill(permuted(selection, seed=3), pixels_of)
    assert at_hand.selection == read.selection
    np.testing.assert_array_equal(at_hand.pixels, read.pixels)
    assert at_hand.pixels[:, 0, 0, 0].tolist() == at_hand.selection.frame_indices.tolist()


def test_fill_reads_each_frame_once_in_order_of_time():
    asked = []

    def read(frames):
        asked.append(frames.tolist())
        return pixels_of(frames)

    slots = (*selection_of([30, 10, 30]).slots, Slot(BLANK, -1, float("nan"), 9.0))
    mixed = Selection(slots, "by hand", 25.0, 1000, 40.0, 4)
    shown = fill(mixed, read)
    assert asked == [[10, 30]]
    assert shown.pixels[:, 0, 0, 0].tolist() == [30, 10, 30, 128]


def test_fill_does_not_copy_what_is_in_order():
    pixels = np.ascontiguousarray(pixels_of([1, 2, 3]))
    assert fill(selection_of([1, 2, 3]), lambda _: pixels).pixels is pixels


def test_fill_reads_from_one_video():
    two = selection_of([1]).slots + selection_of([2], source="other").slots
    with pytest.raises(ValueError, match="other"):
        fill(Selection(two, "by hand", 25.0, 1000, 40.0, 2), pixels_of)
