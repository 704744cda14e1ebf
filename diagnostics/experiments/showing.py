"""What each pair shows the model, and reading it: every frame of a video once, whatever asks for it.

A recipe says what a pair shows (`Show`). Pairs of one video are planned together, the union of their
frames is read at once, ahead of the model, and each pair's pictures are taken out of it.
"""

from __future__ import annotations

import io
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image

from diagnostics.data.items import Item
from diagnostics.data.validation import check_evidence
from diagnostics.errors import DiagnosticsError, ReaderTimeoutError
from diagnostics.video.index import VideoIndex, size_within
from diagnostics.video.perturb import GREY
from diagnostics.video.reading import FrameReader
from diagnostics.video.relevance.signals import Signals
from diagnostics.video.sampling import Sampler, select_frames, uniform
from diagnostics.video.selection import BLANK, Frames, Selection

if TYPE_CHECKING:
    from diagnostics.experiments.context import Context
    from diagnostics.experiments.pairs import Pair

__all__ = ["Form", "Library", "ReadAhead", "Show", "Shown", "Source", "as_sampled", "nothing"]

Form = Literal["video", "images", "nothing"]

_MOST_BYTES = 2 << 30
"""Pictures held for one group of pairs; what needs more is read in parts."""


@dataclass(frozen=True)
class Shown:
    """What a pair shows and asks.

    Attributes:
        item: what is asked: the pair's item, its evidence checked against the video, or a changed one.
        selection: the slots, in order; none where the model is shown nothing.
        form: whether the slots make a video, separate images, or nothing.
        sources: the file of each `Slot.source` that is not the item's own video.
        jpeg: quality of a JPEG encoding that pictures go through, a change that means nothing; or None.
        frame_pixels: most pixels of each frame, instead of the checkpoint's own budget (`prepare_inputs`).
        notices: what could not be done as asked, as `kind: details`, for the record.
        foil: letter of an option that what is shown speaks for, although it is wrong; or None.
        measures: numbers known before the model is asked (of the selection), for the record.
        seconds: time that was spent on choosing, by what for.
    """

    item: Item
    selection: Selection
    form: Form = "video"
    sources: Mapping[str, Path] = field(default_factory=dict)
    jpeg: int | None = None
    frame_pixels: int | None = None
    notices: tuple[str, ...] = ()
    foil: str | None = None
    measures: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """What a pair is measured on.

    Attributes:
        item: what is asked, its evidence told in seconds as well as in frames.
        frames: what is shown; no slots where the model is shown nothing.
        native_size: height and width of the file's own pictures, as shown.
        decode_seconds: this pair's part of the time that reading took.
        form: whether the frames are a video, separate images, or nothing.
        jpeg: quality of the JPEG encoding that the pictures went through, or None.
        frame_pixels: most pixels of each frame, or None for the checkpoint's own budget.
        notices: what could not be done as asked.
        foil: letter of an option that what is shown speaks for, although it is wrong; or None.
        measures: numbers of the selection.
        seconds: time that was spent on choosing, by what for.
    """

    item: Item
    frames: Frames
    native_size: tuple[int, int]
    decode_seconds: float
    form: Form = "video"
    jpeg: int | None = None
    frame_pixels: int | None = None
    notices: tuple[str, ...] = ()
    foil: str | None = None
    measures: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


