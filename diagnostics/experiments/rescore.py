"""Score a finished run again: its replies, word for word, through the extraction ladder of today.

No model is loaded and no video decoded. The items come from the run's own data set, since a reply is read
with the options it chose from; where the data set asks something else by now, the item is left out and
named. The old run stays as it is: the new records, with the version of the extractor in each, are a run of
their own, and its tables hold every answer that changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pydantic.dataclasses import dataclass

from diagnostics.data import load_items
from diagnostics.data.items import Item
from diagnostics.data.subset import SubsetConfig
from diagnostics.errors import RunError
from diagnostics.experiments.conditions import ALL, metric_of, value_of
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome, leave_out
from diagnostics.experiments.pairs import item_sha256
from diagnostics.report.rescoring import changes_table
from diagnostics.scoring.accuracy import score_reply
from diagnostics.scoring.letters import EXTRACTOR_VERSION
from diagnostics.store import FinishedRun, Metric, Record, Row, Summary, find_run, open_finished
from diagnostics.store.asked import write_items
from diagnostics.strict import STRICT

__all__ = ["USES", "Config", "run"]

USES = ("exp",)
"""Groups of the configuration that this experiment reads."""

_MEASURES = ("accuracy", "none_rate", "choice_accuracy")
_KEPT = ("choice_accuracy",)
"""Measures of an answer that do not depend on how its reply is read."""
_COLUMNS = (
    "item",
    "condition",
    "task",
    "target",
    "old",
    "old_rule",
    "new",
    "new_rule",
    "old_extractor",
    "reply",
)


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        run: the folder of the finished run.
    """

    run: str


def run(context: Context, config: Config) -> Outcome:
    """Read the replies again, write the new records and tables, print what changed."""
    finished = open_finished(find_run(config.run, "run", without=context.config.experiment))
    items = _items_of(finished)
    scored, reasons = _rescored(finished, items)
    if not scored:
        told = ", ".join(sorted(set(reasons.values())))
        raise RunError(
            f"None of its replies can be scored ({told}).",
            remedy="Give a run that asked questions with options, and the data set it asked them from.",
            path=finished.folder,
        )
    _keep(context, [new for _, new in scored])
    asked = {new.item_id for _, new in scored}
    write_items(context.folder.path, [item for item in items.values() if item.id in asked])
    paths = leave_out(context, reasons)
    changed = _changes(scored)
    metrics = {
        **_means([new for _, new in scored]),
        **{f"{name}_before": metric for name, metric in _means([old for old, _ in scored]).items()},
        "accuracy_change": _change(scored),
    }
    summary = Summary.of(context.config.experiment, [new for _, new in scored], metrics, _rows(scored))
    folder = context.folder
    folder.note(
        "rescored",
        {
            "run": str(finished.folder.resolve()),
            "experiment": finished.manifest.experiment,
            "config_hash": finished.manifest.config_hash,
            "extractor": EXTRACTOR_VERSION,
        },
    )
    paths |= {
        "summary": folder.write_summary(summary),
        "accuracy": folder.write_table("accuracy", summary.table())[0],
        "changed": folder.write_table("changed", changed)[0],
    }
    context.say(f"{len(scored)} replies read again by extractor {EXTRACTOR_VERSION}: {len(changed)} differ.")
    if len(changed):
        context.console.print(changes_table(changed))
    shown = (
        "accuracy_before",
        "accuracy",
        "accuracy_change",
        "none_rate_before",
        "none_rate",
        "choice_accuracy",
    )
    return Outcome(summary, paths, [name for name in shown if name in metrics])


def _items_of(finished: FinishedRun) -> dict[str, Item]:
    """The items of the run's data set as they are now, by id.

    Raises:
        RunError: the run has no data set. DataFileError: it is not there any more.
    """
    config = finished.manifest.config
    if "data" not in config:
        raise RunError(
            f"A run of {finished.manifest.experiment} has no replies.",
            remedy="Give a run that asked a model.",
            path=finished.folder,
        )
    not_the_loaders = {
        "name",
        "loader",
        "instruction",
        *(field.name for field in dataclasses.fields(SubsetConfig)),
    }
    parameters = {key: value for key, value in config["data"].items() if key not in not_the_loaders}
    loaded = load_items(config["data"].get("loader", config["data"]["name"]), parameters)
    return {item.id: item for item in loaded.items}


