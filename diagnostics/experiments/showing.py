"""What each pair shows the model, and what a recipe may look at to say so.

A recipe says what a pair shows (`Show`); reading it is done for it (`read_ahead`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnostics.data.items import Item
from diagnostics.data.validation import check_evidence
from diagnostics.models.prompting import Form, video_size
from diagnostics.video.index import VideoIndex
from diagnostics.video.relevance.signals import Signals
from diagnostics.video.sampling import Sampler, select_frames, uniform
from diagnostics.video.selection import Frames, Selection

if TYPE_CHECKING:
    from diagnostics.experiments.context import Context
    from diagnostics.experiments.pairs import Pair
    from diagnostics.experiments.read_ahead import OneWait

__all__ = ["Library", "Show", "Shown", "Source", "as_sampled", "nothing"]


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

    def __init__(self, context: Context, reader: OneWait) -> None:
        self._context, self._reader = context, reader
        self._signals = Signals(reader, items=context.items)

    @property
    def frames_per_unit(self) -> int:
        """How many frames the model takes as one temporal unit."""
        loaded = self._context.model
        return loaded.family.slots_per_unit(loaded.model)

    def frame_pixels(self, n_frames: int) -> int | None:
        """Pixels that the checkpoint's own budget leaves each of `n_frames` frames; None where it does not
        depend on their number."""
        loaded = self._context.model
        return loaded.family.pixels_left(n_frames, video_size(loaded.processor))

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
