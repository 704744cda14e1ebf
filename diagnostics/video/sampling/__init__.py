"""Choosing frames: one rule a module, found by the module's name.

A sampler is a module with a frozen `Config` and one function,
`select(config, index, item) -> Selection`. Adding one is adding one file here.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from jaxtyping import Int

from diagnostics.data.items import Item
from diagnostics.errors import ConfigError
from diagnostics.strict import near_match
from diagnostics.video.index import VideoIndex
from diagnostics.video.selection import Selection, Slot

__all__ = ["Sampler", "as_selection", "evenly", "load_sampler", "sampler_names"]


@runtime_checkable
class Sampler(Protocol):
    """What a sampling module offers."""

    Config: type[Any]

    def select(self, config: Any, index: VideoIndex, item: Item) -> Selection:
        """The frames of `item`'s video that the model is shown."""
        ...


def sampler_names() -> tuple[str, ...]:
    """Names of the samplers that come with the toolkit."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load_sampler(name: str) -> Sampler:
    """The sampler called `name`, or the module of that dotted name.

    Raises:
        ConfigError: there is no such sampler, or the module lacks `Config` or `select`.
    """
    if "." not in name and name not in sampler_names():
        raise ConfigError(f"unknown sampler {name!r}.", remedy=near_match(name, sampler_names()))
    try:
        module = importlib.import_module(name if "." in name else f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"sampler {name!r} cannot be loaded ({error}).", remedy="Check its name."
        ) from error
    if not (hasattr(module, "Config") and hasattr(module, "select")):
        raise ConfigError(
            f"sampler {name!r} lacks `Config` or `select`.", remedy="See diagnostics/video/sampling."
        )
    return cast(Sampler, module)


def evenly(count: int, budget: int) -> Int[np.ndarray, " n"]:
    """`budget` of `count` places, uniform from the first to the last: round(linspace(0, count - 1, budget)).

    All of them where the budget is not smaller. This is MedHorizon's rule (section 7.1), which leaves
    rounding open; we round half to even, which never picks a place twice. A budget of 1 takes the first.
    """
    if budget >= count:
        return np.arange(count, dtype=np.int64)
    return np.round(np.linspace(0, count - 1, budget)).astype(np.int64)


def as_selection(
    index: VideoIndex, item: Item, frames: Int[np.ndarray, " n"], rule: str, requested: int
) -> Selection:
    """A selection of unperturbed `frames`, shown at their true times."""
    times = index.seconds[frames]
    return Selection(
        slots=tuple(
            Slot(item.video_id, frame, seconds, seconds)
            for frame, seconds in zip(frames.tolist(), times.tolist(), strict=True)
        ),
        rule=rule,
        source_fps=index.fps,
        source_frames=index.n_frames,
        source_seconds=index.duration,
        requested=requested,
    )
