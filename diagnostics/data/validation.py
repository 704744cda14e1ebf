"""What makes an item usable: options, answer, evidence, a unique id.

Every function here speaks of one item and raises a typed error that names it; `Collector` turns
those errors into the rejected list, so that one bad item costs itself and nothing else.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from diagnostics.data.items import FLAGS, Evidence, Item, Window, option_letter
from diagnostics.errors import (
    AnswerNotAnOptionError,
    DuplicateItemError,
    EvidenceOutsideVideoError,
    ItemError,
    RecordError,
    TooFewOptionsError,
)
from diagnostics.strict import near_match

__all__ = [
    "Collector",
    "Loaded",
    "check_evidence",
    "resolve_answer",
    "resolve_evidence",
    "resolve_flags",
    "resolve_options",
]

_KINDS: tuple[str, ...] = ("exact", "proxy", "global")
_MOST_OPTIONS = 26


@dataclass(frozen=True)
class Loaded:
    """What a loader found.

    Attributes:
        items: the usable ones, in the order of the source.
        rejected: one error for each that is not, with its id where known and `file:line`. The id of a
            `DuplicateItemError` is also that of a kept item.
    """

    items: list[Item]
    rejected: list[ItemError]


@dataclass
class Collector:
    """Gathers items and errors while a loader reads.

    Attributes:
        seen: every id so far and where it was, usable or not: a record must not be two items.
    """

    items: list[Item] = field(default_factory=list)
    rejected: list[ItemError] = field(default_factory=list)
    seen: dict[str, str] = field(default_factory=dict)

    def add(self, item_id: str, where: str, build: Callable[[], Item]) -> None:
        """Build one item and keep it, or keep the typed error it raises."""
        try:
            if item_id in self.seen:
                raise DuplicateItemError(
                    f"The id was already used at {self.seen[item_id]}.", remedy="Give each item its own id."
                )
            self.seen[item_id] = where
            self.items.append(build())
        except ItemError as error:
            self.reject(error, item_id=item_id, where=where)

    def reject(self, error: ItemError, *, where: str, item_id: str | None = None) -> None:
        """Keep an error, with what it did not yet know of its item and place."""
        error.item_id = error.item_id or item_id
        error.path = error.path or where
        self.rejected.append(error)

    def loaded(self) -> Loaded:
        """What was gathered."""
        return Loaded(self.items, self.rejected)


_LETTERED = re.compile(r"^\s*\(?([A-Z])\s*[.):]\s*(\S.*)$", re.DOTALL)


def resolve_options(written: object) -> tuple[str, ...]:
    """Option texts in order, without letters.

    Args:
        written: a list of texts, or an object from letters to texts. Where every text begins with its
            own letter (`A. red`, `(B) blue`), the letters are taken off.

    Raises:
        TooFewOptionsError: there is exactly one.
        RecordError: not texts, an empty one, or more than there are letters.
    """
    if written is None:
        return ()
    if isinstance(written, Mapping):
        expected = [option_letter(position) for position in range(len(written))]
        if list(written) != expected:
            raise RecordError(
                f"The options' letters are {', '.join(map(repr, written))}.",
                remedy="Use A, B, C... in order, or a list.",
            )
        written = list(written.values())
    if not isinstance(written, list) or not all(isinstance(text, str) and text.strip() for text in written):
        raise RecordError(
            f"Options are {written!r}, not a list of texts.", remedy='Write them as ["first", "second"].'
        )
    if len(written) == 1:
        raise TooFewOptionsError(
            f"There is one option, {written[0]!r}.",
            remedy="Give at least two, or none for an open-ended item.",
        )
    if len(written) > _MOST_OPTIONS:
        raise RecordError(
            f"There are {len(written)} options.", remedy=f"Give at most {_MOST_OPTIONS}, one a letter."
        )
    return tuple(_without_letters(written))


def _without_letters(texts: list[str]) -> list[str]:
    matches = [_LETTERED.match(text) for text in texts]
    if all(match and match[1] == option_letter(place) for place, match in enumerate(matches)):
        return [match[2].strip() for match in matches if match]
    return [text.strip() for text in texts]


def resolve_answer(written: object, options: Sequence[str], *, index_base: int | None = None) -> str | None:
    """The right option's letter; for an item without options the text itself.

    Args:
        written: the letter, the option's exact text, the two together (`B. blue`), or, where
            `index_base` is given, the option's number counted from there.
        options: as from `resolve_options`.
        index_base: 0 or 1 where the source's format counts options; None where it does not.

    Raises:
        AnswerNotAnOptionError: it names no option, or could name two (letter and text disagree, or two
            options have the same text).
        RecordError: it is not a text or, where allowed, a number.
    """
    if written is None:
        return None
    if isinstance(written, int) and not isinstance(written, bool) and index_base is not None and options:
        place = written - index_base
        if not 0 <= place < len(options):
            raise AnswerNotAnOptionError(
                f"The answer is option number {written} of {len(options)}.", remedy="Correct the answer."
            )
        return option_letter(place)
    if not isinstance(written, str) or not written.strip():
        raise RecordError(
            f"The answer is {written!r}, not a text.", remedy="Write the option's letter or its text."
        )
    answer = written.strip()
    if not options:
        return answer
    named = _named(answer, options)
    if len(named) == 1:
        return option_letter(named.pop())
    if named:
        letters = " and ".join(option_letter(place) for place in sorted(named))
        raise AnswerNotAnOptionError(
            f"The answer {answer!r} could be {letters}.",
            remedy="Make the options distinct, or write `B. text`.",
        )
    raise AnswerNotAnOptionError(
        f"The answer {answer!r} is none of the options: {near_match(answer, list(options))}",
        remedy="Write the option's letter or its exact text.",
    )


def _named(answer: str, options: Sequence[str]) -> set[int]:
    """Places of the options that `answer` may mean."""
    both = _LETTERED.match(answer)
    places = range(len(options))
    if both:
        exact = {
            place for place in places if option_letter(place) == both[1] and options[place] == both[2].strip()
        }
        if exact:
            return exact
    bare = answer.strip("().: ")
    by_letter = {place for place in places if option_letter(place) == bare.upper() and len(bare) == 1}
    by_text = {place for place in places if options[place] == answer}
    return (
        by_letter | by_text | {place for place in places if options[place] in {options[p] for p in by_letter}}
    )


def resolve_flags(written: object) -> frozenset[str]:
    """The item's flags.

    Raises:
        RecordError: not a list, or a flag that is not one of `FLAGS`.
    """
    if written is None:
        return frozenset()
    if not isinstance(written, list):
        raise RecordError(f"Flags are {written!r}, not a list.", remedy='Write them as ["order_free"].')
    for flag in written:
        if not isinstance(flag, str) or flag not in FLAGS:
            raise RecordError(f"There is no flag {flag!r}.", remedy=near_match(str(flag), sorted(FLAGS)))
    return frozenset(written)


def resolve_evidence(written: object) -> Evidence | None:
    """Evidence windows in order of time, overlapping ones joined so that no second counts twice.

    Args:
        written: `[[start, end], ...]` in seconds; or an object with `seconds` or `frames` or both (then
            window by window the same stretch, half-open), and `kind`.

    Raises:
        EvidenceOutsideVideoError: a window ends before it begins, is empty, or begins before the video.
        RecordError: not written as above.
    """
    if written is None:
        return None
    fields = {"seconds": written} if isinstance(written, list) else written
    if not isinstance(fields, dict):
        raise _evidence_form(written)
    for key in fields:
        if key not in ("seconds", "frames", "kind"):
            raise RecordError(
                f"Evidence has an unknown key {key!r}.", remedy=near_match(key, ["seconds", "frames", "kind"])
            )
    kind = fields.get("kind", "exact")
    if kind not in _KINDS:
        raise RecordError(f"Evidence has the kind {kind!r}.", remedy=near_match(str(kind), _KINDS))
    seconds, frames = (_pairs(fields.get(unit), unit) for unit in ("seconds", "frames"))
    if (kind == "global") == bool(seconds or frames):
        raise RecordError(
            f"Evidence of kind {kind} has {len(seconds or frames)} windows.",
            remedy="Global evidence has none, the other kinds some; leave evidence out where unknown.",
        )
    if seconds and frames and len(seconds) != len(frames):
        raise RecordError(
            f"Evidence has {len(seconds)} windows in seconds and {len(frames)} in frames.",
            remedy="Give each window in both, or in one only.",
        )
    return Evidence(_joined(_windows(seconds, frames)), kind)


def _evidence_form(written: object) -> RecordError:
    return RecordError(
        f"Evidence is {written!r}.",
        remedy='Write [[12.0, 17.5]] in seconds, or {"frames": [[96, 140]], "kind": "exact"}.',
    )


def _pairs(written: object, unit: str) -> list[list[float]]:
    if written is None:
        return []
    if not isinstance(written, list):
        raise _evidence_form(written)
    for pair in written:
        kinds = (int,) if unit == "frames" else (int, float)
        good = isinstance(pair, list) and len(pair) == 2
        if not good or not all(isinstance(edge, kinds) and not isinstance(edge, bool) for edge in pair):
            raise _evidence_form(written)
        start, end = pair
        if not (0 <= start < end and math.isfinite(end)):
            raise EvidenceOutsideVideoError(
                f"The evidence window {pair} in {unit} is empty, reversed or before the video's beginning.",
                remedy="A window is [start, end), 0 <= start < end.",
            )
    return written


def _windows(seconds: list[list[float]], frames: list[list[float]]) -> list[Window]:
    windows = []
    for place in range(len(seconds or frames)):
        start, end = seconds[place] if seconds else (math.nan, math.nan)
        first, last = (int(edge) for edge in frames[place]) if frames else (None, None)
        windows.append(Window(float(start), float(end), first, last))
    return windows


def _joined(windows: list[Window]) -> tuple[Window, ...]:
    """Sorted by frame where there are frames, else by time; neighbours that overlap become one."""

    def edges(window: Window) -> tuple[float, float]:
        if window.start_frame is not None and window.end_frame is not None:
            return window.start_frame, window.end_frame
        return window.start_seconds, window.end_seconds

    merged: list[Window] = []
    for window in sorted(windows, key=edges):
        if merged and edges(window)[0] < edges(merged[-1])[1]:
            before = merged[-1]
            merged[-1] = Window(
                min(before.start_seconds, window.start_seconds),
                max(before.end_seconds, window.end_seconds),
                before.start_frame,
                None if before.end_frame is None else max(before.end_frame, window.end_frame or 0),
            )
        else:
            merged.append(window)
    return tuple(merged)


def check_evidence(
    item: Item, duration_seconds: float, n_frames: int, *, tolerance_seconds: float = 0.5
) -> Item:
    """The item, once its evidence is known to lie in its real video.

    Windows that came in frames only get their times at the average frame rate, `frame / n_frames *
    duration`; their frames still decide which slots show evidence.

    Args:
        item: as loaded.
        duration_seconds: of the real video.
        n_frames: frames of the real video.
        tolerance_seconds: how far past the end a time may lie: what rounding to whole seconds costs.

    Raises:
        EvidenceOutsideVideoError: a window begins or ends after the video does.
    """
    if item.evidence is None or not item.evidence.windows:
        return item
    windows = []
    for window in item.evidence.windows:
        in_frames = window.end_frame is not None and window.end_frame > n_frames
        in_seconds = window.start_seconds >= duration_seconds or (
            window.end_seconds > duration_seconds + tolerance_seconds
        )
        if in_frames or in_seconds:
            raise EvidenceOutsideVideoError(
                f"The evidence {_readable(window)} lies outside the video of {duration_seconds:.3f} s and "
                f"{n_frames} frames.",
                remedy="Correct the evidence, or check that this is the video it was written for.",
                item_id=item.id,
                path=item.video,
            )
        windows.append(_timed(window, duration_seconds, n_frames))
    evidence = dataclasses.replace(item.evidence, windows=tuple(windows))
    return dataclasses.replace(item, evidence=evidence)


def _timed(window: Window, duration_seconds: float, n_frames: int) -> Window:
    if window.start_frame is None or window.end_frame is None or not math.isnan(window.start_seconds):
        return window
    scale = duration_seconds / n_frames
    return dataclasses.replace(
        window, start_seconds=window.start_frame * scale, end_seconds=window.end_frame * scale
    )


def _readable(window: Window) -> str:
    parts = []
    if not math.isnan(window.start_seconds):
        parts.append(f"{window.start_seconds:g} to {window.end_seconds:g} s")
    if window.start_frame is not None:
        parts.append(f"frames {window.start_frame} to {window.end_frame}")
    return ", ".join(parts)
