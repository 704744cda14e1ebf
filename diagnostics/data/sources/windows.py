"""Time windows in the words of a question: `Which phase is under way between 12:30 and 12:40?`

A small grammar (`_amounts.py`, `_window_grammar.py`) that never guesses: what it cannot read with certainty
is `Unread`, with its reason. No library does this: dateparser makes calendar dates of clocks and reads 12.5 s
as 5 s, quantulum3 averages the two ends of a range and takes clocks apart; neither knows percent of a video.

What was decided where words leave it open:

- Windows are half-open at the numbers written, whatever brackets stand there.
- A clock of two parts is m:ss or h:mm, whichever lies inside the video. Where both do it is ambiguous, unless
  the caller knows the style: `clock_style` finds it in the other questions.
- An end up to a second behind the video's end was rounded, and is cut; anything further is `beyond`.
- A range after, before, into or of something that is not the video is relative to an event, and unread.
- `second 754` and `the 754th second` begin at 754 s; an ordinal minute or hour is ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

from diagnostics.data.sources._amounts import Amount, Style, normal
from diagnostics.data.sources._window_grammar import Found, find

__all__ = ["ROUNDING", "Asked", "Style", "Unread", "Why", "clock_style", "read_window"]

ROUNDING = 1.0
"""Seconds: times that differ by no more may be one time written to the second."""

Why = Literal[
    "malformed", "reversed", "beyond", "ambiguous", "frames", "relative", "open", "unclear", "instant",
    "several", "bare", "none", "unknown",
]  # fmt: skip
"""Why nothing was read. Of a window:

- `none`: the text names no time; `bare`: numbers without a unit; `unclear`: a time of which the grammar does
  not know what it is for
- `instant`: one moment, without a length; `open`: only before or after a moment; `relative`: to an event
- `frames`: frame numbers without a frame rate; `ambiguous`: two readings fit
- `reversed` (or empty), `beyond` the video, `malformed` (12:75), `several` different times

