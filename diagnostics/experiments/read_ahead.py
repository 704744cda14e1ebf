"""Reading what pairs show, ahead of the model: every frame of a video once, whatever asks for it.

Pairs of one video are planned together, the union of their frames is read at once, in bounded memory, and
each pair's pictures are taken out of it.
"""

from __future__ import annotations

import io
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image

from diagnostics.errors import ReaderTimeoutError
from diagnostics.experiments.showing import Library, Show, Shown, Source
from diagnostics.video.index import VideoIndex, size_within
from diagnostics.video.perturb import GREY
from diagnostics.video.reading import FrameReader
from diagnostics.video.selection import BLANK, Frames

if TYPE_CHECKING:
    from diagnostics.experiments.context import Context
    from diagnostics.experiments.pairs import Pair

__all__ = ["MOST_FRAMES", "Fetch", "OneWait", "ReadAhead"]

_MOST_BYTES = 4 << 30
"""Pictures held at once, those read ahead included; one pair that needs more is read when nothing else is
held. Pairs that share pictures take half of it, so that the next ones can be read meanwhile."""

MOST_FRAMES = 256
"""Frames asked of the reader at a time: its time limit is for one request, and a hang should be one."""


class OneWait:
    """The run's reader; a file that hung once is not waited for again: each wait is a time limit long."""

    def __init__(self, reader: FrameReader) -> None:
        self._plain, self.reader, self.max_side = reader, reader.reader, reader.max_side
        self._hung: dict[str, ReaderTimeoutError] = {}

    def index(self, path: Path) -> VideoIndex:
        """`FrameReader.index`."""
        with self._noting(path):
            return self._plain.index(path)

    def read(
        self, path: Path, indices: Int[np.ndarray, " n"], *, keep: bool = False
    ) -> UInt8[np.ndarray, "n h w 3"]:
        """`FrameReader.read`. What a sampler looks at, thousands of candidates whose signals are kept anyway
        (`relevance.cache`), would push what is shown out of the frame cache: `keep` is for what is shown."""
        with self._noting(path):
            return self._plain.read(path, indices, keep=keep)

    @contextmanager
    def _noting(self, path: Path) -> Iterator[None]:
        if str(path) in self._hung:
            raise self._hung[str(path)]
        try:
            yield
        except ReaderTimeoutError as error:
            self._hung[str(path)] = error
            raise


Size = tuple[int, int]
"""Height and width."""


@dataclass(frozen=True)
class _Planned:
    """A pair and what it shows, or why that cannot be said.

    Attributes:
        sizes: of the pictures of each file that it may show, as they are read.
        native_size: of the item's own pictures, as the file has them.
    """

    pair: Pair
    shown: Shown | None = None
    sizes: Mapping[Path, Size] = field(default_factory=dict)
    native_size: Size = (0, 0)
    error: Exception | None = None

    def wanted(self) -> _Wanted:
        """Frames by file."""
        found: _Wanted = {}
        if self.shown is not None:
            for slot in self.shown.selection.slots:
                if slot.source != BLANK:
                    path = self.shown.sources.get(slot.source, self.shown.item.video)
                    found.setdefault(path, set()).add(slot.frame_index)
        return found


@dataclass(frozen=True)
class _Chunk:
    """Pairs whose pictures are read together, and the room that those take."""

    planned: list[_Planned]
    wanted: _Wanted
    n_bytes: int


@dataclass(frozen=True)
class _Unread:
    """Frames of a file that could not be read together, and why."""

    frames: set[int]
    error: Exception


_Wanted = dict[Path, set[int]]
_Pictures = dict[Path, tuple[Int[np.ndarray, " n"], UInt8[np.ndarray, "n height width 3"]]]
Fetch = Callable[[], Source]
"""Gives a pair's frames, or raises what went wrong. It holds pictures that pairs share: let go of it."""


