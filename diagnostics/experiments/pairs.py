"""Measuring pairs of item and condition: reading ahead, resuming, and recording what went wrong.

Every recipe hands its pairs to `measure_pairs` and gets each one back with its frames. Frames of the
next pairs are read while the model works on this one; pairs of one video that show the same frames
share them. A pair that fails is recorded with its error, and the others go on.
"""

from __future__ import annotations

import gc
import hashlib
import json
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from diagnostics.data.items import Item
from diagnostics.data.validation import check_evidence
from diagnostics.errors import DiagnosticsError, OutOfMemoryError, RunError
from diagnostics.experiments.context import Context
from diagnostics.store.canonical import condition_id, plain
from diagnostics.store.records import Failure, Record
from diagnostics.store.tensor_parts import PairTensors
from diagnostics.video.perturb import fill
from diagnostics.video.reading import FrameReader
from diagnostics.video.selection import Frames

__all__ = ["Measured", "Pair", "Source", "item_sha256", "measure_pairs", "reopen_changed"]

T = TypeVar("T")


@dataclass(frozen=True)
class Pair:
    """One measurement to make: an item under a condition (`{}` where an experiment has one)."""

    item: Item
    condition: Mapping[str, object] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """`(item_id, condition_id)`: what records are keyed by."""
        return self.item.id, condition_id(self.condition)


@dataclass(frozen=True)
class Source:
    """What a pair is measured on.

    Attributes:
        item: the item, its evidence checked against the video and told in seconds as well as in frames.
        frames: what it is shown.
        native_size: height and width of the file's own pictures, as shown.
        decode_seconds: how long reading them took.
    """

    item: Item
    frames: Frames
    native_size: tuple[int, int]
    decode_seconds: float


@dataclass(frozen=True)
class Measured:
    """What a recipe found out about one pair.

    Attributes:
        fields: record fields beside those that every pair has.
        tensors: arrays for its tensor file, or None.
        thumbnails: slots worth a small picture.
    """

    fields: dict[str, Any]
    tensors: PairTensors | None = None
    thumbnails: Sequence[int] = ()


def measure_pairs(
    context: Context, pairs: Sequence[Pair], measure: Callable[[Pair, Source], Measured], task: str
) -> None:
    """Measure each pair that is not finished yet and append its record.

    Records come in the order of `pairs`, whatever the number of readers, so that a run that was killed
    and resumed leaves the same records as one that was not.
    """
    folder = context.folder
    folder.expect(len(pairs) + len(context.rejected))
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
        ) as reader,
        context.progress(task, total=len(pairs), done=len(pairs) - len(pending)) as advance,
    ):
        ahead = _ReadAhead(context, reader, pool)
        for pair, future in ahead.walk(pending):
            advance(f"{task}: {_short(pair.item.id)}", 0)
            _measure(context, pair, future, measure)
            advance(task)


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
    measured = {record.pair: record for record in context.folder.records()}
    changed = [
        pair
        for pair in pairs
        if pair.key in context.folder.finished and measured[pair.key].item_sha256 != item_sha256(pair.item)
    ]
    for pair in changed:
        context.folder.reopen(pair.key, "the item is another than it was")
    if changed:
        context.console.print(f"{len(changed)} items are not what they were when measured: measured again.")


def item_sha256(item: Item) -> str:
    """Hash of what an item asks, and of the size of its video (not its date: copies count as the same)."""
    asked = [item.question, item.options, item.answer, item.turns, item.evidence]
    digest = hashlib.sha256(json.dumps(plain(asked), sort_keys=True).encode())
    digest.update(str(item.video.stat().st_size if item.video.exists() else None).encode())
    return digest.hexdigest()