class Library:
    """What a recipe may look at before it decides what to show: indices and the run's own sampler."""

    def __init__(self, context: Context, reader: FrameReader) -> None:
        self._context, self._reader = context, reader
        self._signals = Signals(reader, items=context.items)
        self._lock = threading.Lock()

    @property
    def frames_per_unit(self) -> int:
        """How many frames the model takes as one temporal unit."""
        with self._lock:  # the model is loaded by whoever asks first
            return int(getattr(self._context.model.processor.video_processor, "temporal_patch_size", 1))

    def frame_pixels(self, n_frames: int) -> int | None:
        """Pixels that the checkpoint's own budget leaves each of `n_frames` frames; None where it does not
        depend on their number."""
        with self._lock:
            loaded = self._context.model
        return loaded.family.pixels_left(n_frames, dict(loaded.processor.video_processor.size))

    def index(self, video: Path) -> VideoIndex:
        """Times and number of a video's frames; raises its `VideoError`."""
        return self._reader.index(video)

    def checked(self, item: Item) -> Item:
        """The item with its evidence checked against the video, in seconds and frames."""
        index = self.index(item.video)
        return check_evidence(item, index.duration, index.n_frames)

    def select(self, item: Item) -> Selection:
        """The run's sampler on a checked item."""
        return self.sample(item, self._context.sampler, self._context.sampling)

    def sample(self, item: Item, sampler: Sampler, parameters: Any) -> Selection:
        """Another sampler on a checked item."""
        return select_frames(sampler, parameters, self.index(item.video), item, self._signals)

    def uniform(self, item: Item, budget: int) -> Selection:
        """`budget` frames evenly spaced over the video."""
        return self.sample(item, uniform, uniform.Config(budget=budget))


Show = Callable[["Pair", Library], Shown]


def as_sampled(pair: Pair, library: Library) -> Shown:
    """The frames that the run's sampler chooses."""
    item = library.checked(pair.item)
    return Shown(item, library.select(item))


def nothing(selection: Selection) -> Selection:
    """No slots, of the same source."""
    return replace(selection, slots=(), rule="nothing", requested=0)


@dataclass(frozen=True)
class _Planned:
    """A pair and what it shows, or why that cannot be said."""

    pair: Pair
    shown: Shown | None
    index: VideoIndex | None
    error: Exception | None = None

    def wanted(self) -> dict[Path, set[int]]:
        """Frames by file."""
        found: dict[Path, set[int]] = {}
        if self.shown is not None:
            for slot in self.shown.selection.slots:
                if slot.source != BLANK:
                    path = self.shown.sources.get(slot.source, self.shown.item.video)
                    found.setdefault(path, set()).add(slot.frame_index)
        return found


_Pictures = dict[Path, tuple[Int[np.ndarray, " n"], UInt8[np.ndarray, "n height width 3"]]]
Fetch = Callable[[], Source]
"""Gives a pair's frames, or raises what went wrong."""


