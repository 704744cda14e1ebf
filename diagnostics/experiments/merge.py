"""Put the shards of a run together: prove that they make the whole, then write summary, tables and figures.

A run that is cut into shards (`shard.index`, `shard.count`) has records and tensors from each, and no
summary. This opens it again with its own configuration and does what is left to do once everything is
measured: nothing is read from a video, nothing asked of a model. A pair without a record, one recorded twice
by one attempt, one that the data set does not have, and an item that has changed since are refused by name.
Pairs that failed are named in the summary; running the shards again tries them again.
"""

from __future__ import annotations

import dataclasses

from pydantic.dataclasses import dataclass

from diagnostics.config import RunConfig, ShardConfig, run_config
from diagnostics.errors import RunError
from diagnostics.store.finished import find_run
from diagnostics.store.manifest import read_manifests
from diagnostics.strict import STRICT

__all__ = ["USES", "Config", "whole_run"]

USES = ("exp",)
"""Groups of the configuration that this experiment reads."""


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        run: the folder of the run whose shards are measured.
    """

    run: str


def whole_run(config: Config) -> RunConfig:
    """The run that is put together, in one piece, in its own folder.

    Raises:
        RunError: there is no run, or more than one.
        DamagedRunError: its manifest cannot be read. ConfigError: its configuration is not known any more.
    """
    folder = find_run(config.run, "run")
    manifests = read_manifests(folder)
    if not manifests:
        raise RunError("The folder has records but no manifest.", remedy="Give a run, whole.", path=folder)
    stored = run_config(manifests[0].config)
    whole = dataclasses.replace(stored, out=str(folder), shard=ShardConfig())
    if whole.hash != manifests[0].config_hash:
        raise RunError(
            "The run was made by another version of this program: its configuration reads otherwise now.",
            remedy="Put it together with the version that measured it (manifest.json names it).",
            path=folder,
        )
    return whole
