"""Choosing frames: one rule a module, found by the module's name.

A sampler is a module with a frozen `Config` (whose `budget` is how many frames are wanted), `NEEDS`, the
signals it chooses by, and one function, `choose(config, candidates, item)`, that names the chosen ones by
their places among the candidates. `select_frames` does what all have in common. Adding one is adding one
file here. What the model sees of it is docs/sampling.md.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from jaxtyping import Int

from diagnostics.data.items import Item
from diagnostics.errors import ConfigError, EmptySelectionError
from diagnostics.strict import near_match
from diagnostics.video.candidates import Candidates, candidate_frames, evenly
from diagnostics.video.index import VideoIndex
from diagnostics.video.selection import Selection, Slot

__all__ = [
    "SIGNALS",
    "Sampler",
    "SignalSource",
    "as_selection",
    "evenly",
    "load_sampler",
    "needs_of",
    "sampler_names",
    "select_frames",
]

SIGNALS = frozenset({"scores", "features", "change"})
"""What a sampler may ask for: see `Candidates`."""


@runtime_checkable
class Sampler(Protocol):
    """What a sampling module offers.

    Beside these it may have `needs(config)`, where `NEEDS` depends on its parameters,
    `remark(config, candidates, item, chosen)`, a clause on this choice that the rule's line ends with, and
    `CHOOSES_BY_EVIDENCE = True`, where it refuses items without local evidence.
    """

    Config: type[Any]
    NEEDS: frozenset[str]

    def choose(self, config: Any, candidates: Candidates, item: Item) -> Int[np.ndarray, " chosen"]:
        """Places among the candidates: ascending, each once."""
        ...


class SignalSource(Protocol):
    """Who computes signals: `diagnostics.video.relevance.signals.Signals`."""

    def candidates(
        self, needs: frozenset[str], config: Any, index: VideoIndex, frames: Int[np.ndarray, " n"], item: Item
    ) -> Candidates:
        """The candidates with the signals in `needs` filled in."""
        ...


def sampler_names() -> tuple[str, ...]:
    """Names of the samplers that come with the toolkit."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load_sampler(name: str) -> Sampler:
    """The sampler called `name`, or the module of that dotted name.

    Raises:
        ConfigError: there is no such sampler, or the module lacks `Config`, `NEEDS` or `choose`.
    """
    if "." not in name and name not in sampler_names():
        raise ConfigError(f"unknown sampler {name!r}.", remedy=near_match(name, sampler_names()))
    try:
        module = importlib.import_module(name if "." in name else f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"sampler {name!r} cannot be loaded ({error}).", remedy="Check its name."
        ) from error
    if not all(hasattr(module, part) for part in ("Config", "NEEDS", "choose")):
        raise ConfigError(
            f"sampler {name!r} lacks `Config`, `NEEDS` or `choose`.", remedy="See docs/own_sampler.md."
        )
    return cast(Sampler, module)


def needs_of(sampler: Sampler, config: Any) -> frozenset[str]:
    """The signals that `sampler` chooses by, under these parameters; empty where times are enough."""
    needs = sampler.needs(config) if hasattr(sampler, "needs") else sampler.NEEDS
    if not needs <= SIGNALS:
        raise ConfigError(
            f"a sampler asks for {', '.join(sorted(needs - SIGNALS))}, which nobody computes.",
            remedy=f"Known: {', '.join(sorted(SIGNALS))}.",
        )
    return needs


def select_frames(
    sampler: Sampler, config: Any, index: VideoIndex, item: Item, signals: SignalSource | None = None
) -> Selection:
    """The frames of `item`'s video that the model is shown, as `sampler` chooses them.

    Candidates are the frames at `config.candidate_fps` a second (every frame where it is None or absent),
    thinned to `config.max_candidates` where the configuration has that, all inside the item's clip where it
    has one.

    Args:
        signals: asked where the sampler needs scores, features or change, and only then.

    Raises:
        ConfigError: signals are needed and there is no `signals`, or the sampler breaks its promise.
        ScoresError: signals do not fit the candidates.
        EmptySelectionError: nothing was chosen.
        ItemError: the sampler cannot serve this item (an oracle without evidence).
    """
    needs = needs_of(sampler, config)
    rate, most = getattr(config, "candidate_fps", None), getattr(config, "max_candidates", None)
    frames = candidate_frames(index, rate, most, item.clip)
    if item.clip is not None and not len(frames):
        raise EmptySelectionError(
            f"the clip from {item.clip[0]:g} to {item.clip[1]:g} s holds no candidate of a video of "
            f"{index.duration:.3f} s.",
            remedy="Check the clip's times, and that this is the video they were written for.",
            item_id=item.id,
            path=index.path,
        )
    if not needs:
        candidates = Candidates(index, frames)
    elif signals is not None:
        candidates = signals.candidates(needs, config, index, frames, item)
    else:
        raise ConfigError(
            f"the sampler {_name(sampler)} needs {', '.join(sorted(needs))}, and nothing here computes them.",
            remedy="Choose a sampler that needs only times, such as uniform.",
        )
    chosen = np.asarray(sampler.choose(config, candidates, item), dtype=np.int64)
    _check(chosen, len(candidates), sampler)
    rule = _rule(sampler, config)
    if hasattr(sampler, "remark") and (remark := sampler.remark(config, candidates, item, chosen)):
        rule = f"{rule}: {remark}"
    return as_selection(index, item, candidates.frame_index[chosen], rule, config.budget)


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


def _check(chosen: Int[np.ndarray, " chosen"], count: int, sampler: Sampler) -> None:
    if not len(chosen):
        raise EmptySelectionError(
            f"the sampler {_name(sampler)} chose none of {count} candidates.",
            remedy="Raise the budget (released AKS takes nothing below 2^depth), or use another rule.",
        )
    if (np.diff(chosen) <= 0).any() or chosen[0] < 0 or chosen[-1] >= count:
        raise ConfigError(
            f"the sampler {_name(sampler)} named places that do not ascend, or are not below {count}.",
            remedy="Mend its `choose`: places among the candidates, in order, each once.",
        )


def _name(sampler: Sampler) -> str:
    return getattr(sampler, "__name__", type(sampler).__name__).rpartition(".")[2]


def _rule(sampler: Sampler, config: Any) -> str:
    """The sampler and its parameters on one line, those of a scorer in brackets of their own."""
    return f"{_name(sampler)}({_parameters(config)})"


def _parameters(config: Any) -> str:
    parts = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            parts.append(f"{field.name}=({_parameters(value)})")
        elif value is not None:
            parts.append(f"{field.name}={value:g}" if isinstance(value, float) else f"{field.name}={value}")
    return ", ".join(parts)
