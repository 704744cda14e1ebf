"""Automatic filtering: what is no sound question, before it has options and after.

Each judgement raises one typed reason (`reasons`); what passes all of them goes on. The second pass
does not trust what the stages before it chose: it derives from the annotations anew whether a wrong
option is right after all.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from diagnostics.data.build.annotations import SAME_TIME
from diagnostics.data.build.audit import Audit
from diagnostics.data.build.candidates import Candidate, shown_value
from diagnostics.data.build.reasons import (
    AmbiguousSubjectError,
    AnswerMissingError,
    DoubtfulAnnotationError,
    DuplicateQuestionError,
    IgnoredLabelError,
    IncompatibleLabelsError,
    LabelSpaceTooSmallError,
    MalformedTextError,
    NoFrameError,
    OptionsNotUniqueError,
    PartlyLabelledError,
    SeveralRightOptionsError,
    WindowOutsideVideoError,
)
from diagnostics.data.build.settings import TASKS, Config
from diagnostics.data.build.support import right_labels
from diagnostics.data.items import option_letter
from diagnostics.data.validation import resolve_answer, resolve_options
from diagnostics.errors import ItemError

__all__ = ["check_items", "filter_candidates", "judge", "normal_text"]


def judge(
    stage: str,
    candidates: Iterable[Candidate],
    check: Callable[[Candidate], Candidate | None],
    audit: Audit,
) -> list[Candidate]:
    """The candidates that `check` lets pass, changed where it gives one back; the others go to the audit."""
    kept = []
    for candidate in candidates:
        audit.count_tasks(stage, [candidate.task])
        try:
            kept.append(check(candidate) or candidate)
        except ItemError as error:
            error.item_id = candidate.id
            audit.drop(
                stage,
                error,
                procedure=candidate.finding.procedure.name,
                task=candidate.task,
                candidate=candidate.told(),
            )
    return kept


def filter_candidates(candidates: Iterable[Candidate], config: Config, audit: Audit) -> list[Candidate]:
    """Those with one answer, sound evidence and a window inside the video."""

    def check(candidate: Candidate) -> None:
        _check_window(candidate)
        _check_trust(candidate)
        _check_answer(candidate, config)
        _check_frames(candidate, config)

    return judge("filter", candidates, check, audit)


def _check_window(candidate: Candidate) -> None:
    finding = candidate.finding
    duration = finding.procedure.real.duration
    if finding.asked is not None and not (finding.asked[0] >= 0 and finding.asked[1] <= duration + SAME_TIME):
        raise WindowOutsideVideoError(
            f"The window {finding.asked[0]:g} to {finding.asked[1]:g} s leaves the video of {duration:g} s.",
            remedy="Nothing to do; a shorter window fits more often.",
        )


def _check_trust(candidate: Candidate) -> None:
    finding = candidate.finding
    if finding.doubt:
        raise DoubtfulAnnotationError(
            f"The answer cannot be trusted: {finding.doubt}.", remedy="Correct the dropped rows."
        )
    if finding.ambiguous:
        raise AmbiguousSubjectError(
            f"The question is ambiguous: {finding.ambiguous}.", remedy="Nothing to do."
        )
    if finding.excluded is not None:
        raise finding.excluded


def _check_answer(candidate: Candidate, config: Config) -> None:
    finding = candidate.finding
    if finding.too_few:
        raise LabelSpaceTooSmallError(
            f"The procedure has {finding.too_few}.", remedy="Ask for fewer options or named steps."
        )
    if not finding.right:
        raise AnswerMissingError("The annotations give no answer.", remedy="Complete the annotation.")
    if len(finding.right) > 1:
        told = ", ".join(map(str, finding.right))
        if finding.asked is not None:
            raise IncompatibleLabelsError(
                f"The window shows {told}.", remedy="Nothing to do; a shorter window is purer."
            )
        raise SeveralRightOptionsError(f"Equally right: {told}.", remedy="Nothing to do: it is a tie.")
    if finding.right[0] in config.ignored:
        raise IgnoredLabelError(
            f"The answer is {finding.right[0]!r}.", remedy="Nothing to do: it is ignored."
        )
    if TASKS[candidate.task].flag == "time_addressed" and finding.coverage < config.min_coverage - SAME_TIME:
        raise PartlyLabelledError(
            f"{finding.right[0]!r} covers {finding.coverage:.0%} of the window.",
            remedy="Complete the annotation, or lower min_coverage.",
        )


_EVERY_WINDOW = ("LLS", "LA", "RSR", "CPR")


def _check_frames(candidate: Candidate, config: Config) -> None:
    finding, facts = candidate.finding, candidate.finding.procedure.real
    if config.kind(candidate.task) == "global":
        return
    if not finding.windows:
        raise AnswerMissingError("There is no evidence window.", remedy="Complete the annotation.")
    frames = [facts.frames(*window) for window in finding.windows]
    unseen = [window for window, (first, last) in zip(finding.windows, frames, strict=True) if last <= first]
    # What compares or counts needs a frame of each thing; elsewhere one window is enough.
    if len(unseen) == len(frames) or (unseen and candidate.task in _EVERY_WINDOW):
        raise NoFrameError(
            f"No frame of the video lies in the evidence at {unseen[0]} s.",
            remedy="Check the times of the rows.",
        )


# -- with options


def check_items(candidates: Sequence[Candidate], config: Config, audit: Audit) -> list[Candidate]:
    """Those whose options are distinct and exactly one right, whose text is sound, asked once."""
    asked: dict[tuple[str, str], list[Candidate]] = {}
    for candidate in candidates:
        asked.setdefault(_question_key(candidate), []).append(candidate)

    def check(candidate: Candidate) -> None:
        _check_text(candidate, config)
        _check_options(candidate, config)
        same = asked[_question_key(candidate)]
        if len({normal_text(other.answer) for other in same}) > 1:
            told = ", ".join(sorted({other.answer for other in same}))
            raise DuplicateQuestionError(
                f"The same question has several answers: {told}.", remedy="Word it so that it names more."
            )
        if candidate is not same[0]:
            raise DuplicateQuestionError("The question is asked already.", remedy="Nothing to do.")

    return judge("checks", candidates, check, audit)


def _question_key(candidate: Candidate) -> tuple[str, str]:
    key = normal_text(candidate.question)
    if candidate.task == "WR":  # its subject is the set of options
        key += " ".join(sorted(map(normal_text, (candidate.answer, *candidate.wrong))))
    return str(candidate.finding.procedure.video), key


def normal_text(text: str) -> str:
    """Text as a reader compares it: compatibility characters, case and spaces made equal."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _check_text(candidate: Candidate, config: Config) -> None:
    texts = {"question": candidate.question, "answer": candidate.answer}
    texts |= {f"option {number}": text for number, text in enumerate(candidate.wrong, start=1)}
    for name, text in texts.items():
        fault = text_fault(text, config.max_characters)
        if fault:
            raise MalformedTextError(
                f"The {name} {fault}: {text[:80]!r}.", remedy="Correct the label or wording."
            )


