"""Measuring pairs of item and condition: reading ahead, resuming, and recording what went wrong.

Every recipe hands its pairs to `measure_pairs` and gets each one back with its frames (`showing`), which
are read while the model works on earlier pairs. A pair that fails is recorded with its error, and the
others go on.
"""

from __future__ import annotations

import hashlib
import json
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from diagnostics.data.items import Item
from diagnostics.errors import DiagnosticsError, IncompleteRunError, ItemError, OutOfMemoryError, RunError
from diagnostics.experiments.context import Context, ShardMeasured
from diagnostics.experiments.film import Film, pictures_of_each
from diagnostics.experiments.read_ahead import Fetch, ReadAhead
from diagnostics.experiments.showing import Show, Source, as_sampled
from diagnostics.progress import Advance
from diagnostics.store.canonical import condition_id, plain
from diagnostics.store.record_log import all_records
from diagnostics.store.records import Failure, Record
from diagnostics.store.sharding import merge_check, shard_of
from diagnostics.store.tensor_parts import PairTensors
from diagnostics.video.reading import FrameReader

__all__ = [
    "Measured",
    "Pair",
    "Source",
    "common_fields",
    "failure_of",
    "item_sha256",
    "measure_pairs",
    "pending_chunks",
    "rejection",
    "reopen_changed",
    "short_name",
    "shown_fields",
    "with_source",
]


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pair:
    """One measurement to make: an item under a condition (`{}` where an experiment has one)."""

    item: Item
    condition: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """`(item_id, condition_id)`: what records are keyed by."""
        return self.item.id, condition_id(self.condition)


@dataclass(frozen=True)
class Measured:
    """What a recipe found out about one pair.

    Attributes:
        fields: record fields beside those that every pair has.
        tensors: arrays for its tensor file, or None.
        thumbnails: slots worth a small picture beside those of the film strip.
    """

    fields: dict[str, Any]
    tensors: PairTensors | None = None
    thumbnails: Sequence[int] = ()


def measure_pairs(
    context: Context,
    pairs: Sequence[Pair],
    measure: Callable[[Pair, Source], Measured],
    task: str,
    *,
    show: Show = as_sampled,
) -> None:
    """Measure each pair that is not finished yet and append its record.

    Records come in the order of `pairs`, whatever the number of readers, so that a run that was killed
    and resumed leaves the same records as one that was not.
    """
    with pending_chunks(context, pairs, task, show) as (chunks, advance), film_of(context, pairs) as film:
        for chunk in chunks:
            while chunk:
                pair, fetch = chunk.pop(0)
                advance(short_name(pair), 0)
                _measure(context, pair, fetch, measure, film)
                del fetch  # with the pictures it holds, before more are read
                advance()


@contextmanager
def pending_chunks(
    context: Context, pairs: Sequence[Pair], task: str, show: Show
) -> Iterator[tuple[Iterator[list[tuple[Pair, Fetch]]], Advance]]:
    """The pairs that are not finished yet, those whose frames were read together at a time, and the progress
    bar.

    Let go of the pictures of one chunk before asking for the next.

    Raises:
        ShardMeasured: at the end, where this process measures a part of the run.
        IncompleteRunError: parts are put together, and do not make the whole.
    """
    folder, shard = context.folder, context.config.shard
    if shard.count > 1:
        pairs = [pair for pair in pairs if shard_of(pair.item.video_id, shard.count) == shard.index]
        folder.expect(len(pairs))
    else:
        folder.expect(len(pairs) + len(context.rejected))
    if context.complete:
        _require_whole(context, pairs)
        pending = []
    else:
        reopen_changed(context, pairs)
        pending = [pair for pair in pairs if pair.key not in folder.finished]
    reading = context.config.reading
    with (
        # Left in reverse order: readers are closed first, so that nobody waits for a decode that hangs.
        _pool(reading.workers) as pool,
        FrameReader(
            reader=reading.reader,
            timeout_seconds=reading.timeout_seconds,
            workers=reading.workers,
            max_side=reading.max_side,
            cache=context.frame_cache,
        ) as reader,
        context.progress(task, total=len(pairs), done=len(pairs) - len(pending)) as advance,
        closing(ReadAhead(context, reader, pool, show).walk_chunks(pending)) as chunks,
    ):
        yield _awaited(context, chunks), advance
    context.tell_frame_cache()
    if shard.count > 1:
        raise ShardMeasured({pair.key for pair in pairs})


