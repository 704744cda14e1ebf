"""The visual part of a token map: which positions belong to which unit, delimiter and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from hooks.errors import TokenMapError
from hooks.families import Family, Kind, Source
from hooks.families._sources import REPORT, sequence

__all__ = ["Kind", "Layout", "lay_out"]


@dataclass(frozen=True, eq=False)
class Layout:
    """Arrays of `TokenMap` that do not depend on the question; described there."""

    input_ids: Int[np.ndarray, " position"]
    kind: Int[np.ndarray, " position"]
    unit: Int[np.ndarray, " position"]
    row: Int[np.ndarray, " position"]
    col: Int[np.ndarray, " position"]
    unit_grid: Int[np.ndarray, "unit 2"]
    unit_source: Int[np.ndarray, " unit"]
    unit_slots: Int[np.ndarray, "unit slot"]
    unit_shown_seconds: Float[np.ndarray, " unit"]
    unit_feature_start: Int[np.ndarray, " unit"]
    feature: Int[np.ndarray, " position"]
    two_way: Int[np.ndarray, " position"]


def lay_out(
    family: Family,
    model: Any,
    processor: Any,
    inputs: Mapping[str, Any],
    *,
    row: int,
    n_frames: int | Sequence[int] | None,
) -> Layout:
    """Build the visual part of the map of one sequence from what its family found, and verify it.

    Whatever the family: no position is claimed twice, every placeholder is claimed, tokens lie inside their
    unit's grid, and units follow one another.

    Raises:
        TokenMapError: the family refuses the prompt, or one of these does not hold.
    """
    ids, padding = sequence(inputs, row)
    sources = sorted(
        family.sources(model, processor, inputs, row, n_frames), key=lambda source: _first_position(source)
    )
    length = len(ids[row])
    kind = np.where(padding[row], Kind.PADDING, Kind.TEXT).astype(np.int8)
    unit, place_row, place_col = (np.full(length, -1, dtype=np.int32) for _ in range(3))
    feature = np.full(length, -1, dtype=np.int64)
    claimed = np.zeros(length, dtype=np.int64)
    per_unit = family.slots_per_unit(model)
    grids: list[tuple[int, int]] = []
    owners, slots, seconds, features = [], [], [], []
    number = -1
    for source in sources:
        begin = len(grids)
        number += bool(source.units)  # sounds are not counted among videos and images
        for one in source.units:
            _check_unit(one, per_unit, len(grids))
            at = one.positions
            kind[at], unit[at], place_row[at], place_col[at] = source.kind, len(grids), one.row, one.col
            feature[at] = one.feature_start + (np.arange(len(at)) if one.features is None else one.features)
            np.add.at(claimed, at, 1)
            grids.append(one.grid)
            owners.append(number)
            slots.append(one.slots)
            seconds.append(one.shown_seconds)
            features.append(one.feature_start)
        for mark in source.marks:
            kind[mark.positions] = mark.kind
            unit[mark.positions] = begin + mark.unit if source.units else -1
            np.add.at(claimed, mark.positions, 1)
    _check_cover(family, model, ids[row], kind, unit, claimed)
    two_way = family.two_way(model, inputs, row)
    return Layout(
        input_ids=ids[row],
        kind=kind,
        unit=unit,
        row=place_row,
        col=place_col,
        unit_grid=np.array(grids, dtype=np.int64).reshape(-1, 2),
        unit_source=np.array(owners, dtype=np.int64),
        unit_slots=np.array(slots, dtype=np.int64).reshape(-1, per_unit),
        unit_shown_seconds=np.array(seconds, dtype=np.float64),
        unit_feature_start=np.array(features, dtype=np.int64),
        feature=feature,
        two_way=np.full(length, -1, dtype=np.int32) if two_way is None else two_way.astype(np.int32),
    )


def _first_position(source: Source) -> int:
    parts = [*(unit.positions for unit in source.units), *(mark.positions for mark in source.marks)]
    return min(int(part.min()) for part in parts if len(part))


def _check_unit(one: Any, per_unit: int, number: int) -> None:
    rows, cols = one.grid
    inside = (one.row >= 0) & (one.row < rows) & (one.col >= 0) & (one.col < cols)
    if not len(one.positions) or not bool(inside.all()) or bool((np.diff(one.positions) <= 0).any()):
        raise TokenMapError(
            f"Unit {number} has {len(one.positions)} tokens that do not lie in its grid of {rows} x {cols} in"
            " prompt order.",
            remedy=REPORT,
        )
    if len(one.slots) != per_unit:
        raise TokenMapError(
            f"Unit {number} shows {len(one.slots)} frames where units show {per_unit}.", remedy=REPORT
        )


def _check_cover(
    family: Family,
    model: Any,
    ids: Int[np.ndarray, " position"],
    kind: Int[np.ndarray, " position"],
    unit: Int[np.ndarray, " position"],
    claimed: Int[np.ndarray, " position"],
) -> None:
    twice = np.flatnonzero(claimed > 1)
    if len(twice):
        raise TokenMapError(
            f"{len(twice)} positions belong to two units or delimiters, the first {twice[0]}.", remedy=REPORT
        )
    stands = np.isin(ids, list(family.placeholders(model).values())) & (kind != Kind.PADDING)
    missed = np.flatnonzero(stands & (claimed == 0))
    if len(missed):
        raise TokenMapError(
            f"{len(missed)} placeholders belong to no video, image or sound, the first at position "
            f"{missed[0]}.",
            remedy=REPORT,
        )
    visual = (kind == Kind.VIDEO) | (kind == Kind.IMAGE)
    if bool((np.diff(unit[visual]) < 0).any()):
        raise TokenMapError("The tokens of two units are mixed in the prompt.", remedy=REPORT)
