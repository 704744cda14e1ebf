"""What is asked of a split's procedures: nine kinds of question, their evidence exact.

The names are those of MedHorizon's task families (arXiv 2605.06537, Table 5). Distractors come from
the label space of the answer, those that the video shows elsewhere first; never one that is right too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from numpy.random import Generator

from diagnostics.data.items import Evidence, Item, Window, option_letter
from diagnostics.data.minihorizon.plan import (
    LESION_COLOURS,
    PLACES,
    Interval,
    Phase,
    deal,
    stream,
    transition_frames,
)
from diagnostics.data.minihorizon.procedure import (
    INSTRUMENTS,
    LESION_SIZES,
    PHASES,
    Finding,
    Procedure,
)
from diagnostics.data.minihorizon.settings import Config

__all__ = ["INQUIRIES", "Inquiry", "Posed", "ask"]

N_OPTIONS = 4
_LETTERS, _DISTRACTORS = 11, 12
COUNTS = ("1", "2", "3", "4")


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
    """A kind of question: how it is posed of a procedure (None where it cannot be), family and flags."""

    pose: Callable[[Config, Procedure, Generator], Posed | None]
    family: str
    flags: frozenset[str] = frozenset()


def _span(seen: Finding | Interval | Phase) -> tuple[int, int]:
    return seen.start_frame, seen.end_frame


def _of_single(
    question: str, labels: Sequence[str], trait: str
) -> Callable[[Config, Procedure, Generator], Posed | None]:
    def pose(config: Config, procedure: Procedure, random: Generator) -> Posed | None:
        del config, random
        if len(procedure.lesions) != 1:
            return None
        (lesion,) = procedure.lesions
        truth = getattr(lesion, trait)
        return Posed(
            question, truth, (), tuple(label for label in labels if label != truth), (_span(lesion),)
        )

    return pose


def clock(seconds: float) -> str:
    """Whole seconds as `h:mm:ss`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


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
        f"Which phase is under way between {clock(start)} and {clock(start + length)}?",
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
        f"Which instrument is in use when the phase {phase} first begins?",
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
        f"Which of these steps is carried out first: {two[0]} or {two[1]}?",
        first,
        (second,),
        (),
        (onsets[first], onsets[second]),
    )


def _number(question: str, truth: int, spans: Sequence[tuple[int, int]]) -> Posed:
    wrong = tuple(count for count in COUNTS if count != str(truth))
    return Posed(question, str(truth), (), wrong, tuple(spans))


def _times(config: Config, procedure: Procedure, random: Generator) -> Posed:
    del config, random
    seen = [_span(step) for step in procedure.steps if step.name == procedure.repeated]
    question = f"How many separate times is the step {procedure.repeated} carried out?"
    return _number(question, len(seen), seen)


def _lesion_count(config: Config, procedure: Procedure, random: Generator) -> Posed | None:
    del config, random
    if not procedure.counted:
        return None
    seen = [_span(lesion) for lesion in procedure.lesions]
    return _number("How many lesions are seen in the whole examination?", len(seen), seen)


def _largest(config: Config, procedure: Procedure, random: Generator) -> Posed | None:
    del config, random
    if len(procedure.lesions) < 2:
        return None
    largest = max(procedure.lesions, key=lambda lesion: lesion.diameter)
    shown = tuple(lesion.colour for lesion in procedure.lesions if lesion is not largest)
    return Posed(
        "What is the colour of the largest lesion?",
        largest.colour,
        shown,
        tuple(colour for colour in LESION_COLOURS if colour not in (largest.colour, *shown)),
        tuple(_span(lesion) for lesion in procedure.lesions),
    )


_FREE, _ORDERED = frozenset({"order_free"}), frozenset({"order_dependent"})

