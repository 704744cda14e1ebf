"""Evidence as a dose, removed, exchanged, and among more frames than the model was trained on.

Planted: a lesion, seen in one stretch of the video and nowhere else. All that a question about it can be
answered from is in the units of that stretch, which are put into an input of fixed length, or kept out of it,
by the code of `+exp=evidence_swap`. Tasks: those about one lesion (colour, place, size), which the tiny model
has learnt and whose evidence nothing else in the video repeats. (A phase goes on outside the window that is
asked about, and the order of two steps needs both.) The numbers of the other tasks with local evidence stand
in the details.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from diagnostics.data.items import Item
from diagnostics.errors import NoEvidenceError, NoFoilError
from diagnostics.experiments.evidence_swap import foil_of
from diagnostics.validation.bench import UNIT, Asked, Bench, share
from diagnostics.validation.checks.evidence import (
    BUDGET,
    finding_items,
    heads_text,
    named_heads,
    per_head_log_lift,
)
from diagnostics.validation.checks.language import every_order
from diagnostics.validation.rows import Row
from diagnostics.video.sampling import oracle, select_frames
from diagnostics.video.selection import Selection
from diagnostics.video.swap import (
    evidence_units,
    near,
    place_units,
    put_in_place_of,
    stretched,
    without_evidence,
)

__all__ = ["LESION_TASKS", "dosed", "rows"]

LESION_TASKS = ("Hist", "Site", "Size")
_BUDGET = 32
"""Frames: 16 units, the most that the model was trained on."""
_DOSES = (0, 1, 2, 4)
_ORACLE_MARGIN = 0.05
_MARGIN = 0.1
_FOIL_FLOOR = 0.8
_NEEDLE_VIDEOS, _NEEDLE_GAIN = 12, 0.3
_OTHER_VIDEOS = 60
_LONGER, _LONG_SECONDS, _LONG_VIDEOS = 128, 64.0, 60
_LIFT_BOUND = -math.log(1.5)


def rows(bench: Bench) -> Iterable[Row]:
    """Dose, foil, removal; a needle; past the trained length."""
    items = bench.items(*LESION_TASKS)
    asked = {dose: _doses(bench, items, dose) for dose in _DOSES}
    yield from _rising(bench, asked)
    yield _removed(bench, asked[0])
    yield _foil(bench, asked[0])
    yield _decoy(bench, asked)
    yield from _needle(bench)
    yield from _longer(bench)


def dosed(bench: Bench, item: Item, budget: int, dose: int, foil: Item | None = None) -> Selection:
    """Evenly spaced frames with the evidence taken out, then so many units of it put in.

    Fewer where the evidence has no more; nearest in time to where they come from.

    Args:
        foil: the item whose evidence is put in where this one's would stand; this one's own by default.
    """
    index = bench.reader.index(item.video)
    removed = without_evidence(bench.uniform(item, budget), item, index)
    if not dose:
        return removed
    units = evidence_units(item, index, dose, UNIT)
    if foil is None:
        return place_units(removed, units, near(removed, units, UNIT), f"{len(units)} units of evidence")
    others = evidence_units(foil, bench.reader.index(foil.video), dose, UNIT)
    return put_in_place_of(removed, others, units, UNIT, foil.id)[0]


def _doses(bench: Bench, items: Sequence[Item], dose: int) -> list[Asked]:
    return [Asked(item, dosed(bench, item, _BUDGET, dose)) for item in items]


def _oracle(bench: Bench, item: Item, budget: int) -> Asked:
    """Nothing but evidence, in the slots and at the times of evenly spaced frames."""
    rule = oracle.Config(budget=budget, short="fewer")
    chosen = select_frames(oracle, rule, bench.reader.index(item.video), item)
    return Asked(item, stretched(chosen, bench.uniform(item, budget)))


def _rising(bench: Bench, asked: Mapping[int, Sequence[Asked]]) -> Iterator[Row]:
    loaded, items = bench.model(), bench.items(*LESION_TASKS)
    bench.say("swap: doses of evidence")
    right = {dose: bench.right(loaded, some) for dose, some in asked.items()}
    perfect = [_oracle(bench, item, _BUDGET) for item in items]
    best = bench.right(loaded, perfect)
    found = {f"accuracy_{dose}_units": float(values.mean()) for dose, values in right.items()}
    details = bench.details(
        asked[_DOSES[-1]],
        "uniform, evidence swapped in",
        tasks=LESION_TASKS,
        accuracy_oracle=float(best.mean()),
    )
    details = {**details, **found, **_other_tasks(bench)}
    yield Row.above(
        f"accuracy, lesion tasks, {_BUDGET} frames: 1 unit of evidence minus none",
        0.0,
        share(right[1] - right[0], asked[1]),
        why="the same items",
        details=details,
    )
    yield Row.equivalent(
        f"accuracy, lesion tasks, {_BUDGET} frames: {_DOSES[-1]} units of evidence minus 1",
        "0: one unit shows all that is asked about",
        0.0,
        share(right[_DOSES[-1]] - right[1], asked[1], confidence=0.9),
        margin=_ORACLE_MARGIN,
        why="5 points, as for the oracle",
        details=details,
    )
    yield Row.below(
        f"accuracy, lesion tasks, {_BUDGET} frames: oracle minus {_DOSES[-1]} units of evidence",
        _ORACLE_MARGIN,
        share(best - right[_DOSES[-1]], perfect),
        planted="0: a dose that holds all of the evidence",
        why="5 points: stated in the issue",
        details=details,
    )


def _other_tasks(bench: Bench) -> Mapping[str, float]:
    """Accuracy without evidence, with most of it, and with the oracle, of the other tasks, for the reader."""
    told = {}
    for task in sorted({item.task for item in bench.items() if item.local_evidence} - set(LESION_TASKS)):
        bench.say(f"swap: doses of {task}")
        items = [item for item in bench.items(task, videos=_OTHER_VIDEOS) if item.local_evidence]
        shown = {f"{dose}_units": _doses(bench, items, dose) for dose in (0, _DOSES[-1])}
        shown["oracle"] = [_oracle(bench, item, _BUDGET) for item in items]
        for name, some in shown.items():
            told[f"{task}_{name}"] = float(bench.right(bench.model(), some).mean())
    return told


def _removed(bench: Bench, removed: Sequence[Asked]) -> Row:
    """All evidence taken out against no video at all: each question with its options in every order, so that
    a taste for a letter, which the two prompts need not share, cancels."""
    bench.say("swap: evidence removed, and no video")
    without = every_order(bench, removed).mean(axis=0)
    text = every_order(bench, [Asked(one.item, None) for one in removed]).mean(axis=0)
    chance = np.mean([1 / len(one.item.options) for one in removed])
    return Row.equivalent(
        f"accuracy, lesion tasks, {_BUDGET} frames: evidence removed minus text only",
        "0: nothing else tells",
        0.0,
        share(without - text, removed, confidence=0.9),
        margin=_MARGIN,
        why="10 points, as in +exp=evidence_swap; 270 questions in four orders spread by 2",
        details=bench.details(
            removed,
            "uniform, evidence removed",
            tasks=LESION_TASKS,
            accuracy_removed=float(without.mean()),
            accuracy_text=float(text.mean()),
            chance=float(chance),
        ),
    )


def _foil(bench: Bench, removed: Sequence[Asked]) -> Row:
    """The evidence of another item, whose answer is another of this one's options, in its place."""
    bench.say("swap: foils")
    items = [one.item for one in removed]
    asked, places = [], []
    for item in items:
        try:
            foil = foil_of(item, items, seed=0)
        except NoFoilError:
            continue
        asked.append(Asked(item, dosed(bench, item, _BUDGET, _DOSES[-1], foil=foil.item)))
        places.append(item.letters.index(foil.letter))
    chosen = bench.chosen(bench.model(), asked)
    taken = (chosen == np.array(places)).astype(float)
    by_task = {
        f"taken_{task}": float(
            np.mean([t for t, one in zip(taken, asked, strict=True) if one.item.task == task])
        )
        for task in LESION_TASKS
    }
    return Row.at_least(
        f"foil's evidence in place of the item's, lesion tasks, {_BUDGET} frames: share of its option",
        _FOIL_FLOOR,
        share(taken, asked),
        why="stated in the issue",
        details=bench.details(
            asked,
            "uniform, foil swapped in",
            tasks=LESION_TASKS,
            without_foil=len(items) - len(asked),
            **by_task,
        ),
    )


