"""What other runs measured of the same frames, shown on the same axis: effects beside attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from diagnostics.report.page.answers import in_words
from diagnostics.store import Record, find_runs, read_manifests, read_records

__all__ = ["OtherRun", "beside_of"]


@dataclass(frozen=True)
class OtherRun:
    """Another run whose measurements are shown beside those of the page's own.

    Attributes:
        folder: its folder.
        words: how the page names it: experiment and model.
        settings: its experiment's configuration.
    """

    folder: Path
    words: str
    settings: Mapping[str, Any]

    @cached_property
    def _measured(self) -> Mapping[str, Sequence[Record]]:
        found: dict[str, list[Record]] = {}
        for record in read_records(self.folder):
            if record.error is None and record.tensor_file is not None:
                found.setdefault(record.item_id, []).append(record)
        return found

    def of(self, record: Record) -> Iterator[Record]:
        """Its measurements of the same item that showed the model the same frames, told the same times."""
        for other in self._measured.get(record.item_id, ()):
            if record.slots and _frames(other) == _frames(record):
                yield other

    def told(self, records: Sequence[Record]) -> str:
        """How many of the page's measurements it says something of."""
        known = sum(next(self.of(record), None) is not None for record in records)
        count = f"{known:,} of {len(records):,} measurements"
        return f"{self.words}, {self.folder}: of {count}, shown the same frames"


def _frames(record: Record) -> list[tuple[str, int, float]]:
    return [(slot.source, slot.frame_index, slot.shown_seconds) for slot in record.slots]


def beside_of(folders: Sequence[str]) -> list[OtherRun]:
    """The runs in these folders.

    Raises:
        ForeignFolderError: one leads to no run.
    """
    found = []
    for path in find_runs(folders):
        manifest = read_manifests(path)[0]
        model = manifest.config.get("model", {}).get("name")
        words = in_words(manifest.experiment) + (f" of {model}" if model else "")
        found.append(OtherRun(path, words, manifest.config.get("exp", {})))
    return found
