"""The numbers of several runs side by side, and the differences from the first of them.

Means are those that each run printed. Differences are made from the records: paired over the items that
two runs share, where they share any, else between the means of different items; either way with intervals
that resample whole videos (`probes.clustered_mean`, `probes.clustered_difference`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import probes
from diagnostics.store import FinishedRun, Record, Row

__all__ = ["PAIRED", "UNPAIRED", "difference_rows", "item_values", "mean_rows"]

PAIRED = "paired difference"
UNPAIRED = "difference"
_MEAN = "mean"

_NO_CONDITION = "-"

_Key = tuple[str, str]
"""What makes two records answers to one question: the item's id and the hash of what it asks."""


def item_values(record: Record) -> dict[str, float]:
    """One record's numbers by measure; NaN where undefined. Right answers and missing letters are among
    them, so that accuracies can be compared item by item."""
    values = {name: float("nan") if v is None else float(v) for name, v in record.measures.items()}
    if record.correct is not None:
        values["accuracy"] = float(record.correct)
        values["none_rate"] = float(record.answer is None)
    return values


def mean_rows(runs: Mapping[str, FinishedRun], measures: Sequence[str]) -> list[Row]:
    """Each measure of each run, as its summary has it; undefined where it has not."""
    rows = []
    for measure in measures:
        for name, run in runs.items():
            metric = run.summary.metrics.get(measure)
            told = {"run": name, "against": "", "kind": _MEAN}
            if metric is None:
                rows.append(Row(measure=measure, value=None, n=0, condition=told))
            else:
                rows.append(
                    Row(
                        measure=measure,
                        value=metric.mean,
                        ci_low=metric.ci_low,
                        ci_high=metric.ci_high,
                        n=metric.n,
                        condition=told,
                    )
                )
    return rows


def difference_rows(runs: Mapping[str, FinishedRun], measures: Sequence[str]) -> list[Row]:
    """Each measure of each further run minus the first's, in every condition that both have.

    Measures that are not averages over items (a similarity between videos, a median, a count) have no
    differences.
    """
    (reference, first), *others = runs.items()
    before = _by_condition(first.records)
    rows = []
    for name, run in others:
        after = _by_condition(run.records)
        for condition in before.keys() & after.keys():
            told = {"run": name, "against": reference}
            if condition != _NO_CONDITION:
                told["condition"] = condition
            rows += _differences(before[condition], after[condition], measures, told)
    return sorted(rows, key=lambda row: (measures.index(row.measure), str(row.condition.get("condition"))))


def _by_condition(records: Iterable[Record]) -> dict[str, dict[_Key, Record]]:
    found: dict[str, dict[_Key, Record]] = {}
    for record in records:
        if record.error is None:
            key = (record.item_id, record.item_sha256)
            found.setdefault(record.condition_id, {})[key] = record
    return found


def _differences(
    before: Mapping[_Key, Record],
    after: Mapping[_Key, Record],
    measures: Sequence[str],
    told: Mapping[str, str],
) -> list[Row]:
    shared = [key for key in before if key in after]
    old = {key: item_values(record) for key, record in before.items()}
    new = {key: item_values(record) for key, record in after.items()}
    rows = []
    for measure in measures:
        if not (_measured(old, measure) and _measured(new, measure)):
            continue
        nothing = float("nan")
        if shared:
            values = [new[k].get(measure, nothing) - old[k].get(measure, nothing) for k in shared]
            found = probes.clustered_mean(values, [before[key].video_id for key in shared])
        else:
            found = probes.clustered_difference(
                [values.get(measure, nothing) for values in old.values()],
                [record.video_id for record in before.values()],
                [values.get(measure, nothing) for values in new.values()],
                [record.video_id for record in after.values()],
            )
        rows.append(
            Row(
                measure=measure,
                value=found.mean,
                ci_low=found.ci_low,
                ci_high=found.ci_high,
                n=found.n,
                condition={**told, "kind": PAIRED if shared else UNPAIRED},
            )
        )
    return rows


def _measured(values: Mapping[_Key, Mapping[str, float]], measure: str) -> bool:
    return any(measure in of_item for of_item in values.values())