def _decoy(bench: Bench, asked: Mapping[int, Sequence[Asked]]) -> Row:
    """Attention added without effect: the same answers at every dose."""
    bench.say("swap: doses, decoy@1")
    every = [one for some in asked.values() for one in some]
    same = bench.chosen(bench.model("decoy@1"), every) == bench.chosen(bench.model(), every)
    return Row.exact(
        "decoy@1: answers at every dose as the trained model's",
        "every one",
        1.0,
        float(same.mean()),
        tolerance=0.0,
        why="by construction: the added head's output is zero",
        n=len(every),
        details=bench.details(every, "uniform, evidence swapped in", tasks=LESION_TASKS, doses=_DOSES),
    )


def _needle(bench: Bench) -> Iterator[Row]:
    """Long videos of which a few frames hold the lesion: evenly spaced frames against oracle ones."""
    with bench.beside(split="needle", n_videos=_NEEDLE_VIDEOS) as long:
        items = [item for item in long.items() if item.local_evidence]
        held, left_out = [], 0
        for item in items:
            try:
                held.append((Asked(item, long.uniform(item, _BUDGET)), _oracle(long, item, _BUDGET)))
            except NoEvidenceError:
                left_out += 1
        uniform, best = [one for one, _ in held], [one for _, one in held]
        seen = {
            name: long.right(bench.model(), some) for name, some in (("uniform", uniform), ("oracle", best))
        }
        lesion = np.array([one.item.task in LESION_TASKS for one in uniform])
        accuracies = {
            f"accuracy_{name}{what}": float(values[some].mean())
            for name, values in seen.items()
            for what, some in (("", slice(None)), ("_lesion_tasks", lesion))
        }
        yield Row.at_least(
            f"accuracy on needle, {_BUDGET} frames: oracle minus uniform",
            _NEEDLE_GAIN,
            share(seen["oracle"] - seen["uniform"], uniform),
            why="stated in the issue",
            details=long.details(
                uniform,
                "oracle and uniform",
                tasks=sorted({i.task for i in items}),
                left_out=left_out,
                **accuracies,
            ),
        )