class ReadAhead:
    """Plans and reads the next pairs while the model works. For one walk over a run's pairs.

    Args:
        show: what a pair shows.
        pool: threads that plan and wait for the reader, one a reading process.
    """

    def __init__(self, context: Context, reader: FrameReader, pool: ThreadPoolExecutor, show: Show) -> None:
        self._reader, self._pool, self._show = OneWait(reader), pool, show
        self._library = Library(context, self._reader)
        self._max_side = context.config.reading.max_side
        self._depth = context.config.reading.workers + 1
        self._guard = threading.RLock()  # of what follows: a plan that is done goes on to reading by itself
        self._groups: Iterator[list[Pair]] = iter(())
        self._plans: deque[Future[list[_Chunk]]] = deque()
        self._chunks: deque[_Chunk] = deque()
        self._reads: deque[tuple[_Chunk, Future[list[Fetch]]]] = deque()
        self._held = 0  # bytes of the chunk that is at hand
        self._ended = False

    def walk(self, pairs: Sequence[Pair]) -> Generator[tuple[Pair, Fetch], None, None]:
        """Each pair with its frames, in order. Let go of one before asking for the next, and close it."""
        with closing(self.walk_chunks(pairs)) as chunks:
            for chunk in chunks:
                while chunk:
                    yield chunk.pop(0)

    def walk_chunks(self, pairs: Sequence[Pair]) -> Generator[list[tuple[Pair, Fetch]], None, None]:
        """Pairs of one video whose frames were read together, in order. Let go of all of them before asking
        for the next, as far as memory matters, and close it."""
        self._groups = iter([list(group) for _, group in groupby(pairs, key=lambda pair: pair.item.video)])
        try:
            while (at_hand := self._next()) is not None:
                found = [
                    (planned.pair, fetch)
                    for planned, fetch in zip(at_hand[0].planned, at_hand[1], strict=True)
                ]
                del at_hand
                yield found
                del found  # and with it the pictures, before more are read
                with self._guard:
                    self._held = 0
        finally:
            with self._guard:
                self._ended = True

    def _next(self) -> tuple[_Chunk, list[Fetch]] | None:
        """The next chunk, waited for; None after the last."""
        while True:
            with self._guard:
                self._top_up()
                if self._reads:
                    chunk, future = self._reads.popleft()
                    self._held = max(1, chunk.n_bytes)
                    self._top_up()
                    break
                if not self._plans:
                    return None
                plan = self._plans[0]
            plan.result()
        return chunk, future.result()

    def _top_up(self) -> None:
        """Plan and read further, as far as the limits allow."""
        while self._plans and self._plans[0].done():
            self._chunks.extend(self._plans.popleft().result())
        while self._chunks and len(self._reads) < self._depth:
            ahead = self._held + sum(chunk.n_bytes for chunk, _ in self._reads)
            if ahead and ahead + self._chunks[0].n_bytes > _MOST_BYTES:
                break
            chunk = self._chunks.popleft()
            self._reads.append((chunk, self._pool.submit(self._read, chunk)))
        while len(self._plans) + len(self._chunks) < self._depth:
            group = next(self._groups, None)
            if group is None:
                break
            plan = self._pool.submit(self._plan, group)
            self._plans.append(plan)
            plan.add_done_callback(self._go_on)

    def _go_on(self, plan: Future[list[_Chunk]]) -> None:
        with self._guard:
            if not (self._ended or plan.cancelled()):
                self._top_up()

    # -- planning

    def _plan(self, pairs: Sequence[Pair]) -> list[_Chunk]:
        """What the pairs of one video show, cut where their pictures together would take too much room."""
        chunks: list[_Chunk] = []
        for planned in (self._plan_one(pair) for pair in pairs):
            wanted = planned.wanted()
            if chunks:
                last = chunks[-1]
                together = {
                    path: last.wanted.get(path, set()) | wanted.get(path, set())
                    for path in last.wanted | wanted
                }
                n_bytes = self._bytes(together, [*last.planned, planned])
                if n_bytes <= _MOST_BYTES // 2 or n_bytes == last.n_bytes:
                    chunks[-1] = _Chunk([*last.planned, planned], together, n_bytes)
                    continue
            chunks.append(_Chunk([planned], wanted, self._bytes(wanted, [planned])))
        return chunks

    def _plan_one(self, pair: Pair) -> _Planned:
        try:
            shown = self._show(pair, self._library)
            index = self._library.index(shown.item.video)
            sizes = {
                path: size_within(self._library.index(path), self._max_side)
                for path in (shown.item.video, *shown.sources.values())
            }
            return _Planned(pair, shown, sizes, (index.height, index.width))
        except Exception as error:  # noqa: BLE001 - raised again where the pair's record is written
            return _Planned(pair, error=error)

    def _bytes(self, wanted: _Wanted, planned: Sequence[_Planned]) -> int:
        sizes = {path: size for one in planned for path, size in one.sizes.items()}
        return sum(len(frames) * 3 * sizes[path][0] * sizes[path][1] for path, frames in wanted.items())

    # -- reading

    def _read(self, chunk: _Chunk) -> list[Fetch]:
        """Every frame of the chunk once, a file at a time; what fails concerns the pairs that want it."""
        pictures: _Pictures = {}
        unread: dict[Path, _Unread] = {}
        started = time.perf_counter()
        for path, frames in chunk.wanted.items():
            try:
                pictures[path] = self._read_frames(path, frames)
            except Exception as error:  # noqa: BLE001 - raised again where the pair's record is written
                unread[path] = _Unread(frames, error)
        seconds = (time.perf_counter() - started) / len(chunk.planned)
        return [self._fetch(planned, pictures, unread, seconds) for planned in chunk.planned]

    def _read_frames(
        self, path: Path, frames: set[int]
    ) -> tuple[Int[np.ndarray, " n"], UInt8[np.ndarray, "n height width 3"]]:
        numbers = np.array(sorted(frames), dtype=np.int64)
        first = self._reader.read(path, numbers[:MOST_FRAMES], keep=True)
        if len(numbers) <= MOST_FRAMES:
            return numbers, first
        pixels = np.empty((len(numbers), *first.shape[1:]), dtype=np.uint8)
        pixels[:MOST_FRAMES] = first
        for start in range(MOST_FRAMES, len(numbers), MOST_FRAMES):
            part = slice(start, start + MOST_FRAMES)
            pixels[part] = self._reader.read(path, numbers[part], keep=True)
        return numbers, pixels

    def _fetch(
        self, planned: _Planned, pictures: _Pictures, unread: Mapping[Path, _Unread], seconds: float
    ) -> Fetch:
        def fetch() -> Source:
            if planned.error is not None:
                raise planned.error
            again = self._read_alone(planned, unread)
            return self._source(planned, pictures | again, seconds)

        return fetch

    def _read_alone(self, planned: _Planned, unread: Mapping[Path, _Unread]) -> _Pictures:
        """The pair's own frames of files whose frames could not be read together."""
        found: _Pictures = {}
        for path, frames in planned.wanted().items():
            if path in unread:
                if frames == unread[path].frames:
                    raise unread[path].error  # that is what was tried
                found[path] = self._read_frames(path, frames)
        return found

    def _source(self, planned: _Planned, pictures: _Pictures, seconds: float) -> Source:
        shown = planned.shown
        assert shown is not None
        pixels, resized = _compose(shown, pictures, planned.sizes[shown.item.video])
        if shown.jpeg is not None:
            pixels = _reencoded(pixels, shown.jpeg)
        told = (f"resized_foil: {resized} pictures of another size made equal",) if resized else ()
        return Source(
            item=shown.item,
            frames=Frames(pixels, shown.selection),
            native_size=planned.native_size,
            decode_seconds=seconds,
            form=shown.form,
            jpeg=shown.jpeg,
            frame_pixels=shown.frame_pixels,
            notices=(*shown.notices, *told),
            foil=shown.foil,
            measures=shown.measures,
            seconds=shown.seconds,
        )