def _as_asked(experiment: str) -> Callable[[Item, Mapping[str, Any]], Item]:
    """How an experiment changes an item's options under a condition: its `asked_item`, where it has one."""
    from diagnostics.experiments import load_experiment

    return getattr(load_experiment(experiment), "asked_item", lambda item, _: item)


def _rescored(
    finished: FinishedRun, items: Mapping[str, Item]
) -> tuple[list[tuple[Record, Record]], dict[str, str]]:
    """Old and new record of each reply, and why the others are left out, by item."""
    as_asked = _as_asked(finished.manifest.experiment)
    scored: list[tuple[Record, Record]] = []
    reasons: dict[str, str] = {}
    for record in finished.records:
        item = items.get(record.item_id)
        reason = _unfit(record, item)
        if reason is not None or item is None or record.raw is None:
            reasons[record.item_id] = reason or "no reply"
            continue
        scored.append((record, _again(record, item, as_asked(item, record.condition))))
    return scored, reasons


def _unfit(record: Record, item: Item | None) -> str | None:
    if record.error is not None:
        return "it failed"
    if item is None:
        return "the data set has no such item any more"
    if not item.options:
        return "no options"
    if record.raw is None or record.correct is None:
        return "no reply that was judged"
    if item.video.exists() and item_sha256(item) != record.item_sha256:
        return "the data set asks something else by now"
    return None


def _again(record: Record, item: Item, asked: Item) -> Record:
    """The record with the reply read again. What was captured beside it stays with the old run."""
    score = score_reply(asked, record.raw or "")
    warnings = record.warnings
    if not item.video.exists():
        warnings += (
            "unverified_item: its video is not here, so whether the item is the same was not checked",
        )
    return dataclasses.replace(
        record,
        answer=score.answer,
        rule=score.rule,
        extractor=EXTRACTOR_VERSION,
        target=score.target,
        correct=score.correct,
        measures={name: record.measures[name] for name in _KEPT if name in record.measures},
        warnings=warnings,
        tensor_file=None,
        axes={},
    )


def _keep(context: Context, records: Sequence[Record]) -> None:
    """Append the records; those of an earlier attempt that read otherwise are written again."""
    folder = context.folder
    folder.expect(len(records))
    known = {record.pair: record for record in folder.records()}
    for record in records:
        before = known.get(record.pair)
        if record.pair in folder.finished and before is not None:
            if all(
                getattr(before, name) == getattr(record, name)
                for name in ("raw", "answer", "rule", "extractor")
            ):
                continue
            folder.reopen(record.pair, "its reply is read otherwise by now")
        folder.append(record)


# -- what came out


def _changes(scored: Sequence[tuple[Record, Record]]) -> pd.DataFrame:
    """One row for each reply whose letter is another than before, in the order of the run."""
    rows = [
        (
            *(old.item_id, old.condition_id, old.task, new.target),
            *(old.answer, old.rule, new.answer, new.rule),
            *(old.extractor, " ".join((new.raw or "").split())),
        )
        for old, new in scored
        if old.answer != new.answer
    ]
    return pd.DataFrame(rows, columns=list(_COLUMNS), dtype=object)


def _means(records: Sequence[Record]) -> dict[str, Metric]:
    videos = [record.video_id for record in records]
    found = {name: metric_of([value_of(record, name) for record in records], videos) for name in _MEASURES}
    return {name: metric for name, metric in found.items() if metric.n}


def _change(scored: Sequence[tuple[Record, Record]]) -> Metric:
    """Mean of the paired differences in accuracy, after less before, videos resampled."""
    differences = np.array([value_of(new, "accuracy") - value_of(old, "accuracy") for old, new in scored])
    return metric_of(differences, [old.video_id for old, _ in scored])


def _rows(scored: Sequence[tuple[Record, Record]]) -> list[Row]:
    """Each measure before and after, and the change in accuracy: for all, and by task."""
    rows = []
    tasks = sorted({old.task for old, _ in scored})
    for task in [ALL, *tasks] if tasks != [""] else [ALL]:
        some = [pair for pair in scored if task in (ALL, pair[0].task)]
        told = {
            "before": _means([old for old, _ in some]),
            "after": _means([new for _, new in some]),
            "change": {"accuracy": _change(some)},
        }
        rows += [
            Row(
                measure=name,
                value=metric.mean,
                ci_low=metric.ci_low,
                ci_high=metric.ci_high,
                n=metric.n,
                task=task,
                condition={"scored": when},
            )
            for when, metrics in told.items()
            for name, metric in metrics.items()
        ]
    return rows
