"""From the records of the knockout experiment to its tables and headline numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from diagnostics.experiments.conditions import Answers, metric_of
from diagnostics.scoring import statistics
from diagnostics.store.summary import Metric, Row

__all__ = ["ALL_LAYERS", "ROADS", "arm_table", "flow_table", "head_table", "metrics_of", "rows_of"]

ALL_LAYERS = "all"
"""In place of a window's centre: every layer."""

ROADS = {
    "base": "nothing blocked",
    "text": "no video at all",
    "video": "the whole video blocked",
    "evidence": "units with evidence blocked",
    "random": "as many other units blocked",
}
"""The roads out of the video, and what is blocked."""

_CONTRASTS = {
    "video_less_text": ("text", "video"),
    "evidence_less_text": ("text", "evidence"),
    "evidence_less_base": ("base", "evidence"),
    "random_less_base": ("base", "random"),
}
"""Differences of accuracy that are told: second less first."""


def flow_table(answers: Answers, paths: Sequence[str]) -> pd.DataFrame:
    """Percent change of the right answer's probability by path, control and window.

    One row a path, control, window (its centre, or `all` layers), set of items (`correct`: those answered
    right with nothing blocked, as in the paper; or `all`) and task: change with its interval, accuracy and n.
    """
    rows: list[dict[str, Any]] = []
    correct = answers.column({}, "accuracy@road=base") == 1
    right = {item for item, is_right in zip(answers.items, correct, strict=True) if is_right}
    for of, some in (("correct", answers.among(right)), ("all", answers)):
        for task, own in some.by_task():
            for path, control, layer in _interventions(own, paths):
                told = f"@path={path},control={control},layer={layer}"
                change = metric_of(own.column({}, f"change{told}"), own.videos)
                accuracy = metric_of(own.column({}, f"accuracy{told}"), own.videos)
                rows.append(
                    {
                        "path": path,
                        "control": control,
                        "layer": layer,
                        "of": of,
                        "task": task,
                        "change": change.mean,
                        "ci_low": change.ci_low,
                        "ci_high": change.ci_high,
                        "accuracy": accuracy.mean,
                        "n": change.n,
                    }
                )
    columns = ["path", "control", "layer", "of", "task", "change", "ci_low", "ci_high", "accuracy", "n"]
    return pd.DataFrame(rows, columns=columns)


def _interventions(answers: Answers, paths: Sequence[str]) -> list[tuple[str, str, str]]:
    """What was blocked, from the names of measures: paths in their order, windows ascending, `all` last."""
    names = {name for record in answers.under({}) if record is not None for name in record.measures}
    found = set()
    for name in names:
        if name.startswith("change@path="):
            told = dict(part.split("=") for part in name.removeprefix("change@").split(","))
            if "head" not in told:
                found.add((told["path"], told["control"], told["layer"]))

    def order(one: tuple[str, str, str]) -> tuple[int, str, float]:
        return paths.index(one[0]), one[1], float("inf") if one[2] == ALL_LAYERS else float(one[2])

    return sorted(found, key=order)


def head_table(answers: Answers, seed: int) -> pd.DataFrame:
    """Percent change with a path blocked in one head, on the items answered right, strongest first.

    `control`: the same with as many random edges blocked in that head; `difference`: change less control, by
    item, with its interval; `p_holm`: of that, adjusted over heads. NaN where the run has no controls.
    """
    correct = answers.column({}, "accuracy@road=base") == 1
    own = answers.among({item for item, right in zip(answers.items, correct, strict=True) if right})
    rows: list[dict[str, Any]] = []
    names = {name for record in own.under({}) if record is not None for name in record.measures}
    for name in sorted(one for one in names if one.startswith("change@") and ",control=no" in one):
        told = dict(part.split("=") for part in name.removeprefix("change@").split(","))
        if "head" not in told:
            continue
        found = metric_of(own.column({}, name), own.videos)
        random = own.column({}, name.replace("control=no", "control=random"))
        less = statistics.paired_difference(random, own.column({}, name), own.videos, seed=seed)
        rows.append(
            {
                "path": told["path"],
                "layer": int(told["layer"]),
                "head": int(told["head"]),
                "change": found.mean,
                "ci_low": found.ci_low,
                "ci_high": found.ci_high,
                "control": metric_of(random, own.videos).mean,
                "difference": less.difference,
                "difference_low": less.ci_low,
                "difference_high": less.ci_high,
                "p": less.p,
                "n": found.n,
            }
        )
    for row, p_holm in zip(rows, statistics.holm([row["p"] for row in rows]).adjusted, strict=True):
        row["p_holm"] = p_holm
    table = pd.DataFrame(rows)
    return table.sort_values("change", kind="stable", ignore_index=True) if rows else table


