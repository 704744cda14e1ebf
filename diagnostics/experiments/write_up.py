"""What the recipes of the research questions have in common at their end: records in, files out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from diagnostics.data.items import Item
from diagnostics.experiments.conditions import Answers, baseline_table, measure_rows
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import NO_EVIDENCE, Outcome, leave_out, record_rejected, records_of_run
from diagnostics.experiments.pairs import Pair
from diagnostics.report.style import save_figure
from diagnostics.store.records import Record
from diagnostics.store.summary import Metric, Row, Summary

__all__ = ["Asked", "asked_of", "write_up"]


@dataclass(frozen=True, eq=False)
class Asked:
    """The records that a run is about.

    Attributes:
        records: all of them, those of failed pairs and rejected items too.
        done: the finished ones.
        answers: the finished ones by item and condition.
        items: every item of the run by id.
    """

    records: Sequence[Record]
    done: Sequence[Record]
    answers: Answers
    items: Mapping[str, Item]


def asked_of(context: Context, pairs: Sequence[Pair]) -> Asked:
    """The run's records once all pairs were measured; rejected items get theirs."""
    record_rejected(context)
    records = records_of_run(context, pairs)
    done = [record for record in records if record.error is None]
    return Asked(records, done, Answers.of(done), {item.id: item for item in context.items})


def write_up(
    context: Context,
    asked: Asked,
    *,
    metrics: Mapping[str, Metric],
    tables: Mapping[str, pd.DataFrame],
    draw: Callable[[], Figure],
    draw_by_task: Callable[[], Figure] | None = None,
    baselines: Sequence[Mapping[str, Any]],
    rows: Sequence[Row] = (),
    left_out: Mapping[str, str] | None = None,
) -> Outcome:
    """Write summary, tables and figure.

    Args:
        metrics: the headline numbers.
        tables: by name; `measures` (every measure by condition and task) and `baselines` come on top.
        draw: the figure, called where there is a finished record.
        draw_by_task: a second one, `<experiment>_by_task`.
        baselines: conditions that stand beside chance and the baselines.
        rows: of the summary, before those of `measures`.
        left_out: items that the experiment is not about, and why (`leave_out`).
    """
    folder, name = context.folder, context.config.experiment
    summary = Summary.of(name, asked.records, metrics, [*rows, *measure_rows(asked.done)])
    paths = {"summary": folder.write_summary(summary)} | leave_out(context, left_out or {})
    items = [asked.items[item] for item in asked.answers.items]
    told = {
        **tables,
        "measures": summary.table(),
        "baselines": baseline_table(items, asked.answers, baselines),
    }
    for label, table in told.items():
        paths[label] = folder.write_table(label, table)[0]
    if asked.answers.items:
        figures = folder.path / "figures"
        paths["figure"] = save_figure(draw(), figures / name)[0]
        if draw_by_task is not None:
            paths["figure by task"] = save_figure(draw_by_task(), figures / f"{name}_by_task")[0]
    return Outcome(summary, paths, list(metrics), _nobody_asked(asked, left_out or {}))


def _nobody_asked(asked: Asked, left_out: Mapping[str, str]) -> str | None:
    """What to do where every item was left out; None where one was asked."""
    if not left_out or any(record.item_id in asked.items for record in asked.records):
        return None
    failure = (
        f"None of the items could be asked: {len(left_out)} were left out, tables/left_out.csv says why."
    )
    if NO_EVIDENCE in left_out.values():
        failure += (
            " Evidence windows come with the data (docs/data.md); those of MedHorizon by data.evidence=FILE, "
            "which +exp=build_evidence derives."
        )
    return failure