def text_fault(text: str, most: int) -> str:
    """What is wrong with a text of a prompt; empty where nothing is."""
    if not text.strip():
        return "is empty"
    if text != text.strip():
        return "begins or ends with a space"
    if len(text) > most:
        return f"has {len(text)} characters"
    if any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn") for character in text):
        return "holds a control character"
    if "{" in text or "}" in text:
        return "holds a brace, as of a name that was not filled in"
    if not any(character.isalnum() for character in text):
        return "holds no letter and no digit"
    return ""


def _check_options(candidate: Candidate, config: Config) -> None:
    texts = (candidate.answer, *candidate.wrong)
    twice = [text for text, n in Counter(map(normal_text, texts)).items() if n > 1]
    if twice:
        raise OptionsNotUniqueError(
            f"Two options read {twice[0]!r}.", remedy="Give the labels distinct names."
        )
    right = {
        shown_value(candidate.finding, value, config) for value in right_labels(candidate.finding, config)
    }
    also = [text for text in candidate.wrong if text in right]
    if also or candidate.answer not in right:
        raise SeveralRightOptionsError(
            f"Right are {', '.join(sorted(right)) or 'none'}; the options call {candidate.answer!r} right.",
            remedy="Nothing to do; report it if the annotation is sound.",
        )
    # Options are read back by the loaders as any text is: they must come out as they went in.
    if resolve_options(list(texts)) != texts or resolve_answer(option_letter(0), texts) != option_letter(0):
        raise MalformedTextError(
            f"The options would be read as something else: {', '.join(texts)}.",
            remedy="Give the labels names that do not look like option letters.",
        )
