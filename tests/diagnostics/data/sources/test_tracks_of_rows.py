"""Rows to tracks: by a slow independent road, tick by tick."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnostics.data.build.annotations import Interval, Place
from diagnostics.data.sources._tracks import intervals, sampled, spoken

PATH = Path("labels.csv")

ROWS = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["", "a", "b"])), min_size=1, max_size=40)


@given(ROWS, st.sampled_from([1, 2, 3]))
def test_a_moment_holds_until_the_next_and_no_longer_than_a_step(rows, step):
    ticks = np.array([tick for tick, _ in rows])
    track, _ = sampled(ticks, [label for _, label in rows], PATH, range(len(rows)), step=step)
    told: dict[int, set[str]] = {}
    for tick, label in rows:
        told.setdefault(tick, set()).add(label)
    for time in range(35):
        last = max((tick for tick in told if tick <= time), default=None)
        holds = set() if last is None or time >= last + step else told[last]
        wanted = holds - {""} if len(holds) == 1 else set()
        got = {one.label for one in track.intervals if one.start <= time < one.end}
        assert got == wanted, (time, rows)
        assert track.in_doubt(time, time + 1) == (len(holds) > 1)
    assert all(a.end <= b.start for a, b in pairwise(track.intervals))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.sampled_from("ab")), max_size=10))
def test_what_contradicts_itself_is_dropped_named_and_doubted(written):
    rows = [Interval(a, b, label, Place("x", number)) for number, (a, b, label) in enumerate(written)]
    track, warnings = intervals(rows)
    for time in range(21):
        over = [row for row in rows if row.start <= time < row.end]
        reversed_over = any(row.end <= time < row.start for row in rows)
        clash = any(
            one is not other and max(one.start, other.start) < min(one.end, other.end)
            for one in over
            for other in rows
            if other.start < other.end
        )
        got = [row.label for row in track.intervals if row.start <= time < row.end]
        wanted = [row.label for row in over] if not clash and not reversed_over else []
        assert got == wanted
        if clash or reversed_over:
            assert track.in_doubt(time, time + 1)
    assert bool(warnings) == (len(rows) > 0 and not _sound(rows))


def _sound(rows):
    spans = sorted((row.start, row.end) for row in rows)
    return all(a < b for a, b in spans) and all(one[1] <= two[0] for one, two in pairwise(spans))


def test_a_moment_is_in_doubt_if_one_of_its_rows_is():
    track, _ = sampled(np.array([2, 3, 3, 4]), ["a"] * 4, PATH, range(4), doubted=[2])
    assert [(one.start, one.end) for one in track.intervals] == [(2, 3), (4, 5)]
    assert track.doubts == ((3, 4),)


def test_wordings_are_one_to_one():
    assert spoken(["a_b", "c"], {"c": ("see",)}) == {"a b": "a_b", "c": "c", "see": "c"}
    with pytest.raises(ValueError, match="'x' means 'a' and 'b'"):
        spoken(["a", "b"], {"a": ("x",), "b": ("x",)})
    with pytest.raises(ValueError, match="'d' is no label"):
        spoken(["a"], {"d": ("x",)})