def _reencoded(
    pixels: UInt8[np.ndarray, "slot height width 3"], quality: int
) -> UInt8[np.ndarray, "slot height width 3"]:
    """Each picture encoded as JPEG and decoded again."""
    seen = np.empty_like(pixels)
    for slot, picture in enumerate(pixels):
        buffer = io.BytesIO()
        Image.fromarray(picture).save(buffer, format="JPEG", quality=quality)
        seen[slot] = np.asarray(Image.open(buffer))
    return seen


def _compose(
    shown: Shown, pictures: _Pictures, size: Size
) -> tuple[UInt8[np.ndarray, "slot height width 3"], int]:
    """The selection's pictures, blank ones grey, and how many of another video were resized."""
    slots = shown.selection.slots
    own = pictures.get(shown.item.video)
    if own is not None and len(pictures) == 1 and np.array_equal(shown.selection.frame_indices, own[0]):
        return own[1], 0  # pairs that show all that was read share it
    height, width = size
    pixels = np.full((len(slots), height, width, 3), GREY, dtype=np.uint8)
    resized = 0
    for path in {shown.sources.get(slot.source, shown.item.video) for slot in slots if slot.source != BLANK}:
        numbers, read = pictures[path]
        places = [
            place
            for place, slot in enumerate(slots)
            if slot.source != BLANK and shown.sources.get(slot.source, shown.item.video) == path
        ]
        rows = np.searchsorted(numbers, [slots[place].frame_index for place in places])
        if read.shape[1:3] == (height, width):
            pixels[places] = read[rows]
            continue
        resized += len(places)
        for place, row in zip(places, rows, strict=True):
            pixels[place] = np.asarray(Image.fromarray(read[row]).resize((width, height)))
    return pixels, resized
