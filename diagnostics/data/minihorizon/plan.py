"""What happens in each procedure: phases, the camera's way, one lesion. Decided before a pixel is drawn.

A plan is small and pure data; the pictures (`render`) and the questions (`questions`) both come from
it, so that the questions' truth never depends on looking at pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from numpy.random import Generator, SeedSequence, default_rng

from diagnostics.data.minihorizon.settings import Config

__all__ = [
    "LESION_COLOURS",
    "PLACES",
    "QUARTERS",
    "SIZES",
    "TISSUE_HUES",
    "Interval",
    "Lesion",
    "Phase",
    "Plan",
    "deal",
    "make_plans",
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

SIZES: Mapping[str, float] = MappingProxyType(
    {"one eighth": 1 / 8, "one fifth": 1 / 5, "one third": 1 / 3, "one half": 1 / 2}
)
"""Diameter of the lesion as a part of the picture's shorter side."""

PLACES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "upper left": (0.27, 0.27),
        "upper right": (0.27, 0.73),
        "lower left": (0.73, 0.27),
        "lower right": (0.73, 0.73),
    }
)
"""Centre of the lesion, (down, right), as parts of height and width."""

QUARTERS = ("first quarter", "second quarter", "third quarter", "last quarter")

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


@dataclass(frozen=True, slots=True)
class Lesion:
    """The one lesion: frames [start_frame, end_frame) show it whole, no other frame shows any of it."""

    colour: str
    size: str
    place: str
    quarter: str
    hue: str
    start_frame: int
    end_frame: int

    @property
    def diameter(self) -> float:
        """As a part of the picture's shorter side."""
        return SIZES[self.size]


@dataclass(frozen=True, slots=True)
class Plan:
    """One procedure.

    Attributes:
        index: place in the set.
        name: of the file, without extension.
        phases: they cover the video, in order.
        lesion: what the questions ask about.
    """

    index: int
    name: str
    phases: tuple[Phase, ...]
    lesion: Lesion

    @property
    def lesions(self) -> tuple[Lesion, ...]:
        """The lesion, as a renderer of several wants it."""
        return (self.lesion,)

    @property
    def overlays(self) -> tuple[Interval, ...]:
        """Nothing but tissue and lesion is drawn."""
        return ()


def stream(config: Config, *purpose: int) -> Generator:
    """Random numbers for one purpose, the same whatever else is drawn."""
    room = (1000 + config.preset.room,) if config.split else ()
    return default_rng(SeedSequence((config.seed, *room, *purpose)))


def deal(values: Sequence[T], count: int, random: Generator) -> list[T]:
    """`count` values in random order, each as often as any other, within one.

    Whole decks of all the values are shuffled one after the other; the last may be cut short.
    """
    dealt: list[T] = []
    while len(dealt) < count:
        dealt.extend(values[place] for place in random.permutation(len(values)))
    return dealt[:count]


def make_plans(config: Config) -> list[Plan]:
    """The plan of each video. Colours, sizes, places, quarters and hues are balanced and independent."""
    traits = (tuple(LESION_COLOURS), tuple(SIZES), tuple(PLACES), QUARTERS, tuple(TISSUE_HUES))
    dealt = [deal(values, config.videos, stream(config, 1, place)) for place, values in enumerate(traits)]
    width = max(3, len(str(config.videos - 1)))
    return [
        _plan(config, index, f"procedure-{index:0{width}d}", *chosen)
        for index, chosen in enumerate(zip(*dealt, strict=True))
    ]


def _plan(
    config: Config, index: int, name: str, colour: str, size: str, place: str, quarter: str, hue: str
) -> Plan:
    random = stream(config, 2, index)
    edges, start = _edges_and_start(config, QUARTERS.index(quarter), random)
    end = start + config.n_evidence_frames
    others = [name for name in TISSUE_HUES if name != hue]
    order = [others[place] for place in random.permutation(len(others))]
    order.insert(int(np.searchsorted(edges, start, side="right")) - 1, hue)
    phases = tuple(
        Phase(name, int(first), int(last))
        for name, first, last in zip(order, edges[:-1], edges[1:], strict=True)
    )
    return Plan(index, name, phases, Lesion(colour, size, place, quarter, hue, start, end))


def _phase_edges(n_frames: int, random: Generator) -> np.ndarray:
    """First frames of the phases and, last, the end: between 0.15 and 0.39 of the video each."""
    weights = random.uniform(0.7, 1.3, len(TISSUE_HUES))
    return np.rint(np.concatenate([[0.0], np.cumsum(weights) / weights.sum()]) * n_frames).astype(int)


def _edges_and_start(config: Config, quarter: int, random: Generator) -> tuple[np.ndarray, int]:
    """Phases, and a first frame such that the lesion stays inside one quarter and one settled phase.

    In a video of few frames an edge may leave no room for it in the quarter: the phases are then drawn
    again.
    """
    n_frames, length = config.n_frames, config.n_evidence_frames
    margin = transition_frames(n_frames) // 2 + 1
    starts = np.arange(-(-n_frames * quarter // 4), n_frames * (quarter + 1) // 4 - length + 1)
    while True:
        edges = _phase_edges(n_frames, random)
        phase = np.searchsorted(edges, starts, side="right") - 1
        settled = (starts >= edges[phase] + margin * (phase > 0)) & (
            starts + length <= edges[phase + 1] - margin * (phase < len(edges) - 2)
        )
        if settled.any():
            return edges, int(random.choice(starts[settled]))


def transition_frames(n_frames: int) -> int:
    """Frames over which the hue of one phase turns into the next one's, centred on their border."""
    return max(2, round(_TRANSITION * n_frames))
