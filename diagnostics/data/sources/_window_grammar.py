"""What amounts of time in a question are for: ends of a range, an instant and a length, part of the video.

Only wordings that mean a place in the video for certain become something that can be read; lengths ("takes 5
to 10 minutes") are passed over, everything else is named as what it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from diagnostics.data.sources import _window_words as say
from diagnostics.data.sources._amounts import Amount, amounts, unit_seconds

__all__ = ["Found", "Place", "find"]

Place = Callable[[Amount], float]
"""An amount's place or length in seconds, in one reading."""


@dataclass(frozen=True)
class Found:
    """Something in the text that could be a time.

    Attributes:
        rule: `window` and `instant` can be computed; a `length` is no place in time; the others are reasons
            of `windows.Unread`.
        form: of a window: how it is written; of an instant: of its amount.
        text: the words.
        uses: the amounts it is made of.
        bounds: first and last second, given the places of amounts and the duration; None where it has none.
        start: of a window: where in the text its words begin.
    """

    rule: Literal[
        "window", "instant", "open", "relative", "ambiguous", "unclear", "bare", "malformed", "length"
    ]
    text: str
    form: str = ""
    uses: tuple[Amount, ...] = ()
    bounds: Callable[[Place, float], tuple[float, float]] | None = None
    start: int = 0


# -- the scan


def find(text: str) -> list[Found]:
    """Everything in a text that `normal` prepared that could be a time, in order; no amount serves twice."""
    numbers = _restated(text, [a for a in amounts(text) if not _passed_over(text, a)])
    found = [*_fractions(text)]
    place = 0
    while place < len(numbers):
        first = numbers[place]
        second = numbers[place + 1] if place + 1 < len(numbers) else None
        pair = None
        if second is not None and "malformed" not in (first.kind, second.kind):
            third = numbers[place + 2] if place + 2 < len(numbers) else None
            # "the 10-second interval from 0:12:30 to 0:12:40" is a range, whose length is told before it.
            if third is None or _range(text, second, third) is None:
                pair = _anchor(text, first, second)
            pair = pair or _range(text, first, second)
        place += 1 if pair is None else 2
        found.append(pair or _single(text, first))
    return [_beside(text, one) for one in found if one.rule != "length"]


def _beside(text: str, found: Found) -> Found:
    """A window is not what is asked about where the question is about what comes before or after it."""
    if found.rule == "window" and (say.NEXT.search(text) or say.AWAY.search(text[: found.start])):
        return Found("relative", found.text)
    return found


def _passed_over(text: str, amount: Amount) -> bool:
    """A ratio, or a clock that says how long the video is."""
    if amount.kind != "clock":
        return False
    before, after = text[: amount.start], text[amount.end :]
    return any(
        (
            say.RATIO_BEFORE.search(before),
            say.RATIO_AFTER.match(after),
            say.LENGTH_OF_VIDEO.search(before),
            say.LONG.match(after),
        )
    )


def _restated(text: str, found: list[Amount]) -> list[Amount]:
    """Without amounts in brackets that say the one before them again: `750 seconds (12:30)`."""
    kept: list[Amount] = []
    for amount in found:
        last = kept[-1] if kept else None
        if last is not None and re.fullmatch(rf"{say.MARK}\s*\(\s*", text[last.end : amount.start]):
            closed = re.match(r"\s*\)", text[amount.end :])
            again = {last.value, last.as_hours} & {amount.value, amount.as_hours} - {None}
            if closed and again and {last.kind, amount.kind} <= {"clock", "time"}:
                [value] = again if len(again) == 1 else [last.value]
                kept[-1] = replace(last, end=amount.end + closed.end(), value=value or 0.0, as_hours=None)
                continue
        kept.append(amount)
    return kept


# -- two amounts


def _range(text: str, first: Amount, second: Amount) -> Found | None:
    """`first` to `second`; None where nothing joins them to a range."""
    before, between, after = text[: first.start], text[first.end : second.start], text[second.end :]
    bracketed = bool(say.OPENED.search(before)) and bool(say.CLOSED.match(after))
    joined = any(
        (
            say.TO.fullmatch(between),
            say.AND.fullmatch(between) and say.BETWEEN.search(before),
            say.COMMA.fullmatch(between) and bracketed,
            say.END.fullmatch(between) and say.START.search(before),
        )
    )
    if not joined:
        return None
    end = second.end
    unit = say.UNIT_BEHIND.match(after) if first.kind == second.kind == "bare" else None
    if unit is not None and (unit["inside"] or say.OPENED.search(before)):
        name = unit["inside"] or unit["behind"]
        first, second, end = _in_unit(first, name), _in_unit(second, name), end + unit.end()
    words, after = text[first.start : end], text[end:]
    first, second = _alike(first, second, after)
    kinds = {first.kind, second.kind}
    if "bare" in kinds:
        return _bare(words, before, after, first, second)
    if kinds == {"percent"}:
        return _percents(words, before, after, first, second)
    if kinds != {"frame"} and not kinds <= {"clock", "time"}:
        return Found("unclear", words)
    rule = _use(before, between, after, first, second)
    if rule != "window":
        return Found(rule, words)
    if first.ordinal and first.form != "seconds":
        return Found("ambiguous", words)
    form = first.form if first.form == second.form else "mixed"
    return _between(words, form, first, second)