def _longer(bench: Bench) -> Iterator[Row]:
    """One unit of evidence among 16 units, and among four times as many as the model was trained on.

    Rows: the options', and heads: those whose option rows look at the evidence most, on other videos and at
    the trained length. That is where this model reads a lesion off: each option is held against it.
    """
    loaded = bench.model()
    taken = named_heads(bench, loaded, role="options")
    with bench.beside(seconds=_LONG_SECONDS, n_videos=_LONG_VIDEOS) as long:
        items = long.items(*LESION_TASKS)
        asked = {
            budget: [Asked(item, dosed(long, item, budget, 1)) for item in items]
            for budget in (_BUDGET, _LONGER)
        }
        bench.say("swap: past the trained length")
        right = {budget: long.right(loaded, some) for budget, some in asked.items()}
        watched = [place for place, item in enumerate(items) if item.task == LESION_TASKS[0]]
        lifts: dict[int, list[float]] = {budget: [] for budget in asked}
        for place in watched:
            bench.say(f"swap: {items[place].id}")
            for budget, some in asked.items():
                one = some[place]
                lift = per_head_log_lift(long, loaded, one.item, one.selection, role="options")
                lifts[budget].append(float(lift[taken].mean()))
        details = long.details(
            asked[_LONGER],
            "uniform, 1 unit of evidence swapped in",
            tasks=LESION_TASKS,
            rows="options",
            heads=heads_text(taken),
            heads_found_on=f"{len(finding_items(bench))} other videos, {BUDGET} frames",
            **{f"accuracy_{budget}_frames": float(values.mean()) for budget, values in right.items()},
            **{f"log_lift_{budget}_frames": float(np.mean(values)) for budget, values in lifts.items()},
        )
    yield Row.below(
        f"accuracy, lesion tasks, one unit of evidence: {_LONGER} frames minus {_BUDGET}",
        0.0,
        share(right[_LONGER] - right[_BUDGET], asked[_LONGER]),
        planted="below 0: four times the trained length",
        why="the same evidence, more of everything else",
        details=details,
    )
    yield Row.above(
        f"evidence_log_lift, one unit of evidence: {_LONGER} frames minus {_BUDGET}",
        _LIFT_BOUND,
        share(np.subtract(lifts[_LONGER], lifts[_BUDGET]), [asked[_LONGER][place] for place in watched]),
        planted="not lower by a factor of 1.5: attention stays on the evidence",
        why="a factor of 1.5 on the evidence's odds, of which there are about 30",
        details=details,
    )
