"""From a source's annotations to the evidence of one question, family by family.

MedHorizon's Table 5 (arXiv 2605.06537), as far as it says, on the released questions' words. The right
answer is looked at by one rule only, `label_run`; what it gives is kept apart by its kind. The options are
part of the question: they say which labels a stretch may be asked about.

| Families | Evidence | Kind |
|---|---|---|
| PR, SD, RL | the label's runs inside the window that the question names | exact |
| IR | in the window after the phase begins, the moments at which an instrument of the options is on | exact |
| Site, Hist, Size | where the lesion that the question names is boxed | proxy |
| LLS, LA | where any lesion is boxed | proxy |
| BPQ, WR, RSR, CPR, all of US-Study | the whole video | global |

Exact becomes `approx` where several labels of the options stand in the window, or none; where a dropped row
touches it; where the track is labelled at distant moments only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from diagnostics.data.build.annotations import SAME_TIME, Lesion
from diagnostics.data.items import Item
from diagnostics.data.sources._source import Clip, plain
from diagnostics.data.sources.cases import Case, Found, Span, Words, asked_window, joined, why
from diagnostics.data.sources.reasons import (
    GoldLabelUnknownError,
    NothingLabelledError,
    SubjectUnreadError,
    WindowUnreadError,
)
from diagnostics.data.sources.subjects import read_lesion, read_onset_length, read_phase
from diagnostics.data.sources.windows import Unread

__all__ = ["TRACK_OF", "label_run", "local", "window_alone"]

TRACK_OF = {"PR": "phases", "SD": "steps", "RL": "regions", "IR": "instruments"}
"""Families that ask for a label, and the track it is of."""

_ONE = {
    "phases": "phase",
    "steps": "step",
    "regions": "region",
    "landmarks": "landmark",
    "instruments": "instrument",
}


_NOT_THE_ONSET = re.compile(
    r"%|\b(?:before|prior to|preced\w*|until|ends?|ended|ending|finish\w*|conclu\w*|last|final\w*"
    r"|middle|midway|halfway|half|quarter|percent|throughout|entire|whole|again|resum\w*|restart\w*|recur\w*"
    r"|(?:second|third|fourth|fifth|\d+(?:nd|rd|th))\s+(?:time|run|occurrence|instance|episode|appearance)"
    r"|(?:next|subsequent|following)\s+(?:phase|step|stage)"
    r"|(?:phase|step|stage)\s+(?:\w+\s+){0,3}?(?:after|(?<!the )follow\w*|succeed\w*))\b",
    re.IGNORECASE,
)
"""Words about a phase that do not mean its beginning, or not the first, or another phase's."""

_AFTER = re.compile(r"\b(?:after|(?<!the )following|follows|once|since)\b", re.IGNORECASE)
_BEGINS = re.compile(r"\b(?:beg[iau]n\w*|start\w*|onset|outset|commenc\w*|initiat\w*)\b", re.IGNORECASE)
"""After a phase is after its end, unless its beginning is named."""

_NO_WINDOW = ("none", "bare", "relative", "instant")
"""Why nothing was read where a lesion's question need not name a window: its number, an event beside it."""


def local(case: Case) -> Found:
    """The evidence of a question that is not about the whole video.

    Raises:
        UnderivableError: there is none, with the reason.
    """
    rules: Mapping[str, Callable[[Case], Found]] = {
        **dict.fromkeys(("PR", "SD", "RL"), _window),
        "IR": _onset,
        **dict.fromkeys(("Site", "Hist", "Size"), _lesion),
        **dict.fromkeys(("LLS", "LA"), _lesions),
    }
    if case.task not in rules:
        raise SubjectUnreadError(
            f"The task {case.task!r} has no rule of evidence.", remedy=f"Known: {', '.join(rules)}."
        )
    return rules[case.task](case)


