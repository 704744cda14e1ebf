from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from diagnostics.data.items import Evidence, Item, Window
from diagnostics.errors import ConfigError
from diagnostics.strict import from_mapping
from diagnostics.video.index import VideoIndex
from diagnostics.video.sampling import evenly, load_sampler, sampler_names, select_frames
from diagnostics.video.selection import Selection


def index_of(seconds, last: float | None = None) -> VideoIndex:
    """An index with these presentation times; no file behind it."""
    seconds = np.asarray(seconds, dtype=np.float64)
    last = last if last is not None else (seconds[-1] - seconds[-2] if len(seconds) > 1 else 0.04)
    duration = float(seconds[-1] + last)
    return VideoIndex(
        path="film.mp4",
        pts=np.round(seconds * 90000).astype(np.int64),
        time_base=Fraction(1, 90000),
        seconds=seconds,
        fps=len(seconds) / duration,
        duration=duration,
        width=64,
        height=48,
        rotation=0,
        codec="h264",
        container="mov",
        reliable=True,
        key_pts=np.array([0]),
        key_seek=np.array([0]),
        open_gop=False,
        header_frames=len(seconds),
    )


def item_of(*windows: Window, kind="exact") -> Item:
    evidence = Evidence(tuple(windows), kind) if windows or kind == "global" else None
    return Item("one", Path("film.mp4"), "film", "What?", evidence=evidence)


def sample(name: str, index: VideoIndex, item: Item | None = None, **parameters) -> Selection:
    module = load_sampler(name)
    config = from_mapping(module.Config, parameters, "sampling")
    return select_frames(module, config, index, item or item_of())


@st.composite
def indices_of_videos(draw) -> VideoIndex:
    """Constant rates, and variable ones with gaps of up to ten seconds."""
    count = draw(st.integers(1, 300))
    if draw(st.booleans()):
        return index_of(np.arange(count) / draw(st.sampled_from([0.5, 1.0, 23.976, 25.0, 29.97, 30.0, 60.0])))
    gaps = draw(st.lists(st.floats(0.001, 10.0), min_size=count, max_size=count))
    return index_of(np.cumsum(gaps) - gaps[0])


def test_registry():
    assert {"uniform", "fps_cap", "uniform_plus_evidence"} <= set(sampler_names())
    with pytest.raises(ConfigError, match="uniform"):
        load_sampler("unifrom")
    with pytest.raises(ConfigError):
        load_sampler("no_such.module")
    with pytest.raises(ConfigError, match="lacks"):
        load_sampler("json.decoder")


@pytest.mark.parametrize("name", ["uniform", "fps_cap", "uniform_plus_evidence"])
def test_configurations_are_strict(name):
    module = load_sampler(name)
    with pytest.raises(ConfigError, match="budgets"):
        from_mapping(module.Config, {"budgets": 4}, "sampling")
    with pytest.raises(ValidationError):
        module.Config(budget=0)


def test_uniform_on_cases_worked_by_hand():
    assert sample("uniform", index_of(np.arange(10)), budget=4).frame_indices.tolist() == [0, 3, 6, 9]
    assert sample("uniform", index_of(np.arange(12)), budget=4).frame_indices.tolist() == [0, 4, 7, 11]
    # 0, 1.5, 3, 4.5, 6: halves go to the even neighbour.
    assert sample("uniform", index_of(np.arange(7)), budget=5).frame_indices.tolist() == [0, 2, 3, 4, 6]
    assert sample("uniform", index_of(np.arange(3)), budget=9).frame_indices.tolist() == [0, 1, 2]
    assert sample("uniform", index_of(np.arange(9)), budget=1).frame_indices.tolist() == [0]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5000), st.integers(1, 600))
def test_evenly_by_exact_arithmetic(count, budget):
    """round(k (n - 1) / (C - 1)) in fractions, Python's `round` also going to even."""
    places = evenly(count, budget).tolist()
    if budget >= count:
        assert places == list(range(count))
    elif budget > 1:
        exact = [Fraction(k * (count - 1), budget - 1) for k in range(budget)]
        assert all(abs(place - value) <= Fraction(1, 2) for place, value in zip(places, exact, strict=True))
        assert (places[0], places[-1]) == (0, count - 1)


@settings(deadline=None, max_examples=60)
@given(indices_of_videos(), st.integers(1, 80), st.sampled_from(["uniform", "uniform_plus_evidence"]))
def test_fixed_budgets(index, budget, name):
    selection = sample(name, index, item_of(Window(0.0, 1.0)), budget=budget)
    frames = selection.frame_indices
    assert len(frames) == min(budget, index.n_frames)
    assert (np.diff(frames) > 0).all()
    assert frames.min() >= 0
    assert frames.max() < index.n_frames
    np.testing.assert_array_equal(selection.true_seconds, index.seconds[frames])
    np.testing.assert_array_equal(selection.shown_seconds, selection.true_seconds)
    assert (selection.requested, selection.source_frames) == (budget, index.n_frames)
    assert {slot.source for slot in selection.slots} == {"film"}


