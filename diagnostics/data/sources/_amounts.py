"""Amounts of time in English text: clocks, numbers with units, percentages, frame numbers, bare numbers.

What an amount is for (an end of a window, a length, no time at all) is `windows.py`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from num2words import num2words

__all__ = ["NUMBER", "UNIT_WORD", "Amount", "Style", "amounts", "normal", "unit_seconds"]

Style = Literal["m:ss", "h:mm"]
"""How a clock of two parts is read."""

_UNITS = {
    "milliseconds": (0.001, r"milliseconds?|msecs?|ms"),
    "seconds": (1.0, r"seconds?|secs?|s"),
    "minutes": (60.0, r"minutes?|mins?"),
    "hours": (3600.0, r"hours?|hrs?|h"),
}
UNIT_WORD = "|".join(words for _, words in _UNITS.values())
NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"

_CLOCK = re.compile(
    r"(?<![\w.:/])\d{1,9}(?::\d{1,9})+(?:[.,]\d{1,3}(?!\d|:\d))?(?!\d|:\d)"
    r"(?:\s*(?:\((?P<shape>h{1,2}:mm:ss|m{1,2}:ss|h{1,2}:mm)\)|(?P<unit>hours?|hrs?|h|minutes?|mins?)\b)|(?!\w))"
)
_NOT_OF_A_VIDEO = re.compile(r"\s*(?:[ap]\.?m\b|o'?\s?clock)")
_PRIME = re.compile(r"""(?<![\w.:/])(?P<minutes>\d+)\s?'\s?(?P<seconds>[0-5]?\d(?:\.\d+)?)\s?(?:"|'')""")
# Metres are written m too: as minutes it needs hours before it or seconds after it.
_PART = re.compile(rf"(?P<number>{NUMBER})[\s-]*(?P<unit>{UNIT_WORD}|m)(?![a-z/])")
_JOIN = re.compile(r"\s*,?\s*(?:and\s+)?")
_PERCENT = re.compile(rf"(?P<number>{NUMBER})\s*(?:%|percent\b|per\s+cent\b)")
_LABEL = re.compile(
    rf"(?<!\w)(?P<unit>seconds?|secs?|minutes?|mins?|hours?|frames?)\s+(?:no\.?\s*|number\s+|\#\s*)?"
    rf"(?P<number>{NUMBER})(?![\w:%/]|[,.]\d)"
)
_ORDINAL = re.compile(r"(?P<number>\d+)(?:st|nd|rd|th)\b(?:\s+(?P<unit>seconds?|minutes?|hours?)\b)?")
_BARE = re.compile(rf"(?P<number>{NUMBER})(?![\w:/]|[,.]\d)")
_START = re.compile(r"(?<![\w.:/])(?<!\d,)(?=[\d])|(?<!\w)(?=[smhf][a-z]*\s)")
_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212~\u223c\uff5e"), "-")
_SIGNS = {ord("\u2019"): "'", ord("\u2018"): "'", ord("\u2032"): "'", ord("\u201c"): '"', ord("\u201d"): '"'}
_SIGNS |= {ord("\u2033"): '"', ord("\u2192"): "-", ord("\u00a0"): " ", ord("\u202f"): " ", ord("\u2009"): " "}


@dataclass(frozen=True, slots=True)
class Amount:
    """A number in a text and what it counts.

    Attributes:
        start, end: where in the text it stands.
        kind: `clock`, `time` (with a unit), `percent`, `frame`, `bare` (no unit), or `malformed`.
        value: seconds, percent, frames, or the number itself. Of a clock of two parts: as m:ss.
        as_hours: seconds of a clock of two parts read as h:mm; None for everything else.
        form: how it is written: `m:ss`, `h:mm`, `h:mm:ss`, `seconds`, `minutes`, `hours`, `units`...
        labelled: the unit stands before it, or it is an ordinal: it is a place in time, never a length.
        ordinal: it is one ("12th minute").
    """

    start: int
    end: int
    kind: Literal["clock", "time", "percent", "frame", "bare", "malformed"]
    value: float
    form: str
    as_hours: float | None = None
    labelled: bool = False
    ordinal: bool = False

    def seconds(self, style: Style, duration: float, fps: float | None) -> float:
        """The place in seconds, in a video of that length."""
        if self.kind == "percent":
            return self.value / 100 * duration
        if self.kind == "frame":
            return self.value / fps if fps else float("nan")
        if style == "h:mm" and self.as_hours is not None:
            return self.as_hours
        return self.value


@cache
def _cardinals() -> tuple[re.Pattern[str], dict[str, str]]:
    words = {num2words(number).replace("-", " "): str(number) for number in range(100)}
    longest = sorted(words, key=len, reverse=True)
    pattern = "|".join(word.replace(" ", r"[\s-]") for word in longest)
    return re.compile(rf"(?<![\w-])(?:{pattern})(?![\w])"), words


def normal(text: str) -> str:
    """`text` in lower case, with one kind of dash and quote, and cardinals up to 99 in digits."""
    text = re.sub(r"\s+", " ", text.translate(_DASHES).translate(_SIGNS).casefold())
    text = text.replace("->", "-").replace("--", "-")
    # In square or angle brackets a comma parts two numbers; elsewhere it may part thousands.
    text = re.sub(r"([\[<]\s*[\d.]+),(?=[\d.]+\s*[\])>])", r"\1, ", text)
    pattern, words = _cardinals()
    return pattern.sub(lambda found: words[re.sub(r"[\s-]", " ", found.group())], text)


