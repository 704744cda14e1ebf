"""Which option a reply names by the option's text.

Text counts only where the reply states it as its answer: it is the whole reply, opens it as a sentence of
its own, or ends a sentence behind "is (the)", a cue or a verb of choice. A text that merely occurs in a
description names nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from diagnostics.scoring.extraction.cues import ANSWER, BETWEEN, CERTAIN, DENIED, INTERJECTION, OPTION, PICK

__all__ = ["asserted", "clause_before", "key", "places_of", "sentences", "stated", "with_letter"]

_SENTENCE = re.compile(r"[^.!?。\n]+(?:\.(?!\s|$)[^.!?。\n]*)*[.!?。]*")
_CLAUSE_END = re.compile(
    r"[,;:.!?\n—–，；：。]|\b(?:but|sondern|aber|mais|pero|sino|mas|sed|но|а)\b|\s-\s|而是|ではなく|아니라"
)
_ARTICLE = re.compile(
    r"^(?:the|an?|der|die|das|den|dem|ein|eine|le|la|les|un|une|el|los|las|una|il|lo|o|os|as|het|de)\s+(?=\S)|^l'(?=\S)"
)
_ENDS = " .,;:!?\"'“”‘’()[]{}-。，、！？：；"
_PLAIN_WORDS = (
    r"(?:\s+(?:to\s+be|most|likely|probably|clearly|located|seen|visible|in|at|on|of|the|an?|option|colou?red|der|die"
    r"|das|den|im|le|la|les|l'|un|une|dans|el|en|una|il|lo|o|no|na|um|uma|ein|eine|het|een)){0,6}\s*"
)
_COPULA = (
    r"(?:\b(?:is|are|was|were|appears|seems|looks|be|it's|that's|ist|est|c'est|es|é|è|это|jest|to|occurs|happens|takes\s+place)\b\s*:?"
    + _PLAIN_WORDS
    + r"|(?<![不非])是|为|為|は|은|는)\s*"
)
_CUE = rf"(?:{ANSWER}{BETWEEN}|{OPTION}\s*[:：]\s*|{PICK}\s*)(?:[:：]\s*)?{_PLAIN_WORDS}"
_STATES = rf"(?:{_COPULA}|{_CUE}|\b(?:but|sondern|mais|sino|mas|rather){_PLAIN_WORDS}|而是)"
_TAIL = (
    r"[\"'“”]?\s*(?:です|でした|だ|입니다|이다|है)?\s*(?:,?\s+(?:as|because|since|given|due)\b.*)?[.!。]*\s*$"
)
_LETTER_BEHIND = re.compile(
    r"^(?P<text>.*?\w)\W*?(?:[(\[]\s*(?:option\s+|choice\s+)?|,\s*(?:which\s+is\s+)?(?:option|choice|answer)\s+)"
    r"(?P<letter>[A-Z])\s*[)\]]?\W*$",
    re.IGNORECASE | re.DOTALL,
)


def key(text: str) -> str:
    """Text for comparison: case, punctuation at the ends, article and spacing do not count."""
    return _ARTICLE.sub("", _words(text))


def _words(text: str) -> str:
    return " ".join(text.casefold().split()).strip(_ENDS)


def places_of(text: str, options: Sequence[str]) -> set[int]:
    """Places of the options whose text this is. An article may be missing; another one makes other words."""
    found = set()
    for place, option in enumerate(options):
        wanted, given = _words(option), _words(text)
        if given and (given == wanted or key(text) == wanted or given == key(option)):
            found.add(place)
    return found


def with_letter(text: str) -> tuple[str, str] | None:
    """ "Rectum (D)" as its text and letter; None for anything else."""
    match = _LETTER_BEHIND.fullmatch(text)
    return (match["text"], match["letter"].upper()) if match else None


def stated(text: str, options: Sequence[str]) -> set[int]:
    """Places of the options that the reply states; none where it mentions others too."""
    whole = places_of(text, options)
    if whole:
        return whole
    low = " ".join(text.casefold().split())
    opening = re.split(r"[.:!。！]\s*|,\s|，|\n|\s(?:because|since)\s", text.casefold())[0]
    mentioned = _mentioned(low, options)
    found = places_of(re.sub(rf"^(?:{INTERJECTION}[\s,:]+){{1,5}}", "", opening), options)
    found |= {place for place in mentioned if _ends_a_statement(low, key(options[place]))}
    return found if found == mentioned else set() if len(found) < 2 else found


def _bounded(words: str) -> str:
    """A pattern for these words alone; Chinese, Japanese and Korean words have no borders."""
    before = r"(?<![^\W\u2E80-\uFFFF])" if words[0] < "\u2e80" else ""
    after = r"(?![^\W\u2E80-\uFFFF])" if words[-1] < "\u2e80" else ""
    return before + re.escape(words) + after


def _mentioned(low: str, options: Sequence[str]) -> set[int]:
    """Options whose text occurs, and is not denied right there; a longer one hides a shorter."""
    mentioned = set()
    for words in sorted({key(option) for option in options} - {""}, key=len, reverse=True):
        pattern = re.compile(_bounded(words))
        denied = re.compile(
            rf"(?:\b(?:not|nicht|pas|no\s+es|non\s+è|não\s+é|не)\b{_PLAIN_WORDS}|不是|并非)$", re.IGNORECASE
        )
        hits = list(pattern.finditer(low))
        if any(not denied.search(low, 0, hit.start()) for hit in hits):
            mentioned |= {place for place, option in enumerate(options) if key(option) == words}
        if hits:
            low = pattern.sub(" | ", low)
    return mentioned


def _ends_a_statement(low: str, words: str) -> bool:
    """Whether a sentence ends in "is (the) <words>", and does not deny it."""
    pattern = re.compile(rf"{_STATES}[\"'“]?{re.escape(words)}{_TAIL}", re.IGNORECASE)
    for start, end in sentences(low):
        for match in pattern.finditer(low, start, end):
            # The option's own words may deny ("no polyp"): what stands before them decides.
            if asserted(low, start, low.rindex(words, match.start(), match.end())):
                return True
    return False


def sentences(text: str) -> list[tuple[int, int]]:
    """Spans of the sentences that are not questions."""
    spans = [match.span() for match in _SENTENCE.finditer(text)]
    return [(start, end) for start, end in spans if not text[start:end].rstrip(" )\"'").endswith("?")]


def clause_before(text: str, start: int, end: int) -> str:
    """What stands before `end` in its clause, within the sentence that starts at `start`."""
    return _CLAUSE_END.split(text[start:end])[-1]


def asserted(text: str, start: int, end: int) -> bool:
    """Whether the clause up to `end` neither denies what follows nor makes it a condition."""
    return DENIED.search(CERTAIN.sub("", clause_before(text, start, end))) is None
