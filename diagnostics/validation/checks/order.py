"""Perturbations of time: questions about order have to feel them, questions about colour must not.

Planted: two steps, each seen in one stretch, the first one whole before the second ("apart"; other items
are left out, since what is carried out again later is not mirrored by a reversal). Shown backwards by
units, with the clock left in place (`timestamps=slot`), the other step comes first, so that the right
answer is the other option. Shuffled by units, either may come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from diagnostics.data.items import Item
from diagnostics.validation.bench import UNIT, Asked, Bench, share
from diagnostics.validation.rows import Row
from diagnostics.video.order import reorder
from diagnostics.video.selection import Selection

__all__ = ["apart", "backwards", "order_items", "rows", "shuffled"]

_BUDGET = 16
_SHUFFLES = 4
_MARGIN = 0.05
_HALF_MARGIN = 0.10
_COLOUR_MARGIN = 0.03


def rows(bench: Bench) -> Iterable[Row]:
    """Reversal and shuffle of order questions, shuffle of colour questions."""
    yield from _order(bench)
    yield _colour(bench)


def apart(bench: Bench, item: Item, selection: Selection) -> bool:
    """Whether every unit that shows the first of the two steps comes before every unit that shows the
    second."""
    units = [
        {
            place // UNIT
            for place, frame in enumerate(selection.frame_indices.tolist())
            for step in bench.procedure(item).steps
            if step.name == name and step.start_frame <= frame < step.end_frame
        }
        for name in item.options
    ]
    right = Asked(item, selection).right
    first, second = units[right], units[1 - right]
    return bool(first and second) and max(first) < min(second)


def order_items(bench: Bench) -> list[Asked]:
    """Order questions whose steps are apart, with 16 frames, up to half of them evidence."""
    asked = [Asked(item, bench.enriched(item, _BUDGET)) for item in bench.items("RSR")]
    return [one for one in asked if one.selection and apart(bench, one.item, one.selection)]


def _order(bench: Bench) -> Iterator[Row]:
    loaded = bench.model()
    asked = order_items(bench)
    truth = np.array([one.right for one in asked])
    bench.say("order: as filmed, and backwards")
    filmed = bench.chosen(loaded, asked)
    turned = bench.chosen(loaded, [backwards(one) for one in asked])
    right, mirrored = (filmed == truth).astype(float), (turned == 1 - truth).astype(float)
    details = bench.details(
        asked, "uniform_plus_evidence", unit=UNIT, timestamps="slot", accuracy=float(right.mean())
    )
    yield Row.exact(
        "order questions backwards by unit: rate of the mirrored answer",
        f"the accuracy as filmed, {right.mean():.3f}",
        float(right.mean()),
        float(mirrored.mean()),
        tolerance=_MARGIN,
        why="5 points: stated in the issue, two standard errors of a rate of 95% on 90 items",
        n=len(asked),
        ci_low=share(mirrored, asked).ci_low,
        ci_high=share(mirrored, asked).ci_high,
        details=details,
    )
    bench.say("order: shuffled")
    answers = [bench.chosen(loaded, group) == truth for group in shuffled(asked)]
    stays = np.mean(answers, axis=0)
    yield Row.equivalent(
        "order questions shuffled by unit: rate of the original answer",
        "0.5: either step may come first",
        0.5,
        share(stays, asked, confidence=0.9),
        margin=_HALF_MARGIN,
        why="10 points: three standard errors of a rate of 50% on 100 items and four orders",
        details={**details, "orders": _SHUFFLES},
    )


def backwards(asked: Asked) -> Asked:
    """Whole units, last to first, the clock in place."""
    assert asked.selection is not None
    return Asked(asked.item, reorder(asked.selection, "reversed", unit=UNIT))


def shuffled(asked: Sequence[Asked]) -> list[list[Asked]]:
    """All questions with their units in several random orders, each its own; the clock in place."""
    return [
        [
            Asked(one.item, reorder(one.selection, "full", seed=turn * len(asked) + place, unit=UNIT))
            for place, one in enumerate(asked)
            if one.selection is not None
        ]
        for turn in range(_SHUFFLES)
    ]


def _colour(bench: Bench) -> Row:
    loaded = bench.model()
    asked = [Asked(item, bench.enriched(item, _BUDGET)) for item in bench.items("Hist")]
    bench.say("order: colour questions, shuffled")
    before = bench.right(loaded, asked)
    after = np.mean([bench.right(loaded, group) for group in shuffled(asked)], axis=0)
    return Row.equivalent(
        "colour questions shuffled by unit: change of accuracy",
        "0",
        0.0,
        share(after - before, asked, confidence=0.9),
        margin=_COLOUR_MARGIN,
        why="3 points: stated in the issue",
        details=bench.details(
            asked, "uniform_plus_evidence", unit=UNIT, orders=_SHUFFLES, accuracy=float(before.mean())
        ),
    )
