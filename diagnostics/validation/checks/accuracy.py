"""What the tiny model has to know before anything else about it means something.

Its five tasks have floors (`diagnostics.testbed.measure.FLOORS`), on the test split, with the evidence
among the frames, at lengths it was trained on: 16 frames enriched with evidence, and 24 evenly spaced
frames where these hit every window. The answers come from batches, for speed; the first row compares them
with those of the experiments' own road.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from diagnostics.data.items import Item
from diagnostics.scoring.accuracy import score_reply
from diagnostics.testbed.measure import FLOORS
from diagnostics.validation.bench import Asked, Bench, share
from diagnostics.validation.rows import Row
from diagnostics.video.selection import Selection

__all__ = ["rows", "shown_whole"]

_ENRICHED, _UNIFORM = 16, 24
_COMPARED = 6


def rows(bench: Bench) -> Iterable[Row]:
    """Both roads agree; then the floors."""
    yield _agreement(bench)
    yield from _floors(bench)


def shown_whole(selection: Selection, item: Item) -> bool:
    """Whether a frame of each window of the item's evidence is shown."""
    frames = selection.frame_indices
    windows = item.evidence.windows if item.evidence is not None else ()
    return all(((frames >= (w.start_frame or 0)) & (frames < (w.end_frame or 0))).any() for w in windows)


def _agreement(bench: Bench) -> Row:
    """The batch's choice against the letter in the reply, on a few videos' questions."""
    loaded = bench.model()
    asked = [Asked(item, bench.enriched(item, _ENRICHED)) for item in bench.items(*FLOORS, videos=_COMPARED)]
    batched = bench.chosen(loaded, asked)
    same = []
    for one, place in zip(asked, batched.tolist(), strict=True):
        assert one.selection is not None
        bench.say(f"accuracy: {one.item.id}")
        reply = bench.served(loaded, one.item, bench.frames(one.item, one.selection))
        same.append(float(score_reply(one.item, reply.text).answer == one.item.letters[place]))
    return Row.exact(
        "the same letter from batches as from prompt, processor and generation",
        "every item",
        1.0,
        float(np.mean(same)),
        tolerance=0.0,
        why="two roads to one number; the model is sure of its letters",
        n=len(same),
        details=bench.details(asked, "uniform_plus_evidence"),
    )


def _floors(bench: Bench) -> Iterator[Row]:
    loaded = bench.model()
    for sampler in ("uniform_plus_evidence", "uniform"):
        for task, floor in FLOORS.items():
            bench.say(f"accuracy: {task}, {sampler}")
            if sampler == "uniform":
                asked = [Asked(item, bench.uniform(item, _UNIFORM)) for item in bench.items(task)]
                asked = [one for one in asked if one.selection and shown_whole(one.selection, one.item)]
            else:
                asked = [Asked(item, bench.enriched(item, _ENRICHED)) for item in bench.items(task)]
            budget = _UNIFORM if sampler == "uniform" else _ENRICHED
            yield Row.at_least(
                f"accuracy, {task}, {budget} frames, {sampler}",
                floor,
                share(bench.right(loaded, asked), asked),
                why="the floor that the tiny model is trained to",
                details=bench.details(asked, sampler),
            )
