"""What an experiment is given: items, sampler, reader settings, run folder, a console."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from diagnostics.config import RunConfig
from diagnostics.data.items import Item
from diagnostics.errors import ItemError
from diagnostics.progress import Advance, Watch
from diagnostics.store.canonical import Pair
from diagnostics.store.run_folder import RunFolder
from diagnostics.threads import set_threads
from diagnostics.video.frame_cache import FrameCache
from diagnostics.video.sampling import Sampler

if TYPE_CHECKING:
    from diagnostics.models.loading import LoadedModel

__all__ = ["Context", "ShardMeasured"]

_log = logging.getLogger(__name__)


class ShardMeasured(Exception):
    """Every pair of this process's shard has its record; the rest of a recipe is about whole runs.

    Raised where the recipe would go on to its summary, caught by `diagnostics.run.execute`.
    """

    def __init__(self, pairs: Collection[Pair]) -> None:
        super().__init__(f"{len(pairs)} pairs")
        self.pairs = frozenset(pairs)


@dataclass(frozen=True)
class Context:
    """One run, as its experiment sees it.

    Attributes:
        config: the whole configuration, converted.
        items: valid items in the order of the data set, grouped by video.
        rejected: items that cannot be measured as written; recorded and counted.
        sampler: the module that selects frames, and `sampling` its converted parameters.
        folder: where everything is written.
        console: where the run's results are printed, and where the person watches.
        complete: nothing may be left to measure: the parts of a run are put together.
        said: what the run has to say beside its results (`say`).
    """

    config: RunConfig
    items: Sequence[Item]
    rejected: Sequence[ItemError]
    sampler: Sampler
    sampling: Any
    folder: RunFolder
    console: Console
    complete: bool = False
    said: list[str] = field(default_factory=list, init=False, repr=False, compare=False)
    _loading: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    @property
    def model(self) -> LoadedModel:
        """The model, loaded when first asked for, from whichever thread: a run with nothing left to do never
        loads it."""
        with self._loading:
            return self._loaded

    @cached_property
    def _loaded(self) -> LoadedModel:
        from diagnostics.models.loading import load_model

        name = self.config.model.name
        _log.info("loading %s", name)
        with self.waiting(f"loading {name}"):
            set_threads(self.config.threads, self.config.reading.workers)
            loaded = load_model(self.config.model)
        self.folder.note("model", loaded.provenance)
        return loaded

    @cached_property
    def frame_cache(self) -> FrameCache | None:
        """Where the run's frames are kept for other runs; None where they are not."""
        reading = self.config.reading
        if reading.cache is None:
            return None
        return FrameCache(Path(reading.cache), reading.cache_gib, self.say)

    def say(self, told: str) -> None:
        """A sentence beside the results: into the log now, and under the closing table at the end."""
        _log.info("%s", told)
        self.said.append(told)

    def tell_frame_cache(self) -> None:
        """Write what the frame cache did into the manifest and on the screen, where it was used."""
        if self.frame_cache is not None and (line := self.frame_cache.line()) is not None:
            self.folder.note("frame_cache", self.frame_cache.told())
            self.say(line)

    @cached_property
    def _watch(self) -> Watch:
        return Watch(self.console, lambda: self.folder.counts.failed)

    def progress(self, task: str, total: int, done: int = 0) -> AbstractContextManager[Advance]:
        """A progress bar; gives a function `advance(now, step)` to call after each pair."""
        return self._watch.bar(task, total, done)

    def waiting(self, what: str) -> AbstractContextManager[None]:
        """Tell the person what the machine waits for while the block runs."""
        return self._watch.waiting(what)
