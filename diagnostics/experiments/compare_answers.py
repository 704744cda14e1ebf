"""Right answers of several runs by condition and task, and how each differs from the first run's.

Conditions that differ in their seed alone are one: their outcomes are averaged item by item, as the
experiments themselves do. Means are of every item that a run has; differences of the items that it shares
with the first (same id, same question), with the sign-flip test over videos.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

import probes
from diagnostics.experiments.conditions import ALL
from diagnostics.scoring import statistics
from diagnostics.store import FinishedRun, condition_id

__all__ = ["accuracy_table", "condition_label"]

_SEED = "seed"


def condition_label(condition: Mapping[str, Any]) -> str:
    """A condition in short, without its seed: words for themselves, then anything else with its key."""
    told = sorted((key, value) for key, value in condition.items() if key != _SEED)
    words = [value for _, value in told if isinstance(value, str)]
    others = [f"{key}={value}" for key, value in told if not isinstance(value, str)]
    return ", ".join([*words, *others]) or "as sampled"


def accuracy_table(runs: Mapping[str, FinishedRun], *, seed: int = 0) -> pd.DataFrame:
    """One row a task, condition and run: accuracy, and its paired difference from the first run.

    Columns: `task`, `condition` (`condition_label`), `run`, `accuracy` with a 95% interval, `n`; `against`,
    `difference` with its interval, `p`, `p_holm` (over the conditions of a task and run), `shared` items.
    Empty where no run has a scored answer. A single task is not told apart from all.
    """
    outcomes = {name: _outcomes(run) for name, run in runs.items()}
    conditions = {
        _place(record.condition): record.condition for run in runs.values() for record in run.records
    }
    labels = {place: condition_label(condition) for place, condition in conditions.items()}
    places = _in_order([place for each in outcomes.values() for place in each], conditions)
    found = [one for each in outcomes.values() for items in each.values() for one in items.values()]
    tasks = list(dict.fromkeys(task for task, _, _ in found))
    (reference, first), *_ = outcomes.items()
    rows: list[dict[str, Any]] = []
    for task in [ALL, *(tasks if len(tasks) > 1 else [])]:
        for name, each in outcomes.items():
            block: list[dict[str, Any]] = []
            for place in places:
                items = _of_task(each.get(place, {}), task)
                if not items:
                    continue
                mean = probes.clustered_mean(
                    [v for _, _, v in items.values()], [v for _, v, _ in items.values()]
                )
                block.append(
                    {
                        "task": task,
                        "condition": labels[place],
                        "run": name,
                        "accuracy": mean.mean,
                        "ci_low": mean.ci_low,
                        "ci_high": mean.ci_high,
                        "n": mean.n,
                    }
                )
                if name != reference:
                    before = _of_task(first.get(place, {}), task)
                    block[-1] |= {"against": reference, **_difference(before, items, seed)}
            if name != reference:
                adjusted = statistics.holm([row["p"] for row in block]).adjusted
                block = [row | {"p_holm": p} for row, p in zip(block, adjusted, strict=True)]
            rows += block
    order = {label: place for place, label in enumerate(dict.fromkeys(labels[place] for place in places))}
    rows.sort(key=lambda row: ([ALL, *tasks].index(row["task"]), order[row["condition"]]))
    columns = ["task", "condition", "run", "accuracy", "ci_low", "ci_high", "n", "against", "difference"]
    columns += ["difference_low", "difference_high", "p", "p_holm", "shared"]
    return pd.DataFrame(rows, columns=columns)


_Items = dict[tuple[str, str], tuple[str, str, float]]
"""By id and hash of the question: task, video, and the share of the seeds in which it was right."""


def _outcomes(run: FinishedRun) -> dict[str, _Items]:
    gathered: dict[str, dict[tuple[str, str], tuple[str, str, list[float]]]] = {}
    for record in run.records:
        if record.error is None and record.correct is not None:
            items = gathered.setdefault(_place(record.condition), {})
            key = (record.item_id, record.item_sha256)
            told = items.setdefault(key, (record.task or "(none)", record.video_id, []))
            told[2].append(float(record.correct))
    order = [place for place in map(_place, (row.condition for row in run.summary.rows)) if place in gathered]
    return {  # in the order of the experiment's own tables
        place: {
            key: (task, video, float(np.mean(right))) for key, (task, video, right) in gathered[place].items()
        }
        for place in dict.fromkeys([*order, *gathered])
    }


def _in_order(places: Sequence[str], conditions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """By the conditions' words as they first come, then by their numbers: rungs that only a later run has
    stand with the others of their ladder."""
    words: dict[str, int] = {}
    for place in places:
        for value in conditions[place].values():
            if isinstance(value, str):
                words.setdefault(value, len(words))

    def key(place: str) -> tuple[list[int], list[float]]:
        told = [value for name, value in sorted(conditions[place].items()) if name != _SEED]
        names = [words[value] for value in told if isinstance(value, str)]
        return names, [float(value) for value in told if isinstance(value, int | float)]

    return sorted(dict.fromkeys(places), key=key)


def _place(condition: Mapping[str, Any]) -> str:
    return condition_id({key: value for key, value in condition.items() if key != _SEED})


def _of_task(items: _Items, task: str) -> _Items:
    return items if task == ALL else {key: one for key, one in items.items() if one[0] == task}


def _difference(before: _Items, after: _Items, seed: int) -> dict[str, Any]:
    shared = [key for key in before if key in after]
    found = statistics.paired_difference(
        [before[key][2] for key in shared],
        [after[key][2] for key in shared],
        [before[key][1] for key in shared],
        seed=seed,
    )
    return {
        "difference": found.difference,
        "difference_low": found.ci_low,
        "difference_high": found.ci_high,
        "p": found.p,
        "shared": found.n,
    }
