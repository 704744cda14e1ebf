"""A simulated procedure: phases, steps, instruments and lesions, decided before a pixel is drawn.

Every choice that a question asks about is dealt from a shuffled deck or drawn uniformly, on its own,
so that no answer tells another one, and no wording tells an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.random import Generator

from diagnostics.data.minihorizon.plan import (
    LESION_COLOURS,
    PLACES,
    TISSUE_HUES,
    Interval,
    Phase,
    deal,
    stream,
)
from diagnostics.data.minihorizon.settings import Config

__all__ = [
    "INSTRUMENTS",
    "LESION_SIZES",
    "PHASES",
    "STEPS",
    "Finding",
    "Procedure",
    "make_procedures",
]

PHASES: Mapping[str, str] = MappingProxyType(
    dict(zip(("inspection", "preparation", "treatment", "closure"), TISSUE_HUES, strict=True))
)
"""The hue of the tissue in each phase."""

INSTRUMENTS: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {
        "forceps": (166, 176, 190),
        "snare": (255, 128, 0),
        "needle": (240, 40, 150),
        "brush": (150, 255, 70),
        "cannula": (40, 255, 190),
    }
)
"""RGB of each instrument's shaft."""

STEPS: tuple[str, ...] = ("washing", "suction", "marking", "cutting", "clipping", "sampling")
"""Steps: each lays its own pattern of light and dark over the tissue (`render`)."""

LESION_SIZES: Mapping[str, float] = MappingProxyType(
    {"tiny": 1 / 8, "small": 1 / 5, "medium": 1 / 3, "large": 1 / 2}
)
"""Diameter of a lesion as a part of the picture's shorter side."""

_N_LESIONS = (1, 1, 1, 2, 3, 4)
"""How many lesions procedures have: single ones are what Hist, Site and Size are asked about."""

_COUNTED = 2
"""From this place of `_N_LESIONS` on the lesions are counted, so that every count is as frequent."""

_STEP_SHARE, _GAP_SHARE = 0.05, 0.02
"""Length of a step, and least distance between two spans, as parts of the video."""

_ONSET_SHARE = (0.35, 0.6)


@dataclass(frozen=True, slots=True)
class Finding:
    """A lesion; frames [start_frame, end_frame) show it whole, no other frame shows any of it."""

    colour: str
    size: str
    place: str
    start_frame: int
    end_frame: int

    @property
    def diameter(self) -> float:
        """As a part of the picture's shorter side."""
        return LESION_SIZES[self.size]


@dataclass(frozen=True, slots=True)
class Procedure:
    """One procedure.

    Attributes:
        index: place in the set.
        name: of the file, without extension.
        n_frames: length.
        phases: they cover the video, in order; `hue` is the tissue's, `PHASES` has the names.
        instruments: one from the onset of each phase on.
        steps: in order of time; they and the lesions never overlap. One of them may come several times.
        lesions: in order of time; no two of one colour, size or place.
        counted: whether a lesson may ask for the number of lesions.
        repeated: the step that may come several times, whose number a lesson asks for.
        asked_phase: what a lesson about a time window is about, an index into `phases`.
        asked_onset: the phase whose instrument a lesson asks for, an index too.
    """

    index: int
    name: str
    n_frames: int
    phases: tuple[Phase, ...]
    instruments: tuple[Interval, ...]
    steps: tuple[Interval, ...]
    lesions: tuple[Finding, ...]
    counted: bool
    repeated: str
    asked_phase: int
    asked_onset: int

    @property
    def video(self) -> str:
        """The video's file name, which is also its path below the root."""
        return f"{self.name}.mp4"

    @property
    def phase_names(self) -> tuple[str, ...]:
        """Name of each phase."""
        names = {hue: name for name, hue in PHASES.items()}
        return tuple(names[phase.hue] for phase in self.phases)

    @property
    def overlays(self) -> tuple[Interval, ...]:
        """What is drawn over the tissue and under the lesions: steps, then instruments."""
        return (*self.steps, *self.instruments)


def make_procedures(config: Config) -> list[Procedure]:
    """The plan of each video of a split.

    Colour, size and place of the lesion that is asked about (the only one, or the largest), the number
    of lesions, the phase and the instrument asked for are each dealt from decks of their own.
    """
    count = config.videos
    decks = {
        purpose: deal(values, count, stream(config, 1, purpose))
        for purpose, values in enumerate(
            (
                (0,) if config.preset.single else tuple(range(len(_N_LESIONS))),
                tuple(LESION_COLOURS),
                tuple(LESION_SIZES),
                tuple(PLACES),
                tuple(PHASES),
                tuple(INSTRUMENTS),
                STEPS,
                (1, 2, 3, 4),
            )
        )
    }
    width = max(3, len(str(count - 1)))
    return [
        _procedure(config.of_video(index), index, f"{config.split}-{index:0{width}d}", *chosen)
        for index, chosen in enumerate(zip(*decks.values(), strict=True))
    ]


