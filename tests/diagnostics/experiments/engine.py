"""The shared engine in this process: a run's context, and a reader that only pretends."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from diagnostics.config import run_config
from diagnostics.data.items import Item
from diagnostics.experiments.context import Context
from diagnostics.experiments.pairs import Pair
from diagnostics.experiments.read_ahead import ReadAhead
from diagnostics.experiments.showing import Library, Show, Shown, Source
from diagnostics.store.run_folder import RunFolder
from diagnostics.video.index import VideoIndex
from diagnostics.video.sampling import load_sampler
from diagnostics.video.selection import Slot

__all__ = ["PretendReader", "item_of", "open_context", "shown_by_frames", "slots_of", "walked"]


@contextmanager
def open_context(
    folder: Path, items: Sequence[Item], *, model: str = "tiny_random", budget: int = 8, **reading: Any
) -> Iterator[Context]:
    """A run of `items` with uniform frames, as `diagnostics.run.execute` makes it."""
    values: dict[str, Any] = {
        "exp": {"name": "temporal_order"},
        "model": {"name": Path(model).name, "path": model, "dtype": "float32", "device": "cpu"},
        "data": {"name": "mine"},
        "sampling": {"rule": "uniform", "budget": budget},
        "backend": {"max_new_tokens": 1},
        "reading": reading,
        "out": None,
        "threads": 1,
    }
    config, sampler = run_config(values), load_sampler("uniform")
    with RunFolder.open(folder, config.resolved, config.hash) as opened:
        yield Context(config, items, (), sampler, sampler.Config(budget=budget), opened, Console(quiet=True))


def item_of(video: Path, name: str = "q", **changes: Any) -> Item:
    return replace(Item(name, video, video.name, "What is shown?", ("red", "blue"), "A"), **changes)


def slots_of(source: str, frames: Sequence[int], fps: float = 10.0) -> tuple[Slot, ...]:
    return tuple(Slot(source, frame, frame / fps, frame / fps) for frame in frames)


def shown_by_frames(pair: Pair, library: Library) -> Shown:
    """A `Show` of conditions that name their frames: `{"frames": [...]}`."""
    item = library.checked(pair.item)
    slots = slots_of(item.video_id, pair.condition["frames"])
    return Shown(item, replace(library.uniform(item, 1), slots=slots, requested=len(slots)))


class PretendReader:
    """A reader whose frame `n` is all of one grey, `n % 251`; it counts what it was asked and what lives on.

    Args:
        n_frames: of every video.
        size: height and width.
        before: called with path and frames before each read; may wait, or raise.
    """

    reader = "pretend"
    max_side: int | None = None

    def __init__(
        self,
        n_frames: int = 1000,
        size: tuple[int, int] = (8, 8),
        before: Callable[[Path, list[int]], None] = lambda path, frames: None,
    ) -> None:
        self.n_frames, self.size, self.before = n_frames, size, before
        self.asked: list[tuple[Path, list[int]]] = []
        self.held = self.most_held = 0
        self._lock = threading.Lock()

    def index(self, path: Path) -> VideoIndex:
        pts = np.arange(self.n_frames)
        return VideoIndex(
            path=str(path), pts=pts, time_base=Fraction(1, 10), seconds=pts / 10, fps=10.0,
            duration=self.n_frames / 10, width=self.size[1], height=self.size[0], rotation=0, codec="h264",
            container="mov", reliable=True, key_pts=pts, key_seek=pts, open_gop=False,
            header_frames=self.n_frames,
        )  # fmt: skip

    def read(self, path: Path, indices: Any, *, keep: bool = True) -> np.ndarray:
        frames = np.asarray(indices).tolist()
        self.asked.append((path, frames))
        self.before(path, frames)
        pixels = np.empty((len(frames), *self.size, 3), np.uint8)
        pixels[:] = np.array(frames)[:, None, None, None] % 251
        with self._lock:
            self.held += pixels.nbytes
            self.most_held = max(self.most_held, self.held)
        weakref.finalize(pixels, self._let_go, pixels.nbytes)
        return pixels

    def _let_go(self, nbytes: int) -> None:
        with self._lock:
            self.held -= nbytes


def walked(
    context: Context, reader: Any, pairs: Sequence[Pair], show: Show, workers: int = 1
) -> Iterator[tuple[Pair, Source | Exception]]:
    """Each pair with what `ReadAhead` gives for it; let go of before the next is asked for."""
    with (
        ThreadPoolExecutor(workers) as pool,
        closing(ReadAhead(context, reader, pool, show).walk(pairs)) as walk,
    ):
        for pair, fetch in walk:
            try:
                found: Source | Exception = fetch()
            except Exception as error:  # noqa: BLE001 - what a pair failed with is what is looked at
                found = error
            del fetch
            yield pair, found
            del found
