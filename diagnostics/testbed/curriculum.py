"""In which order the tiny model learns, and for how long.

The option look-up comes first, in text alone: trained on video questions only, the model stays at
chance for thousands of steps. Then one task after the other joins; each keeps the earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from diagnostics.testbed.footage import Footage
from diagnostics.testbed.lessons import Form, Lesson, look_up, video_lesson

__all__ = ["CURRICULUM", "Stage", "draw", "scaled"]

_LOOK_UPS = ("Hist", "Size", "Site", "RSR", "PR", "IR", "CPR", "LLS", "LA")


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of the curriculum.

    Attributes:
        name: for the log.
        steps: of the optimiser.
        batch: lessons a step.
        tasks: weights of the tasks of video lessons; empty for look-ups alone.
        units: fewest and most units of a video.
        look_ups: share of lessons that are look-ups, in stages with videos.
        cool_down: last steps of the stage over which the learning rate falls to a twentieth; the next stage
            begins at the full rate again.
        spread: share of video lessons whose frames are evenly spread, as a uniform sampler takes them.
            In the others half of the frames or so are of the evidence, and how many would tell the answer.
    """

    name: str
    steps: int
    batch: int
    tasks: tuple[tuple[str, float], ...] = ()
    units: tuple[int, int] = (0, 0)
    look_ups: float = 0.125
    spread: float = 0.0
    cool_down: int = 0


CURRICULUM: tuple[Stage, ...] = (
    Stage("look-up", 500, 128),
    Stage("colour", 800, 32, (("Hist", 1.0),), (1, 6)),
    Stage(
        "size, place and parts",
        900,
        32,
        (("Hist", 0.5), ("Size", 1.2), ("Site", 1.0), ("step", 1.0), ("phase", 0.6), ("instrument", 0.6)),
        (1, 6),
    ),
    Stage(
        "order, phase and instrument",
        1200,
        32,
        (
            ("Hist", 0.4),
            ("Size", 0.8),
            ("Site", 0.5),
            ("step", 0.3),
            ("phase", 0.2),
            ("instrument", 0.2),
            ("RSR", 2.0),
            ("PR", 2.0),
            ("IR", 1.0),
        ),
        (2, 8),
    ),
    Stage(
        "all",
        2200,
        32,
        (
            ("Hist", 0.6),
            ("Size", 1.8),
            ("Site", 0.7),
            ("RSR", 1.6),
            ("PR", 1.6),
            ("IR", 1.4),
            ("LLS", 1.2),
            ("CPR", 0.8),
            ("LA", 0.8),
        ),
        (3, 16),
        spread=0.6,
    ),
    Stage(
        "all, the hard ones more",
        1400,
        32,
        (
            ("Hist", 0.4),
            ("Size", 1.6),
            ("Site", 2.0),
            ("RSR", 1.6),
            ("PR", 2.4),
            ("IR", 1.4),
            ("LLS", 0.8),
            ("CPR", 0.6),
            ("LA", 0.6),
        ),
        (3, 16),
        spread=0.6,
        cool_down=1050,
    ),
    Stage(
        "order and phase, evenly spread",
        2000,
        32,
        (
            ("Hist", 0.3),
            ("Size", 0.8),
            ("Site", 0.9),
            ("RSR", 2.5),
            ("PR", 4.0),
            ("IR", 1.6),
            ("LLS", 0.4),
            ("CPR", 0.3),
            ("LA", 0.3),
        ),
        (6, 16),
        spread=0.9,
        cool_down=600,
    ),
    Stage(
        "size and order, both kinds of frames",
        500,
        32,
        (
            ("Hist", 0.5),
            ("Size", 3.0),
            ("Site", 1.5),
            ("RSR", 3.0),
            ("PR", 1.5),
            ("IR", 1.0),
            ("LLS", 0.6),
            ("CPR", 0.4),
            ("LA", 0.4),
        ),
        (3, 16),
        spread=0.6,
        cool_down=500,
    ),
)


def scaled(curriculum: tuple[Stage, ...], share: float) -> tuple[Stage, ...]:
    """The same stages with a share of their steps, at least one each."""
    return tuple(
        replace(stage, steps=max(1, round(share * stage.steps)), cool_down=round(share * stage.cool_down))
        for stage in curriculum
    )


def draw(stage: Stage, footage: Footage, random: Generator) -> list[list[Lesson]]:
    """The lessons of one step: those of videos, all of one length, and look-ups, apart."""
    if not stage.tasks:
        return [[_look_up(footage, random) for _ in range(stage.batch)]]
    units = _units(stage.units, random)
    names = [name for name, _ in stage.tasks]
    weights = np.array([weight for _, weight in stage.tasks])
    n_videos = round(stage.batch * (1 - stage.look_ups))
    tasks = random.choice(names, n_videos, p=weights / weights.sum())
    forms: list[Form] = ["choice", "open"]
    videos = [
        video_lesson(
            footage, str(task), forms[int(random.random() < 0.4)], units, random, spread=stage.spread
        )
        for task in tasks
    ]
    return [videos, [_look_up(footage, random) for _ in range(stage.batch - n_videos)]]


def _units(bounds: tuple[int, int], random: Generator) -> int:
    """Short videos are more frequent: the logarithm of the length is uniform."""
    low, high = bounds
    return int(np.clip(round(np.exp(random.uniform(np.log(low - 0.49), np.log(high + 0.49)))), low, high))


def _look_up(footage: Footage, random: Generator) -> Lesson:
    return look_up(footage, _LOOK_UPS[int(random.integers(len(_LOOK_UPS)))], random)