def _awaited(
    context: Context, chunks: Iterator[list[tuple[Pair, Fetch]]]
) -> Iterator[list[tuple[Pair, Fetch]]]:
    """The chunks, the person told while the machine waits for the next one."""
    while True:
        with context.waiting("waiting for frames"):
            chunk = next(chunks, None)
        if chunk is None:
            return
        yield chunk
        del chunk  # with the pictures it holds, before more are read


def _require_whole(context: Context, pairs: Sequence[Pair]) -> None:
    """That every pair has its record, of the item as it is now, once, and that there is no other record."""
    expected = [pair.key for pair in pairs] + [rejection(error).pair for error in context.rejected]
    recorded = all_records(context.folder.path)
    of_rejected = [rejection(error) for error in context.rejected]  # recorded where they are put together
    merge_check([*recorded, *of_rejected], expected).require_whole()
    if changed := _changed(context, pairs):
        raise IncompleteRunError(
            f"{len(changed)} items are not what they were when measured, such as {changed[0].item.id!r}.",
            remedy="Run the shards again: only those items are measured again.",
        )


def rejection(error: ItemError) -> Record:
    """The record of a refused item, under a condition of its own: a duplicate has the id of a good item."""
    return Record(
        item_id=error.item_id or str(error.path),
        video_id="",
        condition={"rejected": type(error).__name__},
        error=Failure.of(error),
    )


@contextmanager
def _pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads whose waiting work is dropped when the block is left early."""
    pool = ThreadPoolExecutor(max_workers=workers)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def reopen_changed(context: Context, pairs: Sequence[Pair]) -> None:
    """Items whose question, evidence or video is another than when they were measured are measured again."""
    changed = _changed(context, pairs)
    for pair in changed:
        context.folder.reopen(pair.key, "the item is another than it was")
    if changed:
        context.say(f"{len(changed)} items are not what they were when measured: measured again.")


def _changed(context: Context, pairs: Sequence[Pair]) -> list[Pair]:
    measured = {record.pair: record for record in context.folder.records()}
    return [
        pair
        for pair in pairs
        if pair.key in context.folder.finished and measured[pair.key].item_sha256 != item_sha256(pair.item)
    ]


def item_sha256(item: Item) -> str:
    """Hash of what an item asks, and of the size of its video (not its date: copies count as the same)."""
    asked: list[Any] = [item.question, item.options, item.answer, item.turns, item.evidence]
    if item.clip is not None:  # left out otherwise: the hashes of older runs stay what they were
        asked.append(item.clip)
    digest = hashlib.sha256(json.dumps(plain(asked), sort_keys=True).encode())
    digest.update(str(item.video.stat().st_size if item.video.exists() else None).encode())
    return digest.hexdigest()


def film_of(context: Context, pairs: Sequence[Pair]) -> Film:
    """What saves the small pictures of these pairs, all of a run's."""
    return Film(context.folder, pictures_of_each([pair.key for pair in pairs], context.config.thumbnails))


def _measure(
    context: Context, pair: Pair, fetch: Fetch, measure: Callable[[Pair, Source], Measured], film: Film
) -> None:
    """Measure one pair and save it, or save what went wrong."""
    folder, fields = context.folder, common_fields(context, pair)
    try:
        source = fetch()
        fields |= shown_fields(source)
        loaded = context.model
        saving = film.saved(pair.key, source, loaded.family.slots_per_unit(loaded.model))
        with saving, context.waiting("waiting for the model"):
            measured = _guard_memory(measure, replace(pair, item=source.item), source)
        fields |= measured.fields
        fields |= with_source(source, fields)
        film.add(pair.key, source, measured.thumbnails)
        with context.waiting("waiting for the disk"):
            folder.save(Record(**fields), measured.tensors)
    except Exception as error:  # noqa: BLE001 - those that are not about the item are raised again
        folder.append(Record(**fields, error=failure_of(pair, error)))


