"""The manifest of a run: what was run, with what, on what; enough to repeat it.

While a run goes on each shard and attempt keeps a file of its own, `manifest.<shard>.<attempt>.json`,
so that no two processes write one file. When the last process is done they are merged into
`manifest.json`. Either is a `Manifest`; the first kind has a single attempt.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from diagnostics.errors import DamagedRunError
from diagnostics.store.atomic import write_text
from diagnostics.store.canonical import plain

__all__ = [
    "MANIFEST_SCHEMA",
    "Attempt",
    "Counts",
    "Machine",
    "Manifest",
    "attempt_path",
    "attempts_of",
    "git_state",
    "manifest_of",
    "merge_manifests",
    "new_attempt",
    "now",
    "package_versions",
    "read_manifests",
    "this_machine",
    "write_manifest",
]

MANIFEST_SCHEMA = 1
"""Version of the manifest's layout."""

_MERGED = "manifest.json"
_OF_ATTEMPT = re.compile(r"manifest\.(\d+)\.(\d+)\.json")
_OWN_DISTRIBUTION = "video-mllm-diagnostics"
_PACKAGES = (
    "torch", "torchvision", "transformers", "accelerate", "vllm", "nnsight", "numpy", "scipy", "scikit-learn",
    "av", "decord", "torchcodec", "h5py", "hydra-core", "pandas", "pillow",
)  # fmt: skip
_SCHEDULER_VARIABLES = (
    "SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_PROCID", "SLURM_RESTART_COUNT",
    "SLURM_JOB_PARTITION",
)  # fmt: skip
_GIT_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Machine:
    """Where an attempt ran."""

    host: str
    """The machine's name."""
    platform: str
    """Operating system and processor architecture."""
    python: str
    """Version of Python."""
    cpus: int
    """CPUs this process may use (its affinity, not the machine's number)."""
    gpus: list[str] = field(default_factory=list)
    """Names of the GPUs, as the caller's framework gives them."""
    scheduler: dict[str, str] = field(default_factory=dict)
    """SLURM's variables, such as the job's id and how often it was requeued; empty elsewhere."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Pairs by what became of them; `expected` is None where nobody said how many there are."""

    finished: int = 0
    failed: int = 0
    expected: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One process's work on one shard."""

    shard: int
    n_shards: int
    attempt: int
    """From 1. Shards that ran side by side share it; it grows when a shard is run again."""
    command: list[str]
    """The command line, interpreter included."""
    pid: int
    started: str
    """UTC, ISO 8601."""
    ended: str | None = None
    """None for an attempt that was killed, or still goes on."""
    outcome: str | None = None
    """`done`, or the class name of the error that ended it; None as for `ended`."""
    machine: Machine
    versions: dict[str, str]
    """Version of each package that was installed, and of this one."""
    git: dict[str, Any] | None = None
    """`commit` and `dirty` of the checkout it ran from; None for an installed package."""
    counts: Counts = field(default_factory=Counts)
    """Pairs recorded by this attempt."""
    checks: dict[str, Any] = field(default_factory=dict)
    """What was verified or found on the way: the capture's self-check, a torn line that was dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a run is, and each attempt at it."""

    schema: int
    """`MANIFEST_SCHEMA` of the program that wrote it."""
    experiment: str
    """Name of the experiment."""
    config: dict[str, Any]
    """The full resolved configuration of the first attempt."""
    config_hash: str
    """Hash of the part of it that can change results."""
    started: str
    """When the first attempt began: UTC, ISO 8601."""
    ended: str | None
    """When the last one ended; None while one goes on, or where the last was killed."""
    counts: Counts
    """Pairs of the whole run, each counted once by its last record."""
    checks: dict[str, Any]
    """The attempts' checks together; of one name the latest."""
    attempts: list[Attempt]
    """In order of attempt and shard."""


def now() -> str:
    """This moment in UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def this_machine(gpus: Iterable[str] = ()) -> Machine:
    """The machine this process runs on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return Machine(
        host=socket.gethostname(),
        platform=platform.platform(),
        python=platform.python_version(),
        cpus=len(affinity(0)) if affinity else os.cpu_count() or 1,
        gpus=list(gpus),
        scheduler={name: os.environ[name] for name in _SCHEDULER_VARIABLES if name in os.environ},
    )


def package_versions() -> dict[str, str]:
    """Versions of the packages that can change a result and are installed; none of them is imported."""
    versions = {"python": platform.python_version()}
    for name in (_OWN_DISTRIBUTION, *_PACKAGES):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # not installed, so it took no part
    return versions


def git_state(folder: Path | None = None) -> dict[str, Any] | None:
    """`{"commit": ..., "dirty": ...}` of the checkout whose root is `folder` (this program's by default).

    None where there is no such checkout, or no git: an installed package lies in somebody else's
    repository at most, and its commit would say nothing about us.
    """
    root = folder or Path(__file__).resolve().parents[2]

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=_GIT_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != root.resolve():
            return None
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None


