"""From the records of an experiment with several conditions to its tables: means, differences, baselines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

import probes
from diagnostics.data.items import Item
from diagnostics.scoring import statistics
from diagnostics.store.canonical import condition_id
from diagnostics.store.records import Record
from diagnostics.store.summary import Metric, Row

__all__ = ["ALL", "Answers", "baseline_table", "measure_rows", "metric_of"]

ALL = "all"
"""The task of a row over all tasks."""

Condition = Mapping[str, Any]


def metric_of(values: Sequence[float] | Float[np.ndarray, " n"], videos: Sequence[str]) -> Metric:
    """Mean and 95% interval, videos resampled; NaN is left out."""
    estimate = probes.clustered_mean(values, videos)
    return Metric(estimate.mean, estimate.ci_low, estimate.ci_high, estimate.n)


def value_of(record: Record, measure: str) -> float:
    """One number of a record: `accuracy` and `none_rate` of its answer, else a measure; NaN if undefined."""
    if measure == "accuracy":
        return float("nan") if record.correct is None else float(record.correct)
    if measure == "none_rate":
        return float("nan") if record.correct is None else float(record.answer is None)
    value = record.measures.get(measure)
    return float("nan") if value is None else float(value)


def measure_rows(records: Sequence[Record], measures: Sequence[str] | None = None) -> list[Row]:
    """Every measure's mean with its interval, by condition, in all and by task.

    Args:
        records: finished ones.
        measures: which; by default accuracy, the rate of replies without a letter, and all that records hold.
    """
    names = measures or ["accuracy", "none_rate", *dict.fromkeys(n for r in records for n in r.measures)]
    rows = []
    for condition, group in _by_condition(records):
        tasks = [(ALL, group), *_by_task(group)]
        for task, some in tasks:
            videos = [record.video_id for record in some]
            for name in names:
                metric = metric_of([value_of(record, name) for record in some], videos)
                if metric.n:
                    numbers = (metric.mean, metric.ci_low, metric.ci_high, metric.n)
                    rows.append(_row(name, numbers, task, condition))
    return rows


def _row(
    measure: str,
    numbers: tuple[float | None, float | None, float | None, int],
    task: str,
    condition: Condition,
) -> Row:
    value, low, high, n = numbers
    return Row(
        measure=measure, value=value, ci_low=low, ci_high=high, n=n, task=task, condition=dict(condition)
    )


def _by_condition(records: Sequence[Record]) -> Iterator[tuple[Condition, list[Record]]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.condition_id, []).append(record)
    for group in groups.values():
        yield group[0].condition, group


def _by_task(records: Sequence[Record]) -> Iterator[tuple[str, list[Record]]]:
    for task, group in groupby(sorted(records, key=lambda r: r.task), key=lambda r: r.task):
        yield task or "(none)", list(group)


@dataclass(frozen=True, eq=False)
class Answers:
    """Finished records by item and condition, for comparisons on the same items.

    Attributes:
        items: ids, in the order of the run; an item appears once it has any finished record.
        videos, tasks: of each item.
        records: by item id and condition id.
    """

    items: tuple[str, ...]
    videos: tuple[str, ...]
    tasks: tuple[str, ...]
    records: Mapping[tuple[str, str], Record]

    @classmethod
    def of(cls, records: Sequence[Record]) -> Answers:
        """From finished records."""
        first: dict[str, Record] = {}
        for record in records:
            first.setdefault(record.item_id, record)
        return cls(
            items=tuple(first),
            videos=tuple(record.video_id for record in first.values()),
            tasks=tuple(record.task for record in first.values()),
            records={record.pair: record for record in records},
        )

    def record(self, item: str, condition: Condition) -> Record | None:
        """The item's record under a condition, where it was finished."""
        return self.records.get((item, condition_id(condition)))

    def under(self, condition: Condition) -> list[Record | None]:
        """Every item's record under a condition, in order; None where it was not finished."""
        key = condition_id(condition)  # once, not for each item: hashing costs more than looking up
        return [self.records.get((item, key)) for item in self.items]

    def column(self, condition: Condition, measure: str = "accuracy") -> Float[np.ndarray, " item"]:
        """One measure under one condition for every item; NaN where it was not measured."""
        found = self.under(condition)
        return np.array([float("nan") if one is None else value_of(one, measure) for one in found])

    def letters(self, condition: Condition) -> list[str | None]:
        """The answered letters; None where there is none, or no record."""
        return [None if one is None else one.answer for one in self.under(condition)]

    def where(self, keep: Callable[[str, str], bool]) -> Answers:
        """The items of which `keep(item id, task)` is true."""
        places = [p for p, item in enumerate(self.items) if keep(item, self.tasks[p])]
        return Answers(
            items=tuple(self.items[p] for p in places),
            videos=tuple(self.videos[p] for p in places),
            tasks=tuple(self.tasks[p] for p in places),
            records=self.records,
        )

    def among(self, ids: Collection[str]) -> Answers:
        """The items with these ids."""
        return self.where(lambda item, _: item in ids)

    def of_task(self, task: str) -> Answers:
        """The items of one task."""
        return self.where(lambda _, own: own == task)

    def by_task(self) -> list[tuple[str, Answers]]:
        """All of them as `all`, then the items of each task where there are several."""
        tasks = list(dict.fromkeys(self.tasks))
        each = [(task or "(none)", self.of_task(task)) for task in tasks] if len(tasks) > 1 else []
        return [(ALL, self), *each]

    def differences(
        self,
        reference: Condition,
        others: Sequence[Condition],
        measure: str = "accuracy",
        *,
        seed: int = 0,
        by_task: bool = True,
    ) -> pd.DataFrame:
        """Paired differences from a reference on the same items, in all and by task.

        One row a condition and task: the condition's keys, task, measure, mean of both, difference, its 95%
        interval, p of the sign-flip test over videos, the same adjusted over the conditions of a task (Holm),
        McNemar's exact p with its counts, items and videos.
        """
        rows: list[dict[str, object]] = []
        for task, some in self.by_task() if by_task else [(ALL, self)]:
            found = [
                statistics.paired_difference(
                    some.column(reference, measure), some.column(other, measure), some.videos, seed=seed
                )
                for other in others
            ]
            adjusted = statistics.holm([one.p for one in found]).adjusted
            for other, one, p_holm in zip(others, found, adjusted, strict=True):
                test = one.mcnemar
                rows.append(
                    {
                        **other,
                        "task": task,
                        "measure": measure,
                        "reference": one.mean_a,
                        "value": one.mean_b,
                        "difference": one.difference,
                        "ci_low": one.ci_low,
                        "ci_high": one.ci_high,
                        "p": one.p,
                        "p_holm": p_holm,
                        "p_mcnemar": test.p if test else float("nan"),
                        "gained": test.gained if test else None,
                        "lost": test.lost if test else None,
                        "n": one.n,
                        "videos": one.n_clusters,
                    }
                )
        return pd.DataFrame(rows)


