"""Finished runs, read back as they lie on disk: what `compare` and a notebook start from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnostics.errors import ForeignFolderError, IncompleteRunError, RunError
from diagnostics.store.manifest import Attempt, Manifest, attempts_of, read_manifests
from diagnostics.store.record_log import read_records
from diagnostics.store.records import Record
from diagnostics.store.summary import Summary, read_summary

__all__ = ["FinishedRun", "find_run", "find_runs", "load_summary", "open_finished"]

_PATTERN_MARKS = frozenset("*?[")


@dataclass(frozen=True)
class FinishedRun:
    """One run and what came out of it.

    Attributes:
        folder: where it lies.
        manifest: what it is: experiment, configuration, hash.
        attempts: every attempt at it, in order; the last made what is there.
        summary: its numbers.
        records: the record that counts for each pair, failed ones too.
    """

    folder: Path
    manifest: Manifest
    attempts: tuple[Attempt, ...]
    summary: Summary
    records: tuple[Record, ...]


def open_finished(run_dir: str | Path) -> FinishedRun:
    """A run that is done: every expected pair has a record, and its last attempt came to its end.

    Raises:
        ForeignFolderError: there is no such folder, or it holds no run.
        IncompleteRunError: the run goes on, was interrupted, or lacks records or its summary.
        DamagedRunError: a file of it cannot be read.
    """
    folder = Path(run_dir)
    summary = load_summary(folder)
    manifests = read_manifests(folder)
    if not manifests:
        raise ForeignFolderError(
            "The folder has records but no manifest: nobody can tell what was run.",
            remedy="Give a folder that the program wrote, whole.",
            path=folder,
        )
    attempts = attempts_of(manifests)
    _refuse_unfinished(folder, attempts)
    records = read_records(folder)
    expected = manifests[0].counts.expected
    if expected is not None and len(records) < expected:
        raise IncompleteRunError(
            f"The run holds {len(records)} of {expected} pairs.",
            remedy="Run the same command again; it goes on where it stopped.",
            path=folder,
        )
    return FinishedRun(folder, manifests[0], tuple(attempts), summary, tuple(records))


def _refuse_unfinished(folder: Path, attempts: Sequence[Attempt]) -> None:
    """Every shard of the last attempt must have come to its end."""
    last = [attempt for attempt in attempts if attempt.attempt == attempts[-1].attempt]
    for attempt in last:
        if attempt.outcome != "done":
            ended = "goes on or was killed" if attempt.outcome is None else f"ended by {attempt.outcome}"
            raise IncompleteRunError(
                f"The last attempt at this run {ended}.",
                remedy="Wait for it, or run the same command again; it goes on where it stopped.",
                path=folder,
            )
    if len(last) < last[-1].n_shards:
        raise IncompleteRunError(
            f"Of {last[-1].n_shards} shards {len(last)} were run.",
            remedy="Run the shards that are missing.",
            path=folder,
        )


def load_summary(run_dir: Path) -> Summary:
    """The summary of a run.

    Raises:
        ForeignFolderError: there is no such folder, or it holds no records.
        IncompleteRunError: records, but no summary yet.
        DamagedRunError: see `read_summary`.
    """
    if not _holds_run(run_dir):
        problem = "This folder holds no run." if run_dir.is_dir() else "There is no such folder."
        raise ForeignFolderError(
            problem,
            remedy="Give the folder that holds samples.0.jsonl, such as outputs/attention_drift/<run>.",
            path=run_dir,
        )
    try:
        return read_summary(run_dir)
    except FileNotFoundError as error:
        raise IncompleteRunError(
            "The run has no summary.json: it has not finished.",
            remedy="Run the same command again; it goes on where it stopped.",
            path=run_dir,
        ) from error


def find_runs(places: Sequence[str], *, without: str = "") -> list[Path]:
    """The run folders that some places name, each once.

    Args:
        places: each the folder of a run, a folder whose subfolders are runs (a sweep's), or a pattern
            (`outputs/attention_drift/tiny-*`) for either.
        without: an experiment whose runs are passed over: comparisons may lie among what they compare.

    Returns:
        In the order of the places; within one place in the order in which the runs were begun.

    Raises:
        ForeignFolderError: a place leads to no run.
    """
    found: dict[Path, Path] = {}
    for place in places:
        runs = [run for folder in _matching(place) for run in _runs_at(folder) if not _is_of(run, without)]
        if not runs:
            there = Path(place).is_dir() or set(place) & _PATTERN_MARKS
            raise ForeignFolderError(
                "There is no run in it." if there else "There is no such folder.",
                remedy="Give folders of finished runs, or one whose subfolders are runs.",
                path=place,
            )
        for run in sorted(runs, key=_begun):
            found.setdefault(run.resolve(), run)
    return list(found.values())


def find_run(place: str, key: str, *, without: str = "") -> Path:
    """The one run folder that a place names.

    Args:
        place, without: see `find_runs`.
        key: the configuration key that named the place, for the message.

    Raises:
        ForeignFolderError: the place leads to no run.
        RunError: it leads to several.
    """
    folders = find_runs([place], without=without)
    if len(folders) > 1:
        raise RunError(
            f"{place} holds {len(folders)} runs.", remedy=f"Name one of them, such as {key}={folders[0]}."
        )
    return folders[0]


def _matching(place: str) -> list[Path]:
    path = Path(place).expanduser()
    if path.exists() or not set(place) & _PATTERN_MARKS:
        return [path]
    anchor = Path(path.anchor) if path.anchor else Path()
    return sorted(anchor.glob(str(path.relative_to(path.anchor) if path.anchor else path)))


def _runs_at(folder: Path) -> list[Path]:
    if _holds_run(folder):
        return [folder]
    if not folder.is_dir():
        return []
    return [entry for entry in sorted(folder.iterdir()) if _holds_run(entry)]


def _holds_run(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob("samples.*.jsonl"))


def _is_of(folder: Path, experiment: str) -> bool:
    manifests = read_manifests(folder)
    return bool(manifests) and manifests[0].experiment == experiment


def _begun(folder: Path) -> tuple[str, str]:
    manifests = read_manifests(folder)
    return min((manifest.started for manifest in manifests), default=""), folder.name
