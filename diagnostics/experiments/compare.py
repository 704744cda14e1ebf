"""Compare finished runs: their measures, how they differ from the first, and what was set differently.

Reads the files of the runs only: no model is loaded, no video decoded. The runs are of one experiment;
the first is the one the others are compared with. Differences are paired over shared items where there are
any (`diagnostics.experiments.compare_numbers`). Right answers are compared by condition and task too, and
drawn together (`diagnostics.experiments.compare_answers`); benchmark runs on the same items are printed as a
paper does (`diagnostics.report.table2`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import field_validator
from pydantic.dataclasses import dataclass

from diagnostics.data import task_order
from diagnostics.errors import ConfigError, IncompleteRunError, RunError
from diagnostics.experiments.compare_answers import accuracy_table
from diagnostics.experiments.compare_manifests import differences, differences_table, from_json, name_runs
from diagnostics.experiments.compare_numbers import difference_rows, mean_rows
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome
from diagnostics.report.comparison import Drawing, comparison_table, drawer
from diagnostics.report.curves import BandKind, Pooling
from diagnostics.report.merged import MOST_TASKS, merged_figure
from diagnostics.report.page.compared import SHOWN
from diagnostics.report.style import MAX_RUNS, save_figure
from diagnostics.report.table2 import table2
from diagnostics.store import FinishedRun, Row, Summary, find_runs, open_finished, plain
from diagnostics.store.atomic import write_text
from diagnostics.strict import STRICT, near_match

__all__ = ["USES", "Config", "run"]

USES = ("exp",)
"""Groups of the configuration that this experiment reads."""

_COLUMNS = ("measure", "run", "against", "kind", "value", "ci_low", "ci_high", "n")


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        runs: folders of runs, folders whose subfolders are runs (a sweep's), or patterns for either. The
            first run is the one the others are compared with.
        names: how to call the runs, in their order; made from what differs between them where None.
        measures: which to show on the screen; the experiment's headline where None. The tables hold all.
        pooling: of the cumulative curves: rank units in each head and average, or rank them by the pooled
            attention.
        band: what figures shade: the 95% interval of the mean, or the middle 95% of the items.
        condition: the condition to draw, where runs have several.
        baselines, intervals: whether the table of benchmark runs has a row for chance, and intervals.
    """

    runs: tuple[str, ...]
    names: tuple[str, ...] | None = None
    measures: tuple[str, ...] | None = None
    pooling: Pooling = "per_head"
    band: BandKind = "mean"
    condition: str | None = None
    baselines: bool = True
    intervals: bool = False

    @field_validator("runs", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


def run(context: Context, config: Config) -> Outcome:
    """Read the runs, write their comparison, draw them together."""
    found = [open_finished(folder) for folder in find_runs(config.runs, without=context.config.experiment)]
    experiment = _one_experiment(found)
    differing = differences(found)
    runs = dict(zip(_names(config, found, differing), found, strict=True))
    measures = list(dict.fromkeys(name for each in found for name in each.summary.metrics))
    module = drawer(experiment)
    shown = _shown(config, getattr(module, "HEADLINE", measures), measures)
    rows = [*mean_rows(runs, measures), *difference_rows(runs, measures)]
    rows.sort(key=lambda row: measures.index(row.measure))
    folder = context.folder
    # Which experiment, and what went wrong in the runs, is theirs to tell.
    every = [record for each in found for record in each.records]
    summary = Summary.of(context.config.experiment, every, {}, rows)
    paths = {"summary": folder.write_summary(summary)}
    paths["comparison"] = folder.write_table("comparison", _table(rows))[0]
    paths["differences"] = folder.write_table("differences", differences_table(list(runs), differing))[0]
    write_text(folder.path / "differences.json", _differences_json(runs, differing))
    folder.note(SHOWN, shown)
    folder.note("compared", [{"run": name, **_identity(each)} for name, each in runs.items()])
    context.console.print(comparison_table(list(runs), rows, shown))
    answers = accuracy_table(runs)
    if not answers.empty:
        paths["accuracy"] = folder.write_table("accuracy", answers)[0]
    if experiment == "benchmark":
        paths |= _print_table2(context, runs, config)
    if module is None and not answers.empty:
        paths |= _draw_answers(context, list(runs), answers, experiment)
    if module is not None:
        drawing = Drawing(config.pooling, config.band, config.condition)
        drawn = module.draw(runs, drawing, folder.path / "figures")
        paths |= drawn.paths
        write_text(folder.path / "sentences.txt", "\n".join(drawn.sentences) + "\n")
        for sentence in drawn.sentences:
            context.console.print(sentence, markup=False, highlight=False, style="bold", soft_wrap=True)
    return Outcome(summary, paths, ())


def _print_table2(context: Context, runs: Mapping[str, FinishedRun], config: Config) -> dict[str, Path]:
    """Tasks as columns, runs as rows, in the order of the benchmark's paper; why not, where it cannot be."""
    tables = {name: pd.read_csv(run.folder / "tables" / "tasks.csv") for name, run in runs.items()}
    first = next(iter(runs.values())).manifest.config["data"]
    chance = next(iter(tables.values())).set_index("task")["chance"].to_dict()
    try:
        printed = table2(
            tables,
            order=task_order(first.get("loader", first["name"])),
            baselines={"chance": {str(task): float(share) for task, share in chance.items()}}
            if config.baselines
            else None,
            intervals=config.intervals,
        )
    except ValueError as error:
        context.say(f"No table2: {error}.")
        return {}
    return {"table2": printed.write(context.folder.path / "tables")[0]}


def _draw_answers(
    context: Context, names: Sequence[str], answers: pd.DataFrame, experiment: str
) -> dict[str, Path]:
    """The merged figures, in all and by task; what cannot be drawn is said."""
    tasks = answers["task"].nunique() - 1
    if len(names) > MAX_RUNS:
        context.say(f"{len(names)} runs are not drawn: one figure tells {MAX_RUNS} apart.")
        return {}
    figures = context.folder.path / "figures"
    paths = {"figure": save_figure(merged_figure(answers, names), figures / experiment)[0]}
    if 0 < tasks <= MOST_TASKS:
        drawn = merged_figure(answers, names, by_task=True)
        paths["figure by task"] = save_figure(drawn, figures / f"{experiment}_by_task")[0]
    elif tasks:
        context.say(f"{tasks} tasks are not drawn: a figure has room for {MOST_TASKS}.")
    return paths


def _one_experiment(runs: Sequence[FinishedRun]) -> str:
    """The experiment that all runs are of.

    Raises:
        RunError: fewer than two runs, or runs of several experiments.
        IncompleteRunError: a run in which no item was measured.
    """
    if len(runs) < 2:
        raise RunError(
            f"Only one run was found: {runs[0].folder}.",
            remedy="Name two runs or more in exp.runs, or a folder that holds them.",
        )
    by_experiment: dict[str, list[str]] = {}
    for each in runs:
        by_experiment.setdefault(each.manifest.experiment, []).append(str(each.folder))
    if len(by_experiment) > 1:
        told = "; ".join(f"{name}: {', '.join(folders)}" for name, folders in by_experiment.items())
        raise RunError(
            f"The runs are of different experiments ({told}).", remedy="Compare runs of one experiment."
        )
    for each in runs:
        if not any(record.error is None for record in each.records):
            raise IncompleteRunError(
                "In this run no item was measured.",
                remedy="See the errors in its summary.json, or leave it out.",
                path=each.folder,
            )
    return runs[0].manifest.experiment


def _names(config: Config, runs: Sequence[FinishedRun], differing: Mapping[str, Sequence[str]]) -> list[str]:
    if config.names is None:
        return name_runs(runs, differing)
    if len(config.names) != len(runs) or len(set(config.names)) != len(runs):
        folders = ", ".join(str(each.folder) for each in runs)
        raise ConfigError(
            f"exp.names has {len(set(config.names))} different names for {len(runs)} runs.",
            remedy=f"Give one for each, in this order: {folders}.",
        )
    return list(config.names)


def _shown(config: Config, headline: Sequence[str], measures: Sequence[str]) -> list[str]:
    if config.measures is None:
        return [name for name in headline if name in measures]
    for name in config.measures:
        if name not in measures:
            raise ConfigError(f"No run has a measure {name!r}.", remedy=near_match(name, list(measures)))
    return list(config.measures)


def _table(rows: Sequence[Row]) -> pd.DataFrame:
    """The rows, tidy; a column for the condition only where runs have several."""
    table = Summary.of("", [], {}, rows).table()
    conditions = ["condition"] if "condition" in table else []
    return table.reindex(columns=[*_COLUMNS[:4], *conditions, *_COLUMNS[4:]])


def _differences_json(runs: Mapping[str, FinishedRun], differing: Mapping[str, Sequence[str]]) -> str:
    told = {
        "runs": {name: _identity(each) for name, each in runs.items()},
        "differences": {
            key: {name: from_json(value) for name, value in zip(runs, values, strict=True)}
            for key, values in differing.items()
        },
    }
    return json.dumps(plain(told), indent=2) + "\n"


def _identity(each: FinishedRun) -> dict[str, Any]:
    return {
        "folder": str(each.folder.resolve()),
        "experiment": each.manifest.experiment,
        "config_hash": each.manifest.config_hash,
        "items": each.summary.n_items,
        "failed": each.summary.n_failed,
    }