def _window(case: Case) -> Found:
    """PR, SD, RL: what the track shows inside the window that is asked about."""
    name = TRACK_OF[case.task]
    span, track = case.window(), case.track(name)
    found = track.within(*span)
    if not found:
        raise NothingLabelledError(
            f"{case.source.name} labels no {_ONE[name]} in the window asked about, {_told(span, case)}.",
            remedy="The gap is the source's; exp.window_alone=true takes the window itself.",
        )
    asked = {label: spans for label, spans in found.items() if plain(label) in case.labels(name)}
    if not asked and "landmarks" in case.annotated.tracks:  # beside the regions, and inside them
        name = "landmarks"
        marks = case.annotated.tracks[name].within(*span)
        asked = {label: spans for label, spans in marks.items() if plain(label) in case.labels(name)}
        name = name if asked else TRACK_OF[case.task]
    warnings, sure = [], len(asked) == 1
    if not asked:
        warnings.append(
            f"options elsewhere: none of the options is what the source labels there, {_names(found)}"
        )
    elif len(asked) > 1:
        warnings.append(f"several labels: the window shows {_names(asked)}")
    elif len(found) > 1:
        warnings.append(f"cut by a border: the window shows {_names(found)}, one of them an option")
    spans = joined([span for spans in (asked or found).values() for span in spans])
    return _judged(case, name, span, spans, f"{_ONE[name]} runs in the window", warnings, sure)


def _judged(
    case: Case, name: str, window: Span, spans: tuple[Span, ...], rule: str, warnings: list[str], sure: bool
) -> Found:
    """Exact or approximate: by what is in doubt inside the window."""
    if case.annotated.tracks[name].in_doubt(*window):
        warnings.append("in doubt: a row that was dropped from the annotation touches the window")
        sure = False
    spacing = case.annotated.spacing.get(name)
    if spacing is not None:
        warnings.append(f"sparse: {name} are labelled every {spacing / case.scale:g} s")
        sure = False
    return Found("exact" if sure else "approx", spans, rule, tuple(warnings))


def _onset(case: Case) -> Found:
    """IR: where an instrument of the options is on, in the window asked about or after a phase's onset.

    Where instruments are labelled at distant moments only, the first of these after the onset count.
    """
    instruments = case.track("instruments")
    warnings: list[str] = []
    try:
        window, rule = case.window(), "instrument rows in the window"
    except WindowUnreadError as error:
        length = case.onset_seconds if error.why == "none" else read_onset_length(case.item.question)
        if error.why not in ("none", "relative") or length is None:
            raise
        window = _onset_window(case, length, warnings)
        rule = f"instrument rows in the {length:g} s after the phase's onset"
    found = instruments.within(*window)
    asked = {label: spans for label, spans in found.items() if plain(label) in case.labels("instruments")}
    if not found:
        raise NothingLabelledError(
            f"{case.source.name} shows no instrument in {_told(window, case)}.",
            remedy="A longer exp.onset_seconds reaches further.",
        )
    if not asked:
        warnings.append(f"options elsewhere: none of the options is on there, but {_names(found)}")
    elif len(asked) > 1:
        warnings.append(f"several labels: {_names(asked)} are on")
    spans = joined([span for spans in (asked or found).values() for span in spans])
    sure = len(asked) == 1 and not any(warning.startswith("in doubt") for warning in warnings)
    return _judged(case, "instruments", window, spans, rule, warnings, sure)


def _onset_window(case: Case, seconds: float, warnings: list[str]) -> Span:
    """The window that begins with the first run of the phase that the question names."""
    question = case.item.question
    elsewhere = _NOT_THE_ONSET.search(question)
    if elsewhere is None and not _BEGINS.search(question):
        elsewhere = _AFTER.search(question)
    if elsewhere:
        raise SubjectUnreadError(
            f"{case.item.question!r} may ask about another moment than the onset ({elsewhere.group()!r}).",
            remedy="If it does ask about the onset, report the wording; nothing is guessed.",
        )
    phases = case.track("phases")
    phase = read_phase(case.item.question, case.source, phases.labels)
    if isinstance(phase, Unread):
        raise SubjectUnreadError(
            f"No phase is read in {case.item.question!r} ({why(phase)}).",
            remedy="If it does name one, report the wording; nothing is guessed.",
        )
    runs = [run for run in phases.runs if run.label == phase]
    if not runs:
        raise NothingLabelledError(
            f"{case.source.name} has no {phase!r} in {case.annotated.stem!r}.", remedy="Leave the item."
        )
    if len(runs) > 1:
        warnings.append(f"recurs: {phase!r} has {len(runs)} runs, the first was taken")
    if phases.in_doubt(0.0, runs[0].start + SAME_TIME):
        warnings.append(f"in doubt: a row that was dropped before {phase!r} may be its beginning")
    length = max(seconds * case.scale, case.annotated.spacing.get("instruments", 0.0))
    return runs[0].start, min(runs[0].end, runs[0].start + length)


