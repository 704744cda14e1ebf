"""What a question is about, in its words: which lesion, or the phase whose onset it names.

Nothing is guessed: what the words leave open is an `Unread`, with `none` (nothing named), `several` (two
named), `unknown` (the annotations do not have it), `ambiguous` (they could mean two), `unclear` (named
by something that is not read, such as a size or a resection).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from diagnostics.data.build.annotations import SAME_TIME, Lesion
from diagnostics.data.sources._amounts import amounts, normal
from diagnostics.data.sources._source import Source
from diagnostics.data.sources.windows import Unread

__all__ = ["labels_named", "read_lesion", "read_onset_length", "read_phase"]

# -- lesions

_NOUN = r"(?:lesion|polyp|adenoma|tumou?r|growth)"
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_ORDINAL = rf"(?P<order>{'|'.join(_ORDINALS)}|last|final|\d{{1,6}}(?:st|nd|rd|th))"
_SEEN = (
    r"(?:seen|detected|visible|identified|encountered|found|shown|observed|appearing|annotated"
    r"|visuali[sz]ed)"
)
_BY_ORDER = re.compile(
    rf"\b{_ORDINAL}\s+(?P<seen>{_SEEN}\s+)?(?:colorectal\s+|colonic\s+)?{_NOUN}\b(?!\s*\d)(?=(?P<rest>[^.?!,;]*))"
)
_BY_RANK = re.compile(
    rf"\b{_ORDINAL}[\s-]+(?:largest|biggest|smallest)\b|\b(?:largest|biggest|smallest)\s+{_NOUN}\b"
)
_TO_BE_SEEN = re.compile(
    rf"\s*(?:(?:to|that)\s+(?:comes?\b|came\b|appears?\b|appeared\b|enters?\b"
    rf"|(?:be|is|was)\s+{_SEEN})|{_SEEN}\b)"
)
# Which resection, site or kind an ordinal counts by is not read.
_ANOTHER_ORDER = re.compile(
    r"\s*(?:(?:to|that)\s+(?:be|is|was|gets?)\s+\w+|removed|resected|biopsied|treated"
    r"|(?:in|from|of|with|on)\s+"
    r"(?!(?:the|this|that|our)?\s*(?:whole\s+|entire\s+)?(?:video|recording|procedure|examination"
    r"|colonoscopy)\b))"
)
_BY_NUMBER = re.compile(
    rf"\b{_NOUN}[\s_-]*(?:number\s+|no\.?\s*|id\s*:?\s*|\#\s*)?(?P<number>\d{{1,6}})(?![\w:.-])"
)
_BY_ID = re.compile(r"(?<![\w-])\d{3}-\d{3}_\d+(?![\w-])")


def read_lesion(
    question: str,
    lesions: Sequence[Lesion],
    window: tuple[float, float] | None = None,
    unseen: Collection[str] = (),
) -> Lesion | Unread:
    """The one lesion that `question` names.

    By its id (`001-002_1`), by a number (`lesion 2`), or by an order (`the second lesion to come into view`);
    an only lesion needs no name. A number and a bare order (`the second lesion`) can mean the number at an
    id's end or the order of appearance: where these disagree the question is ambiguous.

    Args:
        lesions: all that the video shows.
        window: the time window that the question names, as the lesions count; the lesion that is visible in
            it is meant where the words name none.
        unseen: ids of other lesions of the video, which it never shows: beside them none is the only one.
    """
    ordered = sorted(lesions, key=lambda lesion: lesion.appears)
    named = _named(question, ordered, unseen)
    if named is not None:
        return named
    if window is not None:
        seen = [lesion for lesion in ordered if lesion.visible(*window)]
        return seen[0] if len(seen) == 1 else Unread("several" if seen else "unknown", question)
    if len(ordered) == 1 and not unseen:
        return ordered[0]
    return Unread("none" if ordered else "unknown", question)


def _named(question: str, ordered: Sequence[Lesion], unseen: Collection[str]) -> Lesion | Unread | None:
    """What ids, numbers and orders in the text name; None where there are none."""
    text = normal(question)
    found: list[Lesion | Unread] = []
    ids = {lesion.name.casefold(): lesion for lesion in ordered}
    for name, lesion in ids.items():
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
            found.append(lesion)
    found += [Unread("unknown", one) for one in _BY_ID.findall(text) if one not in ids]
    if not found:
        found += [
            _numbered(int(match["number"]), ordered, match.group()) for match in _BY_NUMBER.finditer(text)
        ]
        found += [_in_order(match, ordered) for match in _BY_ORDER.finditer(text)]
        found += [Unread("unclear", match.group()) for match in _BY_RANK.finditer(text)]
    if re.search(rf"\b(?:only|single|sole)\s+{_NOUN}\b", text):
        only = len(ordered) == 1 and not unseen
        found.append(ordered[0] if only else Unread("unknown", question))
    unread = [one for one in found if isinstance(one, Unread)]
    if unread:
        return unread[0]
    named = {one.name: one for one in found if isinstance(one, Lesion)}
    if len(named) > 1:
        return Unread("several", ", ".join(named))
    return next(iter(named.values()), None)


def _numbered(number: int, ordered: Sequence[Lesion], words: str) -> Lesion | Unread:
    """The lesion of that number: at its id's end, and in the order of appearance; both must be one."""
    at_the_end = [lesion for lesion in ordered if _number_of(lesion) == number]
    by_order = _appearing(number - 1, ordered, words)
    if not any(_number_of(lesion) is not None for lesion in ordered):
        return by_order
    if not at_the_end:
        return Unread("unknown", words)
    return at_the_end[0] if at_the_end == [by_order] else Unread("ambiguous", words)