def baseline_table(items: Sequence[Item], answers: Answers, conditions: Sequence[Condition]) -> pd.DataFrame:
    """What accuracy is worth: chance, the best constant letter, the commonest text, a text-only classifier.

    One row a baseline with its accuracy and interval, then one a condition with a two-sided test against
    chance, clustered by video: many published scores lie far below it.
    """
    scored = [item for item in items if item.options and item.answer is not None]
    videos = [item.video_id for item in scored]
    chance = np.array([1 / len(item.options) for item in scored])
    rows: list[dict[str, object]] = [_baseline("chance", chance, videos)]
    if scored:
        for name, found in (
            ("best constant letter", statistics.constant_letter_baseline(scored)),
            ("commonest option text", statistics.majority_text_baseline(scored)),
            ("text-only classifier", statistics.text_only_baseline(scored)),
        ):
            rows.append(_baseline(name, found.correct, videos))
    options = {item.id: len(item.options) for item in items}
    for condition in conditions:
        correct = answers.column(condition)
        counts = [max(1, options.get(item, 1)) for item in answers.items]
        test = statistics.against_chance(correct, counts, answers.videos)
        metric = metric_of(correct, answers.videos)
        told = ", ".join(f"{key}={value}" for key, value in condition.items()) or "as sampled"
        rows.append(
            {
                "of": told,
                "accuracy": metric.mean,
                "ci_low": metric.ci_low,
                "ci_high": metric.ci_high,
                "n": metric.n,
                "chance": test.chance,
                "p_against_chance": test.p_clustered,
            }
        )
    return pd.DataFrame(rows)


def _baseline(name: str, correct: Float[np.ndarray, " item"], videos: Sequence[str]) -> dict[str, object]:
    metric = metric_of(correct, videos)
    return {
        "of": name,
        "accuracy": metric.mean,
        "ci_low": metric.ci_low,
        "ci_high": metric.ci_high,
        "n": metric.n,
    }
