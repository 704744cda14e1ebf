"""The review file: every question on a line, for a person to fill in and feed back.

Columns `verdict` (`accept`, `reject`, or empty for not looked at), `correction` (another wording of
the question) and `note` are the person's. Each line carries a digest of what the person saw, so that a
verdict is never applied to another text.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from diagnostics.data.build.annotations import Place
from diagnostics.data.build.audit import Audit
from diagnostics.data.build.candidates import Candidate
from diagnostics.data.build.filters import judge, text_fault
from diagnostics.data.build.findings import clock
from diagnostics.data.build.reasons import (
    BadRowError,
    MalformedTextError,
    RejectedByReviewerError,
    StaleReviewError,
)
from diagnostics.data.build.settings import Config
from diagnostics.data.items import option_letter
from diagnostics.data.paths import existing_file
from diagnostics.errors import DataFileError
from diagnostics.store.atomic import write_text

__all__ = ["REVIEW_COLUMNS", "Verdict", "Verdicts", "apply_review", "read_review", "write_review"]

REVIEW_COLUMNS = (
    "id",
    "task",
    "video",
    "evidence",
    "question",
    "answer",
    "options",
    "verdict",
    "correction",
    "note",
    "seen",
)


@dataclass(frozen=True)
class Verdict:
    """What a person said of one question: `accept` or `reject`, perhaps with another wording."""

    verdict: str
    correction: str
    note: str
    place: Place


Verdicts = Mapping[tuple[str, str], Verdict]
"""By item id and the digest of the text they were given on."""


def _digest(candidate: Candidate) -> str:
    seen = [candidate.question, candidate.answer, sorted(candidate.wrong)]
    return hashlib.sha256(json.dumps(seen, ensure_ascii=False).encode()).hexdigest()[:12]


def write_review(
    path: Path, candidates: Iterable[Candidate], finished: Iterable[Candidate], verdicts: Verdicts
) -> None:
    """Write the questions with the verdicts given so far. No verdict is ever lost.

    Args:
        path: a CSV file; replaced as a whole.
        candidates: as they came to the review.
        finished: those that went through, with shuffled options.
        verdicts: from `read_review`; those on other texts are kept at the end of the file.
    """
    options = {candidate.id: candidate.options for candidate in finished}
    left = dict(verdicts)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, REVIEW_COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    for candidate in candidates:
        seen = _digest(candidate)
        shown = options.get(candidate.id, (candidate.answer, *candidate.wrong))
        windows = [f"{clock(low)} to {clock(high)}" for low, high in candidate.finding.windows]
        row = {
            "id": candidate.id,
            "task": candidate.task,
            "video": candidate.finding.procedure.video,
            "evidence": "; ".join(windows) or "the whole video",
            "question": candidate.question,
            "answer": f"{option_letter(shown.index(candidate.answer))}. {candidate.answer}",
            "options": "\n".join(f"{option_letter(place)}. {text}" for place, text in enumerate(shown)),
            "seen": seen,
        }
        given = left.pop((candidate.id, seen), None)
        _write_row(writer, row | (_said(given) if given else {}))
    for (item_id, seen), verdict in left.items():
        _write_row(writer, {"id": item_id, "seen": seen, **_said(verdict)})
    write_text(path, text.getvalue())


def _said(verdict: Verdict) -> dict[str, str]:
    return {"verdict": verdict.verdict, "correction": verdict.correction, "note": verdict.note}


def _write_row(writer: csv.DictWriter, row: Mapping[str, object]) -> None:
    writer.writerow({key: _cell(str(value)) for key, value in row.items()})


def _cell(text: str) -> str:
    """Text that a spreadsheet shows instead of computing: a leading sign gets an apostrophe before it."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def _uncell(text: str) -> str:
    return text[1:] if text[:1] == "'" and text[1:2] in ("=", "+", "-", "@") else text


def read_review(path: Path, audit: Audit) -> Verdicts:
    """Verdicts by item id and digest; a line that cannot be used goes to the audit with its number.

    Raises:
        DataFileError: the file is missing, not UTF-8, or lacks a column.
    """
    path = existing_file(path, what="review file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataFileError("The file is not UTF-8.", remedy="Save it as UTF-8.", path=path) from error
    reader = csv.DictReader(io.StringIO(text, newline=""))
    missing = [name for name in ("id", "verdict", "seen") if name not in (reader.fieldnames or ())]
    if missing:
        raise DataFileError(
            f"The review lacks the column {missing[0]!r}.",
            remedy="Fill in the file as it was written.",
            path=path,
        )
    verdicts: dict[tuple[str, str], Verdict] = {}
    line = reader.line_num + 1  # where a row begins: its options run over several lines
    for row in reader:
        place, line = Place(str(path), line), reader.line_num + 1
        cells = {key: _uncell((value or "").strip()) for key, value in row.items() if isinstance(key, str)}
        verdict, key = cells["verdict"].lower(), (cells["id"], cells["seen"])
        problem = ""
        if verdict not in ("", "accept", "reject"):
            problem = f"The verdict is {cells['verdict']!r}, not accept or reject."
        elif key in verdicts:
            problem = f"There are two lines on {cells['id']!r}; the first counts."
        if problem:
            bad = BadRowError(problem, remedy="Correct the line.", path=str(place))
            audit.drop("review", bad, dropped=False, place=place)
        elif verdict or cells.get("correction"):
            verdicts[key] = Verdict(verdict, cells.get("correction", ""), cells.get("note", ""), place)
    return verdicts


def apply_review(
    candidates: Sequence[Candidate], verdicts: Verdicts, config: Config, audit: Audit
) -> list[Candidate]:
    """The candidates nobody rejected, corrected where a person wrote a correction.

    A verdict that was given on another text, or on an item that is no more, is noted in the audit and
    not applied.
    """
    seen = {candidate.id: _digest(candidate) for candidate in candidates}
    for (item_id, digest), verdict in verdicts.items():
        if seen.get(item_id) != digest:
            state = "is no more" if item_id not in seen else "has another text now"
            error = StaleReviewError(
                f"The verdict is not applied: {item_id!r} {state}.",
                remedy="Review it again.",
                item_id=item_id,
            )
            audit.drop("review", error, dropped=False, place=verdict.place)

    def check(candidate: Candidate) -> Candidate:
        verdict = verdicts.get((candidate.id, seen[candidate.id]))
        if verdict is None:
            return candidate
        if verdict.verdict == "reject":
            raise RejectedByReviewerError(verdict.note or "Rejected without a note.", remedy="Nothing to do.")
        if not verdict.correction:
            return candidate
        fault = text_fault(verdict.correction, config.max_characters)
        if fault:
            raise MalformedTextError(f"The correction {fault}.", remedy="Correct the review file.")
        return replace(candidate, question=verdict.correction)

    return judge("review", candidates, check, audit)