def _number_of(lesion: Lesion) -> int | None:
    """The number at the end of a lesion's id: 2 of `001-002_2`."""
    match = re.search(r"(?:^|[_\s#])(\d+)$", lesion.name)
    return int(match[1]) if match else None


def _in_order(match: re.Match[str], ordered: Sequence[Lesion]) -> Lesion | Unread:
    words, order = match.group(), match["order"]
    last = order in ("last", "final")
    place = len(ordered) - 1 if last else _place(order)
    if match["seen"] or _TO_BE_SEEN.match(match["rest"]):
        return _appearing(place, ordered, words)
    if _ANOTHER_ORDER.match(match["rest"]):
        return Unread("unclear", words)
    return _appearing(place, ordered, words) if last else _numbered(place + 1, ordered, words)


def _place(order: str) -> int:
    return _ORDINALS.index(order) if order in _ORDINALS else int(order[:-2]) - 1


def _appearing(place: int, ordered: Sequence[Lesion], words: str) -> Lesion | Unread:
    """The lesion at that place in the order of appearance; unread where two appear at once."""
    if not 0 <= place < len(ordered):
        return Unread("unknown", words)
    lesion = ordered[place]
    together = [one for one in ordered if abs(one.appears - lesion.appears) <= SAME_TIME]
    return lesion if len(together) == 1 else Unread("ambiguous", words)


# -- phases

_SMALL_WORDS = frozenset({"a", "an", "and", "of", "the"})


def read_phase(question: str, source: Source, labels: Iterable[str]) -> str | Unread:
    """The one phase that `question` names, as the source labels it.

    A phase is named by its label or one of the source's aliases, in whole words; case, punctuation, and the
    words a, an, and, of, the do not matter. Of names that contain each other the longest counts.

    Args:
        labels: those that the video's track has; a phase that only an alias knows is read too.
    """
    meant = _meant(question, source.aliases.get("phases", {}), labels)
    if not meant:
        return Unread("none", question)
    if len(meant) > 1:
        return Unread("several", ", ".join(sorted({label for some in meant for label in some})))
    [some] = meant
    return next(iter(some)) if len(some) == 1 else Unread("ambiguous", ", ".join(sorted(some)))


def labels_named(texts: Iterable[str], source: Source, track: str, labels: Sequence[str]) -> tuple[str, ...]:
    """Those of `labels` that any of the texts names, as `read_phase` reads them, but nothing ambiguous."""
    aliases = source.aliases.get(track, {})
    meant = {some for text in texts for some in _meant(text, aliases, labels) if len(some) == 1}
    return tuple(label for label in labels if frozenset({label}) in meant)


def _meant(text: str, aliases: Mapping[str, str], labels: Iterable[str]) -> set[frozenset[str]]:
    """What each wording of a label in `text` can mean; of those that contain others the longest counts."""
    table = _wordings(aliases, labels)
    words = [word for word in _words(text) if word not in _SMALL_WORDS]
    longest = max((len(wording) for wording in table), default=0)
    hits: list[tuple[int, int, str]] = []
    for start in range(len(words)):
        written = ""
        for end in range(start, len(words)):
            written += words[end]
            if len(written) > longest:
                break
            if written in table:
                hits.append((start, end, written))
    whole = [hit for hit in hits if not any(_inside(hit, other) for other in hits)]
    return {frozenset(table[written]) for *_, written in whole}


_FROM_ITS_FIRST = re.compile(r"\b(?:first|initial|opening)\s+$")
_IN_THE = re.compile(r"\b(?:in|within|during|over)\s+(?:the\s+)?$")
_OF_IT = re.compile(r"\s*(?:of|in|into|after|following|from|since)\b|\s*(?:[,.;:?!]|$)")
_AFTER_IT = re.compile(r"\s*(?:after|following|from)\b")


def read_onset_length(question: str) -> float | None:
    """How many seconds after an event's beginning the question asks about; None where no words say it.

    Read are `the first 10 seconds of` or `after` it, and `in the 10 seconds after` it. `10 seconds after` it
    is a moment, no length; of two amounts of time none is taken.
    """
    text = normal(question)
    told = [amount for amount in amounts(text) if amount.kind not in ("bare", "percent")]
    if len(told) != 1 or told[0].kind != "time" or told[0].labelled or not told[0].value > 0:
        return None
    before, after = text[: told[0].start], text[told[0].end :]
    first = _FROM_ITS_FIRST.search(before) and _OF_IT.match(after)
    return told[0].value if first or (_IN_THE.search(before) and _AFTER_IT.match(after)) else None


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.casefold())


def _inside(hit: tuple[int, int, str], other: tuple[int, int, str]) -> bool:
    return hit != other and other[0] <= hit[0] and hit[1] <= other[1]


def _wordings(aliases: Mapping[str, str], labels: Iterable[str]) -> dict[str, set[str]]:
    """Labels by every wording of them; numbers and very short ones are no names of a phase in a sentence."""
    table: dict[str, set[str]] = {}
    own = {label: label for label in (*labels, *aliases.values())}
    for wording, label in (*own.items(), *aliases.items()):
        written = "".join(word for word in _words(wording) if word not in _SMALL_WORDS)
        if len(written) > 2 and re.search(r"[a-z]{2}", written):
            table.setdefault(written, set()).add(label)
    return table
