"""Letters and digits of other scripts as the plain capitals that options are named by.

A character stands for an option only where a label can stand: as the whole reply, in brackets, at the
start before a full stop or bracket, or behind a cue. Anywhere else "С" is a Russian preposition and "2" a
number of polyps.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from diagnostics.data.items import option_letter
from diagnostics.scoring.extraction.cues import ANSWER, BETWEEN, OPTION

__all__ = ["labels_as_letters", "plain_characters"]

_ENCLOSED = {
    start + place: chr(ord("A") + place) for start in (0x1F150, 0x1F170, 0x1F1E6) for place in range(26)
}
"""Negative circled, negative squared and regional-indicator letters: NFKC leaves them as they are."""

_ROUND = {
    code: f" {unicodedata.digit(chr(code))} " for code in (*range(0x2776, 0x277F), *range(0x2780, 0x2789))
} | {code: f" {unicodedata.digit(chr(code))} " for code in range(0x278A, 0x2793)}
"""Circled digits of the dingbats, which NFKC leaves too."""

_INVISIBLE = dict.fromkeys(
    (0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0xFE0E, 0xFE0F, 0x20E3, 0x200E, 0x200F, 0x0640)
)
"""Zero-width characters, variation selectors, the keycap, marks of direction, the Arabic stretch."""

_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "「": '"', "」": '"', "【": "(", "】": ")"})

_SERIES = (
    "甲乙丙丁戊己庚辛壬癸",
    "가나다라마바사아자차",
    "\u1100\u1102\u1103\u1105\u1106\u1107\u1109\u110b\u110c\u110e",  # what NFKC makes of the Korean jamo
    "アイウエオカキクケコ",
    "أبجده",
    "ابجده",
    "אבגדהוזחטי",
    "कखगघङ",
    "กขคง",
    "ΑΒΓΔΕ",
    # Only what has one reading: the third letter of the Cyrillic alphabet looks like B, the fifth is a D.
    "АБ",
)
_NATIVE = {character: place for series in _SERIES for place, character in enumerate(series)} | {
    "С": 2,
    "Г": 3,
}

_LABEL = rf"(?P<label>[{''.join(_NATIVE)}]|\d{{1,2}})"
_NOTHING_ELSE = re.compile(rf"[^\w\-−]*{_LABEL}(?:\s*(?:番|번))?[^\w?？]*")
_PLACES = (
    re.compile(rf"(?<!\w)[(\[]\s*{_LABEL}\s*[)\]](?!\w)"),
    re.compile(rf"^\W*{_LABEL}\s*[.):、．](?![\d\w])"),
    re.compile(
        rf"(?:{ANSWER}{BETWEEN}|(?:{OPTION})\s*[:：]?\s*)[\"'(\[]*{_LABEL}(?![\d:.,]*\d)(?=\W|$|番|번|입|で|이)",
        re.IGNORECASE,
    ),
)
_NUMBERED_LINE = re.compile(r"^\W*\d{1,2}\s*[.):、]", re.MULTILINE)
_NUMBER = re.compile(
    r"\d|[一二三四五六七八九十两]|\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|once|twice|first"
    r"|second|third|fourth|fifth|last|ein|eins|zwei|drei|vier|fünf|un|deux|trois|quatre|cinq|uno|dos|tres"
    r"|cuatro|cinco)\b",
    re.IGNORECASE,
)


def plain_characters(text: str) -> str:
    """The text in NFKC, letters in circles and squares as capitals, invisible characters removed."""
    text = text.translate(_ENCLOSED).translate(_ROUND).translate(_INVISIBLE)
    return unicodedata.normalize("NFKC", text).translate(_INVISIBLE).translate(_QUOTES)


def labels_as_letters(text: str, options: Sequence[str]) -> str:
    """The text with native letters, and digits, as capitals wherever they name an option.

    Digits do so only where no option has a number in it: "2" could else be place or text. A number past the
    options becomes the letter past them, so that it is known to be outside.
    """
    digits = not any(_NUMBER.search(plain_characters(option)) for option in options)
    if digits and len(_NUMBERED_LINE.findall(text)) > 1:
        digits = False  # a numbered list: of options, of steps

    def letter(match: re.Match[str]) -> str:
        label = match["label"]
        if label not in _NATIVE and not digits:
            return match[0]
        place = _NATIVE[label] if label in _NATIVE else int(label) - 1
        if not 0 <= place < 26:
            return match[0]
        start = match.start("label") - match.start()
        return match[0][:start] + option_letter(place) + match[0][start + len(label) :]

    whole = _NOTHING_ELSE.fullmatch(text)
    if whole:
        return letter(whole)
    for pattern in _PLACES:
        text = pattern.sub(letter, text)
    return text
