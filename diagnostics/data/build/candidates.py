"""Candidate questions: a finding with its text, its id, and as it goes on its options."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from diagnostics.data.build.findings import Finding
from diagnostics.data.build.settings import Config
from diagnostics.data.build.spaces import Numbers

__all__ = ["Candidate", "generate", "shown_value"]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A question on its way.

    Attributes:
        id: `procedure/task/digest of what is asked about`: the same whatever else is in the benchmark.
        finding: what the annotations say.
        question: its text.
        answer: the right option's text; empty where there is none.
        wrong: the other options' texts, once they are chosen.
        options: all of them in their final order, once they are shuffled.
        rewritten_from: the original text, where the question was rewritten.
    """

    id: str
    finding: Finding
    question: str
    answer: str
    wrong: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    rewritten_from: str | None = None

    @property
    def task(self) -> str:
        """The family."""
        return self.finding.task

    def told(self) -> dict[str, Any]:
        """What the audit file says of it."""
        return {
            "id": self.id,
            "question": self.question,
            "answer": self.answer,
            "wrong": list(self.wrong),
            "subject": dict(self.finding.subject),
            "right": list(self.finding.right),
            "asked": self.finding.asked,
            "evidence": [list(window) for window in self.finding.windows],
        }


def generate(findings: Iterable[Finding], config: Config) -> list[Candidate]:
    """A candidate for each finding, whether it can become a question or not."""
    return [
        Candidate(
            id=_identity(finding),
            finding=finding,
            question=config.question(finding.task, **finding.names),
            answer=shown_value(finding, finding.right[0], config) if finding.right else "",
        )
        for finding in findings
    ]


def shown_value(finding: Finding, value: str | float, config: Config) -> str:
    """How a label or a number is written as an option of this finding's question."""
    if isinstance(value, str):
        return config.shown(value)
    return finding.space.shown(value) if isinstance(finding.space, Numbers) else f"{value:g}"


def _identity(finding: Finding) -> str:
    subject = json.dumps(dict(finding.subject), sort_keys=True, ensure_ascii=False)
    digest = hashlib.sha256(subject.encode()).hexdigest()[:8]
    return f"{finding.procedure.name}/{finding.task}/{digest}"
