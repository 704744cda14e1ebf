"""Evidence recall of sampling by change: better than even spacing where only lesions move the picture, worse
where the camera does.

Planted: a lesion of three seconds in a minute, no instrument, and a budget at which evenly spaced frames hit
the lesion about every other time. With the camera still, its coming and going are the largest changes. With a
camera so fast that each second shows another place, everything changes all the time: the lesion adds little,
the frames chosen are as good as random, and random frames hit fewer windows than evenly spaced ones do.
Recall, not accuracy: the model is not asked.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from diagnostics.data.items import Item
from diagnostics.data.minihorizon.files import content, write_video
from diagnostics.data.minihorizon.procedure import make_procedures
from diagnostics.data.minihorizon.settings import Config as MiniHorizon
from diagnostics.validation.bench import Asked, Bench, share
from diagnostics.validation.rows import Row
from diagnostics.video.relevance.cache import SignalCache
from diagnostics.video.relevance.signals import Signals
from diagnostics.video.sampling import differential, select_frames, uniform
from diagnostics.video.selection import Selection, in_window

__all__ = ["hits", "rows"]

_SECONDS, _RATIO, _BUDGET = 60.0, 0.05, 10
_STILL, _FAST = 0.0, 60.0
_VIDEOS = {_STILL: 120, _FAST: 360}
"""The fast camera's difference is a third of the other: with 120 videos its interval can reach 0."""

_LOW, _HIGH = 0.35, 0.65


def rows(bench: Bench) -> Iterable[Row]:
    """Still, then fast."""
    for motion in (_STILL, _FAST):
        yield from _recalls(bench, motion)


def hits(selection: Selection, item: Item) -> bool:
    """Whether a frame that is shown lies in a window of the item's evidence."""
    assert item.evidence is not None
    frames = selection.frame_indices
    seconds = np.array([slot.true_seconds for slot in selection.slots])
    return any(bool(in_window(window, frames, seconds).any()) for window in item.evidence.windows)


def _recalls(bench: Bench, motion: float) -> Iterator[Row]:
    camera = "still camera" if motion == _STILL else f"camera {motion:g} times as fast"
    settings = MiniHorizon(
        split="redundant", n_videos=_VIDEOS[motion], seconds=_SECONDS, evidence_ratio=_RATIO, motion=motion
    )
    with tempfile.TemporaryDirectory(prefix="validation-") as scratch:
        items = _films(bench, settings, Path(scratch))
        bench.say(f"sampling: choosing frames, {camera}")
        even = _hits(bench, items, None)
        changed = _hits(bench, items, Signals(bench.reader, items, SignalCache(Path(scratch))))
        asked = [Asked(item, bench.uniform(item, _BUDGET)) for item in items]
        details = {
            **bench.details(asked, "differential and uniform"),
            "split": f"{settings.split}, without instruments",
            "motion": motion,
            "recall_uniform": float(even.mean()),
            "recall_differential": float(changed.mean()),
        }
    recall = share(even, asked)
    yield Row.exact(
        f"evidence recall of uniform, {camera}",
        "near one half",
        0.5,
        recall.mean,
        tolerance=(_HIGH - _LOW) / 2,
        why="stated in the issue: neither sampler is at a bound",
        n=len(items),
        ci_low=recall.ci_low,
        ci_high=recall.ci_high,
        details=details,
    )
    gain, name = share(changed - even, asked), f"evidence recall, {camera}: differential minus uniform"
    if motion == _STILL:
        why = "the lesion is all that changes"
        yield Row.above(name, 0.0, gain, why=why, details=details)
    else:
        why = "the camera changes more than the lesion"
        yield Row.below(name, 0.0, gain, planted="below 0", why=why, details=details)


def _films(bench: Bench, settings: MiniHorizon, folder: Path) -> list[Item]:
    """Videos in which nothing comes and goes but one lesion, and a question about each."""
    lesion = {item.video.stem: item for item in content(settings, folder)[1] if item.task == "Hist"}
    for procedure in make_procedures(settings):
        bench.say(f"sampling: writing video {procedure.index + 1} of {settings.videos}")
        if procedure.name in lesion:
            plan = replace(procedure, steps=())
            write_video(settings.of_video(procedure.index), plan, lesion[procedure.name].video)
    return list(lesion.values())


def _hits(bench: Bench, items: list[Item], signals: Signals | None) -> Float[np.ndarray, " item"]:
    """Whether each item's evidence is hit: by change where signals are given, by even spacing otherwise."""
    sampler = differential if signals else uniform
    config = sampler.Config(budget=_BUDGET)
    chosen = [select_frames(sampler, config, bench.reader.index(item.video), item, signals) for item in items]
    return np.array([hits(one, item) for one, item in zip(chosen, items, strict=True)], dtype=np.float64)
