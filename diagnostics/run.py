"""One run, from the composed configuration to the last line on the screen.

`task` is what Hydra and its launchers call. It lives here, not in `__main__`, because a launcher
pickles it into other processes.
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from diagnostics.cluster.requeue import accept_requeued
from diagnostics.errors import DiagnosticsError, RunError
from diagnostics.threads import prepare_environment

if TYPE_CHECKING:
    from pathlib import Path

    from omegaconf import DictConfig
    from rich.console import Console

    from diagnostics.config import RunConfig
    from diagnostics.data.items import Item
    from diagnostics.data.subset import SubsetConfig
    from diagnostics.errors import ItemError
    from diagnostics.experiments.context import Context, ShardMeasured
    from diagnostics.experiments.outcome import Outcome
    from diagnostics.store.finished import FinishedRun
    from diagnostics.store.run_folder import RunFolder

__all__ = ["Recipe", "checked", "execute", "task"]

_log = logging.getLogger(__name__)

_FAILED = 1
_CANNOT_RUN = 2
_INTERRUPTED = 130


def task(composed: DictConfig) -> None:
    """Run the experiment of a composed configuration.

    Exits with 2 where the run cannot start, with 1 where every item failed, the disk did, or the experiment
    says that its outcome is a failure, with 130 where it was interrupted. Under `-m` the first two are raised
    instead, so that the launcher marks the job failed and goes on with the others.
    """
    prepare_environment()
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from rich.console import Console
    from rich.text import Text

    accept_requeued()
    multirun = HydraConfig.get().mode == RunMode.MULTIRUN
    console = Console()
    if multirun and (swept := _swept(HydraConfig.get().overrides.task)):
        console.print(swept, style="bold", markup=False, highlight=False, soft_wrap=True)
    try:
        from diagnostics.config import run_config

        values: Any = OmegaConf.to_container(composed, resolve=True)
        config = run_config(values)
        job = _job(HydraConfig.get()) if multirun else ()
        outcome = execute(config, multirun=multirun, console=console, job=job)
    except (DiagnosticsError, OmegaConfBaseException) as error:
        if multirun:
            raise error from None
        Console(stderr=True).print(f"[bold red]error:[/] {_escaped(error)}")
        sys.exit(_CANNOT_RUN)
    except OSError as error:  # a full disk, a folder that went away
        if multirun:
            raise
        told = f"{error}. What is finished is kept: the same command goes on where this one stopped."
        Console(stderr=True).print(Text.assemble(("error: ", "bold red"), told), soft_wrap=True)
        sys.exit(_FAILED)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted: the same command goes on where this one stopped.")
        sys.exit(_INTERRUPTED)
    failure, remedy = outcome.failure, "See the run's tables."
    empty_shard = config.shard.count > 1 and not outcome.summary.n_pairs
    if failure is None and outcome.summary.all_failed and not empty_shard:
        count = outcome.summary.n_pairs
        none = "The only measurement" if count == 1 else f"All {count} measurements"
        failure = f"{none} failed; summary.json has the errors."
        remedy = "See the table of errors."
    if failure is not None:
        if multirun:
            raise RunError(failure, remedy=remedy)
        Console(stderr=True).print(Text.assemble(("error: ", "bold red"), failure), soft_wrap=True)
        sys.exit(_FAILED)


def _swept(overrides: Sequence[str]) -> str:
    """What tells this job of a multirun from the others: settings that the command line has among others."""
    given = set(sys.argv[1:])
    return "  ".join(override.lstrip("+") for override in overrides if override not in given)


def _job(hydra: Any) -> list[str]:
    """The command of this job of a multirun alone, without its folder."""
    sources = hydra.runtime.config_sources
    folders = [f"--config-dir={source.path}" for source in sources if source.provider == "command-line"]
    given = [each for each in hydra.overrides.task if each.partition("=")[0].lstrip("+") != "out"]
    return [sys.executable, "-m", "diagnostics", *folders, *given]


@dataclass(frozen=True)
class Recipe:
    """A run's configuration, converted and checked by the parts that it names.

    Attributes:
        config: what the experiment uses of it.
        experiment: its module, and `parameters`, its `Config`.
        sampler: the module that selects frames, and `sampling`, its `Config`.
    """

    config: RunConfig
    experiment: ModuleType
    parameters: Any
    sampler: Any
    sampling: Any


def checked(config: RunConfig) -> Recipe:
    """All that can be said about a configuration before anything is loaded.

    Raises:
        ConfigError: there is no such experiment, sampler or engine, a key of theirs is unknown or of a wrong
            type, or they do not go together.
    """
    from diagnostics.experiments import load_experiment
    from diagnostics.strict import from_mapping
    from diagnostics.video.sampling import load_sampler

    experiment = load_experiment(config.experiment)
    config = config.using(getattr(experiment, "USES", config.resolved))
    parameters = from_mapping(experiment.Config, config.exp, "exp")
    _check_shards(config, whole=getattr(experiment, "WHOLE", False))
    if "backend" in config.resolved:
        _check_engine(config, any_engine=getattr(experiment, "ANY_ENGINE", False))
    sampler = load_sampler(config.sampling.rule)
    sampling = from_mapping(sampler.Config, config.sampling.parameters, "sampling")
    return Recipe(config, experiment, parameters, sampler, sampling)


def execute(
    config: RunConfig,
    *,
    multirun: bool,
    console: Console,
    complete: bool = False,
    job: Sequence[str] = (),
) -> Outcome:
    """Load the items, open the run folder, run the experiment, and show what came out.

    Args:
        job: under `-m`, the command of this job alone, without its folder.
        complete: nothing may be left to measure (`+exp=merge`).

    Raises:
        RunError: the configuration is wrong, or the folder holds another run or is being written.
        DataFileError: the data set cannot be read.
    """
    from diagnostics.config import NOT_RESULTS
    from diagnostics.experiments.context import Context
    from diagnostics.experiments.joining import benchmark_run
    from diagnostics.report.closing import paths_list
    from diagnostics.store import RunFolder, run_log
    from diagnostics.store.asked import write_items

    recipe = checked(config)
    experiment, config = recipe.experiment, recipe.config
    if hasattr(experiment, "whole_run"):
        whole = experiment.whole_run(recipe.parameters)
        return execute(whole, multirun=False, console=console, complete=True)
    if hasattr(experiment, "on_run"):
        outcome: Outcome = experiment.on_run(recipe.parameters, console)
        console.print(paths_list(outcome.paths), soft_wrap=True)
        return outcome
    benchmark = None if config.benchmark_run is None else benchmark_run(config.benchmark_run)
    items, rejected = _load(config, console) if "data" in config.resolved else ([], [])
    path = config.folder(multirun=multirun)
    command = [*job, f"out={path}"] if job else sys.orig_argv
    with ExitStack() as log:
        with RunFolder.open(
            path,
            config.resolved,
            config.hash,
            shard=config.shard.index,
            n_shards=config.shard.count,
            experiment=config.experiment,
            ignore=NOT_RESULTS,
            command=command,
        ) as folder:
            log.enter_context(run_log(folder.log_path, _begins(folder, config, command)))
            _tell_start(console, _header(config, items, len(rejected)), path)
            if items:
                write_items(path, items, shard=config.shard.index)
            context = Context(
                config=config,
                items=by_video(items),
                rejected=rejected,
                sampler=recipe.sampler,
                sampling=recipe.sampling,
                folder=folder,
                console=console,
                complete=complete,
            )
            outcome, finished = _measured(context, recipe, benchmark)
        # The folder is closed by now, so that the page is made from the manifest of the whole run.
        try:
            if finished:
                outcome = _with_page(context, outcome)
        finally:
            _show(context, outcome)
    return outcome


def _tell_start(console: Console, header: str, path: Path) -> None:
    """What is measured and where it goes: to a person, and to the log."""
    from rich.text import Text

    if console.is_interactive:
        console.print(header)
        console.print(f"writing to {path}", markup=False, highlight=False, soft_wrap=True)
    _log.info("%s", Text.from_markup(header).plain)


def _begins(folder: RunFolder, config: RunConfig, command: Sequence[str]) -> str:
    """The first line of an attempt in the log."""
    return (
        f"{config.experiment}, attempt {folder.attempt} at shard {folder.shard} of {folder.n_shards}: "
        f"{shlex.join(['python', *command[1:]])}"
    )


def _measured(context: Context, recipe: Recipe, benchmark: FinishedRun | None) -> tuple[Outcome, bool]:
    """What the experiment came to, and whether that is of the whole run."""
    from diagnostics.experiments.context import ShardMeasured
    from diagnostics.experiments.joining import join
    from diagnostics.models.prompting import template_of
    from diagnostics.report.page.overview import HEADLINE

    if "backend" in context.config.resolved:
        context.folder.note("prompt_template", template_of(context.config.backend.instruction))
    try:
        outcome: Outcome = recipe.experiment.run(context, recipe.parameters)
    except ShardMeasured as measured:
        return _part(context, measured), False
    context.folder.note(HEADLINE, list(outcome.headline))
    if _no_intervals(context, outcome):
        context.say("No intervals: they resample videos, and there is only one.")
    if benchmark is not None:
        context.say(join(context, context.folder.records(), benchmark))
    return outcome, True


def _no_intervals(context: Context, outcome: Outcome) -> bool:
    """Whether a person may wonder where the intervals are."""
    from diagnostics.report.curves import has_interval

    shown = [outcome.summary.metrics[name] for name in outcome.headline if name in outcome.summary.metrics]
    one_video = len({item.video_id for item in context.items}) == 1
    return one_video and bool(shown) and not any(has_interval(metric) for metric in shown)


def _with_page(context: Context, outcome: Outcome) -> Outcome:
    """The outcome with the run's page, which is written from the run's files."""
    from dataclasses import replace

    from diagnostics.report.page import write_page

    with context.waiting("writing the page"):
        return replace(outcome, paths={**outcome.paths, "report": write_page(context.folder.path)})


def _show(context: Context, outcome: Outcome) -> None:
    """What came out, what was odd, what failed, and where it was written."""
    from diagnostics.report.closing import closing_table, errors_table, paths_list, warnings_table

    console, folder, summary = context.console, context.folder, outcome.summary
    if outcome.headline:
        console.print(closing_table(summary, outcome.headline))
    for table in (warnings_table(summary.warnings), errors_table(summary.errors)):
        if table is not None:
            console.print(table)
    for told in context.said:
        console.print(told, markup=False, highlight=False, soft_wrap=True)
    paths = {"run folder": folder.path, **outcome.paths, "log": folder.log_path}
    console.print(paths_list(paths), soft_wrap=True)


def _check_shards(config: RunConfig, *, whole: bool) -> None:
    """Refuse to cut a run whose experiment does all its work in one process."""
    from diagnostics.errors import ConfigError

    if config.shard.count > 1 and (whole or "shard" not in config.resolved):
        raise ConfigError(
            f"{config.experiment} is not cut into shards.", remedy="Leave shard.index and shard.count out."
        )


def _part(context: Context, measured: ShardMeasured) -> Outcome:
    """What a shard comes to: its counts, warnings and errors; tables and figures are of whole runs."""
    from diagnostics.experiments.outcome import Outcome
    from diagnostics.store.summary import Summary

    shard, path = context.config.shard, context.folder.path
    records = [record for record in context.folder.records() if record.pair in measured.pairs]
    summary = Summary.of(context.config.experiment, records, {})
    context.say(
        f"Shard {shard.index} of {shard.count} is measured: {len(records)} pairs, {summary.n_failed} failed. "
        f"When all are: python -m diagnostics +exp=merge run={path}"
    )
    return Outcome(summary, {}, ())


def _check_engine(config: RunConfig, *, any_engine: bool) -> None:
    """Refuse an engine that is not there or cannot be looked into, and its misspelt parameters."""
    from diagnostics.errors import ConfigError
    from diagnostics.models.backends import engine_settings

    if config.backend.name != "hf" and not any_engine:
        raise ConfigError(
            f"{config.experiment} looks inside the model; {config.backend.name} shows its answers only.",
            remedy="Choose backend=hf; answers of another engine are for +exp=benchmark.",
        )
    engine_settings(config.backend)


def _load(config: RunConfig, console: Console) -> tuple[list[Item], list[ItemError]]:
    """The items that the run is about, and what is wrong with those that cannot be measured."""
    from diagnostics.data import load_items
    from diagnostics.data.subset import select_subset
    from diagnostics.progress import Watch

    with Watch(console).waiting(f"loading the items of {config.data.name}"):
        loaded = load_items(config.data.loader, config.data.parameters)
        rejected_ids = [error.item_id for error in loaded.rejected if error.item_id]
        items = select_subset(loaded.items, config.data.subset, rejected_ids=rejected_ids)
    return list(items), _of_subset(loaded.rejected, config.data.subset)


def _of_subset(rejected: Sequence[ItemError], subset: SubsetConfig) -> list[ItemError]:
    """Errors of items that this run is about: all, or the ones asked for by id. What task an item that could
    not be read belongs to, nobody knows, so that tasks, pilot and limit leave none."""
    if subset.ids is not None:
        return [error for error in rejected if error.item_id in subset.ids]
    narrowed = (subset.tasks, subset.limit, subset.pilot)
    return list(rejected) if all(choice is None for choice in narrowed) else []


def by_video(items: Sequence[Item]) -> list[Item]:
    """Items grouped by video, videos and items in the order of their first appearance."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.video_id, []).append(item)
    return [item for group in groups.values() for item in group]


def _header(config: RunConfig, items: Sequence[Item], rejected: int) -> str:
    from rich.markup import escape

    told = [f"[bold]{escape(config.experiment)}[/]"]
    if "model" in config.resolved:
        told.append(f"model [cyan]{escape(config.model.name)}[/]")
    if "data" in config.resolved:
        videos = len({item.video_id for item in items})
        refused = f", {rejected} refused" if rejected else ""
        told.append(
            f"data [cyan]{escape(config.data.name)}[/] ({len(items)} questions, {videos} videos{refused})"
        )
    return "  ".join(told)


def _escaped(error: Exception) -> str:
    from rich.markup import escape

    return escape(str(error))
