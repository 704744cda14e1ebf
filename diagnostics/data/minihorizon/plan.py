"""What plans are made of: colours, places, stretches of time, and seeded draws.

A plan (`procedure`) is small and pure data; the pictures (`render`) and the annotation tracks (`tracks`)
both come from it, so that the questions' truth never depends on looking at pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from numpy.random import Generator, SeedSequence, default_rng

from diagnostics.data.minihorizon.settings import Config

__all__ = [
    "LESION_COLOURS",
    "PLACES",
    "TISSUE_HUES",
    "Interval",
    "Phase",
    "deal",
    "stream",
    "transition_frames",
]

T = TypeVar("T")
Colour = tuple[int, int, int]

LESION_COLOURS: Mapping[str, Colour] = MappingProxyType(
    {
        "yellow": (238, 214, 52),
        "green": (52, 150, 62),
        "blue": (48, 82, 196),
        "purple": (112, 34, 138),
        "black": (30, 24, 26),
        "cyan": (76, 206, 214),
    }
)
"""RGB; far from every tissue hue, from the white highlights and from each other."""

TISSUE_HUES: Mapping[str, Colour] = MappingProxyType(
    {
        "pale pink": (214, 152, 152),
        "salmon orange": (212, 122, 86),
        "brownish tan": (184, 138, 96),
        "mauve": (178, 116, 156),
    }
)
"""RGB of the tissue in each phase."""

PLACES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "upper left": (0.27, 0.27),
        "upper right": (0.27, 0.73),
        "lower left": (0.73, 0.27),
        "lower right": (0.73, 0.73),
    }
)
"""Centre of the lesion, (down, right), as parts of height and width."""

_TRANSITION = 0.02
"""Length of the change of hue between two phases, as a part of the video."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the procedure with tissue of one hue: frames [start_frame, end_frame)."""

    hue: str
    start_frame: int
    end_frame: int


@dataclass(frozen=True, slots=True)
class Interval:
    """Something of a name that is seen in frames [start_frame, end_frame)."""

    name: str
    start_frame: int
    end_frame: int


def stream(config: Config, *purpose: int) -> Generator:
    """Random numbers for one purpose, the same whatever else is drawn."""
    return default_rng(SeedSequence((config.seed, 1000 + config.preset.room, *purpose)))


def deal(values: Sequence[T], count: int, random: Generator) -> list[T]:
    """`count` values in random order, each as often as any other, within one.

    Whole decks of all the values are shuffled one after the other; the last may be cut short.
    """
    dealt: list[T] = []
    while len(dealt) < count:
        dealt.extend(values[place] for place in random.permutation(len(values)))
    return dealt[:count]


def transition_frames(n_frames: int) -> int:
    """Frames over which the hue of one phase turns into the next one's, centred on their border."""
    return max(2, round(_TRANSITION * n_frames))
