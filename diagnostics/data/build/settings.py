"""The parameters of the pipeline, and the thirteen task families.

Families, their evidence and what the audit counts them as: MedHorizon (arXiv 2605.06537), Table 5 and
section 6.4. The paper gives abbreviations and rules, not wordings: the questions' texts are ours, and
`Config.wording` replaces them. What the annotations of a family are worth as evidence is the paper's
judgement of its own sources, and `Config.kinds` replaces it.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic.dataclasses import dataclass

from diagnostics.strict import STRICT, near_match

__all__ = ["TASKS", "Config", "Kind", "TaskRule"]

Kind = Literal["exact", "proxy", "global"]


@plain_dataclass(frozen=True)
class TaskRule:
    """What is fixed about a family.

    Attributes:
        title: what the abbreviation stands for, as we read it.
        family: the coarser group.
        track: the annotation it needs.
        kinds: of evidence that its annotations can be; the first is the paper's.
        flag: one of `diagnostics.data.items.FLAGS`; a question that names an order is `order_dependent`
            whatever its family's flag is (`Finding.order_dependent`).
        wording: the question, with the names in braces that `names` lists.
        names: what a wording may name.
    """

    title: str
    family: str
    track: str
    kinds: tuple[Kind, ...]
    flag: str
    wording: str
    names: tuple[str, ...] = ()


_WINDOW = ("start", "end")

_NAMED: tuple[Kind, ...] = ("exact", "proxy")
_LESION: tuple[Kind, ...] = ("proxy", "exact")
_LESIONS: tuple[Kind, ...] = ("proxy", "exact", "global")
_WHOLE: tuple[Kind, ...] = ("global",)
_STEPS: tuple[Kind, ...] = ("global", "exact", "proxy")

TASKS: Mapping[str, TaskRule] = {
    "PR": TaskRule(
        "phase recognition",
        "temporal localisation",
        "phases",
        _NAMED,
        "time_addressed",
        "Which phase is under way between {start} and {end}?",
        _WINDOW,
    ),
    "SD": TaskRule(
        "step detection",
        "temporal localisation",
        "steps",
        _NAMED,
        "time_addressed",
        "Which step is carried out between {start} and {end}?",
        _WINDOW,
    ),
    "RL": TaskRule(
        "region localisation",
        "temporal localisation",
        "regions",
        _NAMED,
        "time_addressed",
        "Which anatomical region is seen between {start} and {end}?",
        _WINDOW,
    ),
    "IR": TaskRule(
        "instrument recognition",
        "fine-grained recognition",
        "instruments",
        _NAMED,
        "order_free",
        "Which instrument is in use when the phase {phase} first begins?",
        ("phase",),
    ),
    "Site": TaskRule(
        "lesion site",
        "fine-grained recognition",
        "lesions",
        _LESION,
        "order_free",
        "Where is the {lesion}?",
        ("lesion",),
    ),
    "Hist": TaskRule(
        "lesion histology",
        "fine-grained recognition",
        "lesions",
        _LESION,
        "order_free",
        "What is the histology of the {lesion}?",
        ("lesion",),
    ),
    "Size": TaskRule(
        "lesion size",
        "fine-grained recognition",
        "lesions",
        _LESION,
        "order_free",
        "How large is the {lesion}?",
        ("lesion",),
    ),
    "LLS": TaskRule(
        "largest lesion",
        "aggregation",
        "lesions",
        _LESIONS,
        "order_free",
        "What is the {attribute} of the largest lesion?",
        ("attribute",),
    ),
    "LA": TaskRule(
        "lesions in all",
        "aggregation",
        "lesions",
        _LESIONS,
        "order_free",
        "How many lesions are seen in the whole examination?",
    ),
    "BPQ": TaskRule(
        "examination quality",
        "aggregation",
        "labels",
        _WHOLE,
        "order_free",
        "How is the {label} of the whole examination rated?",
        ("label",),
    ),
    "WR": TaskRule(
        "workflow reasoning",
        "workflow",
        "phases",
        _WHOLE,
        "order_free",
        "Which of these phases takes the longest in total?",
    ),
    "RSR": TaskRule(
        "relative step ranking",
        "workflow",
        "steps",
        _STEPS,
        "order_dependent",
        "Which of these steps is carried out first: {steps}?",
        ("steps",),
    ),
    "CPR": TaskRule(
        "counting over the procedure",
        "workflow",
        "steps",
        _STEPS,
        "order_free",
        "How many separate times is the step {step} carried out?",
        ("step",),
    ),
}


_NO_WINDOWS = {
    "WR": ": the total of a phase is known only from all phases, which is the whole video",
    "BPQ": ": a label of the examination has no windows",
}


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=STRICT)
class Config:
    """How questions are made.

    Attributes:
        tasks: families to try.
        options: of each question; RSR has as many as it names steps.
        seed: of windows, draws, wrong options and letters.
        window_seconds, grid_seconds: PR, SD, RL ask about windows of this length that begin on this grid.
        windows_per_run: of those, for each uninterrupted run of a label.
        border_share: such a window keeps this share of the run's length away from both ends of the run:
            annotated borders are where labels are least sure, and where one picture turns into another.
        min_coverage: share of such a window that the answer's label must cover.
        onset_seconds: IR looks at this much after a phase begins.
        onset_evidence: evidence of IR: the instrument's rows as far as they lie in `onset_seconds`
            (`inside`), or the whole stretch of use that they belong to (`whole`).
        kinds: what the annotations of a family are worth, instead of the paper's judgement
            (`TaskRule.kinds`): `exact` where annotators marked what the question asks about. For RSR and
            CPR any kind but `global` makes windows of the named steps' rows: of RSR the first time of each
            step, of CPR every time of the one.
        lesion_subjects: Site, Hist and Size ask about `any` lesion, of several by the order in which they
            come into view, or about the `only` one of a procedure.
        lesion_windows: evidence of Site, Hist, Size: `all` windows of the lesion, the `first`, the `longest`.
        largest_asks: LLS asks for this attribute of the largest lesion.
        draws: WR, RSR and CPR are tried this often on each procedure (MedHorizon has two).
        named_steps: RSR names this many steps.
        margin: WR: a total must be shorter by this share to be a wrong option.
        size_step, size_unit: numeric sizes: distance between options, and what follows the number.
        ignored: labels never asked about nor offered (`idle`, `out of body`).
        aliases: what to write for a label.
        wording: questions by family, instead of those of `TASKS`.
        per_task, per_procedure: at most so many questions of a task in all, and on one procedure.
        tasks_per_procedure: at most so many tasks on one procedure; they take turns.
        even_answers: thin each task, or each of those named, until no answer is more frequent than its
            rarest one, so that how often a label or a count occurs says nothing about the answer.
        tolerance_seconds: by how much real and annotated length, and a row and the video's end, may differ.
        max_characters: of a question or an option.
    """

    tasks: Names = tuple(TASKS)
    options: Annotated[int, Field(ge=2, le=10)] = 4
    seed: Annotated[int, Field(ge=0)] = 0
    window_seconds: Positive = 10.0
    grid_seconds: Positive = 1.0
    windows_per_run: Count = 1
    border_share: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    min_coverage: Annotated[float, Field(gt=0, le=1)] = 1.0
    onset_seconds: Positive = 10.0
    onset_evidence: Literal["inside", "whole"] = "inside"
    kinds: dict[str, Kind] = field(default_factory=dict)
    lesion_subjects: Literal["any", "only"] = "any"
    lesion_windows: Literal["all", "first", "longest"] = "all"
    largest_asks: str = "site"
    draws: Count = 2
    named_steps: Annotated[int, Field(ge=2, le=10)] = 4
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.1
    size_step: Positive = 5.0
    size_unit: str = " mm"
    ignored: Names = ()
    aliases: dict[str, str] = field(default_factory=dict)
    wording: dict[str, str] = field(default_factory=dict)
    per_task: Count | None = None
    per_procedure: Count | None = None
    tasks_per_procedure: Count | None = None
    even_answers: bool | Names = False
    tolerance_seconds: Annotated[float, Field(ge=0)] = 1.0
    max_characters: Count = 500

    @field_validator("tasks", "even_answers")
    @classmethod
    def _known_tasks(cls, value: bool | tuple[str, ...]) -> bool | tuple[str, ...]:
        for task in () if isinstance(value, bool) else value:
            if task not in TASKS:
                raise ValueError(f"there is no task {task!r}. {near_match(task, list(TASKS))}")
        return value

    @field_validator("kinds")
    @classmethod
    def _possible_kinds(cls, value: dict[str, Kind]) -> dict[str, Kind]:
        for task, kind in value.items():
            if task not in TASKS:
                raise ValueError(f"kind of {task!r}: {near_match(task, list(TASKS))}")
            able = TASKS[task].kinds
            if kind not in able:
                why = _NO_WINDOWS.get(task, "") if able == _WHOLE else ""
                raise ValueError(f"{task} cannot be {kind}, only {' or '.join(able)}{why}")
        return value

    @model_validator(mode="after")
    def _known_names(self) -> Self:
        for task, text in self.wording.items():
            if task not in TASKS:
                raise ValueError(f"wording of {task!r}: {near_match(task, list(TASKS))}")
            names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
            unknown = [name for name in names if name not in TASKS[task].names]
            if unknown:
                told = ", ".join(TASKS[task].names) or "none"
                raise ValueError(f"wording of {task} names {{{unknown[0]}}}; it may name: {told}")
            # A question that lost its window or its subject would be another question.
            lost = [name for name in TASKS[task].names if name not in names and name != "steps"]
            if lost:
                raise ValueError(f"wording of {task} must name {{{lost[0]}}}")
        return self

    def kind(self, task: str) -> Kind:
        """Of the evidence of `task`."""
        return self.kinds.get(task, TASKS[task].kinds[0])

    def evens(self, task: str) -> bool:
        """Whether the answers of `task` are thinned until they are even."""
        return self.even_answers if isinstance(self.even_answers, bool) else task in self.even_answers

    def question(self, task: str, **names: str) -> str:
        """The question of `task` with its names filled in."""
        return self.wording.get(task, TASKS[task].wording).format(**names)

    def shown(self, label: str) -> str:
        """How a label is written in questions and options."""
        return self.aliases.get(label, label)