def arm_table(answers: Answers, seed: int) -> pd.DataFrame:
    """Accuracy with each road out of the video blocked, by task, on the items where every road was measured.

    `as_text`: share of items that get the option the text alone gets. `less_text`, `less_base`: paired
    differences of accuracy, with intervals. Items that show no evidence, or too few other units, have no
    `evidence` and `random` and are not among the n.
    """
    rows: list[dict[str, Any]] = []
    if not answers.items:
        return pd.DataFrame(rows)
    whole = np.all([np.isfinite(answers.column({}, f"accuracy@road={road}")) for road in ROADS], axis=0)
    kept = answers.among({item for item, is_whole in zip(answers.items, whole, strict=True) if is_whole})
    for task, own in kept.by_task() if kept.items else []:
        for road, told in ROADS.items():
            values = own.column({}, f"accuracy@road={road}")
            accuracy = metric_of(values, own.videos)
            row: dict[str, Any] = {
                "road": road,
                "blocked": told,
                "task": task,
                "accuracy": accuracy.mean,
                "ci_low": accuracy.ci_low,
                "ci_high": accuracy.ci_high,
                "as_text": metric_of(own.column({}, f"as_text@road={road}"), own.videos).mean,
                "n": accuracy.n,
            }
            for other in ("text", "base"):
                found = _difference(own, other, road, seed)
                row |= {
                    f"less_{other}": found.difference,
                    f"less_{other}_low": found.ci_low,
                    f"less_{other}_high": found.ci_high,
                }
            rows.append(row)
    return pd.DataFrame(rows)


def _difference(answers: Answers, first: str, second: str, seed: int) -> statistics.PairedDifference:
    before, after = (answers.column({}, f"accuracy@road={road}") for road in (first, second))
    return statistics.paired_difference(before, after, answers.videos, seed=seed)


def rows_of(arms: pd.DataFrame) -> list[Row]:
    """The contrasts of the roads by task, for the summary."""
    rows = []
    for name, (first, second) in _CONTRASTS.items():
        for told in arms[arms["road"] == second].to_dict("records") if len(arms) else []:
            ends = [told[f"less_{first}{end}"] for end in ("", "_low", "_high")]
            value, low, high = (None if pd.isna(end) else float(end) for end in ends)
            rows.append(
                Row(measure=name, value=value, ci_low=low, ci_high=high, n=int(told["n"]), task=told["task"])
            )
    return rows


def metrics_of(answers: Answers, paths: Sequence[str], seed: int) -> dict[str, Metric]:
    """Accuracy by road, the contrasts of roads, and each path's effect where it is blocked in all layers."""
    arms = arm_table(answers, seed)
    found = {}
    for told in arms[arms["task"] == "all"].to_dict("records") if len(arms) else []:
        ends = (told["accuracy"], told["ci_low"], told["ci_high"])
        found[f"accuracy_{told['road']}"] = Metric(*ends, int(told["n"]))
    for row in rows_of(arms):
        if row.task == "all":
            found[row.measure] = Metric(row.value, row.ci_low, row.ci_high, row.n)
    flow = flow_table(answers, paths)
    whole = flow[(flow["layer"] == ALL_LAYERS) & (flow["of"] == "correct") & (flow["task"] == "all")]
    for told in whole.to_dict("records"):
        name = f"change_{told['path']}" + ("" if told["control"] == "no" else "_random")
        found[name] = Metric(told["change"], told["ci_low"], told["ci_high"], int(told["n"]))
    return found
