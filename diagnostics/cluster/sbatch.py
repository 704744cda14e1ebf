"""A batch script for people who cannot keep a login shell open: one array job, a shard a task.

    python -m diagnostics sbatch +exp=benchmark model=qwen3_vl_8b data=medhorizon shard.count=8 > run.sh
    sbatch run.sh

Settings are those of `hydra/launcher=slurm`: `conf/hydra/launcher/slurm.yaml`, and `hydra.launcher.KEY=...`.
No process waits for the jobs. At the time limit a task goes back into the queue and goes on where it stopped.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.catalogue import config_folder, rewrite_overrides
from diagnostics.errors import ConfigError
from diagnostics.strict import STRICT, from_mapping

__all__ = ["Resources", "batch_script"]

_LAUNCHER = "hydra.launcher."
_TEMPLATE = """\
#!/bin/bash
# Made by: python -m diagnostics sbatch {arguments}
{directives}
set -u
cd {folder}
{setup}
# At the time limit SLURM sends USR1: back into the queue, {restarts} times at most.
again() {{
    if (( ${{SLURM_RESTART_COUNT:-0}} < {restarts} )); then
        scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
    fi
}}
trap again USR1
{python} -m diagnostics {arguments} "shard.index=$SLURM_ARRAY_TASK_ID" &
work=$!
wait "$work"
while kill -0 "$work" 2>/dev/null; do wait "$work"; done
wait "$work"
exit $?

# When all tasks are done:
#   {python} -m diagnostics +exp=merge run={run}
"""


@dataclass(frozen=True, config=STRICT)
class Resources:
    """What a job asks of SLURM: the keys of `hydra/launcher=slurm` that mean something without submitit.

    Attributes:
        additional_parameters: other options of sbatch, `{"reservation": "video"}`.
        setup: lines of shell before the work, such as the activation of an environment.
        signal_delay_s: how long before the time limit a task goes back into the queue.
        max_num_timeout: how often.
    """

    timeout_min: PositiveInt = 240
    cpus_per_task: PositiveInt = 8
    gpus_per_node: NonNegativeInt | None = 1
    tasks_per_node: Annotated[int, Field(ge=1, le=1)] = 1
    mem_gb: PositiveInt | None = 64
    nodes: Annotated[int, Field(ge=1, le=1)] = 1
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    gres: str | None = None
    comment: str | None = None
    array_parallelism: PositiveInt = 64
    signal_delay_s: PositiveInt = 120
    max_num_timeout: NonNegativeInt = 10
    additional_parameters: Mapping[str, Any] = Field(default_factory=dict)
    setup: Sequence[str] | None = None


def batch_script(arguments: Sequence[str]) -> str:
    """The script for a run's arguments; the configuration is checked, and the folder of its logs made.

    Raises:
        ConfigError: the arguments do not compose, ask for several runs, or name no number of shards.
    """
    from omegaconf import OmegaConf

    from diagnostics.config import run_config
    from diagnostics.run import checked

    if any(argument in ("-m", "--multirun") for argument in arguments):
        raise ConfigError("A batch script is for one run.", remedy="Leave -m out; shard.count=N is N tasks.")
    if any(argument.lstrip("+").startswith("shard.index=") for argument in arguments):
        raise ConfigError("The tasks of the array number the shards.", remedy="Leave shard.index out.")
    own = [argument for argument in arguments if not argument.lstrip("+").startswith("hydra")]
    launcher = [argument.lstrip("+")[len(_LAUNCHER) :] for argument in arguments if _LAUNCHER in argument]
    config = checked(run_config(_composed(own))).config
    stored: Any = OmegaConf.load(config_folder() / "hydra" / "launcher" / "slurm.yaml")
    stored.pop("defaults")
    told = OmegaConf.to_container(OmegaConf.merge(stored, OmegaConf.from_dotlist(launcher)))
    assert isinstance(told, dict)
    resources = from_mapping(Resources, {str(key): value for key, value in told.items()}, "hydra.launcher")
    folder = config.folder(multirun=False)
    logs = folder.parent / ".slurm"
    logs.mkdir(parents=True, exist_ok=True)  # now: SLURM opens a task's log before its first line is run
    options = _options(resources, config.experiment, config.shard.count, logs)
    return _TEMPLATE.format(
        arguments=shlex.join(own),
        directives="\n".join(f"#SBATCH {option}" for option in options),
        folder=shlex.quote(str(Path.cwd())),
        setup="\n".join(resources.setup or ()),
        restarts=resources.max_num_timeout,
        python=shlex.quote(sys.executable),
        run=shlex.quote(str(folder)),
    )


def _composed(arguments: Sequence[str]) -> dict[str, Any]:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        composed = compose("config", rewrite_overrides(arguments))
    values: Any = OmegaConf.to_container(composed, resolve=True)
    return values


def _options(resources: Resources, experiment: str, shards: int, logs: Path) -> list[str]:
    """Options of sbatch, one a line of the script."""
    named = {
        "job-name": experiment,
        "array": f"0-{shards - 1}%{min(resources.array_parallelism, shards)}",
        "time": resources.timeout_min,
        "nodes": resources.nodes,
        "ntasks-per-node": resources.tasks_per_node,
        "cpus-per-task": resources.cpus_per_task,
        "gpus-per-node": resources.gpus_per_node or None,
        "mem": None if resources.mem_gb is None else f"{resources.mem_gb}G",
        "partition": resources.partition,
        "account": resources.account,
        "qos": resources.qos,
        "constraint": resources.constraint,
        "exclude": resources.exclude,
        "gres": resources.gres,
        "comment": resources.comment,
        "output": f"{logs}/%x-%A_%a.log",
        "open-mode": "append",
        "signal": f"B:USR1@{resources.signal_delay_s}",
        **{key.replace("_", "-"): value for key, value in resources.additional_parameters.items()},
    }
    told = {key: shlex.quote(str(value)) for key, value in named.items() if value is not None}
    return ["--requeue", *(f"--{key}={value}" for key, value in told.items())]
