"""What each item of a planned run shows and asks, from file indices and the processor alone.

No frame is decoded but those of `Calibration`, which times some of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from diagnostics.data.items import Item
from diagnostics.errors import ConfigError, DiagnosticsError, EmptySelectionError, RunError, VideoError
from diagnostics.experiments.context import Context
from diagnostics.experiments.read_ahead import MOST_FRAMES, OneWait
from diagnostics.experiments.showing import Library, Source
from diagnostics.models.backends.shared_prefix import common_prefix
from diagnostics.models.cost import Work
from diagnostics.models.loading import LoadedModel
from diagnostics.models.outline import unseen
from diagnostics.models.prompting import Prompt, prepare_inputs
from diagnostics.video.candidates import candidate_frames, evenly
from diagnostics.video.decode_cost import Coding, pictures_to_decode
from diagnostics.video.index import VideoIndex, size_within
from diagnostics.video.reading import FrameReader
from diagnostics.video.sampling import as_selection, needs_of
from diagnostics.video.selection import Selection

__all__ = [
    "PlannedItem",
    "PlannedVideo",
    "Unplanned",
    "calibrate",
    "plan_videos",
    "prompt_of",
    "rate_at",
    "source_of",
    "stands_in",
]

_TIMED_PICTURES, _TIMED_FRAMES, _TIMED_SIZES = 300, 64, 3
"""Calibration: pictures decoded and frames shown of one video, at most; sizes of video that are timed."""


@dataclass(frozen=True)
class PlannedItem:
    """One item as it will be asked.

    Attributes:
        item: its evidence checked. selection: what it will be shown.
        pictures: to decode for it alone.
        grid: units, rows and columns of patches. patch: pixels along each side of a patch.
        n_visual, n_prompt: tokens.
    """

    item: Item
    selection: Selection
    pictures: int
    frame_size: tuple[int, int]
    grid: tuple[int, int, int]
    patch: int
    n_visual: int
    n_prompt: int

    @property
    def work(self) -> Work:
        """Asked by itself."""
        return Work([self.grid], self.n_prompt)


@dataclass(frozen=True)
class Unplanned:
    """An item that cannot be asked, and why."""

    item_id: str
    video: str
    error: DiagnosticsError


@dataclass(frozen=True)
class PlannedVideo:
    """One video and its items.

    Attributes:
        index: of the file; None where it cannot be read.
        pictures: to decode for all its items together.
        groups: how its items are asked where the prefix is shared.
    """

    index: VideoIndex | None
    coding: Coding = field(default_factory=Coding)
    pictures: int = 0
    items: Sequence[PlannedItem] = ()
    groups: Sequence[Work] = ()
    unplanned: Sequence[Unplanned] = ()


def stands_in(context: Context) -> bool:
    """Whether the sampler looks at pictures, so that evenly spaced frames stand in for its own."""
    return bool(needs_of(context.sampler, context.sampling))


def plan_videos(
    context: Context, loaded: LoadedModel, reader: FrameReader, together: int, advance: Callable[..., None]
) -> Iterator[PlannedVideo]:
    """Each video in order, indexed ahead by the reading processes.

    Args:
        loaded: with a processor that needs no pixels (`outline.without_pixels`).
        together: questions that share a prefix, at most.
        advance: called with a text and a number of items.
    """
    groups = [list(group) for _, group in groupby(context.items, key=lambda item: item.video)]
    plan = _Plan(context, loaded, OneWait(reader), together)
    with ThreadPoolExecutor(context.config.reading.workers) as pool:
        try:
            for group, looked in zip(groups, pool.map(lambda g: _look(reader, g[0]), groups), strict=True):
                yield plan.video(group, looked)
                advance(group[0].video_id[-40:], len(group))
        finally:
            pool.shutdown(cancel_futures=True)


def _look(reader: FrameReader, item: Item) -> tuple[VideoIndex, Coding] | DiagnosticsError:
    try:
        return reader.index(item.video), reader.coding(item.video)
    except VideoError as error:
        return error


class _Plan:
    """Plans one video after the other."""

    def __init__(self, context: Context, loaded: LoadedModel, reader: OneWait, together: int) -> None:
        self._context, self._loaded, self._together = context, loaded, together
        self._library = Library(context, reader)
        self._guessed = stands_in(context)

    def video(
        self, items: Sequence[Item], looked: tuple[VideoIndex, Coding] | DiagnosticsError
    ) -> PlannedVideo:
        """One video; items that cannot be asked are named and the others planned."""
        if isinstance(looked, DiagnosticsError):
            unplanned = [Unplanned(item.id, str(item.video), looked.about(item.id)) for item in items]
            return PlannedVideo(None, unplanned=unplanned)
        index, coding = looked
        planned: list[PlannedItem] = []
        inputs: list[dict[str, Any]] = []
        refused: list[Unplanned] = []
        for item in items:
            try:
                one, prompt = self._item(item, index, coding)
            except DiagnosticsError as error:
                if isinstance(error, RunError):
                    raise
                refused.append(Unplanned(item.id, str(item.video), error.about(item.id)))
                continue
            planned.append(one)
            inputs.append({"input_ids": prompt.inputs["input_ids"]})
        return PlannedVideo(
            index,
            coding,
            self._pictures(index, coding, planned),
            planned,
            self._works(planned, inputs),
            refused,
        )

    def _item(self, item: Item, index: VideoIndex, coding: Coding) -> tuple[PlannedItem, Prompt]:
        item = self._library.checked(item)
        selection = self._selection(item, index)
        size = size_within(index, self._context.config.reading.max_side)
        prompt = prompt_of(self._context, self._loaded, item, selection, size)
        units, rows, cols = prompt.grids[0]
        planned = PlannedItem(
            item=item,
            selection=selection,
            pictures=_pictures(
                index, coding, set(selection.frame_indices.tolist()), self._candidates(item, index)
            ),
            frame_size=size,
            grid=(units, rows, cols),
            patch=int(self._loaded.processor.video_processor.patch_size),
            n_visual=prompt.n_visual,
            n_prompt=prompt.n_tokens,
        )
        return planned, prompt

    def _selection(self, item: Item, index: VideoIndex) -> Selection:
        if not self._guessed:
            return self._library.select(item)
        frames = np.array(sorted(self._candidates(item, index)), dtype=np.int64)
        if not len(frames):
            raise EmptySelectionError(
                "there is no candidate frame.", remedy="Check the item's clip.", path=index.path
            )
        budget = self._context.sampling.budget
        return as_selection(index, item, frames[evenly(len(frames), budget)], "evenly spaced", budget)

    def _candidates(self, item: Item, index: VideoIndex) -> set[int]:
        """Frames that a sampler looks at before it chooses."""
        if not self._guessed:
            return set()
        sampling = self._context.sampling
        rate, most = getattr(sampling, "candidate_fps", None), getattr(sampling, "max_candidates", None)
        return set(candidate_frames(index, rate, most, item.clip).tolist())

    def _pictures(self, index: VideoIndex, coding: Coding, items: Sequence[PlannedItem]) -> int:
        shown = {frame for one in items for frame in one.selection.frame_indices.tolist()}
        looked_at = {frame for one in items for frame in self._candidates(one.item, index)}
        return _pictures(index, coding, shown, looked_at)

    def _works(self, planned: Sequence[PlannedItem], inputs: Sequence[dict[str, Any]]) -> list[Work]:
        """Neighbours shown the same frames go together, so many at most."""
        works: list[Work] = []
        pairs = list(zip(planned, inputs, strict=True))
        for _, alike in groupby(pairs, key=lambda pair: (pair[0].selection, pair[0].grid)):
            group = list(alike)
            for start in range(0, len(group), self._together):
                works.append(self._work(group[start : start + self._together]))
        return works

    def _work(self, group: Sequence[tuple[PlannedItem, dict[str, Any]]]) -> Work:
        first = group[0][0]
        if len(group) == 1:
            return first.work
        prefix = common_prefix(self._loaded, [inputs for _, inputs in group])
        return Work([first.grid], prefix, [one.n_prompt - prefix for one, _ in group], len(group))


def prompt_of(
    context: Context, loaded: LoadedModel, item: Item, selection: Selection, size: tuple[int, int]
) -> Prompt:
    """The prompt of an item whose pictures nobody has read.

    Raises:
        ControlTokenError, PromptTooLongError: see `prompting.prepare_inputs`.
    """
    backend = context.config.backend
    return prepare_inputs(
        loaded,
        item,
        unseen(selection, *size),
        instruction=backend.instruction,
        max_new_tokens=backend.max_new_tokens,
    )


def source_of(one: PlannedItem, index: VideoIndex) -> Source:
    """The item with its frames as they would be read."""
    return Source(one.item, unseen(one.selection, *one.frame_size), (index.height, index.width), np.pi / 100)


def _pictures(index: VideoIndex, coding: Coding, shown: set[int], looked_at: set[int]) -> int:
    """Pictures to decode, by requests of the size that a run makes."""
    total = 0
    for frames in (shown, looked_at):
        ordered = sorted(frames)
        for start in range(0, len(ordered), MOST_FRAMES):
            total += pictures_to_decode(index, ordered[start : start + MOST_FRAMES], coding)
    return total


def calibrate(reader: FrameReader, videos: Sequence[PlannedVideo]) -> dict[tuple[int, int], float]:
    """Pictures that this machine decodes a second, on one core, by height and width of the video.

    Frames of the run's own selections are read, of one video of each of the commonest sizes. Videos of other
    sizes are taken to be as fast by the pixel as the nearest of those (`rate_at`).

    Raises:
        ConfigError: none of the videos could be decoded.
    """
    by_size: dict[tuple[int, int], list[PlannedVideo]] = {}
    for video in videos:
        if video.index is not None and video.items:
            by_size.setdefault((video.index.height, video.index.width), []).append(video)
    common = sorted(by_size.items(), key=lambda entry: -len(entry[1]))
    rates: dict[tuple[int, int], float] = {}
    for size, alike in common:
        if len(rates) == _TIMED_SIZES:
            break
        rate = next((found for video in alike[:3] if (found := _rate(reader, video)) is not None), None)
        if rate is not None:
            rates[size] = rate
    if not rates:
        raise ConfigError(
            "None of the videos tried could be decoded, so that decoding cannot be timed.",
            remedy="Run +exp=check to see what is wrong with them, or set exp.calibrate=false.",
        )
    return rates


def rate_at(rates: dict[tuple[int, int], float], size: tuple[int, int]) -> float:
    """Pictures a second at a size, by the pixel from the nearest size that was timed."""
    pixels = size[0] * size[1]
    nearest = min(rates, key=lambda known: abs(np.log(known[0] * known[1] / pixels)))
    return rates[nearest] * nearest[0] * nearest[1] / pixels


def _rate(reader: FrameReader, video: PlannedVideo) -> float | None:
    assert video.index is not None
    index = video.index
    frames = sorted({frame for one in video.items for frame in one.selection.frame_indices.tolist()})
    taken: list[int] = []
    for frame in frames[:_TIMED_FRAMES]:
        if taken and pictures_to_decode(index, [*taken, frame], video.coding) > _TIMED_PICTURES:
            break
        taken.append(frame)
    try:
        reader.read(index.path, taken[:1])  # the process starts, the file comes into the system's memory
        started = time.perf_counter()
        reader.read(index.path, taken)
        seconds = time.perf_counter() - started
    except VideoError:
        return None
    return pictures_to_decode(index, taken, video.coding) / seconds
