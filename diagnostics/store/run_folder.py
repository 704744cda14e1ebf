"""The folder of a run: made or resumed, locked, and never holding half a thing.

    with RunFolder.open(out, config, config_hash(config, ignore), experiment="attention_drift") as run:
        for item in items:
            if (item.id, condition_id(condition)) in run.finished:
                continue
            record, tensors = measure(item)
            run.save(record, tensors)

Killed at any moment, the same command goes on: finished pairs stay, the one in work is done again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import UInt8

from diagnostics.errors import (
    ConfigError,
    DuplicateRecordError,
    PathLeavesRootError,
    UnwritableFolderError,
)
from diagnostics.store import summary as summaries
from diagnostics.store import tables, thumbnails
from diagnostics.store.admission import (
    next_attempt,
    refuse_foreign,
    refuse_other_configuration,
    refuse_other_shards,
)
from diagnostics.store.atomic import sweep
from diagnostics.store.canonical import Pair, pair_file_name, pair_stem
from diagnostics.store.locks import LOCKS, ShardLock, folder_lock, held_shards
from diagnostics.store.manifest import (
    Attempt,
    Counts,
    Manifest,
    attempt_path,
    attempts_of,
    forget_others,
    manifest_of,
    merge_manifests,
    new_attempt,
    now,
    read_manifests,
    write_manifest,
)
from diagnostics.store.record_log import RecordWriter, all_records, read_records, records_path
from diagnostics.store.records import Record, latest
from diagnostics.store.run_log import log_path
from diagnostics.store.tensor_parts import PairTensors
from diagnostics.store.tensors import tensor_fault, write_tensors

__all__ = ["RunFolder", "tensor_path"]

_log = logging.getLogger(__name__)
_TENSORS = "tensors"
_THUMBNAILS = "thumbnails"


class RunFolder:
    """One process's hold on one shard of a run. Made by `RunFolder.open`; a context manager.

    Attributes:
        path: the folder.
        shard: the shard this process writes, from 0.
        n_shards: into how many the run is cut.
        attempt: the attempt this process makes, from 1.
        finished: the pairs that need no work: their record has no error, and their tensors are there.
            Those of all shards, and of all attempts.
        redone: finished pairs that are to be measured again, and what is wrong with their tensor file.
    """

    def __init__(self, path: Path, attempt: Attempt, manifest: Manifest, lock: ShardLock) -> None:
        """Not for callers: use `RunFolder.open`."""
        self.path = path
        self._attempt = attempt
        self._manifest = manifest
        self._lock = lock
        self._guard = threading.RLock()
        self._writer: RecordWriter | None = None
        self.finished: set[Pair] = set()
        self.redone: dict[Pair, str] = {}

    @classmethod
    def open(
        cls,
        path: str | Path,
        config: Mapping[str, Any],
        config_hash: str,
        *,
        shard: int = 0,
        n_shards: int = 1,
        experiment: str = "",
        ignore: Collection[str] = frozenset(),
        gpus: Iterable[str] = (),
        command: Sequence[str] | None = None,
    ) -> RunFolder:
        """Make the run, or go on with it.

        Args:
            path: the run's folder; made if it is not there.
            config: the full resolved configuration.
            config_hash: its hash (`canonical.config_hash`), without what cannot change results.
            shard, n_shards: this process's share; the number may differ from that of earlier attempts.
            experiment: the experiment's name, for the manifest.
            ignore: the dotted keys that `config_hash` left out, so that they are not named as differing.
            gpus: names of the GPUs, for the manifest.
            command: what repeats this run, for the manifest; None for this process's command line.

        Raises:
            ConfigError: `shard` is not one of `n_shards`.
            ConfigurationMismatchError: the folder holds a run with another configuration; names the keys.
            ForeignFolderError: the folder holds something that is no run.
            UnwritableFolderError: it cannot be made.
            LockedError: another process writes this shard, or the run is going on with another number
                of shards.
            DamagedRunError: a record or manifest in it cannot be read.
        """
        path = Path(path)
        if not 0 <= shard < n_shards:
            raise ConfigError(f"Shard {shard} of {n_shards} does not exist.", remedy="Count shards from 0.")
        try:
            if not (path / LOCKS).is_dir():
                refuse_foreign(path)
                (path / LOCKS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnwritableFolderError(
                f"The output folder cannot be made ({error.strerror}).",
                remedy="Name a folder you may write to with out=DIR.",
                path=path,
            ) from error
        with folder_lock(path):
            refuse_foreign(path)
            records = all_records(path)
            manifests = read_manifests(path)
            if not records and not held_shards(path):
                # Nothing was measured: a misspelt model does not keep the folder from the corrected command.
                manifests = forget_others(path, manifests, config_hash)
            refuse_other_configuration(path, manifests, config, config_hash, ignore)
            refuse_other_shards(path, n_shards)
            lock = ShardLock(path, shard, n_shards)
            try:
                number = next_attempt(attempts_of(manifests), records, shard, n_shards)
                attempt = new_attempt(shard, n_shards, number, gpus, command)
                run = cls(path, attempt, manifest_of(attempt, experiment, config, config_hash), lock)
                run._begin(records)
            except BaseException:
                lock.release()
                raise
        return run

    def _begin(self, records: Iterable[Record]) -> None:
        """Clear away what a killed process left, and find what is finished. Under the folder's lock."""
        # First of all: a folder with anything else in it and no manifest is taken for somebody else's.
        self._write_manifest()
        held = held_shards(self.path)
        swept = sweep(self.path, lambda shard: shard == self.shard or shard not in held)
        (self.path / _TENSORS).mkdir(exist_ok=True)
        self._writer = RecordWriter(records_path(self.path, self.shard))
        for pair, record in latest(records).items():
            if record.error is None:
                if (fault := _fault(self.path, record)) is None:
                    self.finished.add(pair)
                else:
                    self.redone[pair] = fault
        left = {"dropped_bytes": self._writer.dropped_bytes, "swept_files": swept, "redone": len(self.redone)}
        if any(left.values()):
            self.note("resumed", left)

    @property
    def shard(self) -> int:
        """The shard this process writes, from 0."""
        return self._attempt.shard

    @property
    def n_shards(self) -> int:
        """Into how many shards this attempt cuts the run."""
        return self._attempt.n_shards

    @property
    def attempt(self) -> int:
        """The attempt this process makes, from 1."""
        return self._attempt.attempt

    @property
    def counts(self) -> Counts:
        """What this attempt has finished and what failed, until now."""
        return self._attempt.counts

    @property
    def log_path(self) -> Path:
        """Where this shard's log is (`run_log`)."""
        return log_path(self.path, self.shard)

    def save(self, record: Record, tensors: PairTensors | None = None) -> Record:
        """Keep one measurement: its tensors first, then its record, so that a record implies its tensors.

        Returns:
            The record as written, with `tensor_file`, `axes`, `config_hash`, `shard` and `attempt` filled in.

        Raises:
            See `write_tensors` and `append`.
        """
        if tensors is not None:
            record = replace(record, tensor_file=self.write_tensors(tensors), axes=tensors.axes)
        return self.append(record)

    def write_tensors(self, tensors: PairTensors) -> str:
        """Write the tensor file of a pair, before its record is appended.

        Returns:
            Its path relative to the run folder, for `Record.tensor_file`.

        Raises:
            InconsistentTensorsError: the arrays contradict each other.
            OSError: the disk is full...
        """
        name = f"{_TENSORS}/{pair_file_name(*tensors.pair)}"
        write_tensors(self.path / name, tensors, shard=self.shard)
        return name

    def reopen(self, pair: Pair, why: str) -> None:
        """Let a finished pair be measured again, since what it was measured on has changed.

        The new record counts, being of a later attempt; the old one stays in the file.
        """
        self.finished.discard(pair)
        self.redone[pair] = why

    def append(self, record: Record) -> Record:
        """Append one record, and wait for the disk.

        Returns:
            The record as written, with `config_hash`, `shard` and `attempt` filled in.

        Raises:
            DuplicateRecordError: the pair is finished already.
            ValueError: it names a tensor file that is not there or has other axes, or the run is closed.
            OSError: the disk is full...
        """
        (written,) = self.append_all([record])
        return written

    def append_all(self, records: Sequence[Record]) -> list[Record]:
        """Append records that were measured together, in one write: a kill keeps all of them or none.

        What is measured again after a kill is then the same group, with the same rounding.

        Returns, raises:
            As `append`.
        """
        with self._guard:
            for record in records:
                self._refuse(record)
            if len({record.pair for record in records}) < len(records):
                raise ValueError("the same pair is recorded twice at once")
            if self._writer is None:
                raise ValueError("the run folder is closed")
            written = [
                replace(
                    record,
                    config_hash=self._manifest.config_hash,
                    shard=self.shard,
                    attempt=self.attempt,
                )
                for record in records
            ]
            self._writer.append(*written)
            for record in written:
                self._count(record)
        return written

    def _refuse(self, record: Record) -> None:
        """A pair that is finished, or whose tensors are not there."""
        if record.pair in self.finished:
            raise DuplicateRecordError(
                f"The pair {record.pair} is finished already.",
                remedy="Skip the pairs in `finished`; two items with one id are refused by the loader.",
                item_id=record.item_id,
            )
        if record.error is None and (fault := _fault(self.path, record)) is not None:
            raise ValueError(f"the tensor file of {record.pair} is not as the record says: {fault}")

    def _count(self, record: Record) -> None:
        counts = self._attempt.counts
        if record.error is None:
            self.finished.add(record.pair)
            counts = replace(counts, finished=counts.finished + 1)
        else:
            counts = replace(counts, failed=counts.failed + 1)
            _log.warning("failed: %s: %s: %s", record.item_id, record.error.type, record.error.message)
        self._attempt = replace(self._attempt, counts=counts)

    def save_thumbnails(
        self,
        item_id: str,
        condition: str,
        frames: Iterable[UInt8[np.ndarray, "height width 3"]],
        indices: Sequence[int],
    ) -> list[str]:
        """Save small JPEGs of what was shown, before the pair's record.

        Args:
            item_id, condition: the pair; `condition` is the condition's id.
            frames: RGB pictures.
            indices: the position of each picture's slot in the selection; it names the file.

        Returns:
            Their paths relative to the run folder.
        """
        folder = self.path / _THUMBNAILS / pair_stem(item_id, condition)
        paths = thumbnails.write_thumbnails(folder, frames, indices, shard=self.shard)
        return [path.relative_to(self.path).as_posix() for path in paths]

    def remove_thumbnails(self, item_id: str, condition: str) -> None:
        """Remove the pictures of a pair, which is measured anew: they may be of something else by now."""
        for path in (self.path / _THUMBNAILS / pair_stem(item_id, condition)).glob("*.jpg"):
            path.unlink()

    def write_summary(self, summary: summaries.Summary) -> Path:
        """Write `summary.json`, and give its path."""
        return summaries.write_summary(self.path, summary, shard=self.shard)

    def write_table(self, name: str, table: pd.DataFrame) -> list[Path]:
        """Write `tables/<name>.csv`, `.md` and `.tex`, and give their paths; see `tables.write_table`."""
        return tables.write_table(self.path, name, table, shard=self.shard)

    def records(self) -> list[Record]:
        """The record that counts for each pair, of all shards; see `read_records`."""
        return read_records(self.path)

    def expect(self, n_pairs: int) -> None:
        """Note in the manifest how many pairs this shard is to hold when it is done."""
        with self._guard:
            counts = replace(self._attempt.counts, expected=n_pairs)
            self._attempt = replace(self._attempt, counts=counts)
            self._write_manifest()

    def note(self, name: str, finding: Any) -> None:
        """Write a check or a fact into the manifest at once: the capture's self-check, the model's revision.

        Args:
            name: its name among the manifest's `checks`.
            finding: anything with a JSON form.
        """
        with self._guard:
            self._attempt = replace(self._attempt, checks={**self._attempt.checks, name: finding})
            self._write_manifest()

    def _write_manifest(self) -> None:
        held = replace(
            self._manifest,
            ended=self._attempt.ended,
            counts=self._attempt.counts,
            checks=self._attempt.checks,
            attempts=[self._attempt],
        )
        write_manifest(attempt_path(self.path, self._attempt), held, shard=self.shard)

    def close(self, outcome: str = "done") -> None:
        """End the attempt: note its outcome, merge the manifests if no other shard is being written, unlock.

        Nothing happens the second time.
        """
        with self._guard:
            if self._writer is None:
                return
            self._writer.close()
            self._writer = None
        try:
            self._attempt = replace(self._attempt, ended=now(), outcome=outcome)
            self._write_manifest()
            with folder_lock(self.path):
                if set(held_shards(self.path)) <= {self.shard}:
                    merge_manifests(self.path, _counts(self.path))
        finally:
            self._lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close("done" if kind is None else kind.__name__)


def tensor_path(run_dir: Path, record: Record) -> Path | None:
    """The record's tensor file; None where it has none.

    Raises:
        PathLeavesRootError: the record names a path outside the run's tensors, so it was tampered with.
    """
    if record.tensor_file is None:
        return None
    path = run_dir / record.tensor_file
    if path.parent != run_dir / _TENSORS or path.name in ("..", "."):
        raise PathLeavesRootError(
            f"The record's tensor file {record.tensor_file!r} lies outside the run's tensors.",
            remedy="The record was not written by this program: do not use this run.",
            item_id=record.item_id,
        )
    return path


def _fault(run_dir: Path, record: Record) -> str | None:
    path = tensor_path(run_dir, record)
    return None if path is None else tensor_fault(path, record.axes)


def _counts(run_dir: Path) -> Counts:
    records = read_records(run_dir)
    failed = sum(record.error is not None for record in records)
    return Counts(finished=len(records) - failed, failed=failed)
