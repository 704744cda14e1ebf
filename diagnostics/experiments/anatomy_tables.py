"""The tables of `attention_anatomy`: outcomes by budget and task, and drift by budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from diagnostics.experiments.conditions import ALL, Answers, metric_of
from diagnostics.store.summary import Metric

__all__ = ["DRIFT", "OUTCOMES", "anatomy_table", "drift_table", "headline"]

OUTCOMES = ("not_sampled", "unattended", "without_effect", "effective")
"""What becomes of an item's evidence, in the order of its way to the answer."""

_PARTS = ("effective_wrong", "unattended_effective")

DRIFT = (
    "unit_fraction_80",
    "unit_fraction_80_uniform",
    "unit_similarity",
    "patch_similarity",
    "evidence_log_lift",
    "evidence_log_lift_without_sinks",
    "attended_log_lift",
    "effect_evidence",
    "effect_attended",
    "effect_random",
)
"""Measures of the drift table and of the figure."""


def anatomy_table(answers: Answers, budgets: Sequence[int]) -> pd.DataFrame:
    """One row a budget, task and outcome, `all` for all tasks.

    Columns: budget; task; outcome (`effective_wrong` too, a part of `effective`; `unattended_effective`, a
    part of `unattended`; `undecided`: too few other units to compare with, a share of all items where the
    outcomes are shares of the decided ones); share, its 95% interval (videos resampled); n; accuracy of the
    items with that outcome (missing where there are none).
    """
    rows = []
    tasks = [
        (ALL, answers),
        *((task or "(none)", answers.of_task(task)) for task in sorted(set(answers.tasks))),
    ]
    for budget in budgets:
        for task, some in tasks:
            for outcome in (*OUTCOMES, *_PARTS, "undecided"):
                metric = _metric(some, budget, outcome)
                right = _metric(some, budget, f"right_where_{outcome}")
                rows.append(
                    {
                        "budget": budget,
                        "task": task,
                        "outcome": outcome,
                        "share": metric.mean,
                        "ci_low": metric.ci_low,
                        "ci_high": metric.ci_high,
                        "n": metric.n,
                        "accuracy": right.mean,
                    }
                )
    return pd.DataFrame(rows)


def drift_table(answers: Answers, budgets: Sequence[int]) -> pd.DataFrame:
    """One row a budget and measure of `DRIFT`: mean, 95% interval (videos resampled), n."""
    rows = []
    for budget in budgets:
        for measure in DRIFT:
            metric = _metric(answers, budget, measure)
            rows.append(
                {
                    "budget": budget,
                    "measure": measure,
                    "mean": metric.mean,
                    "ci_low": metric.ci_low,
                    "ci_high": metric.ci_high,
                    "n": metric.n,
                }
            )
    return pd.DataFrame(rows)


def headline(answers: Answers, budgets: Sequence[int]) -> dict[str, Metric]:
    """Shares of the outcomes at the largest budget, and how often those that rest on evidence are wrong."""
    largest = budgets[-1]
    names = ("accuracy", *OUTCOMES, *_PARTS, "undecided")
    return {name: _metric(answers, largest, name) for name in names}


def _metric(answers: Answers, budget: int, measure: str) -> Metric:
    column = answers.column({"budget": budget}, measure)
    return metric_of(np.asarray(column, dtype=np.float64), answers.videos)