def _between(words: str, form: str, first: Amount, second: Amount) -> Found:
    uses = (first, second)
    return Found("window", words, form, uses, lambda at, _: (at(first), at(second)), first.start)


def _use(
    before: str, between: str, after: str, first: Amount, second: Amount
) -> Literal["window", "length", "relative", "unclear"]:
    """What a range of clocks, times or frames is for."""
    rest = re.sub(r"^\s*[\])>]", "", after)
    if (say.RELATIVE.match(rest) and not say.OF_THE_VIDEO.match(rest)) or say.EVENT_BEFORE.search(before):
        return "relative"
    if "clock" in (first.kind, second.kind):
        return "window"
    lengths = (
        say.LENGTH_BEFORE.search(before),
        say.LENGTH_CLAUSE.search(before),
        say.LENGTH_AFTER.match(rest),
    )
    if not first.labelled and any(lengths):
        return "length"
    if say.LATE_TO.match(between) and not first.labelled and not say.FROM.search(before):
        return "unclear"
    said = any(
        (
            say.WINDOW_WORD.search(before),
            say.LABEL_WORD.search(before) and first.labelled,
            say.THE.search(before) and say.PART_AFTER.match(rest),
            say.OF_THE_VIDEO.match(rest),
            not before.strip() and re.match(r"\s*[:,)\]]", after),
        )
    )
    return "window" if said else "unclear"


def _alike(first: Amount, second: Amount, after: str) -> tuple[Amount, Amount]:
    """Both in the unit that one of them carries: `12 and 13 minutes`, `minute 12 and 13`."""
    if first.kind == "bare" and second.kind in ("time", "percent", "frame"):
        if second.kind != "time":
            return replace(first, kind=second.kind, form=second.form), second
        if (
            second.form != "units"
            and first.ordinal == second.ordinal
            and not (second.labelled > first.labelled)
        ):
            return _in_unit(first, second.form), second
    if second.kind == "bare" and first.labelled and first.kind in ("time", "frame"):
        complete = re.match(say.TAIL, after) or say.OF_THE_VIDEO.match(after) or say.RELATIVE.match(after)
        if complete and first.kind == "frame":
            return first, replace(second, kind="frame", form="frames", labelled=True)
        if complete:
            return first, replace(_in_unit(second, first.form), labelled=True)
    return first, second


def _in_unit(amount: Amount, unit: str) -> Amount:
    name, seconds = unit_seconds(unit)
    return replace(amount, kind="time", value=amount.value * seconds, form=name)


def _bare(words: str, before: str, after: str, first: Amount, second: Amount) -> Found:
    """A range without a unit: worth naming where it could be times, else nothing."""
    one_is_time = {first.kind, second.kind} != {"bare"}
    could = re.match(r"\s*[\])>]*\s*(?:[.?!,;:]|$)", after) and not first.ordinal
    if could and (
        one_is_time or say.BETWEEN.search(before) or say.FROM.search(before) or say.OPENED.search(before)
    ):
        return Found("bare", words)
    return Found("unclear" if one_is_time else "length", words)


def _percents(words: str, before: str, after: str, first: Amount, second: Amount) -> Found:
    """A range of percentages, which may be of anything."""
    marked = re.match(rf"(?:[\s-]*{say.PART}|{say.MARK})\b(?<=[a-z]){say.TAIL}", after)
    if say.OF_THE_VIDEO.match(after) or marked:
        return _between(words, "percent", first, second)
    ended = re.match(r"\s*(?:[.?!,;:]|$)", after)
    return Found("bare" if ended and say.WINDOW_WORD.search(before) else "length", words)


