"""Lessons: a question of any task posed of a procedure at will, straight from its plan.

A split's own items come out of the pipeline (`questions`), which takes them from the annotation tracks.
Training asks more than they do, about any lesion, window or pair of steps, anew at every step; this is
the short road for it. Both roads word a question alike, and a test holds them to the same answers and
evidence. The tasks are MedHorizon's (arXiv 2605.06537, Table 5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from numpy.random import Generator

from diagnostics.data.build.findings import clock
from diagnostics.data.minihorizon.plan import (
    LESION_COLOURS,
    PLACES,
    Interval,
    Phase,
    transition_frames,
)
from diagnostics.data.minihorizon.procedure import (
    INSTRUMENTS,
    LESION_SIZES,
    PHASES,
    Finding,
    Procedure,
)
from diagnostics.data.minihorizon.questions import TASKS, question
from diagnostics.data.minihorizon.settings import Config

__all__ = ["COUNTS", "INQUIRIES", "N_OPTIONS", "Inquiry", "Posed"]

N_OPTIONS = 4
COUNTS = ("1", "2", "3", "4", "5", "6", "7")


@dataclass(frozen=True, slots=True)
class Posed:
    """A question before its options are shuffled.

    Attributes:
        question: its wording.
        truth: the right answer.
        shown: wrong answers that the video shows elsewhere: the first distractors.
        others: wrong answers that it does not show.
        spans: frames [start, end) that hold the evidence.
    """

    question: str
    truth: str
    shown: tuple[str, ...]
    others: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A kind of question: how it is posed of a procedure (None where it cannot be)."""

    pose: Callable[[Config, Procedure, Generator], Posed | None]


def _span(seen: Finding | Interval | Phase) -> tuple[int, int]:
    return seen.start_frame, seen.end_frame


def _of_single(
    task: str, labels: Sequence[str], trait: str
) -> Callable[[Config, Procedure, Generator], Posed | None]:
    def pose(config: Config, procedure: Procedure, random: Generator) -> Posed | None:
        del config, random
        if len(procedure.lesions) != 1:
            return None
        (lesion,) = procedure.lesions
        truth = getattr(lesion, trait)
        others = tuple(label for label in labels if label != truth)
        return Posed(question(task), truth, (), others, (_span(lesion),))

    return pose


def _phase(config: Config, procedure: Procedure, random: Generator) -> Posed | None:
    """A window of whole seconds inside the phase, away from where one hue turns into the next."""
    rate, margin = float(config.rate), transition_frames(procedure.n_frames) // 2 + 1
    phase = procedure.phases[procedure.asked_phase]
    first = math.ceil((phase.start_frame + margin) / rate)
    last = math.floor((phase.end_frame - margin) / rate)
    if last - first < 1:
        return None
    longest = max(1, (last - first) // 2)
    length = int(random.integers(min(2, longest), longest + 1))
    start = int(random.integers(first, last - length + 1))
    names = procedure.phase_names
    truth = names[procedure.asked_phase]
    return Posed(
        question("PR", start=clock(start), end=clock(start + length)),
        truth,
        tuple(name for name in names if name != truth),
        tuple(name for name in PHASES if name not in names),
        ((round(start * rate), round((start + length) * rate)),),
    )


def _instrument(config: Config, procedure: Procedure, random: Generator) -> Posed:
    del config, random
    entry = procedure.instruments[procedure.asked_onset]
    used = [other.name for other in procedure.instruments if other is not entry]
    phase = procedure.phase_names[procedure.asked_onset]
    return Posed(
        question("IR", phase=phase),
        entry.name,
        tuple(used),
        tuple(name for name in INSTRUMENTS if name not in (entry.name, *used)),
        (_span(entry),),
    )


def _first_step(config: Config, procedure: Procedure, random: Generator) -> Posed:
    """Two steps of the video, so that the order alone decides."""
    del config
    onsets: dict[str, tuple[int, int]] = {}
    for step in procedure.steps:
        onsets.setdefault(step.name, _span(step))
    two = [tuple(onsets)[spot] for spot in random.permutation(len(onsets))[:2]]
    first, second = sorted(two, key=lambda name: onsets[name])
    return Posed(
        question("RSR", steps=f"{two[0]} or {two[1]}"),
        first,
        (second,),
        (),
        (onsets[first], onsets[second]),
    )


def _number(text: str, truth: int, spans: Sequence[tuple[int, int]], random: Generator) -> Posed:
    """Wrong answers are the numbers next to the truth, which may be the lowest, the second... of the four."""
    lowest = int(random.integers(max(1, truth - N_OPTIONS + 1), truth + 1))
    wrong = tuple(str(count) for count in range(lowest, lowest + N_OPTIONS) if count != truth)
    return Posed(text, str(truth), (), wrong, tuple(spans))


def _times(config: Config, procedure: Procedure, random: Generator) -> Posed:
    del config
    seen = [_span(step) for step in procedure.steps if step.name == procedure.repeated]
    return _number(question("CPR", step=procedure.repeated), len(seen), seen, random)


def _lesion_count(config: Config, procedure: Procedure, random: Generator) -> Posed | None:
    del config
    if not procedure.counted:
        return None
    seen = [_span(lesion) for lesion in procedure.lesions]
    return _number(question("LA"), len(seen), seen, random)


def _largest(config: Config, procedure: Procedure, random: Generator) -> Posed | None:
    del config, random
    if len(procedure.lesions) < 2:
        return None
    largest = max(procedure.lesions, key=lambda lesion: lesion.diameter)
    shown = tuple(lesion.colour for lesion in procedure.lesions if lesion is not largest)
    return Posed(
        question("LLS"),
        largest.colour,
        shown,
        tuple(colour for colour in LESION_COLOURS if colour not in (largest.colour, *shown)),
        tuple(_span(lesion) for lesion in procedure.lesions),
    )


_POSES: Mapping[str, Callable[[Config, Procedure, Generator], Posed | None]] = {
    "Hist": _of_single("Hist", tuple(LESION_COLOURS), "colour"),
    "Size": _of_single("Size", tuple(LESION_SIZES), "size"),
    "Site": _of_single("Site", tuple(PLACES), "place"),
    "RSR": _first_step,
    "PR": _phase,
    "IR": _instrument,
    "LLS": _largest,
    "CPR": _times,
    "LA": _lesion_count,
}

INQUIRIES: Mapping[str, Inquiry] = MappingProxyType({task: Inquiry(_POSES[task]) for task in TASKS})
"""By task name, in the order of `TASKS`."""
