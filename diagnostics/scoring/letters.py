"""Which option a free reply names. Never a guess: no clear letter gives None, and the rule says why.

A ladder of rules, the surest first; the first that finds something decides, and two letters that no rule
can order give None. It starts from the ladder of lighteval and the faults of seven harnesses on 48
replies (the project's survey of evaluation harnesses, section 3.1): the article "A" is no letter,
reasoning is not the answer, a letter that is denied or asked about is not chosen, and option text
counts only where the reply states it as its answer.

1. Reasoning is removed; where it never closed, the reply was cut off before its answer.
2. `<answer>`, `\\boxed{}` and their like: what the last of them holds. An `answer` in JSON.
3. The whole reply is a letter, a letter and its option's text, or one option's text.
4. `Answer: X` and "the answer (option, choice) is X", in many languages: the last one that says so.
5. A verdict on each option, of which one is "correct".
6. The reply opens with `X.`, `X)`, `X:` or a letter on a line of its own.
7. "X is right", "I would pick X", "the evidence favours X", "..., so X": all of them agree.
8. The last sentence is a letter alone.
9. A sentence ends in "is (the) <an option's text>", and no other option is mentioned.

Letters of other scripts and digits count where a label can stand (`extraction.characters`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from diagnostics.data.items import option_letter
from diagnostics.scoring.extraction import cues, patterns, texts
from diagnostics.scoring.extraction.characters import labels_as_letters, plain_characters
from diagnostics.scoring.extraction.cues import AFTER, ANSWER, LETTER, OPTION
from diagnostics.scoring.extraction.reply import boxes, plain, tags, without_reasoning

__all__ = ["EXTRACTOR_VERSION", "Extraction", "extract_letter"]

EXTRACTOR_VERSION = "2"
"""Changes whenever a reply may be read differently; it stands beside every answer that was extracted."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """The option a reply names.

    Attributes:
        letter: of the option, or None.
        rule: the rule that found it: `tag`, `json`, `answer_line`, `whole`, `statement`, `verdicts`,
            `leading`, `choice`, `closing`, `option_text`. Where there is none, why: `empty`, `cut_off`
            (reasoning never ended), `several` (two letters that nothing orders), `outside` (a letter that
            is no option), `contradiction` (the letter stands with another option's text), `no_letter`,
            `no_options`.
    """

    letter: str | None
    rule: str


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
    text = without_reasoning(plain_characters(reply))
    if text is None:
        return Extraction(None, "cut_off")
    options = [plain_characters(option) for option in options]
    nothing = Extraction(None, "no_letter")
    held = tags(text)
    if held is None:
        held = boxes(text)
    if held is not None:
        return _agreed("tag", [_inside(tag, options) or nothing for tag in held])
    found = _json(text, options)
    if found is not None:
        return found
    text = plain(text)
    if not text:
        return Extraction(None, "empty")
    return _ladder(text, options) or nothing


def _ladder(text: str, options: Sequence[str]) -> Found:
    text = labels_as_letters(patterns.HEADING.sub(r"\1: ", text), options)
    for rule in (_whole, _text_alone, _told, _verdicts, _leading, _choice, _closing, _option_text):
        found = rule(text, options)
        if found is not None:
            return found
    return None


def _inside(text: str, options: Sequence[str]) -> Found:
    """What stands where only an answer belongs: a letter first, else a statement or an option's text."""
    held = boxes(text)
    if held is not None:
        return _agreed("tag", [_inside(box, options) or Extraction(None, "no_letter") for box in held])
    text = labels_as_letters(plain(text), options)
    found = _whole(text, options) or _text_alone(text, options)
    start = re.match(rf"\W*?(?i:(?:{OPTION}|{ANSWER})\s*[:：]?\s*)?{LETTER}{AFTER}", text)
    if found is None and start:
        found = _judged("whole", text, start, options)
    for rule in (_told, _choice, _closing, _option_text):
        found = found or rule(text, options)
    return found


# -- judging a letter


def _agreed(rule: str, found: Sequence[Extraction]) -> Extraction:
    """One extraction for several places: they must name the same letter."""
    letters = {extraction.letter for extraction in found}
    if len(letters) > 1:
        return Extraction(None, "several")
    letter = letters.pop()
    return Extraction(letter, rule) if letter else found[0]


def _numbered(letter: str, rule: str, options: Sequence[str]) -> Extraction:
    letter = letter.upper()
    inside = ord(letter) - ord("A") < len(options)
    return Extraction(letter, rule) if inside else Extraction(None, "outside")


def _judged(rule: str, text: str, match: re.Match[str], options: Sequence[str]) -> Extraction:
    """The letter of a match, unless it is no option, more letters follow it, or other text stands by it."""
    place = next(place for place, group in enumerate(match.groups(), start=1) if group)
    rest = text[match.end(place) :].lstrip(" )]\"'")
    more = patterns.MORE.match(rest)
    if (more and not _is_article(rest, more)) or patterns.NEXT.match(rest):
        return Extraction(None, "several")
    found = _numbered(match[place], rule, options)
    line = rest.split("\n")[0]
    beside = texts.places_of(line, options)
    beside |= texts.places_of(re.split(r"[.;。]|,\s", line.lstrip(" .,:;"))[0], options)
    if found.letter and beside and found.letter not in {option_letter(spot) for spot in beside}:
        return Extraction(None, "contradiction")
    return found


def _is_article(text: str, match: re.Match[str]) -> bool:
    """Whether the further letter is the "A" of "B, A safe choice" and not an option."""
    following = text[match.end() :]
    return match[1] == "A" and re.match(r"\s+(?!(?:and|or|is|are)\b)[a-z]", following) is not None


def _matches(patterns: Iterable[re.Pattern[str]], text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """Matches in one sentence whose letter is neither denied nor a condition."""
    for pattern in patterns:
        for match in pattern.finditer(text, start, end):
            place = next(place for place, group in enumerate(match.groups(), start=1) if group)
            if texts.asserted(text, start, match.start(place)) and not cues.DENIED_AFTER.match(
                text, match.end(place)
            ):
                yield match


# -- the rules


def _json(text: str, options: Sequence[str]) -> Found:
    """An object with the key answer, choice, option or letter (or "final answer"), anywhere in the reply."""
    decoder = json.JSONDecoder()
    found: Found = None
    for start in [match.start() for match in re.finditer(r"\{", text)][:50]:
        try:
            value, _ = decoder.raw_decode(text[start:])
        except (ValueError, RecursionError):  # a brace of LaTeX or of prose, or a model that loops
            continue
        found = _of_object(value, options) or found
    return found


def _of_object(value: dict[str, Any], options: Sequence[str]) -> Found:
    for name, held in value.items():
        if re.fullmatch(
            r"(?:final|correct|selected|predicted)?[\s_-]*(?:answer|choice|option|letter|prediction)",
            name.casefold(),
        ):
            several = held if isinstance(held, list) else [held]
            told = [_inside(str(one), options) for one in several if isinstance(one, str | int)]
            return _agreed("json", [one or Extraction(None, "no_letter") for one in told]) if told else None
    return None


def _whole(text: str, options: Sequence[str]) -> Found:
    match = patterns.WHOLE.fullmatch(text) or patterns.REPEATED.fullmatch(text)
    if match:
        same = {option_letter(place) for place in texts.places_of(text, options)} - {match[1].upper()}
        return Extraction(None, "contradiction") if same else _numbered(match[1], "whole", options)
    replied = patterns.REPLIED.fullmatch(text)
    if replied:
        return _numbered(replied[1], "answer_line", options)
    match = patterns.WITH_TEXT.fullmatch(text)
    place = ord(match[1].upper()) - ord("A") if match else len(options)
    if match and place < len(options) and place in texts.places_of(match[2], options):
        return Extraction(option_letter(place), "whole")
    return None


def _text_alone(text: str, options: Sequence[str]) -> Found:
    """The whole reply is an option's text, behind a label that is no letter here or before its letter."""
    named = texts.with_letter(text)
    if named and (places := texts.places_of(named[0], options)):
        agrees = named[1] in {option_letter(place) for place in places}
        return Extraction(named[1], "option_text") if agrees else Extraction(None, "contradiction")
    behind = re.fullmatch(r"[^\W\d]\s*[.):]\s*(\S.*)", text)
    foreign = behind is not None and not text[0].isascii()
    return _one_of(texts.places_of(behind[1] if behind and foreign else text, options))


def _told(text: str, options: Sequence[str]) -> Found:
    """The last place that announces its answer, be it a line "Answer: X" or a sentence "the answer is X"."""
    found: list[tuple[int, Extraction]] = []
    lines = [match for match in patterns.LINE.finditer(text) if match[1].strip()]
    if lines:
        line = lines[-1]
        if patterns.ASKED_ON.search(text, lines[0].end(), line.start()) and _inside_line(
            lines[0][1], options
        ) != _inside_line(line[1], options):
            return Extraction(None, "several")
        told = (
            _inside_line(line[1], options)
            if texts.asserted(text, _line_start(text, line), line.start())
            else None
        )
        if told is not None and not cues.GIVEN_UP.search(texts.clause_before(text, 0, line.start())):
            found.append((line.start(), told))
    for start, end in reversed(texts.sentences(text)):
        said = [
            _judged("statement", text, match, options)
            for match in _matches(patterns.STATEMENTS, text, start, end)
            if not _given_up(text, start, match)
        ]
        if said:
            found.append((start, _agreed("statement", said)))
            break
    if not found:
        return None
    found.sort(key=lambda entry: entry[0])
    if len(found) == 2 and found[0][1].letter == found[1][1].letter:
        return found[1][1] if found[1][1].rule == "answer_line" else found[0][1]
    return found[-1][1]


def _line_start(text: str, match: re.Match[str]) -> int:
    return text.rfind("\n", 0, match.start()) + 1


def _inside_line(line: str, options: Sequence[str]) -> Found:
    if texts.with_letter(line) is None and line.rstrip().endswith("?"):
        return None
    text = line.strip()
    found = _whole(text, options) or _text_alone(text, options)
    start = re.match(rf"\W*?(?i:{OPTION}\s*)?{LETTER}{AFTER}", text)
    if found is None and start:
        found = _judged("whole", text, start, options)
    for rule in (_choice, _option_text):
        found = found or rule(text, options)
    return Extraction(found.letter, "answer_line") if found and found.letter else found


def _given_up(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether it says what the answer was before: "my earlier answer was A", "at first it is B"."""
    told = texts.clause_before(text, start, match.start()) + match[0]
    return (
        cues.GIVEN_UP.search(told) is not None
        and re.search(r"\b(?:was|at\s+first|initially)\b", told) is not None
    )


def _verdicts(text: str, options: Sequence[str]) -> Found:
    verdicts = {match[1].upper(): match[2] is not None for match in patterns.VERDICT.finditer(text)}
    right = [letter for letter, good in verdicts.items() if good]
    if len(verdicts) < 2 or not right:
        return None
    return _numbered(right[0], "verdicts", options) if len(right) == 1 else Extraction(None, "several")


def _leading(text: str, options: Sequence[str]) -> Found:
    first, _, below = text.partition("\n")
    alone = patterns.WHOLE.fullmatch(first)
    if alone and first.strip().isupper():
        several = set(patterns.ALONE.findall(below)) - {alone[1]}
        return Extraction(None, "several") if several else _numbered(alone[1], "leading", options)
    match = patterns.LEADING.match(text)
    if not match:
        return None
    letter = match[1] or match[2]
    if (
        _with_texts(text, options) > 1
        or set(patterns.LISTED.findall(text)) - {letter}
        or set(patterns.NAMED.findall(text)) - {letter}
    ):
        return Extraction(None, "several")  # it repeats the list of options
    return _judged("leading", text, match, options)


def _with_texts(text: str, options: Sequence[str]) -> int:
    """How many options stand there with letter and text, as in the list that was asked."""
    low = text.casefold()
    return sum(
        re.search(rf"(?<!\w){chr(ord('a') + place)}\s*[.):\]]\s*{re.escape(option.casefold())}(?!\w)", low)
        is not None
        for place, option in enumerate(options)
    )


def _choice(text: str, options: Sequence[str]) -> Found:
    found = []
    for start, end in texts.sentences(text):
        whole = patterns.INTERJECTED.fullmatch(text, start, end)
        if whole:
            found.append(_judged("choice", text, whole, options))
        found += [
            _judged("choice", text, match, options) for match in _matches(patterns.CHOICES, text, start, end)
        ]
        for match in _matches(patterns.SAYS_RIGHT, text, start, end):
            clause = texts.clause_before(text, start, match.start())
            if patterns.BEFORE_RIGHT.search(clause.lstrip()):
                found.append(_judged("choice", text, match, options))
    return _agreed("choice", found) if found else None


def _closing(text: str, options: Sequence[str]) -> Found:
    match = patterns.CLOSING.search(text)
    if match is None:
        return None
    letter = match[1] or match[2]
    if set(patterns.ALONE.findall(text)) - {letter}:
        return Extraction(None, "several")
    return _numbered(letter, "closing", options)


def _option_text(text: str, options: Sequence[str]) -> Found:
    return _one_of(texts.stated(text, options))


def _one_of(places: set[int]) -> Found:
    if len(places) > 1:
        return Extraction(None, "several")
    return Extraction(option_letter(places.pop()), "option_text") if places else None
