"""How accurate is the model on a whole benchmark?

Every item is asked once, with the frames the run's sampler chooses, by the engine that `backend` names. The
headline counts a reply without a letter as wrong; how often that is stands beside it, and so does accuracy by
the likeliest letter, which needs no reply to be read. The table has the benchmark's tasks in the order of its
paper, with intervals over videos; chance and answering without looking stand in another (`baselines`).
Open-ended items are asked and recorded, and are no part of accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from pydantic.dataclasses import dataclass

from diagnostics.data import task_order
from diagnostics.data.items import Item
from diagnostics.experiments.answering import answer_pairs
from diagnostics.experiments.conditions import ALL, Answers, metric_of
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome
from diagnostics.experiments.pairs import Pair
from diagnostics.experiments.usage import usage_metrics, usage_table
from diagnostics.experiments.write_up import asked_of, write_up
from diagnostics.models.backends import open_engine
from diagnostics.report.benchmark import benchmark_figure
from diagnostics.store.manifest import attempts_of, read_manifests
from diagnostics.store.records import Record
from diagnostics.store.summary import Metric, Row
from diagnostics.strict import STRICT

__all__ = ["ANY_ENGINE", "Config", "run", "task_table", "time_table"]

ANY_ENGINE = True
"""It asks for answers only: the others look inside the model, which only `backend=hf` has in this process."""

_MEASURES = ("accuracy", "none_rate", "choice_accuracy")
_TIMES = ("decode", "prepare", "generate", "busy", "idle")


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment: none of its own. Model, data, sampling and backend say it all."""


def run(context: Context, config: Config) -> Outcome:
    """Ask every item once, then write summary, tables and figure."""
    del config
    pairs = [Pair(item) for item in context.items]
    engine = open_engine(
        lambda: context.model, context.config.model, context.config.backend, context.folder.note
    )
    answer_pairs(context, pairs, engine, "Answering")
    asked = asked_of(context, pairs)
    tasks = task_table(asked.answers, asked.items, task_order(context.config.data.loader))
    times = time_table(asked.done)
    usage = usage_table(attempts_of(read_manifests(context.folder.path)))
    return write_up(
        context,
        asked,
        metrics=_headline(asked.answers, times) | usage_metrics(usage),
        tables={"tasks": tasks, "times": times} | ({} if usage.empty else {"usage": usage}),
        draw=lambda: benchmark_figure(tasks),
        baselines=[{}],
        rows=_time_rows(times, len(asked.done)),
    )


def task_table(answers: Answers, items: Mapping[str, Item], order: Sequence[str] = ()) -> pd.DataFrame:
    """One row a task and one for all: accuracy, rate of replies without a letter, accuracy by the likeliest
    letter.

    Columns: task; of each measure its mean, 95% interval (`_low`, `_high`, videos resampled) and, for the
    last, the number of items that have it; items, videos, and chance (mean of one over the options).

    Args:
        order: of the tasks in the benchmark's own table; tasks it does not name come after, by name, and
            all of them together come last.
    """
    names = set(answers.tasks)
    known = [task for task in order if task in names]
    tasks = [*known, *sorted(names - set(known))]
    parts = [(task or "(none)", answers.of_task(task)) for task in tasks]
    return pd.DataFrame([_task_row(task, some, items) for task, some in [*parts, (ALL, answers)]])


def _task_row(task: str, some: Answers, items: Mapping[str, Item]) -> dict[str, object]:
    accuracy, none_rate, choice = (metric_of(some.column({}, measure), some.videos) for measure in _MEASURES)
    scored = np.isfinite(some.column({}))
    chances = [1 / len(items[item].options) for item, told in zip(some.items, scored, strict=True) if told]
    videos = {video for video, told in zip(some.videos, scored, strict=True) if told}
    return {
        "task": task,
        "accuracy": accuracy.mean,
        "accuracy_low": accuracy.ci_low,
        "accuracy_high": accuracy.ci_high,
        "none_rate": none_rate.mean,
        "none_rate_low": none_rate.ci_low,
        "none_rate_high": none_rate.ci_high,
        "choice_accuracy": choice.mean,
        "choice_accuracy_low": choice.ci_low,
        "choice_accuracy_high": choice.ci_high,
        "choice_items": choice.n,
        "items": accuracy.n,
        "videos": len(videos),
        "chance": float(np.mean(chances)) if chances else float("nan"),
    }


def time_table(records: Sequence[Record]) -> pd.DataFrame:
    """Where the time of the finished items went: one row a part, in seconds.

    Columns: part; total; an item; `of_wall`, its share of the wall clock while items were asked. `busy` (the
    engine had a question) and `idle` (it waited for frames, or for records to reach the disk) make up the
    wall clock; `prepare` and `generate` are what an engine in this process did while busy, and `decode` went
    on beside it, in the reading processes. Attempts and shards are added up.
    """
    totals = {
        part: sum(record.seconds.get(part) or 0.0 for record in records)
        for part in _TIMES
        if any(record.seconds.get(part) is not None for record in records)
    }
    wall = totals.get("busy", 0.0) + totals.get("idle", 0.0)
    rows = [
        {
            "part": part,
            "total": total,
            "an_item": total / len(records),
            "of_wall": total / wall if wall else float("nan"),
        }
        for part, total in totals.items()
    ]
    return pd.DataFrame(rows, columns=["part", "total", "an_item", "of_wall"])


def _time_rows(times: pd.DataFrame, n: int) -> list[Row]:
    return [
        Row(measure=f"seconds_{told['part']}", value=float(told["an_item"]), n=n)
        for _, told in times.iterrows()
    ]


def _headline(answers: Answers, times: pd.DataFrame) -> dict[str, Metric]:
    found = {measure: metric_of(answers.column({}, measure), answers.videos) for measure in _MEASURES}
    idle = times.loc[times["part"] == "idle", "of_wall"]
    if len(idle):
        found["engine_idle"] = Metric(float(idle.iloc[0]), None, None, len(answers.items))
    return found