@settings(deadline=None, max_examples=60)
@given(indices_of_videos(), st.integers(1, 80), st.sampled_from([0.25, 1.0, 2.0]))
def test_rate_then_cap(index, budget, fps):
    frames = sample("fps_cap", index, budget=budget, candidate_fps=fps).frame_indices
    everything = sample("fps_cap", index, budget=10**6, candidate_fps=fps).frame_indices
    # The frame on screen at each tick, by a plain loop.
    on_screen, tick = [], 0
    while tick / fps <= index.seconds[-1] + 1e-5:
        on_screen.append(max(i for i, second in enumerate(index.seconds) if second <= tick / fps + 1e-5))
        tick += 1
    assert everything.tolist() == sorted(set(on_screen))
    assert len(frames) == min(budget, len(everything))
    assert set(frames) <= set(everything)
    assert frames[0] == everything[0]
    if budget > 1:
        assert frames[-1] == everything[-1], "the end of the video is never cut off"


def test_rate_then_cap_worked_by_hand():
    at_25 = index_of(np.arange(251) / 25)
    assert sample("fps_cap", at_25, budget=64).frame_indices.tolist() == list(range(0, 251, 25))
    assert sample("fps_cap", at_25, budget=3).frame_indices.tolist() == [0, 125, 250]
    ntsc = index_of(np.arange(120) * 1001 / 30000)
    # At 1, 2 and 3 s the frames of 0.968, 1.968 and 2.970 s are on screen.
    assert sample("fps_cap", ntsc).frame_indices.tolist() == [0, 29, 59, 89]
    held = index_of([0.0, 0.1, 0.2, 5.2, 5.3])
    assert sample("fps_cap", held).frame_indices.tolist() == [0, 2], "a held frame counts once"


def test_times_in_milliseconds_do_not_slip_by_a_frame():
    """Matroska rounds 1/30 s to whole milliseconds: the frame of 1 s may be at 1.000 or 0.9995."""
    from dataclasses import replace

    rounded = replace(index_of(np.round(np.arange(300) / 30 * 1000) / 1000), time_base=Fraction(1, 1000))
    assert sample("fps_cap", rounded).frame_indices.tolist() == list(range(0, 300, 30))


@settings(deadline=None, max_examples=80)
@given(
    st.integers(2, 400),
    st.integers(1, 60),
    st.integers(1, 20),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.2)), min_size=1, max_size=4),
    st.booleans(),
)
def test_evidence_is_shown_at_an_equal_budget(count, budget, wanted, spans, by_frames):
    index = index_of(np.arange(count) / 25)
    windows = []
    for start, length in spans:
        first, last = int(start * (count - 1)), min(count, int((start + length) * count) + 1)
        frames = (first, last) if by_frames else (None, None)
        windows.append(Window(first / 25 - 1e-4, (last - 1) / 25 + 1e-4, *frames))
    item = item_of(*windows)
    selection = sample("uniform_plus_evidence", index, item, budget=budget, evidence_frames=wanted)
    plain = sample("uniform", index, item, budget=budget)
    held = selection.holds(item.evidence)
    everything = sample("uniform", index, item, budget=count).holds(item.evidence).sum()
    assert len(selection) == len(plain)
    assert held.sum() >= min(wanted, everything, len(selection))
    kept = set(plain.frame_indices) & set(selection.frame_indices)
    assert len(plain) - len(kept) <= wanted, "no more slots are exchanged than evidence frames were asked for"
    new = np.setdiff1d(selection.frame_indices, plain.frame_indices)
    assert np.isin(new, selection.frame_indices[held]).all(), "only evidence frames are put in"


def test_evidence_takes_the_nearest_slots():
    index = index_of(np.arange(1001) / 10)
    item = item_of(Window(41.0, 43.0))
    chosen = sample("uniform_plus_evidence", index, item, budget=11, evidence_frames=2).frame_indices
    # Uniform: 0, 100, ... 1000. Evidence 415 and 425: the nearest slots are 400, then 500.
    assert chosen.tolist() == [0, 100, 200, 300, 415, 425, 600, 700, 800, 900, 1000]


def test_a_short_window_gets_its_share():
    index = index_of(np.arange(1000) / 10)
    item = item_of(Window(10.0, 10.2), Window(50.0, 90.0))
    selection = sample("uniform_plus_evidence", index, item, budget=20, evidence_frames=8)
    inside = [frame for frame in selection.frame_indices if 100 <= frame < 102]
    assert len(inside) == 2, "both frames of the short window, the rest from the long one"


@pytest.mark.parametrize("item", [item_of(), item_of(kind="global")], ids=["none", "global"])
def test_without_evidence_it_is_uniform_and_says_so(item):
    index = index_of(np.arange(500) / 25)
    selection = sample("uniform_plus_evidence", index, item, budget=16)
    assert selection.frame_indices.tolist() == evenly(500, 16).tolist()
    assert "0 evidence frames" in selection.rule