class ReadAhead:
    """Plans and reads the next pairs while the model works.

    Args:
        show: what a pair shows.
        depth: groups of pairs that are read ahead.
    """

    def __init__(self, context: Context, reader: FrameReader, pool: ThreadPoolExecutor, show: Show) -> None:
        self._library = Library(context, reader)
        self._reader, self._pool, self._show = reader, pool, show
        self._max_side = context.config.reading.max_side
        self._depth = context.config.reading.workers + 1

    def walk(self, pairs: Sequence[Pair]) -> Iterator[tuple[Pair, Fetch]]:
        """Each pair with its frames, in order."""
        groups = iter([list(group) for _, group in groupby(pairs, key=lambda pair: pair.item.video)])
        plans: deque[Future[list[list[_Planned]]]] = deque()
        chunks: deque[list[_Planned]] = deque()
        reads: deque[tuple[list[_Planned], Future[list[Fetch]]]] = deque()

        def top_up() -> None:
            while len(plans) < self._depth and (group := next(groups, None)) is not None:
                plans.append(self._pool.submit(self._plan, group))
            while len(reads) < self._depth and (chunks or plans):
                while not chunks and plans:
                    chunks.extend(plans.popleft().result())
                if chunks:
                    chunk = chunks.popleft()
                    reads.append((chunk, self._pool.submit(self._read, chunk)))

        top_up()
        while reads:
            chunk, future = reads.popleft()
            fetches = future.result()
            top_up()
            for planned, fetch in zip(chunk, fetches, strict=True):
                yield planned.pair, fetch

    # -- planning

    def _plan(self, pairs: Sequence[Pair]) -> list[list[_Planned]]:
        """What the pairs of one video show, cut where their pictures together would take too much room."""
        chunks: list[list[_Planned]] = []
        held: dict[Path, set[int]] = {}
        for planned in (self._plan_one(pair) for pair in pairs):
            union = {path: held.get(path, set()) | frames for path, frames in planned.wanted().items()}
            together = held | union
            if not chunks or self._bytes(together) > _MOST_BYTES:
                chunks.append([])
                together = planned.wanted()
            held = together
            chunks[-1].append(planned)
        return chunks

    def _plan_one(self, pair: Pair) -> _Planned:
        try:
            shown = self._show(pair, self._library)
            for path in shown.sources.values():
                self._library.index(path)
            return _Planned(pair, shown, self._library.index(shown.item.video))
        except Exception as error:  # noqa: BLE001 - raised again where the pair's record is written
            return _Planned(pair, None, None, error)

    def _bytes(self, wanted: Mapping[Path, set[int]]) -> int:
        sizes = {path: size_within(self._library.index(path), self._max_side) for path in wanted}
        return sum(len(frames) * 3 * sizes[path][0] * sizes[path][1] for path, frames in wanted.items())

    # -- reading

    def _read(self, chunk: Sequence[_Planned]) -> list[Fetch]:
        """Every frame of the chunk once; where that fails each pair is tried by itself, but for hangs."""
        wanted: dict[Path, set[int]] = {}
        for planned in chunk:
            for path, frames in planned.wanted().items():
                wanted.setdefault(path, set()).update(frames)
        try:
            pictures, seconds = self._read_pictures(wanted)
        except ReaderTimeoutError as error:
            return [_raising(planned.error or error) for planned in chunk]
        except DiagnosticsError as error:
            if len(chunk) == 1:
                return [_raising(chunk[0].error or error)]
            return [fetch for planned in chunk for fetch in self._read([planned])]
        return [self._fetch(planned, pictures, seconds / len(chunk)) for planned in chunk]

    def _read_pictures(self, wanted: Mapping[Path, set[int]]) -> tuple[_Pictures, float]:
        started = time.perf_counter()
        pictures = {}
        for path, frames in wanted.items():
            numbers = np.array(sorted(frames), dtype=np.int64)
            pictures[path] = (numbers, self._reader.read(path, numbers))
        return pictures, time.perf_counter() - started

    def _fetch(self, planned: _Planned, pictures: _Pictures, seconds: float) -> Fetch:
        if planned.error is not None:
            return _raising(planned.error)

        def fetch() -> Source:
            shown, index = planned.shown, planned.index
            assert shown is not None
            assert index is not None
            size = size_within(index, self._max_side)
            pixels, resized = _compose(shown, pictures, size)
            if shown.jpeg is not None:
                pixels = _reencoded(pixels, shown.jpeg)
            notices = shown.notices
            if resized:
                notices = (
                    *notices,
                    f"resized_foil: {resized} pictures of another size made equal",
                )
            return Source(
                item=shown.item,
                frames=Frames(pixels, shown.selection),
                native_size=(index.height, index.width),
                decode_seconds=seconds,
                form=shown.form,
                jpeg=shown.jpeg,
                frame_pixels=shown.frame_pixels,
                notices=notices,
                foil=shown.foil,
                measures=shown.measures,
                seconds=shown.seconds,
            )

        return fetch


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


def _raising(error: Exception) -> Fetch:
    def fetch() -> Source:
        raise error

    return fetch


def _compose(
    shown: Shown, pictures: _Pictures, size: tuple[int, int]
) -> tuple[UInt8[np.ndarray, "slot height width 3"], int]:
    """The selection's pictures, blank ones grey, and how many of another video were resized."""
    slots = shown.selection.slots
    own = pictures.get(shown.item.video)
    if own is not None and len(pictures) == 1 and np.array_equal(shown.selection.frame_indices, own[0]):
        return own[1], 0  # pairs that show all that was read share it
    height, width = own[1].shape[1:3] if own is not None else size
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
