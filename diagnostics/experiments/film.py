"""The film strip of a run: small pictures of what each pair shows, saved while the model works.

No video is decoded again for the page of a run, so that what is saved here is all that a person sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from diagnostics.experiments.showing import Source
from diagnostics.store.canonical import Pair as Key
from diagnostics.store.run_folder import RunFolder
from diagnostics.store.thumbnails import film_slots

__all__ = ["Film", "pictures_of_each", "slots_of"]

_FEWEST = 16
"""Pictures of a pair, however many conditions an item is measured under."""


def pictures_of_each(keys: Sequence[Key], of_an_item: int) -> int:
    """Pictures of one pair: those of an item are shared among its conditions, down to sixteen each."""
    conditions = -(-len(keys) // max(1, len({item for item, _ in keys})))
    return max(min(_FEWEST, of_an_item), of_an_item // max(1, conditions))


class Film:
    """Saves pictures in a thread of its own; use inside `with`.

    Args:
        folder: of the run.
        at_most: pictures of one pair.
    """

    def __init__(self, folder: RunFolder, at_most: int) -> None:
        self._folder, self._at_most = folder, at_most
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="film")

    def __enter__(self) -> Film:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()

    def begin(self, shown: Sequence[tuple[Key, Source]], per_unit: int = 1) -> Future[None]:
        """Start saving the strips of some pairs; older pictures of theirs go.

        Args:
            shown: the pairs, each with what it is shown: questions of one video have evidence of their own.
            per_unit: slots of a temporal unit, where that is known.
        """
        return self._pool.submit(self._save_anew, shown, per_unit)

    @contextmanager
    def saved(self, key: Key, source: Source, per_unit: int) -> Iterator[None]:
        """Save a pair's strip while the block runs; raises `OSError` where the disk does not take it."""
        saving = self.begin([(key, source)], per_unit)
        try:
            yield
        finally:
            saving.result()

    def add(self, key: Key, source: Source, slots: Sequence[int]) -> None:
        """Save the pictures of more slots, those that a measurement found worth it."""
        self._save(key, source, sorted({int(slot) for slot in slots}))

    def _save_anew(self, shown: Sequence[tuple[Key, Source]], per_unit: int) -> None:
        for key, source in shown:
            # An earlier attempt may have shown it something else, in other slots.
            self._folder.remove_thumbnails(*key)
            self._save(key, source, slots_of(source, self._at_most, per_unit))

    def _save(self, key: Key, source: Source, slots: Sequence[int]) -> None:
        if slots:
            self._folder.save_thumbnails(*key, [source.frames.pixels[slot] for slot in slots], slots)


def slots_of(source: Source, at_most: int, per_unit: int = 1) -> list[int]:
    """The slots of a pair's film strip; none where the model is shown nothing."""
    if source.form == "nothing" or not at_most:
        return []
    item = source.item
    evidence = source.frames.selection.holds(item.local_evidence, item.video_id)
    return film_slots(evidence, at_most, per_unit=per_unit)
