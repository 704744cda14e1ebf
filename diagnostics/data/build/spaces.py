"""Label spaces: what a wrong option may be.

A space belongs to a source. It is what the track files declare, or else the labels that the source's
procedures use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from diagnostics.data.build.annotations import TRACKS, Procedure

__all__ = ["Labels", "Numbers", "Spaces"]

_LESION_SPACES = {"site": "sites", "size": "sizes", "histology": "histologies"}


@dataclass(frozen=True)
class Labels:
    """Names; `ordered` where neighbours are nearer than others (sizes from small to large)."""

    labels: tuple[str, ...]
    ordered: bool = False


@dataclass(frozen=True)
class Numbers:
    """Numbers a `step` apart, from `lowest` on, written with `unit` behind them."""

    step: float
    lowest: float
    unit: str = ""

    def shown(self, value: float) -> str:
        """`7`, `12.5 mm`."""
        return f"{value:g}{self.unit}"


class Spaces:
    """The label spaces of all sources.

    Args:
        declared: by source and name, as the track files say.
        procedures: whose labels make up the spaces that are not declared.
    """

    def __init__(
        self, declared: Mapping[tuple[str, str], tuple[str, ...]], procedures: Iterable[Procedure]
    ) -> None:
        self._declared = dict(declared)
        used: dict[tuple[str, str], dict[str, None]] = {}
        for procedure in procedures:
            for name, label in _used(procedure):
                used.setdefault((procedure.source, name), {})[label] = None
        self._used = {key: tuple(sorted(labels)) for key, labels in used.items()}

    def declared(self, source: str, name: str) -> tuple[str, ...] | None:
        """The declared labels in their order; None where nobody declared the space."""
        return self._declared.get((source, name))

    def of(self, source: str, name: str) -> Labels:
        """The space: as declared, or the labels in use, sorted."""
        key = source, name
        return Labels(self._declared.get(key, self._used.get(key, ())))


def _used(procedure: Procedure) -> Iterable[tuple[str, str]]:
    for name in TRACKS:
        for label in procedure.track(name).labels:
            yield name, label
    for lesion in procedure.lesions:
        for attribute, value in lesion.attributes.items():
            if isinstance(value, str):
                yield _LESION_SPACES.get(attribute, attribute), value
    for name, value in procedure.labels.items():
        if isinstance(value, str):
            yield name, value
