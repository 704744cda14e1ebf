from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.data.minihorizon.inquiry import INQUIRIES
from diagnostics.testbed.curriculum import CURRICULUM, draw, scaled
from diagnostics.testbed.lessons import INSTRUCTION, look_up, spread_frames, video_lesson


def where(footage, lesson):
    """The procedure of a lesson's frames, and the frames' own numbers."""
    video = int(np.searchsorted(footage.first, lesson.frames[0], side="right")) - 1
    return footage.procedures[video], lesson.frames - footage.first[video]


def among(frames, seen):
    return (frames >= seen.start_frame) & (frames < seen.end_frame)


@pytest.mark.parametrize("units", [1, 3, 8])
def test_one_lesion_is_shown_and_it_is_the_one_asked_about(footage, units):
    random = np.random.default_rng(0)
    halves = 0
    for _ in range(120):
        task, trait = [("Hist", "colour"), ("Size", "size"), ("Site", "place")][int(random.integers(3))]
        lesson = video_lesson(footage, task, "open", units, random)
        procedure, frames = where(footage, lesson)
        assert len(frames) == 2 * units
        assert (np.diff(frames) >= 0).all()
        shown = [lesion for lesion in procedure.lesions if among(frames, lesion).any()]
        assert len(shown) == 1
        assert getattr(shown[0], trait) == lesson.answer
        pairs = among(frames, shown[0]).reshape(-1, 2)
        halves += bool((pairs.sum(axis=1) == 1).any())
    assert halves > 20, "evidence in one of a unit's two frames must be common"


@pytest.mark.parametrize("part", ["step", "phase", "instrument"])
def test_a_part_is_shown_alone(footage, part):
    random = np.random.default_rng(0)
    for _ in range(60):
        lesson = video_lesson(footage, part, "choice", 3, random)
        procedure, frames = where(footage, lesson)
        kinds = {
            "step": [(one.name, one) for one in procedure.steps],
            "instrument": [(one.name, one) for one in procedure.instruments],
            "phase": list(zip(procedure.phase_names, procedure.phases, strict=True)),
        }
        seen = {name for name, one in kinds[part] if among(frames, one).any()}
        options = {line[0]: line[3:] for line in lesson.text.split("\n")[1:-1]}
        assert seen == {options[lesson.answer]}


@given(
    n_frames=st.integers(80, 112),
    units=st.integers(1, 16),
    seed=st.integers(0, 2**32 - 1),
    cuts=st.lists(st.integers(0, 79), min_size=4, max_size=8, unique=True),
)
@settings(max_examples=200, deadline=None)
def test_spread_frames_are_even_hit_every_span_and_show_nothing_hidden(n_frames, units, seed, cuts):
    edges = sorted(cuts)[: len(cuts) // 2 * 2]
    pairs = [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True)]
    spans, hidden = tuple(pairs[: min(units, len(pairs) - 1)]), pairs[min(units, len(pairs) - 1) :]
    frames = spread_frames(n_frames, spans, hidden, 2 * units, np.random.default_rng(seed))
    assert len(frames) == 2 * units
    assert (np.diff(frames) >= 0).all()
    assert frames.min() >= 0
    assert frames.max() < n_frames
    for start, end in spans:
        assert ((frames >= start) & (frames < end)).any()
    for start, end in hidden:
        assert not ((frames >= start) & (frames < end)).any()
    alone = spread_frames(n_frames, (), [], 2 * units, np.random.default_rng(seed))
    assert len(set(np.diff(alone))) <= 2, "nothing to move: as even as whole frames can be"


def test_a_spread_stage_draws_both_kinds(footage):
    random = np.random.default_rng(4)
    even = 0
    for _ in range(60):
        lesson = video_lesson(footage, "IR", "open", 6, random, spread=0.5)
        even += np.ptp(np.diff(lesson.frames)) <= 1
    assert 12 < even < 48


def test_order_lessons_show_both_steps_in_the_order_told(footage):
    random = np.random.default_rng(0)
    for _ in range(100):
        lesson = video_lesson(footage, "RSR", "choice", 4, random)
        procedure, frames = where(footage, lesson)
        named = lesson.text.split("\n")[0].rstrip("?").split()[-3::2]
        onset = {}
        for name in named:
            held = np.zeros(len(frames), dtype=bool)
            for step in procedure.steps:
                if step.name == name:
                    held |= among(frames, step)
            assert held.any(), f"{name} is not shown"
            onset[name] = int(np.flatnonzero(held)[0])
        first = min(named, key=onset.__getitem__)
        options = {line[0]: line[3:] for line in lesson.text.split("\n")[1:-1]}
        assert options[lesson.answer] == first


@pytest.mark.parametrize("task", list(INQUIRIES))
def test_letters_are_even_and_the_instruction_closes(footage, task):
    random = np.random.default_rng(5)
    lessons = [video_lesson(footage, task, "choice", 5, random) for _ in range(300)]
    letters = Counter(lesson.answer for lesson in lessons)
    expected = 300 / len(lessons[0].letters)
    assert set(letters) == set(lessons[0].letters)
    assert max(abs(count - expected) for count in letters.values()) < 4 * np.sqrt(expected)
    assert all(lesson.text.endswith(INSTRUCTION) for lesson in lessons)


def test_look_ups_tell_their_answer(footage):
    random = np.random.default_rng(5)
    for _ in range(100):
        lesson = look_up(footage, "Site", random)
        told = lesson.text.removeprefix("It is ").split(".")[0]
        if lesson.letters:
            options = {line[0]: line[3:] for line in lesson.text.split("\n")[1:-1]}
            assert options[lesson.answer] == told
        else:
            assert lesson.answer == told


def test_every_stage_can_be_drawn(footage):
    for stage in CURRICULUM:
        for seed in range(3):
            parts = draw(stage, footage, np.random.default_rng(seed))
            assert sum(map(len, parts)) == stage.batch
            if stage.tasks:
                lengths = {len(lesson.frames) for lesson in parts[0]}
                assert len(lengths) == 1
                assert stage.units[0] <= lengths.pop() // 2 <= stage.units[1]
    assert [stage.steps for stage in scaled(CURRICULUM, 1e-9)] == [1] * len(CURRICULUM)
