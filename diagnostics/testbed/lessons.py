"""What one training example is: a question, the frames that show its evidence, the answer to learn.

Lessons are drawn anew at every step from the procedures' own plans: which lesion, window, pair of
steps, which frames, how many, in which order the options stand. Three forms: the option look-up in
text alone ("It is blue. ... A. red B. blue"), four options, and no options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.random import Generator

from diagnostics.data.items import option_letter
from diagnostics.data.minihorizon.inquiry import INQUIRIES, Posed
from diagnostics.data.minihorizon.plan import Interval, transition_frames
from diagnostics.data.minihorizon.procedure import INSTRUMENTS, PHASES, STEPS, Procedure
from diagnostics.testbed.footage import Footage

__all__ = [
    "INSTRUCTION",
    "PARTS",
    "Form",
    "Lesson",
    "look_up",
    "spread_frames",
    "video_lesson",
    "with_options",
]

INSTRUCTION = "Answer with the letter of the correct option only."
"""The line after the options, that of `conf/backend/hf.yaml`."""

Form = Literal["look_up", "choice", "open"]
_SINGLE = ("Hist", "Size", "Site")


@dataclass(frozen=True, slots=True)
class Lesson:
    """One example.

    Attributes:
        task: name of the kind of question.
        form: `look_up`, `choice` or `open`.
        text: the user's turn after the video.
        answer: what is to be said.
        letters: of the options; empty where there are none.
        frames: rows of `Footage.patches`, an even number; None for a look-up.
        seconds: shown time of each frame.
    """

    task: str
    form: Form
    text: str
    answer: str
    letters: tuple[str, ...]
    frames: np.ndarray | None = None
    seconds: np.ndarray | None = None


def look_up(footage: Footage, task: str, random: Generator) -> Lesson:
    """The answer is told, and its option to be found, or, in one of four, the answer to be repeated."""
    posed = _posed(footage, task, random)[2]
    told = f"It is {posed.truth}. {posed.question}"
    if random.random() < 0.25:
        return Lesson(task, "look_up", told, posed.truth, ())
    options, place = _options(posed, random)
    return Lesson(task, "look_up", with_options(told, options), option_letter(place), _letters(options))


def video_lesson(
    footage: Footage, task: str, form: Form, units: int, random: Generator, *, spread: float = 0.0
) -> Lesson:
    """A question about frames of one video, two of them a unit.

    Args:
        task: a task of MiniHorizon, or a part of one (`PARTS`), of which one alone is shown.
        spread: how often the frames are evenly spread over the video, instead of half from the evidence.
    """
    if task in PARTS:
        procedure, posed, hidden = _part(footage, task, random)
    else:
        procedure, shown, posed = _posed(footage, task, random, most_spans=2 * units)
        hidden = [
            (lesion.start_frame, lesion.end_frame)
            for lesion in procedure.lesions
            if task in _SINGLE and lesion not in shown.lesions
        ]
    choose = spread_frames if spread and random.random() < spread else _frames
    frames = choose(procedure.n_frames, posed.spans, hidden, 2 * units, random)
    seconds = frames / footage.fps
    if task != "PR" and random.random() < 0.5:
        # Real videos are longer than these: the clock must not matter where no time is asked for.
        seconds = seconds * np.exp(random.uniform(0, np.log(60)))
    letters: tuple[str, ...]
    text, answer, letters = posed.question, posed.truth, ()
    if form == "choice":
        options, place = _options(posed, random)
        text, answer, letters = with_options(text, options), option_letter(place), _letters(options)
    rows = footage.first[procedure.index] + frames
    return Lesson(task, form, text, answer, letters, rows, seconds)


def _part(footage: Footage, part: str, random: Generator) -> tuple[Procedure, Posed, list[tuple[int, int]]]:
    """One step, phase or instrument of a procedure, and the frames that show others of its kind."""
    procedure = footage.procedures[int(random.integers(len(footage.procedures)))]
    question, labels, intervals = PARTS[part]
    seen = intervals(procedure)
    chosen = seen[int(random.integers(len(seen)))]
    if part == "phase":
        hidden = [(0, chosen.start_frame), (chosen.end_frame, procedure.n_frames)]
    else:
        hidden = [(one.start_frame, one.end_frame) for one in seen if one.name != chosen.name]
    others = tuple(label for label in labels if label != chosen.name)
    span = (chosen.start_frame, chosen.end_frame)
    return procedure, Posed(question, chosen.name, (), others, (span,)), hidden


def _phases(procedure: Procedure) -> tuple[Interval, ...]:
    """The phases without the change of hue at their ends."""
    margin = transition_frames(procedure.n_frames) // 2 + 1
    return tuple(
        Interval(name, phase.start_frame + margin, phase.end_frame - margin)
        for name, phase in zip(procedure.phase_names, procedure.phases, strict=True)
    )


PARTS: Mapping[str, tuple[str, Sequence[str], Callable[[Procedure], Sequence[Interval]]]] = MappingProxyType(
    {
        "step": ("Which step is carried out?", STEPS, lambda procedure: procedure.steps),
        "phase": ("Which phase is under way?", tuple(PHASES), _phases),
        "instrument": (
            "Which instrument is in use?",
            tuple(INSTRUMENTS),
            lambda procedure: procedure.instruments,
        ),
    }
)
"""What order, phase and instrument questions are composed of, asked alone: question, labels, intervals.

