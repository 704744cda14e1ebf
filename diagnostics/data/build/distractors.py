"""Wrong options: of the answer's own label space, near in time or easily confused first.

What the evidence supports is never offered. A wrong option must not betray the right one by its place
among the options either: of numbers and ordered labels the options are neighbours, and whether the
answer is the lowest, second... of them is balanced, so that the middle is no better guess; where it can
be, no number is offered beyond those that are an answer in the task, since it would never be right;
labels of a track are taken from before and after the window in balanced numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from diagnostics.data.build.audit import Audit
from diagnostics.data.build.candidates import Candidate, shown_value
from diagnostics.data.build.filters import judge, normal_text
from diagnostics.data.build.findings import Finding, stream
from diagnostics.data.build.reasons import LabelSpaceTooSmallError
from diagnostics.data.build.settings import Config
from diagnostics.data.build.spaces import Labels, Numbers
from diagnostics.data.build.support import right_labels

__all__ = ["Balance", "add_distractors"]


@dataclass
class Balance:
    """Keeps the answer's place among sorted options even.

    Attributes:
        within: uses of each place in one option set: a reader who sees the set must not know the place.
        overall: uses of each place in a task.
    """

    within: dict[tuple[str, ...], Counter[int]] = field(default_factory=dict)
    overall: dict[str, Counter[int]] = field(default_factory=dict)

    def choose(
        self, task: str, sets: dict[int, tuple[str, ...]], random: np.random.Generator
    ) -> tuple[str, ...]:
        """One of the possible option sets, by the place the answer has in each, and note the choice.

        The set in which this place is furthest behind the others is taken; of equals the one whose
        place was used least in the task; of equals a drawn one.
        """
        overall = self.overall.setdefault(task, Counter())
        draw = {place: random.random() for place in sets}

        def behind(place: int) -> tuple[int, int, float]:
            uses = self.within.get((task, *sets[place]), Counter())
            return uses[place] - max(uses.values(), default=0), overall[place], draw[place]

        place = min(sets, key=behind)
        self.within.setdefault((task, *sets[place]), Counter())[place] += 1
        overall[place] += 1
        return sets[place]


def add_distractors(candidates: Iterable[Candidate], config: Config, audit: Audit) -> list[Candidate]:
    """Candidates with their wrong options; those whose label space is too small are dropped."""
    balance = Balance()
    candidates = list(candidates)
    ranges = _ranges(candidates)

    def choose(candidate: Candidate) -> Candidate:
        finding = candidate.finding
        random = stream(config.seed, "options", candidate.id)
        if finding.fixed:
            chosen: Sequence[str] = [config.shown(label) for label in finding.fixed]
        elif isinstance(finding.space, Numbers):
            chosen = _numbers(candidate, finding.space, ranges[candidate.task], config, balance, random)
        elif finding.space.ordered:
            chosen = _neighbours(candidate, finding.space.labels, config, balance, random)
        else:
            chosen = _labels(candidate, finding.space, config, balance, random)
        return replace(candidate, wrong=tuple(chosen))

    return judge("distractors", candidates, choose, audit)


def _unfair(finding: Finding, config: Config) -> set[str]:
    """Options, as written, that the evidence supports or that are never offered."""
    labels = {*right_labels(finding, config), *finding.others, *config.ignored}
    return {normal_text(shown_value(finding, label, config)) for label in labels}


def _too_small(candidate: Candidate, left: int, config: Config) -> LabelSpaceTooSmallError:
    return LabelSpaceTooSmallError(
        f"{config.options - 1} wrong options are wanted, {left} labels could be one.",
        remedy="Declare the whole label space, or ask for fewer options.",
        item_id=candidate.id,
    )


# -- names


def _labels(
    candidate: Candidate, space: Labels, config: Config, balance: Balance, random: np.random.Generator
) -> list[str]:
    finding, wanted = candidate.finding, config.options - 1
    unfair = _unfair(finding, config)
    known = set(space.labels)

    def fair(labels: Iterable[str]) -> list[str]:
        shown = {normal_text(config.shown(label)): config.shown(label) for label in labels if label in known}
        return [text for key, text in shown.items() if key not in unfair]

    before, after, near = fair(finding.before), fair(finding.after), fair(finding.near)
    rest = fair(space.labels)
    rest = [rest[place] for place in random.permutation(len(rest))]
    if before or after:
        near = _both_sides(candidate, before, after, wanted, balance, random) + before + after
    chosen = list(dict.fromkeys([*near, *rest]))
    if len(chosen) < wanted:
        raise _too_small(candidate, len(chosen), config)
    return chosen[:wanted]


def _both_sides(
    candidate: Candidate,
    before: list[str],
    after: list[str],
    wanted: int,
    balance: Balance,
    random: np.random.Generator,
) -> list[str]:
    """The nearest of both sides, so many of each that the answer's place in time is balanced."""
    most = min(wanted, len(before) + len(after))
    sets = {
        place: tuple(before[:place] + after[: most - place])
        for place in range(most + 1)
        if place <= len(before) and most - place <= len(after)
    }
    whole = {place: tuple(sorted((*labels, candidate.answer))) for place, labels in sets.items()}
    chosen = balance.choose(candidate.task, whole, random)
    return next(list(labels) for place, labels in sets.items() if whole[place] == chosen)


# -- numbers and ordered labels


def _ranges(candidates: Iterable[Candidate]) -> dict[str, tuple[float, float]]:
    """The lowest and the highest number that is an answer, by task."""
    answers: dict[str, list[float]] = {}
    for candidate in candidates:
        if isinstance(candidate.finding.space, Numbers):
            answers.setdefault(candidate.task, []).append(float(candidate.finding.right[0]))
    return {task: (min(values), max(values)) for task, values in answers.items()}


def _numbers(
    candidate: Candidate,
    space: Numbers,
    answers: tuple[float, float],
    config: Config,
    balance: Balance,
    random: np.random.Generator,
) -> list[str]:
    value = float(candidate.finding.right[0])
    below = min(config.options - 1, int(np.floor((value - space.lowest) / space.step + 1e-9)))
    rungs = [value + step * space.step for step in range(-below, config.options)]
    among = [rung for rung in rungs if answers[0] - 1e-9 <= rung <= answers[1] + 1e-9]
    if len(among) >= config.options:
        rungs = among
    return _neighbours(candidate, [space.shown(rung) for rung in rungs], config, balance, random)


def _neighbours(
    candidate: Candidate, ladder: Sequence[str], config: Config, balance: Balance, random: np.random.Generator
) -> list[str]:
    """Consecutive values of the ladder around the answer, without those the evidence supports too."""
    size, unfair = config.options, _unfair(candidate.finding, config)
    shown = [config.shown(label) for label in ladder]
    values = [text for text in shown if text == candidate.answer or normal_text(text) not in unfair]
    at = values.index(candidate.answer)
    sets = {
        place: tuple(values[at - place : at - place + size])
        for place in range(size)
        if at - place >= 0 and at - place + size <= len(values)
    }
    if not sets:
        raise _too_small(candidate, len(values) - 1, config)
    return [text for text in balance.choose(candidate.task, sets, random) if text != candidate.answer]
