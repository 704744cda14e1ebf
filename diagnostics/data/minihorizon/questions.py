"""From plans to items: four-way questions about the lesion, their evidence exact by construction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from diagnostics.data.items import Evidence, Item, Window, option_letter
from diagnostics.data.minihorizon.plan import (
    LESION_COLOURS,
    PLACES,
    QUARTERS,
    SIZES,
    TISSUE_HUES,
    Lesion,
    Plan,
    deal,
    stream,
)
from diagnostics.data.minihorizon.procedure import Procedure
from diagnostics.data.minihorizon.settings import Config

__all__ = ["KINDS", "Kind", "make_items", "video_name"]

_N_OPTIONS = 4
_LETTERS, _DISTRACTORS = 11, 12


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question: its wording, its label space, and where the truth stands."""

    question: str
    labels: tuple[str, ...]
    truth: Callable[[Lesion], str]
    family: str
    flags: frozenset[str]


_ATTRIBUTE = frozenset({"order_free"})

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "lesion_colour": Kind(
            "A lesion appears once in this procedure. What colour is it?",
            tuple(LESION_COLOURS),
            lambda lesion: lesion.colour,
            "attribute",
            _ATTRIBUTE,
        ),
        "lesion_place": Kind(
            "A lesion appears once in this procedure. In which part of the picture is it?",
            tuple(PLACES),
            lambda lesion: lesion.place,
            "attribute",
            _ATTRIBUTE,
        ),
        "lesion_size": Kind(
            "A lesion appears once in this procedure. How wide is it, compared with the picture?",
            tuple(SIZES),
            lambda lesion: lesion.size,
            "attribute",
            _ATTRIBUTE,
        ),
        "lesion_phase": Kind(
            "A lesion appears once in this procedure. What colour is the tissue around it?",
            tuple(TISSUE_HUES),
            lambda lesion: lesion.hue,
            "context",
            _ATTRIBUTE,
        ),
        "lesion_quarter": Kind(
            "A lesion appears once in this procedure. In which quarter of the video is it seen?",
            QUARTERS,
            lambda lesion: lesion.quarter,
            "temporal",
            frozenset({"order_dependent"}),
        ),
    }
)
"""By task name. The quarter is the one answer that changes when the frames are shown in another order."""


def video_name(plan: Plan | Procedure) -> str:
    """The video's file name, which is also its path below the root."""
    return f"{plan.name}.mp4"


def make_items(config: Config, plans: Sequence[Plan], root: Path) -> list[Item]:
    """The questions on all videos, video by video.

    Kinds take turns, so that each is asked equally often, within one. Right letters are dealt so that
    they are balanced, within one, in each kind and over all; distractors are drawn from the kind's
    label space.
    """
    tasks = list(KINDS)
    asked = [
        (plan, tasks[(plan.index * config.most_questions + turn) % len(tasks)])
        for plan in plans
        for turn in range(config.most_questions)
    ]
    letters = _deal_letters(config, asked)
    return [_item(config, plan, task, letters[plan.index, task], root) for plan, task in asked]


def _deal_letters(config: Config, asked: Sequence[tuple[Plan, str]]) -> dict[tuple[int, str], int]:
    """Place of the right option for each (video, task).

    Going through the kinds one after the other, the videos of each in random order, and giving out
    the four letters in a fixed cycle, balances every kind and the whole at once.
    """
    random = stream(config, _LETTERS)
    cycle = deal(range(_N_OPTIONS), _N_OPTIONS, random)
    dealt: dict[tuple[int, str], int] = {}
    for task in KINDS:
        videos = [plan.index for plan, name in asked if name == task]
        for video in random.permutation(videos) if videos else ():
            dealt[int(video), task] = cycle[len(dealt) % _N_OPTIONS]
    return dealt


def _item(config: Config, plan: Plan, task: str, place: int, root: Path) -> Item:
    kind, lesion = KINDS[task], plan.lesion
    truth = kind.truth(lesion)
    random = stream(config, _DISTRACTORS, plan.index, list(KINDS).index(task))
    others = [label for label in kind.labels if label != truth]
    options = [others[choice] for choice in random.permutation(len(others))][: _N_OPTIONS - 1]
    options.insert(place, truth)
    rate = float(config.rate)
    window = Window(lesion.start_frame / rate, lesion.end_frame / rate, lesion.start_frame, lesion.end_frame)
    return Item(
        id=f"{plan.name}/{task}",
        video=(root / video_name(plan)).resolve(),
        video_id=video_name(plan),
        question=kind.question,
        options=tuple(options),
        answer=option_letter(place),
        task=task,
        task_family=kind.family,
        evidence=Evidence((window,), "exact"),
        flags=kind.flags,
        metadata={
            "lesion": {name: getattr(lesion, name) for name in ("colour", "size", "place", "quarter", "hue")},
            "phases": [[phase.hue, phase.start_frame, phase.end_frame] for phase in plan.phases],
            "evidence_ratio": config.n_evidence_frames / config.n_frames,
            "seed": config.seed,
        },
    )
