"""What text alone does: told answers are not looked for, options may stand in any order, words tell
nothing.

The look-up is paired with the question it is made of: the same video, the same options, and before the
question either nothing or "It is blue.". Without a video, and with a blank one, accuracy has to *equal*
chance within a margin; each question is asked with its options in several orders, so that a taste for a
letter cancels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pandas as pd
from jaxtyping import Float

import probes
from diagnostics.data.items import Item
from diagnostics.data.minihorizon.files import content
from diagnostics.testbed.measure import FLOORS
from diagnostics.validation.bench import ASKING, Asked, Bench, Observed, share
from diagnostics.validation.checks.evidence import BUDGET, measured_items
from diagnostics.validation.rows import Row
from diagnostics.video.perturb import blank

__all__ = ["every_order", "reordered", "rows", "standard_error"]

_BUDGET = 16
_WRITTEN, _MOST = 2160, 1200
"""Procedures whose questions are asked without any video (none is rendered), and the most of a task."""
_BLANK_VIDEOS = 90

_TEXT_MARGIN, _BLANK_MARGIN, _ORDER_MARGIN = 0.05, 0.15, 0.05

_ORDER_ERROR = 0.017
"""Standard error at which a true change of 0 passes the two tests nine times in ten: the margin over 1.64
for a test at 5%, and 1.28 for the power."""
_MOST_SETS = 8


def rows(bench: Bench) -> Iterable[Row]:
    """Look-up, order of options, no video, blank video."""
    yield _look_up(bench)
    yield from _options(bench)
    yield from _no_video(bench)
    yield from _blank_video(bench)


def reordered(item: Item, order: Sequence[int]) -> Item:
    """The item with its options in another order, the right letter moved along."""
    assert item.answer is not None
    options = tuple(item.options[place] for place in order)
    return replace(
        item, options=options, answer=item.letters[list(order).index(item.letters.index(item.answer))]
    )


def _turned(asked: Asked, place: int) -> Asked:
    """The question with every option at another letter: turned by one, two or three places in turn."""
    count = len(asked.item.options)
    turn = 1 + place % (count - 1)
    return Asked(reordered(asked.item, [(spot + turn) % count for spot in range(count)]), asked.selection)


def every_order(bench: Bench, asked: Sequence[Asked]) -> Float[np.ndarray, "order item"]:
    """Whether each question is answered rightly, its right option at the letter written and at each other."""
    loaded = bench.model()
    count = {len(one.item.options) for one in asked}
    if len(count) > 1:
        raise ValueError(f"questions with {sorted(count)} options in one call")
    found = [bench.right(loaded, asked)]
    for turn in range(count.pop() - 1):
        found.append(bench.right(loaded, [_turned(one, turn) for one in asked]))
    return np.stack(found)


def _look_up(bench: Bench) -> Row:
    """Attention of all rows that ask, with the answer told in the text and without.

    From the question's first token to the prompt's last, the same tokens in both prompts: which of them
    reads the answer off is the model's affair (the parts' differences stand in the details).
    """
    loaded = bench.model()
    asked = [Asked(item, bench.uniform(item, BUDGET)) for item in measured_items(bench)]
    mass: dict[str, list[list[float]]] = {ASKING: [], "question": [], "options": [], "last": []}
    told_right = []
    for one in asked:
        bench.say(f"language: {one.item.id}")
        assert one.selection is not None
        frames, question = bench.frames(one.item, one.selection), one.item.question
        told = replace(one.item, question=f"It is {one.item.options[one.right]}. {question}")
        pair = [
            bench.observe(loaded, item, frames, roles=tuple(mass), question=question)
            for item in (one.item, told)
        ]
        for role, values in mass.items():
            values.append([_visual_mass(seen, role) for seen in pair])
        told_right.append(float(np.argmax(pair[1].reply.option_logits) == one.right))
    difference = {role: np.diff(np.array(values), axis=1)[:, 0] for role, values in mass.items()}
    without, with_answer = np.mean(mass[ASKING], axis=0).tolist()
    parts = {f"difference_{role}": float(np.mean(difference[role])) for role in mass if role != ASKING}
    return Row.below(
        "visual_mass of the rows that ask: answer told minus asked of the video",
        0.0,
        share(difference[ASKING], asked),
        planted="below 0: the answer stands in the text",
        why="paired: the same video, question and options",
        details=bench.details(
            asked,
            "uniform",
            heads="all",
            mass_asked=without,
            mass_told=with_answer,
            accuracy_told=float(np.mean(told_right)),
            **parts,
        ),
    )


def _visual_mass(seen: Observed, role: str) -> float:
    """Mean over all layers and heads."""
    unit, rest = seen.captured.unit_mass(role), seen.captured.rest_mass(role)
    return float(probes.concentration(unit, rest_mass=rest).visual_mass.mean())


def _options(bench: Bench) -> Iterator[Row]:
    """Every option at every other letter: the accuracy is that of the order written.

    Other videos of the same split are added, set by set, until the standard error lets the test tell equal
    from unequal. That looks at how far answers spread and never at their mean, so that it cannot favour a
    verdict (Stein, Ann. Math. Stat. 16 (1945)).
    """
    asked: dict[str, list[Asked]] = {task: [] for task in FLOORS}
    before: dict[str, list[float]] = {task: [] for task in FLOORS}
    change: dict[str, list[float]] = {task: [] for task in FLOORS}
    for seed in range(bench.data.seed, bench.data.seed + _MOST_SETS):
        left = [task for task in FLOORS if standard_error(change[task], asked[task]) > _ORDER_ERROR]
        if not left:
            break
        with bench.beside(seed=seed) if seed != bench.data.seed else nullcontext(bench) as videos:
            for task in left:
                bench.say(f"language: options of {task}, videos of seed {seed}")
                new = [Asked(item, videos.enriched(item, _BUDGET)) for item in videos.items(task)]
                written, *turned = every_order(videos, new)
                asked[task] += new
                before[task] += written.tolist()
                change[task] += (np.mean(turned, axis=0) - written).tolist()
    for task in FLOORS:
        yield Row.equivalent(
            f"accuracy, {task}, options in other orders: change",
            "0",
            0.0,
            share(change[task], asked[task], confidence=0.9),
            margin=_ORDER_MARGIN,
            why="5 points: an answer in twenty; sets of videos added until the standard error is 1.7",
            details=bench.details(
                asked[task],
                "uniform_plus_evidence",
                orders=len(asked[task][0].item.options) - 1,
                accuracy=float(np.mean(before[task])),
            ),
        )


def standard_error(values: Sequence[float], asked: Sequence[Asked]) -> float:
    """Standard error of the mean over items, their videos being drawn; infinite where there is none yet."""
    if not values:
        return math.inf
    films = [one.item.video_id for one in asked]
    residual = pd.Series(np.array(values) - np.mean(values)).groupby(films).sum().to_numpy()
    return float(np.linalg.norm(residual) / len(values))


def _above_chance(bench: Bench, asked: Sequence[Asked]) -> np.ndarray:
    """Of each question how often it is answered rightly, minus chance: as written, and with options
    turned."""
    both = [bench.right(bench.model(), asked)]
    both.append(bench.right(bench.model(), [_turned(one, place) for place, one in enumerate(asked)]))
    return np.mean(both, axis=0) - 1 / len(asked[0].item.options)


def _no_video(bench: Bench) -> Iterator[Row]:
    """Every task, on questions made as the split's own are, of as many procedures as the test needs."""
    written = replace(bench.data, n_videos=max(_WRITTEN, bench.data.videos))
    items = content(written, bench.items()[0].video.parent)[1]
    tasks = dict.fromkeys(item.task for item in bench.items())
    for task in tasks:
        bench.say(f"language: {task} without a video")
        asked = [Asked(item, None) for item in items if item.task == task][:_MOST]
        yield Row.equivalent(
            f"accuracy, {task}, no video: above chance",
            "0: text tells nothing",
            0.0,
            share(_above_chance(bench, asked), asked, confidence=0.9),
            margin=_TEXT_MARGIN,
            why="5 points: a rule on words worth knowing gains more; 1,000 questions tell 5 from 0",
            details=bench.details(
                asked,
                "none",
                written_videos=written.videos,
                chance=1 / len(asked[0].item.options),
                orders=2,
            ),
        )


def _blank_video(bench: Bench) -> Iterator[Row]:
    """The same with 16 grey frames, on the split's own questions of the tasks that have floors."""
    for task in FLOORS:
        bench.say(f"language: {task} with a blank video")
        items = bench.items(task, videos=_BLANK_VIDEOS)
        asked = [Asked(item, blank(bench.enriched(item, _BUDGET))) for item in items]
        yield Row.equivalent(
            f"accuracy, {task}, blank video: above chance",
            "0: nothing is shown",
            0.0,
            share(_above_chance(bench, asked), asked, confidence=0.9),
            margin=_BLANK_MARGIN,
            why="15 points: the mean of 90 questions spreads by 4.6; two tests at 5% need three of these",
            details=bench.details(asked, "blank", chance=1 / len(asked[0].item.options), orders=2),
        )
