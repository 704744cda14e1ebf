"""What is wrong with items, once the real length of their video is known: for `+exp=check`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import NonNegativeFloat
from pydantic.dataclasses import dataclass as strict_dataclass

from diagnostics.data.items import Item
from diagnostics.data.validation import check_evidence
from diagnostics.data.written import STATED_FRAMES, STATED_SECONDS
from diagnostics.errors import DiagnosticsError, EvidenceOutsideVideoError
from diagnostics.strict import STRICT

__all__ = ["Problem", "Tolerances", "problems_of_items", "stated_seconds"]


@strict_dataclass(frozen=True, config=STRICT)
class Tolerances:
    """How much may differ.

    Attributes:
        seconds: between a video's length and the stated one, or
        share: this share of the stated one, where that is more.
        evidence_seconds: by which evidence, or a clip, may end after its video.
    """

    seconds: NonNegativeFloat = 2.0
    share: NonNegativeFloat = 0.01
    evidence_seconds: NonNegativeFloat = 0.5


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        kind: what, in a few words, to count by: `missing video`, `evidence outside video`.
        item: the item it concerns; empty where it concerns the video.
        message: what is wrong, where, and what to do.
    """

    kind: str
    item: str
    message: str

    @classmethod
    def of(cls, error: DiagnosticsError, item: str = "") -> Problem:
        """The problem that an error tells of, its kind the words of its class's name."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__.removesuffix("Error"))
        return cls(words.lower(), item or error.item_id or "", str(error))


def stated_seconds(item: Item) -> float | None:
    """How long the item's video is, as its benchmark states it in the metadata (`duration_seconds`)."""
    stated = item.metadata.get(STATED_SECONDS)
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return None
    return float(stated)


def problems_of_items(
    items: Sequence[Item], duration_seconds: float, n_frames: int, tolerances: Tolerances
) -> list[Problem]:
    """What is wrong with the items of one video of this length.

    A stated duration that several items share is one problem. A file that is longer than stated is none where
    the items bound the part that is shown.
    """
    problems: list[Problem] = []
    told: set[float] = set()
    for item in items:
        stated = stated_seconds(item)
        if stated is not None and stated not in told:
            told.add(stated)
            problems += _duration(item, stated, duration_seconds, tolerances)
        problems += _item(item, duration_seconds, n_frames, tolerances)
    return problems


def _duration(item: Item, stated: float, actual: float, tolerances: Tolerances) -> Iterator[Problem]:
    longer = actual - stated
    allowed = max(tolerances.seconds, tolerances.share * stated)
    if abs(longer) > allowed and not (longer > 0 and item.clip is not None):
        yield Problem(
            "wrong duration",
            item.id,
            f"item {item.id!r}, file {item.video}: The video lasts {actual:.2f} s, {stated:.2f} s are stated "
            f"({allowed:.2f} s may differ). Download it again, or raise exp.tolerance_seconds.",
        )


def _item(item: Item, duration: float, n_frames: int, tolerances: Tolerances) -> Iterator[Problem]:
    if item.options and item.answer is not None and item.answer not in item.letters:
        yield Problem(
            "answer not an option",
            item.id,
            f"item {item.id!r}: The answer {item.answer!r} is none of {', '.join(item.letters)}. Correct it.",
        )
    if item.audio is not None and not item.audio.is_file():
        yield Problem(
            "missing audio",
            item.id,
            f"item {item.id!r}, file {item.audio}: there is no such file. Check the data set's root.",
        )
    try:
        check_evidence(item, duration, n_frames, tolerance_seconds=tolerances.evidence_seconds)
    except EvidenceOutsideVideoError as error:
        yield Problem.of(error, item.id)
    yield from _frames(item, duration, n_frames, tolerances)
    # A clip that is the stated length says nothing that the length has not said.
    if item.clip is not None and item.clip[1] != stated_seconds(item):
        start, end = item.clip
        if start >= duration or end > duration + tolerances.evidence_seconds:
            yield Problem(
                "clip outside video",
                item.id,
                f"item {item.id!r}, file {item.video}: The clip from {start:g} to {end:g} s leaves the video "
                f"of {duration:.3f} s. Check that this is the video it was written for.",
            )


def _frames(item: Item, duration: float, n_frames: int, tolerances: Tolerances) -> Iterator[Problem]:
    """Evidence in frames of a file that has as many as its benchmark states: else they are at other times."""
    stated = item.metadata.get(STATED_FRAMES)
    windows = item.evidence.windows if item.evidence else ()
    if isinstance(stated, bool) or not isinstance(stated, int) or not windows:
        return
    allowed = max(tolerances.seconds, tolerances.share * duration) * n_frames / duration
    if windows[0].start_frame is not None and abs(n_frames - stated) > allowed:
        yield Problem(
            "wrong frame count",
            item.id,
            f"item {item.id!r}, file {item.video}: The video has {n_frames} frames, {stated} are stated, and "
            f"the evidence is in frames ({allowed:.0f} may differ). Download it again: at another rate it "
            "shows the evidence elsewhere.",
        )