def new_attempt(
    shard: int,
    n_shards: int,
    attempt: int,
    gpus: Iterable[str] = (),
    command: Sequence[str] | None = None,
) -> Attempt:
    """The attempt that this process begins now; without `command`, by this process's own."""
    return Attempt(
        shard=shard,
        n_shards=n_shards,
        attempt=attempt,
        command=list(sys.orig_argv if command is None else command),
        pid=os.getpid(),
        started=now(),
        machine=this_machine(gpus),
        versions=package_versions(),
        git=git_state(),
    )


def manifest_of(attempt: Attempt, experiment: str, config: Mapping[str, Any], config_hash: str) -> Manifest:
    """The manifest of a single attempt."""
    return Manifest(
        schema=MANIFEST_SCHEMA,
        experiment=experiment,
        config=plain(config),
        config_hash=config_hash,
        started=attempt.started,
        ended=attempt.ended,
        counts=attempt.counts,
        checks=attempt.checks,
        attempts=[attempt],
    )


def attempt_path(run_dir: Path, attempt: Attempt) -> Path:
    """The file of one attempt's manifest."""
    return run_dir / f"manifest.{attempt.shard}.{attempt.attempt}.json"


def write_manifest(path: Path, manifest: Manifest, *, shard: int = 0) -> None:
    """Write a manifest so that it appears whole."""
    write_text(path, json.dumps(plain(manifest), indent=2, allow_nan=False) + "\n", shard=shard)


def read_manifests(run_dir: Path) -> list[Manifest]:
    """Every manifest in the folder, the merged one first; empty where the folder has none.

    Raises:
        DamagedRunError: one of them is no manifest of this schema.
    """
    merged = [run_dir / _MERGED] if (run_dir / _MERGED).exists() else []
    return [_read(path) for path in [*merged, *_attempt_files(run_dir)]]


def forget_others(run_dir: Path, manifests: list[Manifest], config_hash: str) -> list[Manifest]:
    """Delete the manifests of a run with another configuration; returns those that are left."""
    if all(manifest.config_hash == config_hash for manifest in manifests):
        return manifests
    for path in (run_dir / _MERGED, *_attempt_files(run_dir)):
        path.unlink(missing_ok=True)
    return []


def _attempt_files(run_dir: Path) -> list[Path]:
    found = [(path, match) for path in run_dir.iterdir() if (match := _OF_ATTEMPT.fullmatch(path.name))]
    return [path for path, match in sorted(found, key=lambda pair: (int(pair[1][2]), int(pair[1][1])))]


def _read(path: Path) -> Manifest:
    try:
        values = json.loads(path.read_bytes())
        if isinstance(values, dict) and values.get("schema") != MANIFEST_SCHEMA:
            raise ValueError(f"its schema is {values.get('schema')}, this program reads {MANIFEST_SCHEMA}")
        return TypeAdapter(Manifest).validate_python(values)
    except ValueError as error:
        raise DamagedRunError(
            f"This is no manifest of a run: {error}.", remedy="Use another output folder.", path=path
        ) from error


def attempts_of(manifests: Iterable[Manifest]) -> list[Attempt]:
    """All attempts, each once, in order of attempt and shard.

    A kill between merging and deleting leaves an attempt in two files; its own file is then the same.
    """
    by_key = {(a.attempt, a.shard): a for manifest in manifests for a in manifest.attempts}
    return [by_key[key] for key in sorted(by_key)]


def merge_manifests(run_dir: Path, counts: Counts) -> Manifest:
    """Merge all manifests of a run into `manifest.json` and delete the merged ones.

    The caller holds the run's locks, so that no attempt is still being written.

    Args:
        run_dir: a run's folder with at least one manifest.
        counts: pairs of the whole run, from its records.

    Raises:
        DamagedRunError: see `read_manifests`.
    """
    manifests = read_manifests(run_dir)
    attempts = attempts_of(manifests)
    checks = {name: value for attempt in attempts for name, value in attempt.checks.items()}
    last = [attempt for attempt in attempts if attempt.attempt == attempts[-1].attempt]
    ends = [attempt.ended for attempt in last]
    merged = replace(
        manifests[0],
        started=min(attempt.started for attempt in attempts),
        ended=None if None in ends else max(end for end in ends if end is not None),
        counts=replace(counts, expected=_expected(last)),
        checks=checks,
        attempts=attempts,
    )
    write_manifest(run_dir / _MERGED, merged)
    for path in _attempt_files(run_dir):
        path.unlink()
    return merged


def _expected(attempts: list[Attempt]) -> int | None:
    """Pairs of the whole run: known once every shard of the latest attempt told its own number."""
    told = [attempt.counts.expected for attempt in attempts if attempt.counts.expected is not None]
    return sum(told) if len(told) == attempts[-1].n_shards else None