def _anchor(text: str, first: Amount, second: Amount) -> Found | None:
    """A place and a length, in either order."""
    before, between, after = text[: first.start], text[first.end : second.start], text[second.end :]
    words = text[first.start : second.end]
    if first.kind == "time" and not first.labelled and second.kind in ("clock", "time"):
        for side, link in say.LENGTH_THEN_PLACE.items():
            if not link.fullmatch(between):
                continue
            if not say.LENGTH_WORD.search(before):
                return Found("unclear", words)
            return _anchored(
                words, second, first, {"after": 0.0, "centre": 0.5, "before": 1.0}[side], before, after
            )
    if second.kind == "time" and not second.labelled and first.kind in ("clock", "time"):
        if not say.PLACE_THEN_LENGTH.fullmatch(between):
            return None
        if first.kind == "time" and not (say.AT.search(before) or say.FROM.search(before)):
            return Found("unclear", words)
        return _anchored(words, first, second, 0.0, before, after)
    return None


def _anchored(words: str, place: Amount, length: Amount, back: float, before: str, after: str) -> Found:
    if (say.RELATIVE.match(after) and not say.OF_THE_VIDEO.match(after)) or say.EVENT_BEFORE.search(before):
        return Found("relative", words)
    span = length.value
    return Found(
        "window",
        words,
        "anchor",
        (place,),
        lambda at, _: (at(place) - back * span, at(place) + (1 - back) * span),
        len(before),
    )


# -- one amount, and none


def _single(text: str, amount: Amount) -> Found:
    before, after = text[: amount.start], text[amount.end :]
    words = text[amount.start : amount.end]
    if amount.kind == "malformed":
        return Found("malformed", words)
    if amount.kind == "bare":
        return Found("length", words)
    of_video = say.OF_THE_VIDEO.match(after)
    if (edge := _edge(text, amount, of_video is not None)) is not None:
        return edge
    if amount.kind == "percent" and of_video is None:
        return Found("length", words)
    if say.RELATIVE.match(after) and of_video is None:
        return Found("relative", words)
    if say.AT.search(before) or (amount.labelled and say.LABEL_WORD.search(before)):
        if amount.ordinal and amount.form != "seconds":
            return Found("ambiguous", words)
        return Found("instant", words, amount.form, (amount,), lambda at, _: (at(amount), at(amount)))
    if say.OPEN.search(before):
        return Found("open", words)
    return Found("unclear" if amount.kind in ("clock", "frame") or amount.labelled else "length", words)


def _edge(text: str, amount: Amount, of_video: bool) -> Found | None:
    """From the video's start, or to its end; None where the amount is neither."""
    before, after, begin = text[: amount.start], text[amount.end :], amount.start
    if amount.kind in ("clock", "time", "percent"):
        if (start := say.FROM_THE_START.search(before)) is not None and not say.RELATIVE.match(after):
            return _first(text, start.start(), amount)
        end = say.TO_THE_END.match(after)
        if end is not None and (say.FROM.search(before) or say.BETWEEN.search(before)):
            words = text[begin : amount.end + end.end()]
            return Found("window", words, "edge", (amount,), lambda at, whole: (at(amount), whole), begin)
    edge = say.EDGE.search(before) if amount.kind in ("time", "percent") else None
    if edge is None:
        return None
    words = text[edge.start() : amount.end]
    if say.TWO_EDGES.search(text[: edge.start()]):
        return Found("unclear", words)
    if not of_video or re.match(say.AFTER_VIDEO, after.lstrip()):
        return Found("relative" if amount.kind == "time" else "length", words)
    if edge["edge"] not in ("last", "final", "closing"):
        return _first(text, edge.start(), amount)
    form = "percent" if amount.kind == "percent" else "edge"
    return Found(
        "window", words, form, (amount,), lambda at, whole: (whole - at(amount), whole), edge.start()
    )


def _first(text: str, begin: int, amount: Amount) -> Found:
    words, form = text[begin : amount.end], "percent" if amount.kind == "percent" else "edge"
    return Found("window", words, form, (amount,), lambda at, _: (0.0, at(amount)), begin)


def _fractions(text: str) -> Iterator[Found]:
    """`the second half of the video`."""
    for match in say.FRACTION.finditer(text):
        parts, which = say.PARTS[match["part"]], match["which"]
        number = parts - 1 if which in ("last", "final") else say.POSITIONS.get(which, 1)
        if number >= parts or (which == "middle" and parts != 3) or match["whole"] is None:
            yield Found("unclear", match.group())
        else:
            yield _fraction(match, number / parts, (number + 1) / parts)


def _fraction(match: re.Match[str], low: float, high: float) -> Found:
    words, start = match.group(), match.start()
    return Found("window", words, "fraction", (), lambda _, whole: (low * whole, high * whole), start)
