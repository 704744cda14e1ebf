"""Frame sampling: which rule finds the evidence, and does finding it help?

MedHorizon (arXiv 2605.06537), section 4.5 and 8 (RQ4): uniform, differential and hybrid frames at 32 and 64.
Here every sampler of the toolkit, at the same budgets on the same items: accuracy, recall of the evidence
(any window hit, all windows hit, evidence frames), coverage of time, and the time spent choosing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import pandas as pd
from pydantic import NonNegativeInt, PositiveInt, field_validator
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.errors import ConfigError, ScorerUnavailableError
from diagnostics.experiments.asking import Asking
from diagnostics.experiments.conditions import ALL, Answers, metric_of
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome
from diagnostics.experiments.pairs import Pair, measure_pairs
from diagnostics.experiments.showing import Library, Shown
from diagnostics.experiments.write_up import asked_of, write_up
from diagnostics.report.merged import MOST_TASKS
from diagnostics.report.samplers import samplers_by_task_figure, samplers_figure
from diagnostics.store.summary import Metric
from diagnostics.strict import STRICT, from_mapping
from diagnostics.video.relevance import load_scorer
from diagnostics.video.sampling import Sampler, load_sampler, needs_of
from diagnostics.video.selection import Selection

__all__ = ["Config", "conditions", "run", "task_table", "temporal_coverage"]

_RECALL = (
    "any_window_hit",
    "all_windows_hit",
    "windows_hit",
    "evidence_slots",
    "evidence_slots_per_window",
    "temporal_coverage",
)
_COMPARED = ("accuracy", "any_window_hit")
"""In the headline, and against the reference."""
_CHOICE = "choose"


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        samplers: by label: the `rule` and its parameters but for the budget, as in `conf/sampling`.
        budgets: frames.
        reference: the label that the others are compared with.
        seed: of the statistics.
    """

    samplers: dict[str, dict[str, Any]] = field(default_factory=lambda: {"uniform": {"rule": "uniform"}})
    budgets: tuple[PositiveInt, ...] = (32, 64)
    reference: str = "uniform"
    seed: NonNegativeInt = 0

    @field_validator("samplers")
    @classmethod
    def _with_rules(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for label, told in value.items():
            if "rule" not in told or "budget" in told:
                raise ValueError(f"sampler {label!r} names its rule, and its budget is that of exp.budgets")
        return value


def conditions(config: Config) -> list[Mapping[str, Any]]:
    """Every sampler at every budget."""
    return [{"sampler": label, "budget": budget} for budget in config.budgets for label in config.samplers]


def run(context: Context, config: Config) -> Outcome:
    """Ask every item with every sampler's frames, then write summary, tables and figure.

    Items without local evidence are not asked with samplers that choose by it (the oracle), and are named.

    Raises:
        ConfigError: a sampler's parameters are wrong, or the reference is none of them.
        ScorerUnavailableError: a scorer cannot be loaded here; before anything is asked.
    """
    if config.reference not in config.samplers:
        raise ConfigError(
            f"exp.reference={config.reference} is none of exp.samplers.",
            remedy=f"Choose one of {', '.join(config.samplers)}.",
        )
    rules = {condition_key(c): _rule(config, c) for c in conditions(config)}
    pairs, reasons = _pairs(context.items, conditions(config), rules)
    if any(pair.key not in context.folder.finished for pair in pairs):
        _check_scorers(rules)

    def show(pair: Pair, library: Library) -> Shown:
        item = library.checked(pair.item)
        sampler, parameters = rules[condition_key(pair.condition)]
        started = time.perf_counter()
        selection = library.sample(item, sampler, parameters)
        spent = time.perf_counter() - started
        told = {"temporal_coverage": temporal_coverage(selection)}
        return Shown(item, selection, measures=told, seconds={_CHOICE: spent})

    with Asking(context) as asking:
        measure_pairs(context, pairs, asking, "Asking with every sampler", show=show)
    return _finish(context, config, pairs, reasons)


Rules = Mapping[tuple[str, int], tuple[Sampler, Any]]


def _pairs(
    items: Sequence[Item], every: Sequence[Mapping[str, Any]], rules: Rules
) -> tuple[list[Pair], dict[str, str]]:
    """What is asked, and the items that some samplers cannot serve, with those samplers' labels."""
    pairs, reasons = [], {}
    for item in items:
        missing: dict[str, None] = {}
        for condition in every:
            sampler, _ = rules[condition_key(condition)]
            if item.local_evidence is not None or not getattr(sampler, "CHOOSES_BY_EVIDENCE", False):
                pairs.append(Pair(item, condition))
            else:
                missing[condition["sampler"]] = None
        if missing:
            reasons[item.id] = f"no local evidence: not asked with {', '.join(missing)}"
    return pairs, reasons


def _check_scorers(rules: Rules) -> None:
    """Load each scorer once, before long work: what is missing should be known at once."""
    seen = set()
    for (label, _), (sampler, parameters) in rules.items():
        if not needs_of(sampler, parameters) & {"scores", "features"} or parameters.scorer in seen:
            continue
        seen.add(parameters.scorer)
        try:
            load_scorer(parameters.scorer)
        except ScorerUnavailableError as error:
            remedy = error.remedy.replace("sampling.", f"exp.samplers.{label}.")
            raise ScorerUnavailableError(error.problem, remedy=remedy, path=error.path) from error


def condition_key(condition: Mapping[str, Any]) -> tuple[str, int]:
    """Label and budget."""
    return condition["sampler"], condition["budget"]


def _rule(config: Config, condition: Mapping[str, Any]) -> tuple[Sampler, Any]:
    label, budget = condition_key(condition)
    told = dict(config.samplers[label])
    sampler = load_sampler(told.pop("rule"))
    return sampler, from_mapping(sampler.Config, {**told, "budget": budget}, f"exp.samplers.{label}")


def temporal_coverage(selection: Selection) -> float:
    """Share of equally long stretches of the video, as many as there are slots, that a slot falls into."""
    count = len(selection)
    stretch = np.minimum(selection.true_seconds / selection.source_seconds * count, count - 1).astype(int)
    return len(np.unique(stretch)) / count


def _finish(context: Context, config: Config, pairs: Sequence[Pair], reasons: Mapping[str, str]) -> Outcome:
    asked = asked_of(context, pairs)
    samplers, tasks = sampler_table(asked.answers, config), task_table(asked.answers, config)
    n_tasks = len(set(tasks["task"]) - {ALL})
    differences = [
        asked.answers.differences(
            {"sampler": config.reference, "budget": budget},
            [c for c in conditions(config) if c["budget"] == budget and c["sampler"] != config.reference],
            measure,
            seed=config.seed,
        )
        for budget in config.budgets
        for measure in _COMPARED
    ]
    return write_up(
        context,
        asked,
        metrics={
            f"{measure}_{row['sampler']}_{row['budget']}": Metric(
                row[measure], row[f"{measure}_low"], row[f"{measure}_high"], int(row["n"])
            )
            for _, row in samplers.iterrows()
            for measure in _COMPARED
        },
        tables={"samplers": samplers, "tasks": tasks, "differences": pd.concat(differences)},
        draw=lambda: samplers_figure(samplers),
        draw_by_task=(lambda: samplers_by_task_figure(tasks)) if 1 < n_tasks <= MOST_TASKS else None,
        baselines=conditions(config),
        left_out=reasons,
    )


def task_table(answers: Answers, config: Config) -> pd.DataFrame:
    """Accuracy by task, sampler and budget, `all` for all tasks, with 95% intervals (videos resampled)."""
    rows = []
    for task, some in answers.by_task():
        for condition in conditions(config):
            metric = metric_of(some.column(condition), some.videos)
            told = {"accuracy": metric.mean, "ci_low": metric.ci_low, "ci_high": metric.ci_high}
            rows.append({"task": task, **condition, **told, "n": metric.n})
    return pd.DataFrame(rows)


def sampler_table(answers: Answers, config: Config) -> pd.DataFrame:
    """One row a sampler and budget: each measure with its interval, and the median time spent choosing.

    Whoever needs a signal first pays for it; later items and samplers find it kept. The maximum holds that.
    """
    rows = []
    for condition in conditions(config):
        row: dict[str, Any] = dict(condition)
        for measure in ("accuracy", *_RECALL):
            metric = metric_of(answers.column(condition, measure), answers.videos)
            row |= {measure: metric.mean, f"{measure}_low": metric.ci_low, f"{measure}_high": metric.ci_high}
            if measure == "accuracy":
                row["n"] = metric.n
        records = answers.under(condition)
        told = [r.seconds.get(_CHOICE) for r in records if r is not None]
        spent = [seconds for seconds in told if seconds is not None]
        row["choose_seconds_median"] = float(np.median(spent)) if spent else float("nan")
        row["choose_seconds_max"] = max(spent, default=float("nan"))
        rows.append(row)
    return pd.DataFrame(rows)
