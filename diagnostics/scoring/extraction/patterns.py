"""Patterns of the ladder's rules, made of the cues. Of the groups of each, one takes part: the letter.

The text they meet is in NFKC, so that full-width punctuation is plain.
"""

from __future__ import annotations

import re

from diagnostics.scoring.extraction import cues
from diagnostics.scoring.extraction.cues import AFTER, ANSWER, BETWEEN, LETTER, OPTION

__all__ = [
    "ALONE",
    "ASKED_ON",
    "BEFORE_RIGHT",
    "CHOICES",
    "CLOSING",
    "HEADING",
    "INTERJECTED",
    "LEADING",
    "LINE",
    "LISTED",
    "MORE",
    "NAMED",
    "NEXT",
    "REPEATED",
    "REPLIED",
    "SAYS_RIGHT",
    "STATEMENTS",
    "VERDICT",
    "WHOLE",
    "WITH_TEXT",
]

MORE = re.compile(rf"{cues.AND}\s*(?:(?:possibly|perhaps|maybe|also|even|option)\s+)*[\"']?{LETTER}")
NEXT = re.compile(r"[\s.,;)\]。]+[A-Z]\s*(?:[.,;)]|$)")
HEADING = re.compile(
    rf"((?:{ANSWER}|\b(?:conclusion|verdict)\b)(?:\s+is)?)\s*[:：]?[^\S\n]*\n\s*", re.IGNORECASE
)
LINE = re.compile(
    rf"(?:{ANSWER}|(?<!each\s)(?<!every\s){OPTION}|\b(?:correct|verdict|conclusion|prediction)\b)"
    r"[\"']?[^\S\n]*[:：=][^\S\n]*[\"'“]?(?=([^\n]*))",
    re.IGNORECASE,
)
ASKED_ON = re.compile(r"^\W*(?:question|q|human|user|问题|frage)\s*\d*\s*[:：]", re.MULTILINE | re.IGNORECASE)
"""The reply goes on with a question of its own making, and answers that."""
REPLIED = re.compile(r"A\s*[:：]\s*[(\[]?([A-Z])[)\]]?\W*")
WHOLE = re.compile(
    rf"[^\w?？]*(?:(?:{OPTION}|{ANSWER})[^\w:=?]*)?([A-Z])(?:\s*(?:です|だ|입니다|番|번|选项|選項|项))*[^\w?？]*",
    re.IGNORECASE,
)
REPEATED = re.compile(r"\W*([A-Z])(?:[\s.;]+\1){1,9}\W*")
WITH_TEXT = re.compile(rf"\W*(?:{OPTION}\s+)?([A-Za-z])\W+(\S.*)", re.DOTALL | re.IGNORECASE)
LEADING = re.compile(
    r"\s*(?i:(?:option|choice|answer)\s+)?(?:[(\[]\s?([A-Z])\s?[)\]](?!\w)"
    rf"|([A-Z])(?!{cues.BINOMIAL})(?:\s*[.):、。](?![A-Za-z0-9_])|\s*[,–—-]?\s+(?:because|since|as|rather\s+than|instead\s+of|over)\b"
    r"|,?\s*\(?(?:not|nicht|pas|no|não|non|не)\s+[(]?[A-Z](?!\w)))"
)
LISTED = re.compile(r"^\s*[(\[]?([A-Z])\s?[.):\]]", re.MULTILINE)
NAMED = re.compile(rf"(?i:{OPTION})\s*[(\[]?([A-Z])(?![A-Za-z0-9])")
ALONE = re.compile(r"^\W*([A-Z])\W*$", re.MULTILINE)
VERDICT = re.compile(
    r"(?<![A-Za-z0-9])\(?([A-Z])\)?\s*(?:[.:)\-–—]|is\b)\s*(?:[^.;\n]{0,80}?[-–—]\s*)?"
    r"(?:(correct|right|true|yes|✓|✔|✅)|incorrect|wrong|false|no|not\s+(?:correct|right|true)|✗|✘|❌)(?!\w)",
    re.IGNORECASE,
)
STATEMENTS = (
    re.compile(rf"(?i:(?:{ANSWER}|{OPTION}){BETWEEN})[\"'(]*{LETTER}{AFTER}"),
    re.compile(rf"(?i:{ANSWER})\s*[\"'(]*{LETTER}(?!\s+[a-z])"),
    # A lower-case letter that can be no word, where nothing follows it.
    re.compile(rf"(?i:{ANSWER}{BETWEEN})([b-df-hj-np-xz])\s*[.!]?\s*$"),
    re.compile(rf"{cues.THIS_IS}[\"'(]*{LETTER}{AFTER}"),
    re.compile(rf"(?i:{ANSWER}{BETWEEN})([a-z])\)"),
    re.compile(
        r"\A(?i:i\s+think|i\s+guess|its|it's|i'd\s+say|probably)\s+(?:(?i:it's|its)\s+)?([b-df-hj-np-xz])\s*[.!]?\s*\Z"
    ),
    re.compile(
        rf"(?i:\b(?:not|nicht|pas|no|non|não|не)\s+(?:option\s+)?[A-Z],?\s*(?:but|sondern|mais|sino|mas|а))\s+(?i:option\s+)?{LETTER}"
    ),
    re.compile(
        rf"(?i:\b(?:richtig|korrekt|correct|correcte|correcta|correta)\s+(?:ist|is|est|es|é)\s+){LETTER}{AFTER}"
    ),
    # A revision.
    re.compile(
        r"(?i:\b(?:actually|correction|on\s+second\s+thought|or\s+rather|no\s+wait|scratch\s+that)\b)[,:]?\s+"
        rf"(?i:(?:option|choice)\s+)?{LETTER}\s*[.!]?\s*$",
        re.MULTILINE,
    ),
)
BEFORE_RIGHT = re.compile(
    rf"(?:^|(?i:{OPTION}|\b(?:answer|so|then|therefore|thus|hence|only|that|think|believe|say|antwort|réponse"
    r"|respuesta|resposta|risposta|daher|donc))|(?<!\b[A-Z]\s)\band|[\u2E80-\uFFEF])[\s(\[]*$"
)
CHOICES = (
    re.compile(
        rf"{cues.PICK}(?i:\s+(?:that|it|is|the|option|answer|choice|letter|la|die|opción|opção|вариант|l'option)){{0,6}}"
        rf"[:\s]*{LETTER}{AFTER}"
    ),
    re.compile(rf"{LETTER}\s*(?:を|를|을)\s*(?:選|選択|선택|고르|고릅)"),
    re.compile(
        rf"(?i:\b(?:so|therefore|thus|hence|ergo|final|finally|conclusion)\b)[,:]?\s+(?i:option\s+)?{LETTER}\s*[.!]?\s*$"
    ),
    re.compile(rf"(?<!\b[A-Z])(?<!\b[A-Z]\s)(?:=>|->|→|⇒)\s*(?i:option\s+)?{LETTER}\s*[.!]?\s*$"),
)
SAYS_RIGHT = (
    re.compile(rf"{LETTER}{cues.RIGHT}"),
    re.compile(
        rf"{LETTER}\s+(?:best\s+|most\s+closely\s+)?(?:matches|fits|describes|answers)\b(?!\s+(?:only|neither|nothing))"
    ),
)
INTERJECTED = re.compile(
    rf"(?i:\W*(?:{cues.INTERJECTION}[\s,:.!]+){{1,5}}(?:option\s+|choice\s+)?)[\"'(]*{LETTER}\s*[.!)]*\s*"
)
CLOSING = re.compile(r"(?:\A|[.!?。！？]\s+|\n\s*)\W*?(?:[(\[]([A-Z])[)\]]|([A-Z]))[\s.!)\"'。]*\Z")