def unit_seconds(word: str) -> tuple[str, float]:
    """Name and seconds of a unit of time.

    Raises:
        KeyError: `word` is none.
    """
    for name, (seconds, words) in _UNITS.items():
        if re.fullmatch(words, word):
            return name, seconds
    if word == "m":
        return "minutes", 60.0
    raise KeyError(word)


def amounts(text: str) -> list[Amount]:
    """All amounts of a text that `normal` prepared, in order."""
    return list(_amounts(text))


def _amounts(text: str) -> Iterator[Amount]:
    place = 0
    while (begin := _START.search(text, place)) is not None:
        place = begin.start()
        found, end = _amount(text, place)
        if found is not None:
            yield found
        place = max(end, place + 1)


def _amount(text: str, place: int) -> tuple[Amount | None, int]:
    """The amount that begins at `place`, and where to look on."""
    if (match := _CLOCK.match(text, place)) is not None:
        other = _NOT_OF_A_VIDEO.match(text, match.end()) is not None
        return (None if other else _clock(match)), match.end()
    if (match := _PRIME.match(text, place)) is not None:
        value = 60 * float(match["minutes"]) + float(match["seconds"])
        return Amount(place, match.end(), "time", value, "units"), match.end()
    if (match := _PERCENT.match(text, place)) is not None:
        return Amount(place, match.end(), "percent", _number(match["number"]), "percent"), match.end()
    if (found := _units(text, place)) is not None:
        return found, found.end
    if (match := _LABEL.match(text, place)) is not None:
        return _label(text, match), match.end()
    if (match := _ORDINAL.match(text, place)) is not None:
        return _ordinal(match), match.end()
    if (match := _BARE.match(text, place)) is not None:
        if _NOT_OF_A_VIDEO.match(text, match.end()):
            return None, match.end()
        return Amount(place, match.end(), "bare", _number(match["number"]), "bare"), match.end()
    skip = re.compile(rf"{NUMBER}|[a-z]+").match(text, place)
    return None, skip.end() if skip else place + 1


def _number(written: str) -> float:
    return float(written.replace(",", ""))


def _clock(match: re.Match[str]) -> Amount | None:
    """A clock; `malformed` where no video has such a time, None where it is a ratio like 3:1."""
    written = re.match(r"[\d:]+(?:[.,]\d+)?", match.group())
    assert written is not None
    whole, _, decimals = written.group().replace(",", ".").partition(".")
    parts = whole.split(":")
    start, end, fraction = match.start(), match.end(), float(f"0.{decimals or 0}")
    if any(len(part) != 2 for part in parts[1:]):
        return None
    numbers = [int(part) for part in parts]
    if len(parts) > 3 or any(number > 59 for number in numbers[1:]):
        return Amount(start, end, "malformed", float("nan"), "clock")
    shape = match["shape"] or ""
    if len(parts) == 3:
        value = 3600 * numbers[0] + 60 * numbers[1] + numbers[2] + fraction
        return Amount(start, end, "clock", value, "h:mm:ss")
    as_minutes, as_hours = 60 * numbers[0] + numbers[1] + fraction, 3600.0 * numbers[0] + 60 * numbers[1]
    if shape.startswith("h") or (match["unit"] or "").startswith("h"):
        return Amount(start, end, "clock", as_hours, "h:mm")
    if shape or match["unit"] or decimals:  # h:mm has no decimals
        return Amount(start, end, "clock", as_minutes, "m:ss")
    return Amount(start, end, "clock", as_minutes, "m:ss", as_hours=as_hours)


def _units(text: str, place: int) -> Amount | None:
    """`1 hour, 2 minutes and 3 seconds`: units that become smaller, each below the next larger one."""
    match = _PART.match(text, place)
    if match is None:
        return None
    name, scale = unit_seconds(match["unit"])
    total, end, count, short = scale * _number(match["number"]), match.end(), 1, match["unit"] == "m"
    while scale > 1 and (joint := _JOIN.match(text, end)) is not None:
        following = _PART.match(text, joint.end())
        if following is None:
            break
        _, smaller = unit_seconds(following["unit"])
        if not 1 <= smaller < scale or _number(following["number"]) * smaller >= scale:
            break
        total, end, scale, count = (
            total + smaller * _number(following["number"]),
            following.end(),
            smaller,
            count + 1,
        )
    if short and count == 1:
        return None
    return Amount(place, end, "time", total, name if count == 1 else "units")


def _label(text: str, match: re.Match[str]) -> Amount | None:
    """`minute 12`; None for the second of several things ("the second 5 mm polyp")."""
    if match["unit"] == "second" and re.search(r"\b(?:the|a|this|that|its)\s+$", text[: match.start()]):
        return None
    value = _number(match["number"])
    if match["unit"].startswith("frame"):
        return Amount(match.start(), match.end(), "frame", value, "frames", labelled=True)
    name, scale = unit_seconds(match["unit"])
    return Amount(match.start(), match.end(), "time", scale * value, name, labelled=True)


def _ordinal(match: re.Match[str]) -> Amount:
    value = float(match["number"])
    if match["unit"] is None:
        return Amount(match.start(), match.end(), "bare", value, "bare", labelled=True, ordinal=True)
    name, scale = unit_seconds(match["unit"])
    return Amount(match.start(), match.end(), "time", scale * value, name, labelled=True, ordinal=True)
