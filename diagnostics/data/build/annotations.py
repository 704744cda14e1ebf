"""Annotated procedures: tracks of labelled intervals, lesions, labels of the whole examination.

Times are seconds, intervals half-open. What was dropped from a track leaves a doubt behind: a stretch
of time about which the track cannot be trusted, so that no question rests on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Float

__all__ = [
    "EXCLUSIVE",
    "SAME_TIME",
    "TRACKS",
    "Interval",
    "Lesion",
    "Place",
    "Procedure",
    "Track",
    "VideoFacts",
    "overlapping",
]

TRACKS = ("phases", "steps", "regions", "instruments")
"""Tracks of labelled intervals."""

EXCLUSIVE = frozenset({"phases", "steps", "regions"})
"""Those that hold at most one label at any time."""

SAME_TIME = 1e-6
"""Seconds below which two times are one: what writing them in decimals costs."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is written: a file, and the row in it.

    Attributes:
        file: its path.
        row: line of a CSV file (the header is 1); place in its list, from 1, in JSON.
        within: which list of which procedure, in JSON.
    """

    file: str
    row: int | None = None
    within: str = ""

    def __str__(self) -> str:
        """`tracks.csv:17`, or `tracks.json (case-01 phases, row 3)`."""
        if self.within:
            row = "" if self.row is None else f", row {self.row}"
            return f"{self.file} ({self.within}{row})"
        return self.file if self.row is None else f"{self.file}:{self.row}"


@dataclass(frozen=True, slots=True)
class Interval:
    """A label from `start` up to, without, `end`; `place` is where it was written."""

    start: float
    end: float
    label: str
    place: Place

    def overlap(self, start: float, end: float) -> float:
        """Seconds shared with `[start, end)`."""
        return max(0.0, min(self.end, end) - max(self.start, start))


@dataclass(frozen=True)
class Track:
    """Intervals in order of time, and stretches in doubt.

    Attributes:
        intervals: sorted by start.
        doubts: `(start, end)` of dropped rows.
        lost: how many rows were dropped whose extent cannot be told.
    """

    intervals: tuple[Interval, ...] = ()
    doubts: tuple[tuple[float, float], ...] = ()
    lost: int = 0

    @property
    def complete(self) -> bool:
        """Nothing was dropped: what the track as a whole says can be trusted."""
        return not self.doubts and not self.lost

    @cached_property
    def runs(self) -> tuple[Interval, ...]:
        """Intervals of one label that touch, joined: what a viewer sees as one stretch. By start.

        Of an exclusive track; in the instruments' track different labels do not interrupt each other.
        """
        joined: dict[str, list[Interval]] = {}
        for interval in self.intervals:
            group = joined.setdefault(interval.label, [])
            if group and interval.start - group[-1].end <= SAME_TIME:
                last = group.pop()
                interval = Interval(last.start, max(last.end, interval.end), last.label, last.place)
            group.append(interval)
        return tuple(sorted((run for group in joined.values() for run in group), key=lambda run: run.start))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Labels in order of their first appearance."""
        return tuple(dict.fromkeys(interval.label for interval in self.intervals))

    def first(self, label: str) -> float:
        """When `label` first begins."""
        return min(interval.start for interval in self.intervals if interval.label == label)

    def total(self, label: str) -> float:
        """Seconds of `label` in all."""
        return sum(interval.end - interval.start for interval in self.intervals if interval.label == label)

    def within(self, start: float, end: float) -> dict[str, list[tuple[float, float]]]:
        """Labels in `[start, end)` in order of appearance, each with its stretches there."""
        found: dict[str, list[tuple[float, float]]] = {}
        for interval in self.intervals:
            if interval.overlap(start, end) > SAME_TIME:
                found.setdefault(interval.label, []).append(
                    (max(interval.start, start), min(interval.end, end))
                )
        return found

    def in_doubt(self, start: float, end: float) -> bool:
        """Whether a dropped row touches `[start, end)`."""
        return any(low < end and high > start for low, high in self.doubts)


@dataclass(frozen=True)
class Lesion:
    """A lesion: when it is visible, and what is known of it.

    Attributes:
        name: its id in the procedure.
        rows: the stretches in which it is visible, sorted, at least one.
        attributes: `site`, `histology`, `size`... as text; a numeric size as a number.
    """

    name: str
    rows: tuple[Interval, ...]
    attributes: Mapping[str, str | float]

    @property
    def windows(self) -> tuple[tuple[float, float], ...]:
        """`(start, end)` of each stretch."""
        return tuple((row.start, row.end) for row in self.rows)

    @property
    def appears(self) -> float:
        """When it first comes into view."""
        return self.rows[0].start

    def visible(self, start: float, end: float) -> bool:
        """Whether it is seen in `[start, end)`."""
        return any(row.overlap(start, end) > SAME_TIME for row in self.rows)


@dataclass(frozen=True, eq=False)
class VideoFacts:
    """What a video file really holds.

    Attributes:
        duration: seconds from the first frame to the end of the last.
        fps: average frame rate.
        seconds: time of each frame.
    """

    duration: float
    fps: float
    seconds: Float[np.ndarray, " frame"]

    @property
    def n_frames(self) -> int:
        """How many frames it shows."""
        return len(self.seconds)

    def frames(self, start: float, end: float) -> tuple[int, int]:
        """The frames shown in `[start, end)`, half-open; both equal where there is none."""
        edges = np.array([start, end]) - SAME_TIME
        first, last = np.searchsorted(self.seconds, edges, side="left")
        return int(first), int(last)


@dataclass(frozen=True, eq=False)
class Procedure:
    """One annotated video.

    Attributes:
        name: once over all files.
        source: the data set it comes from.
        video: the file, inside the root.
        video_place: where its path was written.
        stated: `fps`, `frames`, `duration` as annotated, those that are.
        tracks: by name (`TRACKS`); a track without rows is absent.
        lesions: by time of appearance.
        lesions_doubted: a row about lesions was dropped.
        labels: of the whole examination.
        facts: of the real video, once it was opened.
    """

    name: str
    source: str
    video: Path
    video_place: Place
    stated: Mapping[str, float] = field(default_factory=dict)
    tracks: Mapping[str, Track] = field(default_factory=dict)
    lesions: tuple[Lesion, ...] = ()
    lesions_doubted: bool = False
    labels: Mapping[str, str | float] = field(default_factory=dict)
    facts: VideoFacts | None = None

    @property
    def real(self) -> VideoFacts:
        """`facts`, of a procedure that went through normalisation."""
        if self.facts is None:
            raise ValueError(f"the video of {self.name} was not opened")
        return self.facts

    def track(self, name: str) -> Track:
        """A track by name; an empty one where there is none."""
        return self.tracks.get(name, Track())


def overlapping(intervals: list[Interval]) -> set[int]:
    """Positions of the intervals that share time with another of the list, by sorted sweep."""
    order = sorted(range(len(intervals)), key=lambda i: (intervals[i].start, intervals[i].end))
    bad: set[int] = set()
    reach, holder = -np.inf, -1
    for before, this in pairwise([-1, *order]):
        if before >= 0 and intervals[before].end > reach:
            reach, holder = intervals[before].end, before
        if holder >= 0 and intervals[this].start < reach - SAME_TIME:
            bad |= {holder, this}
    return bad