def failure_of(pair: Pair, error: BaseException) -> Failure:
    """What is recorded of a pair that failed; raises again what is not about this item."""
    if isinstance(error, DiagnosticsError) and not isinstance(error, RunError):
        return Failure.of(error.about(pair.item.id))
    # A run's error is about the disk, the folder, the model; a full disk is not the item's fault.
    if _from_launcher(error) or isinstance(error, RunError | OSError) or not isinstance(error, Exception):
        raise error
    _log.error("not foreseen, of %s", pair.item.id, exc_info=error)
    summary = traceback.format_exception_only(error)[-1].strip()
    return Failure(type=type(error).__name__, message=f"{summary} (its traceback is in the run's log)")


def _from_launcher(error: BaseException) -> bool:
    """Whether the launcher ends the job: by an exception of its own, or one out of its signal handler, which
    comes up wherever the main thread happens to be."""
    modules = [type(error).__module__]
    modules += [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(module.partition(".")[0] == "submitit" for module in modules)


def _guard_memory(measure: Callable[[Pair, Source], Measured], pair: Pair, source: Source) -> Measured:
    """Run `measure`; exhausted memory becomes a typed error, on the device and on the host."""
    from diagnostics.models.memory import free_memory, out_of_memory

    try:
        return measure(pair, source)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        message = str(error).strip().splitlines()[0] if str(error).strip() else "out of memory"
        problem = f"Out of memory with {len(source.frames.selection)} frames: {message}"
    # Outside the handler: its traceback held the tensors that should be freed.
    free_memory()
    raise OutOfMemoryError(
        problem,
        remedy="Lower sampling.budget or model.max_pixels, or spread the model with model.device_map=auto.",
        item_id=pair.item.id,
        path=pair.item.video,
    )


def common_fields(context: Context, pair: Pair) -> dict[str, Any]:
    """Record fields that every pair has, whether it was measured or not."""
    return {
        "item_id": pair.item.id,
        "video_id": pair.item.video_id,
        "condition": dict(pair.condition),
        "task": pair.item.task,
        "task_family": pair.item.task_family,
        "target": pair.item.answer,
        "item_sha256": item_sha256(pair.item),
        "reader": context.config.reading.reader,
    }


def shown_fields(source: Source) -> dict[str, Any]:
    """Record fields of what a pair shows."""
    selection = source.frames.selection
    return {
        "target": source.item.answer,
        "slots": selection.slots,
        "selection_rule": selection.rule,
        "source_fps": selection.source_fps,
        "source_seconds": selection.source_seconds,
        "frame_size": source.frames.pixels.shape[1:3],
    }


def with_source(source: Source, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Times, warnings and measures of a finished pair, what reading and choosing the frames brought first."""
    return {
        "seconds": {"decode": source.decode_seconds, **source.seconds, **fields.get("seconds", {})},
        "warnings": (*_shown_warnings(source), *source.notices, *fields.get("warnings", ())),
        "measures": {**source.measures, **fields.get("measures", {})},
    }


def _shown_warnings(source: Source) -> list[str]:
    """Fewer frames than asked for, or smaller ones: nothing shrinks silently."""
    warnings = []
    shown, asked = len(source.frames.selection), source.frames.selection.requested
    if shown < asked:
        warnings.append(f"fewer_frames: {shown} shown of {asked} asked for")
    height, width = source.frames.pixels.shape[1:3]
    if shown and (height, width) != source.native_size:
        warnings.append(
            "smaller_frames: {}x{} read as {}x{}".format(*reversed(source.native_size), width, height)
        )
    return warnings


def short_name(pair: Pair, length: int = 40) -> str:
    """The item's id for the progress bar."""
    text = pair.item.id
    return text if len(text) <= length else f"{text[: length - 1]}…"
