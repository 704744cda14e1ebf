"""Whether a run may begin or go on in a folder, and as which attempt."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from diagnostics.errors import ConfigurationMismatchError, ForeignFolderError, LockedError
from diagnostics.store.canonical import differing_keys
from diagnostics.store.locks import held_shards
from diagnostics.store.manifest import Attempt, Manifest, read_manifests
from diagnostics.store.records import Record

__all__ = ["next_attempt", "refuse_foreign", "refuse_other_configuration", "refuse_other_shards"]


def refuse_foreign(path: Path) -> None:
    """Refuse a folder with something in it and no manifest.

    Hidden files and logs do not count: Hydra and SLURM write theirs before we begin.

    Raises:
        ForeignFolderError: names one of the things in it.
    """
    if path.exists() and not path.is_dir():
        raise ForeignFolderError("The output folder is a file.", remedy="Name another folder.", path=path)
    if not path.exists():
        return
    # Listed before manifests are looked for: a run that begins meanwhile writes its manifest first.
    entries = list(path.iterdir())
    foreign = [entry.name for entry in entries if not entry.name.startswith(".") and entry.suffix != ".log"]
    if foreign and not read_manifests(path):
        raise ForeignFolderError(
            f"The output folder is not empty and holds no run (there is {sorted(foreign)[0]!r} in it).",
            remedy="Name another folder with out=DIR, or empty this one.",
            path=path,
        )


def refuse_other_configuration(
    path: Path,
    manifests: list[Manifest],
    config: Mapping[str, Any],
    config_hash: str,
    ignore: Collection[str],
) -> None:
    """Refuse a folder whose run has another configuration hash, and name the keys that differ.

    Raises:
        ConfigurationMismatchError: with each differing key and its two values.
    """
    for manifest in manifests:
        if manifest.config_hash != config_hash:
            differences = differing_keys(manifest.config, config, ignore)
            if other := [each for each in differences if each.key == "exp.name"]:
                differences = other  # another experiment has other parameters: no need to list them
            told = (
                "; ".join(map(str, differences)) or f"hash {manifest.config_hash} there, {config_hash} here"
            )
            raise ConfigurationMismatchError(
                f"The output folder holds a run with another configuration: {told}.",
                remedy="Name another folder with out=DIR, or run with the configuration it holds.",
                path=path,
            )


def refuse_other_shards(path: Path, n_shards: int) -> None:
    """Refuse to cut a run that is going on in another way: two cuts at once would measure pairs twice.

    Raises:
        LockedError: says who is at work.
    """
    for shard, holder in held_shards(path).items():
        if holder is not None and holder.n_shards != n_shards:
            raise LockedError(
                f"This run is going on in {holder.n_shards} shards, not {n_shards}: shard {shard} is written "
                f"by process {holder.pid} on {holder.host}, since {holder.since}.",
                remedy="Wait for it, or end it and start again: what it finished is kept.",
                path=path,
            )


def next_attempt(attempts: list[Attempt], records: list[Record], shard: int, n_shards: int) -> int:
    """The number of an attempt at this shard that begins now.

    Numbers order records across shards, so they count for the run as a whole. A shard joins the latest
    attempt where that is cut alike and has not had this shard; every other start makes a new one.
    """
    numbers = [attempt.attempt for attempt in attempts] + [record.attempt for record in records]
    number = max(numbers, default=0)
    of_latest = [attempt for attempt in attempts if attempt.attempt == number]
    if of_latest and all(a.n_shards == n_shards and a.shard != shard for a in of_latest):
        return number
    return number + 1