Without them the composed questions stay at chance: nothing else teaches how a step looks.
"""


def _posed(
    footage: Footage, task: str, random: Generator, most_spans: int = 100
) -> tuple[Procedure, Procedure, Posed]:
    """A procedure that allows the task, the same with what is asked about chosen anew, and the question."""
    for _ in range(1000):
        procedure = footage.procedures[int(random.integers(len(footage.procedures)))]
        shown = _varied(procedure, task, random)
        posed = INQUIRIES[task].pose(footage.config.of_video(procedure.index), shown, random)
        if posed is not None and len(posed.spans) <= most_spans:
            return procedure, shown, posed
    raise ValueError(f"no procedure allows {task} with at most {most_spans} evidence windows")


def with_options(question: str, options: Sequence[str]) -> str:
    """The question, its options by letter, and the instruction."""
    lines = [f"{option_letter(spot)}. {text}" for spot, text in enumerate(options)]
    return "\n".join([question, *lines, INSTRUCTION])


def _letters(options: Sequence[str]) -> tuple[str, ...]:
    return tuple(option_letter(spot) for spot in range(len(options)))


def _options(posed: Posed, random: Generator) -> tuple[list[str], int]:
    shown, others = (
        [labels[spot] for spot in random.permutation(len(labels))] for labels in (posed.shown, posed.others)
    )
    wrong = [*shown, *others][:3]
    options = [wrong[spot] for spot in random.permutation(len(wrong))]
    place = int(random.integers(len(wrong) + 1))
    options.insert(place, posed.truth)
    return options, place


def _varied(procedure: Procedure, task: str, random: Generator) -> Procedure:
    """The same video, asked about something else in it."""
    if task in _SINGLE:
        lesion = procedure.lesions[int(random.integers(len(procedure.lesions)))]
        return replace(procedure, lesions=(lesion,))
    return replace(
        procedure,
        counted=True,
        repeated=procedure.steps[int(random.integers(len(procedure.steps)))].name,
        asked_phase=int(random.integers(len(procedure.phases))),
        asked_onset=int(random.integers(len(procedure.phases))),
    )


def _frames(
    n_frames: int,
    spans: tuple[tuple[int, int], ...],
    hidden: list[tuple[int, int]],
    count: int,
    random: Generator,
) -> np.ndarray:
    """`count` frames in order of time: some of every span, none of the hidden ones.

    A single evidence frame, which fills half a unit, is as frequent as two to four.
    """
    free = np.ones(n_frames, dtype=bool)
    for start, end in (*spans, *hidden):
        free[start:end] = False
    most = max(1, count // (len(spans) + (len(spans) > 1)))
    chosen: list[np.ndarray] = []
    for start, end in spans:
        wanted = min(int(random.integers(1, 5)), most, end - start)
        first = int(random.integers(start, end - wanted + 1))
        chosen.append(np.arange(first, first + wanted))
    evidence = np.concatenate(chosen)
    pool = np.flatnonzero(free)
    if not len(pool):  # nothing else may be shown
        pool = np.concatenate([np.arange(start, end) for start, end in spans])
    rest = random.choice(pool, count - len(evidence), replace=len(pool) < count - len(evidence))
    return np.sort(np.concatenate([evidence, rest]))


def spread_frames(
    n_frames: int,
    spans: tuple[tuple[int, int], ...],
    hidden: list[tuple[int, int]],
    count: int,
    random: Generator,
) -> np.ndarray:
    """`count` evenly spread frames, as a uniform sampler takes them.

    Where none falls into a span the nearest is moved there; those that fall on something hidden are
    moved anywhere else.
    """
    step = n_frames / count
    frames = np.floor(random.uniform(0, step) + step * np.arange(count)).astype(int)
    free = np.ones(n_frames, dtype=bool)
    for start, end in (*spans, *hidden):
        free[start:end] = False
    shown = np.zeros(n_frames, dtype=bool)
    for start, end in hidden:
        shown[start:end] = True
    for start, end in spans:
        shown[start:end] = False
    unwanted = shown[frames]
    if unwanted.any() and free.any():
        frames[unwanted] = random.choice(np.flatnonzero(free), int(unwanted.sum()))
    for start, end in spans:
        if not ((frames >= start) & (frames < end)).any():
            movable = np.flatnonzero(free[frames])
            if not len(movable):
                movable = np.arange(count)
            nearest = movable[np.argmin(np.abs(frames[movable] - (start + end) / 2))]
            frames[nearest] = random.integers(start, end)
    return np.sort(frames)
