"""Which option a free reply names. Never a guess: no clear letter gives None, and the rule says why.

A ladder of rules, the surest first; the first that finds something decides, and two letters under one
rule decide for None. It starts from the ladder of lighteval and the faults of seven harnesses on 48
replies (the project's survey of evaluation harnesses, section 3.1): the article "A" is no letter,
reasoning is not the answer, a letter that is denied or asked about is not chosen, and option text
counts only where the reply states it as its answer.

1. Reasoning in tags is removed; an unclosed one means the reply was cut off before its answer.
2. `<answer>`, `\\boxed{}`: what they hold.
3. `Answer: X`, in several languages; the last one.
4. The whole reply is a letter, or a letter and its option's text.
5. "the answer (option, choice) is X"; the last sentence that says so.
6. The reply opens with `X.`, `X)`, `X:` or a letter on a line of its own.
7. "X is right", "I would pick X", "the evidence favours X", "..., so X".
8. The whole reply is one option's text, or ends in "is (the) <text>".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from diagnostics.data.items import option_letter

__all__ = ["Extraction", "extract_letter"]


@dataclass(frozen=True, slots=True)
class Extraction:
    """The option a reply names.

    Attributes:
        letter: of the option, or None.
        rule: the rule that found it: `tag`, `answer_line`, `whole`, `statement`, `leading`, `choice`,
            `option_text`. Where there is none, why: `empty`, `cut_off` (reasoning never ended),
            `several` (one rule found two letters), `outside` (a letter that is no option),
            `contradiction` (the letter stands with another option's text), `no_letter`, `no_options`.
    """

    letter: str | None
    rule: str


_REASONING = r"(?:think|thinking|thought|reasoning|reflection)"
_CLOSED = re.compile(rf"^.*</{_REASONING}>", re.DOTALL | re.IGNORECASE)
_OPENED = re.compile(rf"<{_REASONING}>", re.IGNORECASE)
_SPECIAL = re.compile(r"<\|[^|<>]{1,40}\|>|</?s>")
_LATEX = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mathsf)\s*\{([^{}]*)\}")
_MARKS = re.compile(r"\*+|`+|\$+|\\[()\[\]]|(?<!\w)_+|_+(?!\w)|^\s*#+\s*", re.MULTILINE)

_LETTER = r"(?:(?<![A-Za-z0-9])[(\[]?\s?([A-Z])\s?[)\]]?(?![A-Za-z0-9'’])|[(\[]([a-z])[)\]])"
"""A capital standing alone, or any letter in brackets; CJK characters may touch it."""

_AFTER = (
    r"(?!\s+(?!(?:because|since|as|which|that|where|due|based|given|not|but|and|or|for|with|it|the|this"
    r"|in|while|rather|instead)\b)[a-z])(?!-[A-Za-z])"
)
"""What may not follow: a lower-case word, which would make "A" an article ("A snare") and "B" a part
of a name ("B cells"); words that go on with the sentence may."""

_AND = r"(?:\s*(?:,|/|&|\+|\band\b|\bor\b|\bund\b|\boder\b|\bet\b|\bou\b|或|和))+"
_MORE = re.compile(rf"{_AND}\s*(?:(?:possibly|perhaps|maybe|also|even|option)\s+)*{_LETTER}")
_NEXT = re.compile(r"[\s.,;)\]]+[A-Z]\s*(?:[.,;)]|$)")

_ANSWER = r"(?:answer|antwort|respuesta|réponse|resposta|risposta|答案|答え)"
_NOUN = rf"(?:{_ANSWER}|option|choice|letter|选项)"
_TAG = re.compile(r"<answer>(.*?)(?:</answer>|$)|\\boxed\s*\{([^{}]*)\}", re.DOTALL | re.IGNORECASE)
_HEADING = re.compile(rf"({_ANSWER}(?:\s+is)?)\s*:?[^\S\n]*\n\s*", re.IGNORECASE)
_LINE = re.compile(rf"{_NOUN}[\"'’]?\s*[:=]\s*[\"'“]?([^\n]*)", re.IGNORECASE)
_WHOLE = re.compile(r"\W*(?:(?:option|choice|answer|letter)\s+\W*)?([A-Z])\W*", re.IGNORECASE)
_WITH_TEXT = re.compile(r"\W*([A-Za-z])\W+(\S.*)", re.DOTALL)
_LEADING = re.compile(
    r"\s*(?:option\s+)?(?:[(\[]\s?([A-Z])\s?[)\]](?!\w)|([A-Z])(?:\s*[.):、](?!\w)|,?\s+(?:because|since)\b))"
)
_LISTED = re.compile(r"^\s*[(\[]?([A-Z])\s?[.):\]]", re.MULTILINE)
_ALONE = re.compile(r"^\W*([A-Z])\W*$", re.MULTILINE)

_IS = (
    r"(?:\s*(?:is|was|would\s+be|should\s+be|must\s+be|will\s+be|has\s+to\s+be|seems(?:\s+to\s+be)?"
    r"|appears(?:\s+to\s+be)?|ist|es|est|é|è|是|为|は|most|likely|probably|clearly|definitely|therefore|thus"
    r"|indeed|to\s+(?:this|the)\s+question|[:=]))+\s*"
)
_STATEMENTS = (
    re.compile(rf"(?i:{_NOUN}{_IS}(?:the\s+)?(?:(?:option|choice|letter)\s+)?)[\"'“]?{_LETTER}{_AFTER}"),
    re.compile(rf"(?i:{_ANSWER})\s*[\"'“]?{_LETTER}(?!\s+[a-z])"),
    # A lower-case letter that can be no word, where nothing follows it.
    re.compile(rf"(?i:{_ANSWER}{_IS})([b-hj-z])\s*[.!]?\s*$"),
    re.compile(rf"(?i:\b(?:it|this|that)(?:\s+is|['’]s)\s+(?:option\s+)?)[\"'“]?{_LETTER}{_AFTER}"),
)
_BEFORE_RIGHT = re.compile(
    r"(?:^|\b(?:option|choice|answer|letter|so|then|therefore|thus|hence|only|that|think|believe|say)"
    r"|(?<!\b[A-Z]\s)\band)[\s(\[]*$",
    re.IGNORECASE,
)
_RIGHT = re.compile(
    rf"{_LETTER}\s+(?:is|seems|appears)\s+(?:to\s+be\s+)?(?:(?:the|most|clearly|likely|probably)\s+)*"
    r"(?:right(?!\s+(?:there|here|on|at|in|after|before|next|side))|correct|best|true|answer|one)\b"
)
_CHOICES = (
    re.compile(
        r"(?i:\b(?:pick|choose|chose|select|selected|go(?:ing)?\s+with|went\s+with|opt\s+for|say|prefer"
        r"|favou?rs?|supports?|suggests?|points\s+to|indicates?|conclude)\b|选择|选)"
        rf"(?i:\s+(?:that|it|is|the|option|answer|choice|letter))*[:\s]*{_LETTER}{_AFTER}"
    ),
    re.compile(
        r"(?i:\b(?:so|therefore|thus|hence|final|finally|conclusion|ergo)\b)[,:]?\s+"
        rf"(?i:option\s+)?{_LETTER}\s*[.!]?\s*$"
    ),
)
_CERTAIN = re.compile(r"\b(?:no|without|beyond)\s+(?:a\s+|any\s+)?(?:doubt|question)\b", re.IGNORECASE)
_DENIED = re.compile(
    r"\b(?:not|never|cannot|neither|nor|no|without|unlikely|except|excluding|unless|if|whether|why|suppose"
    r"|assuming|rather\s+than|instead\s+of|rule[sd]?\s+out)\b|n['’]t\b",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"[,;:.!?\n—–]|\bbut\b|\s-\s")
_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:[.!?。！？](?!\s|$)[^.!?。！？\n]*)*[.!?。！？]*")
_COPULA = (
    r"\b(?:is|are|was|were|appears|seems|looks|be)\b:?"
    r"(?:\s+(?:to\s+be|most|likely|probably|clearly|located|seen|visible|in|at|on|of|the|an?|option|colou?red))*\s+"
)

Found = Extraction | None
"""What a rule says: an extraction (None as its letter where the rule forbids a guess), or nothing."""


def extract_letter(reply: str, options: Sequence[str]) -> Extraction:
    """The letter of the option that `reply` names.

    Args:
        reply: what the model wrote.
        options: the texts it chose from, without letters, in order.
    """
    if not options:
        return Extraction(None, "no_options")
    text = _without_reasoning(unicodedata.normalize("NFKC", reply))
    if text is None:
        return Extraction(None, "cut_off")
    nothing = Extraction(None, "no_letter")
    tags = [tag[1] if tag[1] is not None else tag[2] for tag in _TAG.finditer(_LATEX.sub(r"\1", text))]
    if tags:
        return _agreed("tag", [_inside(_plain(tag), options) or nothing for tag in tags])
    text = _plain(text)
    if not text:
        return Extraction(None, "empty")
    for rule in (_answer_line, _whole, _statement, _leading, _choice, _option_text):
        found = rule(text, options)
        if found is not None:
            return found
    return nothing


def _without_reasoning(text: str) -> str | None:
    """The text after the last closed reasoning; None where one was opened and never closed.

    A closing tag alone counts: many templates open the reasoning in the prompt.
    """
    rest = _CLOSED.sub("", text)
    return None if _OPENED.search(rest) else rest


def _plain(text: str) -> str:
    """Without special tokens, emphasis and mathematics; a heading "Answer" joined to the line below."""
    bare = _MARKS.sub("", _LATEX.sub(r"\1", _SPECIAL.sub("", text)))
    return _HEADING.sub(r"\1: ", bare).strip()


def _agreed(rule: str, found: Sequence[Extraction]) -> Extraction:
    """One extraction for several places: they must name the same letter."""
    letters = {extraction.letter for extraction in found}
    if len(letters) > 1:
        return Extraction(None, "several")
    letter = letters.pop()
    return Extraction(letter, rule) if letter else found[0]


def _key(text: str) -> str:
    """Text for comparison: case, punctuation at the ends, article and spacing do not count."""
    words = " ".join(text.casefold().split()).strip(" .,;:!?\"'“”‘’()[]-")
    return re.sub(r"^(?:the|an?)\s+(?=\S)", "", words)


def _numbered(letter: str, rule: str, options: Sequence[str]) -> Extraction:
    letter = letter.upper()
    inside = ord(letter) - ord("A") < len(options)
    return Extraction(letter, rule) if inside else Extraction(None, "outside")


def _judged(rule: str, text: str, match: re.Match[str], options: Sequence[str]) -> Extraction:
    """The letter of a match, unless it is no option, more letters follow it, or other text stands by it."""
    place = next(place for place, group in enumerate(match.groups(), start=1) if group)
    rest = text[match.end(place) :].lstrip(" )]")
    more = _MORE.match(rest)
    if (more and not _is_article(rest, more)) or _NEXT.match(rest):
        return Extraction(None, "several")
    found = _numbered(match[place], rule, options)
    line = rest.split("\n")[0]
    stated = {_key(line), _key(re.split(r"[.;]|,\s", line.lstrip(" .,:;"))[0])}
    beside = {option_letter(spot) for spot, option in enumerate(options) if _key(option) in stated}
    if found.letter and beside and found.letter not in beside:
        return Extraction(None, "contradiction")
    return found


def _is_article(text: str, match: re.Match[str]) -> bool:
    """Whether the further letter is the "A" of "B, A safe choice" and not an option."""
    following = text[match.end() :]
    return match[1] == "A" and re.match(r"\s+(?!(?:and|or|is|are)\b)[a-z]", following) is not None


def _sentences(text: str) -> list[tuple[int, int]]:
    """Spans of the sentences that are not questions."""
    spans = [match.span() for match in _SENTENCE.finditer(text)]
    return [(start, end) for start, end in spans if not text[start:end].rstrip().endswith(("?", "？"))]


def _asserted(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the clause that holds the match neither denies it nor makes it a condition."""
    clause = _CLAUSE_END.split(text[start : match.start()])[-1]
    return _DENIED.search(_CERTAIN.sub("", f"{clause}{match[0]}")) is None


def _matches(patterns: Iterable[re.Pattern[str]], text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    for pattern in patterns:
        yield from (match for match in pattern.finditer(text, start, end) if _asserted(text, start, match))


def _answer_line(text: str, options: Sequence[str]) -> Found:
    lines = [line[1].strip() for line in _LINE.finditer(text) if line[1].strip()]
    found = _inside(lines[-1], options) if lines else None
    return Extraction(found.letter, "answer_line") if found and found.letter else found


def _inside(text: str, options: Sequence[str]) -> Found:
    """What stands where only an answer belongs: a letter first, else a statement or an option's text."""
    found = _whole(text, options)
    start = re.match(rf"\W*?(?i:option\s+)?{_LETTER}{_AFTER}", text)
    if found is None and start:
        found = _judged("whole", text, start, options)
    for rule in (_statement, _choice, _option_text):
        found = found or rule(text, options)
    return found


def _whole(text: str, options: Sequence[str]) -> Found:
    match = _WHOLE.fullmatch(text)
    if match:
        return _numbered(match[1], "whole", options)
    match = _WITH_TEXT.fullmatch(text)
    place = ord(match[1].upper()) - ord("A") if match else len(options)
    if match and place < len(options) and _key(match[2]) == _key(options[place]):
        return Extraction(option_letter(place), "whole")
    return None


def _statement(text: str, options: Sequence[str]) -> Found:
    for start, end in reversed(_sentences(text)):
        found = [_judged("statement", text, m, options) for m in _matches(_STATEMENTS, text, start, end)]
        if found:
            return _agreed("statement", found)
    return None


def _leading(text: str, options: Sequence[str]) -> Found:
    first, _, below = text.partition("\n")
    alone = _WHOLE.fullmatch(first)
    if alone and first.strip().isupper():
        several = set(_ALONE.findall(below)) - {alone[1]}
        return Extraction(None, "several") if several else _numbered(alone[1], "leading", options)
    match = _LEADING.match(text)
    if not match:
        return None
    if len(set(_LISTED.findall(text))) > 1:
        return Extraction(None, "several")  # it repeats the list of options
    return _judged("leading", text, match, options)


def _choice(text: str, options: Sequence[str]) -> Found:
    found = []
    for start, end in _sentences(text):
        found += [_judged("choice", text, match, options) for match in _matches(_CHOICES, text, start, end)]
        for match in _matches([_RIGHT], text, start, end):
            clause = _CLAUSE_END.split(text[start : match.start()])[-1]
            if _BEFORE_RIGHT.search(clause.lstrip() if clause.strip() else ""):
                found.append(_judged("choice", text, match, options))
    return _agreed("choice", found) if found else None


def _option_text(text: str, options: Sequence[str]) -> Found:
    low = " ".join(text.casefold().split())
    opening = re.split(r"[.:!]\s|\n|\s(?:because|since)\s", text.casefold())[0]
    mentioned = _mentioned(low, options)
    stated = {place for place in range(len(options)) if _key(options[place]) == _key(text)}
    if not stated:
        stated = {
            place
            for place in mentioned
            if _key(opening) == _key(options[place]) or _is_stated(low, _key(options[place]))
        }
        stated = stated if stated == mentioned else set()
    if len(stated) > 1:
        return Extraction(None, "several")
    return Extraction(option_letter(stated.pop()), "option_text") if stated else None


def _mentioned(low: str, options: Sequence[str]) -> set[int]:
    """Options whose text occurs; that of a longer one does not count for a shorter one inside it."""
    mentioned = set()
    for key in sorted({_key(option) for option in options} - {""}, key=len, reverse=True):
        pattern = rf"(?<!\w){re.escape(key)}(?!\w)"
        if re.search(pattern, low):
            mentioned |= {place for place, option in enumerate(options) if _key(option) == key}
            low = re.sub(pattern, " ", low)
    return mentioned


def _is_stated(low: str, key: str) -> bool:
    """Whether a sentence ends in "is (the) <key>", and does not deny it."""
    pattern = re.compile(rf"{_COPULA}[\"'“]?{re.escape(key)}[\"'”]?\s*[.!]*\s*$")
    return any(
        _asserted(low, start, match)
        for start, end in _sentences(low)
        for match in pattern.finditer(low, start, end)
    )