def _lesion(case: Case) -> Found:
    """Site, Hist, Size: where the lesion that the question names is boxed, in three measures.

    If the question names a window too, what lies in it is the evidence, and a fourth measure.
    """
    lesions = _boxed(case)
    window: Span | None = None
    try:
        window = case.window()
    except WindowUnreadError as error:
        if error.why not in _NO_WINDOW:
            raise
    lesion = read_lesion(case.item.question, lesions, window, case.annotated.unseen)
    if isinstance(lesion, Unread):
        raise SubjectUnreadError(
            f"No lesion is read in {case.item.question!r} ({why(lesion)}).",
            remedy="If it does name one, report the wording; nothing is guessed.",
        )
    spans = joined(lesion.windows)
    start, end = spans[0]
    choices: dict[str, tuple[Span, ...]] = {
        "all": spans,
        "longest": (max(spans, key=lambda span: span[1] - span[0]),),
        "first": ((start, min(end, start + case.first_seconds * case.scale)),),
    }
    taken, warnings = str(case.lesion_windows), list[str]()
    if window is not None:
        low, high = window
        inside = [(max(start, low), min(end, high)) for start, end in spans if start < high and end > low]
        if inside:
            choices["window"], taken = tuple(inside), "window"
        else:
            warnings.append(f"not in the window: lesion {lesion.name} has no box in {_told(window, case)}")
    told = {
        "all": "all of its boxes",
        "longest": "the longest run of its boxes",
        "first": "its appearance",
        "window": "its boxes in the window",
    }
    return Found("proxy", choices[taken], f"lesion {lesion.name}: {told[taken]}", tuple(warnings), choices)


def _lesions(case: Case) -> Found:
    """LLS, LA: the union of all lesions."""
    spans = joined([span for lesion in _boxed(case) for span in lesion.windows])
    return Found("proxy", spans, "union of all lesions")


def _boxed(case: Case) -> tuple[Lesion, ...]:
    if not case.annotated.lesions:
        raise NothingLabelledError(
            f"{case.source.name} boxes no lesion in {case.annotated.stem!r}.", remedy="Leave the item."
        )
    return case.annotated.lesions


def label_run(case: Case) -> Found:
    """All runs of the right option's label: what is left where a window cannot be read.

    It looks at the answer, so it is of a kind of its own.

    Raises:
        GoldLabelUnknownError: there is no right option, or it is none of the labels in this video.
        NothingLabelledError: the source has no such track.
    """
    name, item = TRACK_OF[case.task], case.item
    track = case.track(name)
    if item.answer not in item.letters:
        raise GoldLabelUnknownError("The item has no right option.", remedy="Leave the item.")
    gold = item.options[item.letters.index(item.answer)]
    wanted = plain(case.source.label(name, gold))
    spans = joined([(run.start, run.end) for run in track.runs if plain(run.label) == wanted])
    if not spans:
        raise GoldLabelUnknownError(
            f"{gold!r} is none of the {name} of {case.annotated.stem!r}: {_names(track.labels)}.",
            remedy="Add the wording to the reader's aliases, or compare the release of the labels.",
        )
    return Found("label-run", spans, f"all runs of the right option's {_ONE[name]}")


def window_alone(item: Item, clip: Clip, words: Words, lacking: str) -> Found:
    """The window in the question's words, in seconds, without any label.

    Raises:
        WindowUnreadError: none can be read.
    """
    return Found("approx", (asked_window(item, clip, words),), "window", (f"no labels: {lacking}",))


def _told(span: Span, case: Case) -> str:
    start, end = (edge / case.scale for edge in span)
    return f"{start:g} to {end:g} s"


def _names(labels: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(repr(label) for label in labels)