class _ReadAhead:
    """Submits the reading of the next pairs, sharing what pairs of one video have in common."""

    def __init__(self, context: Context, reader: FrameReader, pool: ThreadPoolExecutor) -> None:
        self.context = context
        self.reader = reader
        self.pool = pool
        self.depth = context.config.reading.workers + 1
        self.lock = threading.Lock()
        self.shared: OrderedDict[Hashable, Future] = OrderedDict()

    def walk(self, pairs: Sequence[Pair]) -> Iterable[tuple[Pair, Future[Source]]]:
        """Each pair with the future of its frames, a few ahead of the one yielded."""
        queue: list[tuple[Pair, Future[Source]]] = []
        for pair in pairs:
            queue.append((pair, self.pool.submit(self._read, pair)))
            if len(queue) > self.depth:
                yield queue.pop(0)
        while queue:
            yield queue.pop(0)

    def _read(self, pair: Pair) -> Source:
        video = pair.item.video
        started = time.perf_counter()
        index = self._once(("index", video), lambda: self.reader.index(video))
        item = check_evidence(pair.item, index.duration, index.n_frames)
        selection = self.context.sampler.select(self.context.sampling, index, item)
        frames = self._once(
            (video, selection), lambda: fill(selection, lambda indices: self.reader.read(video, indices))
        )
        return Source(item, frames, (index.height, index.width), time.perf_counter() - started)

    def _once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The value of `key`, computed by whoever asks first; the others wait for it.

        A failure is shared like a value: a video that hung for one question is not tried again for the next.
        """
        with self.lock:
            future = self.shared.get(key)
            mine = future is None
            if future is None:
                future = self.shared[key] = Future()
                while len(self.shared) > 2 * self.depth:
                    self.shared.popitem(last=False)
        if mine:
            try:
                future.set_result(compute())
            except BaseException as error:  # noqa: BLE001 - handed to everyone who waits, and raised there
                future.set_exception(error)
        return future.result()


def _measure(
    context: Context, pair: Pair, future: Future[Source], measure: Callable[[Pair, Source], Measured]
) -> None:
    """Measure one pair and save it, or save what went wrong."""
    folder, fields = context.folder, _common_fields(context, pair)
    try:
        source = future.result()
        fields |= _shown_fields(source)
        measured = _guard_memory(measure, replace(pair, item=source.item), source)
        fields |= measured.fields
        fields["seconds"] = {"decode": source.decode_seconds, **fields.get("seconds", {})}
        fields["warnings"] = (*_shown_warnings(source), *fields.get("warnings", ()))
        if len(measured.thumbnails):
            pixels = source.frames.pixels[list(measured.thumbnails)]
            folder.save_thumbnails(*pair.key, pixels, measured.thumbnails)
        folder.save(Record(**fields), measured.tensors)
    except RunError:
        raise  # not about this item: the disk, the folder
    except DiagnosticsError as error:
        folder.append(Record(**fields, error=Failure.of(error.about(pair.item.id))))
    except Exception as error:
        if type(error).__module__.split(".")[0] == "submitit" or isinstance(error, OSError):
            raise  # the launcher ends a job through an exception; a full disk is not the item's fault
        context.console.print_exception()
        summary = traceback.format_exception_only(error)[-1].strip()
        folder.append(Record(**fields, error=Failure(type=type(error).__name__, message=summary)))


def _guard_memory(measure: Callable[[Pair, Source], Measured], pair: Pair, source: Source) -> Measured:
    """Run `measure`; exhausted memory becomes a typed error, on the device and on the host."""
    try:
        return measure(pair, source)
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        message = str(error).strip().splitlines()[0] if str(error).strip() else "out of memory"
        problem = f"Out of memory with {len(source.frames.selection)} frames: {message}"
    # Outside the handler: its traceback held the tensors that should be freed.
    _free()
    raise OutOfMemoryError(
        problem,
        remedy="Lower sampling.budget or model.max_pixels, or spread the model with model.device_map=auto.",
        item_id=pair.item.id,
        path=pair.item.video,
    )


def _out_of_memory(error: BaseException) -> bool:
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return "not enough memory" in str(error) or "can't allocate memory" in str(error)


def _free() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _common_fields(context: Context, pair: Pair) -> dict[str, Any]:
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


def _shown_fields(source: Source) -> dict[str, Any]:
    selection = source.frames.selection
    return {
        "slots": selection.slots,
        "selection_rule": selection.rule,
        "source_fps": selection.source_fps,
        "source_seconds": selection.source_seconds,
        "frame_size": source.frames.pixels.shape[1:3],
    }


def _shown_warnings(source: Source) -> list[str]:
    """Fewer frames than asked for, or smaller ones: nothing shrinks silently."""
    warnings = []
    shown, asked = len(source.frames.selection), source.frames.selection.requested
    if shown < asked:
        warnings.append(f"fewer_frames: {shown} shown of {asked} asked for")
    height, width = source.frames.pixels.shape[1:3]
    if (height, width) != source.native_size:
        warnings.append(
            "smaller_frames: {}x{} read as {}x{}".format(*reversed(source.native_size), width, height)
        )
    return warnings


def _short(text: str, length: int = 40) -> str:
    from rich.markup import escape

    return escape(text if len(text) <= length else f"{text[: length - 1]}…")