INQUIRIES: Mapping[str, Inquiry] = MappingProxyType(
    {
        "Hist": Inquiry(
            _of_single("What colour is the lesion?", tuple(LESION_COLOURS), "colour"),
            "attribute",
            _FREE,
        ),
        "Size": Inquiry(
            _of_single("How large is the lesion?", tuple(LESION_SIZES), "size"),
            "attribute",
            _FREE,
        ),
        "Site": Inquiry(
            _of_single("Where is the lesion?", tuple(PLACES), "place"),
            "attribute",
            _FREE,
        ),
        "RSR": Inquiry(_first_step, "temporal", _ORDERED),
        "PR": Inquiry(_phase, "temporal", frozenset({"time_addressed"})),
        "IR": Inquiry(_instrument, "retrieval", _FREE),
        "LLS": Inquiry(_largest, "retrieval", _FREE),
        "CPR": Inquiry(_times, "counting", _FREE),
        "LA": Inquiry(_lesion_count, "counting", _FREE),
    }
)
"""By task name, in the order in which a small model learns them."""


def ask(config: Config, procedures: Sequence[Procedure], root: Path) -> list[Item]:
    """The questions on all procedures, video by video.

    Each kind that a procedure allows is posed; where that makes more than `questions`, kinds take turns.
    Right letters are dealt so that they are balanced, within one, in each kind.
    """
    posed: list[tuple[Procedure, str, Posed]] = []
    for procedure in procedures:
        one = config.of_video(procedure.index)
        tasks = list(INQUIRIES)
        turn = procedure.index % len(tasks)
        on_this: list[tuple[Procedure, str, Posed]] = []
        for task in tasks[turn:] + tasks[:turn]:
            random = stream(config, _DISTRACTORS, procedure.index, tasks.index(task))
            question = INQUIRIES[task].pose(one, procedure, random)
            if question is not None and len(on_this) < config.most_questions:
                on_this.append((procedure, task, question))
        posed.extend(sorted(on_this, key=lambda entry: tasks.index(entry[1])))
    places = _deal_places(config, posed)
    return [_item(config, *entry, places[spot], root) for spot, entry in enumerate(posed)]


def _deal_places(config: Config, posed: Sequence[tuple[Procedure, str, Posed]]) -> dict[int, int]:
    """Place of the right option of each question: shuffled decks of the places, kind by kind."""
    dealt: dict[int, int] = {}
    for number, task in enumerate(INQUIRIES):
        spots = [spot for spot, entry in enumerate(posed) if entry[1] == task]
        random = stream(config, _LETTERS, number)
        places = range(min(N_OPTIONS, 2 if task == "RSR" else N_OPTIONS))
        dealt |= zip(spots, deal(places, len(spots), random), strict=True)
    return dealt


def _item(config: Config, procedure: Procedure, task: str, posed: Posed, place: int, root: Path) -> Item:
    random = stream(config, _DISTRACTORS, procedure.index, 100 + list(INQUIRIES).index(task))
    shown, others = (
        [labels[spot] for spot in random.permutation(len(labels))] for labels in (posed.shown, posed.others)
    )
    wrong = (shown + others)[: N_OPTIONS - 1]
    options = [wrong[spot] for spot in random.permutation(len(wrong))]
    options.insert(place, posed.truth)
    one = config.of_video(procedure.index)
    rate = float(config.rate)
    windows = tuple(Window(start / rate, end / rate, start, end) for start, end in sorted(posed.spans))
    inquiry = INQUIRIES[task]
    return Item(
        id=f"{procedure.name}/{task}",
        video=(root / f"{procedure.name}.mp4").resolve(),
        video_id=f"{procedure.name}.mp4",
        question=posed.question,
        options=tuple(options),
        answer=option_letter(place),
        task=task,
        task_family=inquiry.family,
        evidence=Evidence(windows, "exact"),
        flags=inquiry.flags,
        metadata={
            "lesions": [asdict(lesion) for lesion in procedure.lesions],
            "evidence_ratio": sum(end - start for start, end in posed.spans) / procedure.n_frames,
            "fps": rate,
            "n_frames": one.n_frames,
            "seed": config.seed,
        },
    )