def _procedure(
    config: Config,
    index: int,
    name: str,
    lesions: int,
    colour: str,
    size: str,
    place: str,
    phase: str,
    instrument: str,
    repeated: str,
    times: int,
) -> Procedure:
    random = stream(config, 2, index)
    n_frames = config.n_frames
    drawn = [tuple(PHASES)[spot] for spot in random.permutation(len(PHASES))]
    left_out = [name for name in drawn if name != phase][: len(PHASES) - config.preset.phases]
    names = [name for name in drawn if name not in left_out]
    edges = _edges(n_frames, len(names), random)
    phases = tuple(
        Phase(PHASES[label], int(first), int(last))
        for label, first, last in zip(names, edges[:-1], edges[1:], strict=True)
    )
    asked_onset = int(random.integers(len(phases)))
    n_lesions = _N_LESIONS[lesions]
    labels = _steps(repeated, times, random)
    n_steps = len(labels)
    spans = _spans(config, n_steps, n_lesions, random)
    return Procedure(
        index=index,
        name=name,
        n_frames=n_frames,
        phases=phases,
        instruments=_instruments(phases, instrument, asked_onset, random),
        steps=tuple(Interval(label, *span) for label, span in zip(labels, spans[:n_steps], strict=True)),
        lesions=_lesions(spans[n_steps:], (colour, size, place), random),
        counted=lesions >= _COUNTED,
        repeated=repeated,
        asked_phase=names.index(phase),
        asked_onset=asked_onset,
    )


def _edges(n_frames: int, n_phases: int, random: Generator) -> np.ndarray:
    """First frames of the phases and, last, the end: between 0.1 and 0.5 of the video each."""
    weights = random.uniform(0.5, 1.5, n_phases)
    return np.rint(np.concatenate([[0.0], np.cumsum(weights) / weights.sum()]) * n_frames).astype(int)


def _steps(repeated: str, times: int, random: Generator) -> list[str]:
    """`repeated` so many times and one to three other steps once, in random order."""
    others = [step for step in STEPS if step != repeated]
    chosen = [others[spot] for spot in random.permutation(len(others))[: int(random.integers(1, 4))]]
    steps = [repeated] * times + chosen
    return [steps[spot] for spot in random.permutation(len(steps))]


def _spans(config: Config, n_steps: int, n_lesions: int, random: Generator) -> list[tuple[int, int]]:
    """Disjoint spans, the steps' first and then the lesions', each kind in order of time."""
    step = max(1, round(_STEP_SHARE * config.n_frames))
    lengths = np.array([step] * n_steps + [config.n_evidence_frames] * n_lesions)
    order = random.permutation(len(lengths))
    gap = max(1, round(_GAP_SHARE * config.n_frames))
    free = config.n_frames - lengths.sum() - gap * (len(lengths) - 1)
    gaps = np.sort(random.integers(0, free + 1, len(lengths)))
    starts = gaps + np.concatenate([[0], np.cumsum(lengths[order] + gap)[:-1]])
    spans = {
        int(what): (int(start), int(start + lengths[what])) for what, start in zip(order, starts, strict=True)
    }
    steps = sorted(spans[what] for what in range(n_steps))
    return steps + sorted(spans[what] for what in range(n_steps, len(lengths)))


def _instruments(
    phases: tuple[Phase, ...], instrument: str, asked: int, random: Generator
) -> tuple[Interval, ...]:
    """Another instrument enters with each phase; `instrument` with the one asked about."""
    others = [name for name in INSTRUMENTS if name != instrument]
    names = [others[spot] for spot in random.permutation(len(others))][: len(phases) - 1]
    names.insert(asked, instrument)
    shares = random.uniform(*_ONSET_SHARE, len(phases))
    return tuple(
        Interval(
            name,
            phase.start_frame,
            phase.start_frame + max(1, round(share * (phase.end_frame - phase.start_frame))),
        )
        for name, phase, share in zip(names, phases, shares, strict=True)
    )


def _lesions(
    spans: list[tuple[int, int]], asked: tuple[str, str, str], random: Generator
) -> tuple[Finding, ...]:
    """One lesion a span, the largest of `colour` and `place`; sizes are a random set with `size` in it."""
    colour, size, place = asked
    count = len(spans)

    def others(values: Mapping[str, object], first: str) -> list[str]:
        rest = [value for value in values if value != first]
        return [first, *(rest[spot] for spot in random.permutation(len(rest))[: count - 1])]

    sizes = sorted(others(LESION_SIZES, size), key=lambda name: LESION_SIZES[name], reverse=True)
    colours, places = others(LESION_COLOURS, colour), others(PLACES, place)
    return tuple(
        Finding(colours[spot], sizes[spot], places[spot], start, end)
        for spot, (start, end) in zip(random.permutation(count), spans, strict=True)
    )
