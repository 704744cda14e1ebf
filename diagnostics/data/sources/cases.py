"""A question beside the annotation of its video, and what a rule makes of the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from diagnostics.data.build.annotations import SAME_TIME, Track
from diagnostics.data.items import Item
from diagnostics.data.sources._source import Annotated, Clip, Source, plain
from diagnostics.data.sources.reasons import NothingLabelledError, WindowUnreadError
from diagnostics.data.sources.windows import Asked, Style, Unread, read_window

__all__ = ["Case", "Found", "LesionWindows", "Span", "Words", "asked_window", "by_style", "joined", "why"]

Span = tuple[float, float]
"""A stretch, half-open, in what the annotation counts."""

LesionWindows = Literal["all", "longest", "first"]
"""What can stand for a lesion: all stretches with its boxes, the longest of them, its appearance."""


@dataclass(frozen=True)
class Words:
    """How the time windows of questions are read, where words leave it open.

    Attributes:
        style: of clocks of two parts, as the other questions show it (`clock_style`); None where they do not.
        instant_seconds: how long the window at a single moment is; None leaves such questions unread.
    """

    style: Style | None = None
    instant_seconds: float | None = None


@dataclass(frozen=True)
class Case:
    """A question beside the annotation of its video.

    Attributes:
        item: the question.
        task: its family.
        source, annotated: what its video's data set says.
        clip: the benchmark's video, by its record.
        words: how windows are read.
        scale: what the annotation counts in a second: 1, or the record's frames a second.
        onset_seconds: how long the window after a phase's onset is.
        first_seconds: how long the short proxy of a lesion is, from its first appearance on, at most.
        lesion_windows: which stretches stand for a lesion.
    """

    item: Item
    task: str
    source: Source
    annotated: Annotated
    clip: Clip
    words: Words
    scale: float
    onset_seconds: float
    first_seconds: float
    lesion_windows: LesionWindows

    def track(self, name: str) -> Track:
        """A track of the video.

        Raises:
            NothingLabelledError: the source has none, or nothing stands in it.
        """
        track = self.annotated.tracks.get(name, Track())
        if not track.intervals:
            raise NothingLabelledError(
                f"{self.source.name} labels no {name} in {self.annotated.stem!r}.",
                remedy="Compare the source's release with the one that the benchmark used.",
            )
        return track

    def window(self) -> Span:
        """The window that the question names.

        Raises:
            WindowUnreadError: none can be read.
        """
        start, end = asked_window(self.item, self.clip, self.words)
        return start * self.scale, end * self.scale

    def labels(self, track: str) -> frozenset[str]:
        """The source's labels that the options mean, in a form to compare."""
        return frozenset(plain(self.source.label(track, option)) for option in self.item.options)


@dataclass(frozen=True)
class Found:
    """Evidence as the annotation counts, before it becomes seconds and frames.

    Attributes:
        kind: see `diagnostics.data.sources.matching.Derived`.
        spans: sorted, disjoint; empty for `global`.
        rule: how they came out.
        warnings: what a reader should know.
        alternatives: other spans that could stand for the same, by name: of a lesion.
    """

    kind: Literal["exact", "approx", "proxy", "global", "label-run"]
    spans: tuple[Span, ...]
    rule: str
    warnings: tuple[str, ...] = ()
    alternatives: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)


def asked_window(item: Item, clip: Clip, words: Words) -> Span:
    """The time window in a question's words, in seconds.

    Raises:
        WindowUnreadError: none can be read.
    """
    read = read_window(
        item.question,
        clip.seconds,
        fps=clip.fps,
        style=words.style,
        instant_seconds=words.instant_seconds,
    )
    if isinstance(read, Unread):
        raise WindowUnreadError(
            f"No window is read in {item.question!r} ({why(read)}).",
            remedy="If it does name a window, report the wording; nothing is guessed.",
            why=read.why,
        )
    return read.start, read.end


def by_style(item: Item, clip: Clip, words: Words) -> tuple[str, ...]:
    """A warning where only the style of the other questions' clocks told what the window is."""

    def read(style: Style | None) -> Asked | Unread:
        return read_window(
            item.question, clip.seconds, fps=clip.fps, style=style, instant_seconds=words.instant_seconds
        )

    alone = read(None)
    if not isinstance(alone, Unread) or isinstance(read(words.style), Unread):
        return ()
    return (f"clock by style: {alone.text!r} was read as {words.style}, like other questions' clocks",)


def why(unread: Unread) -> str:
    """Why words could not be read, with those words."""
    return f"{unread.why}: {unread.text!r}" if unread.text else unread.why


def joined(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Sorted, those that overlap or touch made one."""
    merged: list[Span] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1] + SAME_TIME:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)