`subjects.py` has some of them too, and `unknown`: the annotations do not have what is named.
"""

_GRAVEST: tuple[Why, ...] = (
    "malformed", "reversed", "beyond", "ambiguous", "frames", "relative", "open", "unclear", "bare",
)  # fmt: skip
"""Which of several reasons is told."""

_STYLES: tuple[Style, Style] = ("m:ss", "h:mm")


@dataclass(frozen=True, slots=True)
class Asked:
    """The window a question names.

    Attributes:
        start, end: seconds, half-open, `0 <= start < end <= duration`.
        form: how it is written: `seconds`, `milliseconds`, `minutes`, `hours`, `units`, `m:ss`, `h:mm`,
            `h:mm:ss`, `mixed`, `percent`, `fraction`, `edge`, `anchor`, `frames`, `instant`.
        text: the words it was read from, in lower case and with numbers in digits.
    """

    start: float
    end: float
    form: str
    text: str


@dataclass(frozen=True, slots=True)
class Unread:
    """No window, and why; `text` has the words in question, where there are any."""

    why: Why
    text: str = ""


def read_window(
    question: str,
    duration: float,
    *,
    fps: float | None = None,
    style: Style | None = None,
    instant_seconds: float | None = None,
) -> Asked | Unread:
    """The one time window that `question` names, in a video of `duration` seconds.

    Args:
        fps: frames a second of the video, for windows in frame numbers.
        style: of clocks of two parts, used only where both styles fit.
        instant_seconds: length of the window that begins at a single instant ("at 12:30"); None leaves
            instants unread.

    Raises:
        ValueError: the duration, or one of the optional numbers, is no positive one.
    """
    for name, value in (("duration", duration), ("fps", fps), ("instant_seconds", instant_seconds)):
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"{name} is {value!r}, not a positive number")
    windows: list[Asked] = []
    instants: list[Asked] = []
    unread: list[Unread] = []
    for found in find(normal(question)):
        result = _resolve(found, duration, fps, style)
        if isinstance(result, Unread):
            unread.append(result)
        else:
            (instants if found.rule == "instant" else windows).append(result)
    if windows:
        return _one_of(windows, instants, unread)
    for why in _GRAVEST:
        for one in unread:
            if one.why == why and not (why == "bare" and instants):
                return one
    return _at_once(instants, duration, instant_seconds) if instants else Unread("none")


def clock_style(questions: Iterable[tuple[str, float]]) -> Style | None:
    """The style of two-part clocks that all questions with only one possible reading agree on.

    Args:
        questions: text and duration of each: those of one data set, which one hand wrote.
    """
    read = [read_window(question, duration) for question, duration in questions]
    forms = {window.form for window in read if isinstance(window, Asked)}
    told = [style for style in _STYLES if style in forms]
    return told[0] if len(told) == 1 else None


def _resolve(found: Found, duration: float, fps: float | None, style: Style | None) -> Asked | Unread:
    """The seconds of what was found, in the only reading that lies inside the video."""
    if found.bounds is None:
        return Unread(cast("Why", found.rule), found.text)
    if fps is None and any(amount.kind == "frame" for amount in found.uses):
        return Unread("frames", found.text)
    styles = _styles(found)
    reads = {one: found.bounds(partial(_place, one, duration, fps), duration) for one in styles}
    moment = found.rule == "instant"
    fitting = [one for one in styles if not _fault(*reads[one], duration, moment)]
    if style in fitting:
        fitting = [style]
    if len(fitting) > 1:
        return Unread("ambiguous", found.text)
    if not fitting:
        fault = _fault(*reads[styles[0]], duration, moment)
        assert fault is not None
        return Unread(fault, found.text)
    start, end = reads[fitting[0]]
    form = found.form
    if {amount.form for amount in found.uses} <= set(_STYLES) and any(
        a.as_hours is not None for a in found.uses
    ):
        form = fitting[0] if form in (*_STYLES, "mixed") else form
    return Asked(start, min(end, duration), form, found.text)


def _place(style: Style, duration: float, fps: float | None, amount: Amount) -> float:
    return amount.seconds(style, duration, fps)


def _styles(found: Found) -> Sequence[Style]:
    """The styles its clocks can have: one, where there is no clock of two parts or one says its style."""
    if all(amount.as_hours is None for amount in found.uses):
        return _STYLES[:1]
    told = {amount.form for amount in found.uses if amount.as_hours is None}
    return [one for one in _STYLES if one in told] or _STYLES


def _fault(start: float, end: float, duration: float, moment: bool) -> Why | None:
    if moment:
        return None if start < duration else "beyond"
    if start >= end:
        return "reversed"
    return "beyond" if start < 0 or start >= duration or end > duration + ROUNDING else None


def _one_of(windows: Sequence[Asked], instants: Sequence[Asked], unread: Sequence[Unread]) -> Asked | Unread:
    """The window, unless the text names another time too that it does not contain."""
    first = windows[0]
    for other in windows[1:]:
        if abs(other.start - first.start) > ROUNDING or abs(other.end - first.end) > ROUNDING:
            return Unread("several", f"{first.text} ... {other.text}")
    for instant in instants:
        if not first.start <= instant.start <= first.end:
            return Unread("several", f"{first.text} ... {instant.text}")
    for one in unread:
        if one.why != "bare":
            return Unread("several", f"{first.text} ... {one.text}")
    return first


def _at_once(instants: Sequence[Asked], duration: float, length: float | None) -> Asked | Unread:
    """The window that begins at the only instant."""
    first = instants[0]
    if any(abs(other.start - first.start) > ROUNDING for other in instants[1:]):
        return Unread("several", f"{first.text} ... {instants[1].text}")
    if length is None:
        return Unread("instant", first.text)
    return Asked(first.start, min(first.start + length, duration), "instant", first.text)
