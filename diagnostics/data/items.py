"""What is asked of a video: items and their evidence.

An `Item` is one question about one video, whatever benchmark it came from. Loaders make items;
nothing after them knows the benchmark's own file format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = ["FLAGS", "Criterion", "Evidence", "Item", "Turn", "Window", "option_letter"]

FLAGS = frozenset({"time_addressed", "order_dependent", "order_free"})
"""What an item may be marked with: it names a time ("at 00:12:30"), its answer depends on the
order of events, or its answer is the same in any order."""


def option_letter(position: int) -> str:
    """The letter of the option at `position`: A for 0, B for 1..."""
    return chr(ord("A") + position)


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of video, half-open: from `start_seconds` up to but without `end_seconds`.

    `start_frame` and `end_frame` (half-open too) are source frame indices where the benchmark
    gives them; None where only times are known. The times are NaN where it gives frames only, until
    `check_evidence` fills them from the real video.
    """

    start_seconds: float
    end_seconds: float
    start_frame: int | None = None
    end_frame: int | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where in the video the answer is.

    Attributes:
        windows: the stretches that hold it, in order of time; empty for `global`.
        kind: `exact` (annotated or rendered), `proxy` (derived from another annotation), or
            `global` (the whole video is needed, so no window singles it out).
    """

    windows: tuple[Window, ...]
    kind: Literal["exact", "proxy", "global"] = "exact"

    @property
    def seconds(self) -> float:
        """Total length of the windows in seconds."""
        return sum(window.end_seconds - window.start_seconds for window in self.windows)


@dataclass(frozen=True, slots=True)
class Turn:
    """One earlier turn of a conversation: who said it, and what."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class Criterion:
    """One line of a scoring rubric and the points it is worth (negative for a penalty)."""

    text: str
    points: float


@dataclass(frozen=True, slots=True)
class Item:
    """One question about one video.

    Attributes:
        id: unique in its data set; any text (slashes too: file names are made from a slug and a hash).
        video: the file, resolved and inside the data set's root.
        video_id: what groups items of one video; the path below the root by default.
        question: the question itself, without its options.
        options: option texts in order, without letters; empty for open-ended items.
        answer: the right option's letter (`A`...), or the reference text of an open-ended item.
        task: the benchmark's own task name.
        task_family: the coarser group the task belongs to (retrieval, reasoning...).
        evidence: where the answer is, or None where nobody said.
        flags: a subset of `FLAGS`.
        turns: earlier turns of the conversation, oldest first.
        rubric: scoring criteria of an open-ended item.
        audio: a separate audio track, where the benchmark has one.
        clip: the stretch of the video that is shown, `[start, end)` in seconds: frames outside are no
            candidates. None where it is the whole video.
        metadata: what else the source said, kept for the record.
    """

    id: str
    video: Path
    video_id: str
    question: str
    options: tuple[str, ...] = ()
    answer: str | None = None
    task: str = ""
    task_family: str = ""
    evidence: Evidence | None = None
    flags: frozenset[str] = frozenset()
    turns: tuple[Turn, ...] = ()
    rubric: tuple[Criterion, ...] = ()
    audio: Path | None = None
    clip: tuple[float, float] | None = None
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)

    @property
    def local_evidence(self) -> Evidence | None:
        """Evidence whose windows single out a part of the video; None where there is no such."""
        evidence = self.evidence
        local = evidence is not None and evidence.kind != "global" and evidence.windows
        return evidence if local else None

    @property
    def evidence_kind(self) -> str:
        """What kind its evidence is, as finely as its data set says; empty where nobody said anything."""
        told = self.metadata.get("evidence_kind")
        if isinstance(told, str):
            return told
        return "" if self.evidence is None else self.evidence.kind

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters of the options: `("A", "B", ...)`."""
        return tuple(option_letter(position) for position in range(len(self.options)))
