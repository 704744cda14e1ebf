"""The visual part of a token map: which positions belong to which unit, delimiter and time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from einops import repeat
from jaxtyping import Bool, Float, Int

from hooks.errors import TokenMapError
from hooks.families import Family, VisionIds
from hooks.text_spans import TokenText

__all__ = ["Kind", "Layout", "lay_out"]

_TIME = re.compile(r"<(\d+(?:\.\d+)?) seconds>$")
_LONGEST_TIME = 24  # tokens; "<133200.0 seconds>" is 12 where every digit is one
_REPORT = "The processor and the model disagree: use one checkpoint for both, and report it if you do."


class Kind(IntEnum):
    """What a position of the prompt is."""

    TEXT = 0
    VIDEO = 1
    IMAGE = 2
    DELIMITER = 3
    TIMESTAMP = 4
    PADDING = 5


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


@dataclass(frozen=True, eq=False)
class _Source:
    """One video or image of the sequence."""

    kind: Kind
    grid: tuple[int, int, int]  # units, merged rows, merged columns
    positions: Int[np.ndarray, " token"]
    feature_start: int
    seconds_per_unit: float
    n_frames: int | None


def lay_out(
    family: Family,
    model: Any,
    tokenizer: Any,
    inputs: Mapping[str, Any],
    *,
    row: int,
    n_frames: int | Sequence[int] | None,
) -> Layout:
    """Build and verify the visual part of the map of one sequence; see `token_map`."""
    ids, padding = _sequence(inputs, row)
    vision_ids = family.token_ids(model)
    sources = _sources(family, model, inputs, row, vision_ids, n_frames)
    kind = np.where(padding[row], Kind.PADDING, Kind.TEXT).astype(np.int8)
    unit, place_row, place_col = (np.full(len(ids[row]), -1, dtype=np.int32) for _ in range(3))
    grids: list[tuple[int, int]] = []
    owners, slots, seconds, features = [], [], [], []
    for number, source in enumerate(sources):
        units, rows, cols = source.grid
        size = rows * cols
        kind[source.positions] = source.kind
        unit[source.positions] = len(grids) + np.arange(units, dtype=np.int32).repeat(size)
        place_row[source.positions], place_col[source.positions] = (
            np.tile(place, units) for place in _grid_places(rows, cols)
        )
        slots.append(_slots(source, family.slots_per_unit(model)))
        seconds += [source.seconds_per_unit * index for index in range(units)]
        features += [source.feature_start + index * size for index in range(units)]
        grids += [(rows, cols)] * units
        owners += [number] * units
    layout = Layout(
        input_ids=ids[row],
        kind=kind,
        unit=unit,
        row=place_row,
        col=place_col,
        unit_grid=np.array(grids, dtype=np.int64).reshape(-1, 2),
        unit_source=np.array(owners, dtype=np.int64),
        unit_slots=np.concatenate([np.empty((0, family.slots_per_unit(model)), dtype=np.int64), *slots]),
        unit_shown_seconds=np.array(seconds, dtype=np.float64),
        unit_feature_start=np.array(features, dtype=np.int64),
    )
    _check_types(layout, inputs, row)
    for number, source in enumerate(sources):
        _mark_surroundings(family, tokenizer, layout, number, source, vision_ids)
    return layout


def _grid_places(rows: int, cols: int) -> tuple[Int[np.ndarray, " token"], Int[np.ndarray, " token"]]:
    """Row and column of each token of one unit: tokens are row-major after the merger."""
    row = repeat(np.arange(rows, dtype=np.int32), "row -> (row col)", col=cols)
    col = repeat(np.arange(cols, dtype=np.int32), "col -> (row col)", row=rows)
    return row, col


def _array(value: Any) -> np.ndarray:
    """A tensor on any device, or a list, as a NumPy array."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def _sequence(
    inputs: Mapping[str, Any], row: int
) -> tuple[Int[np.ndarray, "batch position"], Bool[np.ndarray, "batch position"]]:
    """All token ids, and which of them are padding, with the padding checked to be on the left."""
    ids = np.atleast_2d(_array(inputs["input_ids"])).astype(np.int64)
    if not 0 <= row < len(ids):
        raise TokenMapError(f"Row {row} of a batch of {len(ids)} was asked for.", remedy="Count rows from 0.")
    mask = inputs.get("attention_mask")
    padding = np.zeros(ids.shape, dtype=bool) if mask is None else np.atleast_2d(_array(mask)) == 0
    count = int(padding[row].sum())
    if padding[row][count:].any():
        raise TokenMapError(
            f"{count} padding tokens of row {row} are not all on the left.",
            remedy='Set tokenizer.padding_side = "left" before batching.',
        )
    return ids, padding


def _sources(
    family: Family,
    model: Any,
    inputs: Mapping[str, Any],
    row: int,
    vision_ids: VisionIds,
    n_frames: int | Sequence[int] | None,
) -> list[_Source]:
    """The videos and images of the sequence in prompt order, each with its positions."""
    ids, padding = _sequence(inputs, row)
    merge = family.merge_size(model)
    found: list[_Source] = []
    for kind, token, grid_name in (
        (Kind.VIDEO, vision_ids.video, "video_grid_thw"),
        (Kind.IMAGE, vision_ids.image, "image_grid_thw"),
    ):
        grids = inputs.get(grid_name)
        grids = np.empty((0, 3), dtype=np.int64) if grids is None else _array(grids).astype(np.int64)
        if (grids[:, 1:] % merge).any():
            raise TokenMapError(
                f"{grid_name} {grids.tolist()} does not divide by the merge size {merge}.", remedy=_REPORT
            )
        merged = grids // np.array([1, merge, merge])
        counts = ((ids == token) & ~padding).sum(axis=1)
        first, after = _grids_of_row(counts, merged, row, grid_name)
        starts = np.cumsum(merged.prod(axis=1)) - merged.prod(axis=1)
        positions = np.flatnonzero((ids[row] == token) & ~padding[row])
        edges = np.cumsum(merged[first:after].prod(axis=1))[:-1]
        parts = np.split(positions, edges) if after > first else []
        frames = _frames(n_frames, after - first) if kind is Kind.VIDEO else [1] * (after - first)
        for number, part in zip(range(first, after), parts, strict=True):
            found.append(
                _Source(
                    kind=kind,
                    grid=(int(merged[number][0]), int(merged[number][1]), int(merged[number][2])),
                    positions=part,
                    feature_start=int(starts[number]),
                    seconds_per_unit=_seconds_per_unit(family, inputs, kind, number),
                    n_frames=frames[number - first],
                )
            )
    return sorted(found, key=lambda source: int(source.positions[0]))


def _grids_of_row(
    counts: Int[np.ndarray, " batch"], grids: Int[np.ndarray, "source 3"], row: int, name: str
) -> tuple[int, int]:
    """First and one-past-last grid of a row: grids come in batch order, so tokens are counted off."""
    sizes = grids.prod(axis=1)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    through = np.concatenate([[0], np.cumsum(counts)])
    if ends[-1] != through[-1]:
        raise TokenMapError(
            f"The prompt holds {through[-1]} placeholders for {name}, the grids {grids.tolist()} (merged)"
            f" give {ends[-1]}.",
            remedy=_REPORT + " A prompt truncated by the tokenizer has this fault too.",
        )
    borders = np.searchsorted(ends, through)
    wrong = np.flatnonzero(ends[borders] != through)
    if len(wrong):
        raise TokenMapError(
            f"Rows 0 to {wrong[0] - 1} hold {through[wrong[0]]} placeholders for {name}, which no number of"
            f" whole grids {grids.tolist()} (merged) gives.",
            remedy=_REPORT,
        )
    return int(borders[row]), int(borders[row + 1])


def _frames(n_frames: int | Sequence[int] | None, videos: int) -> list[int | None]:
    if n_frames is None:
        return [None] * videos
    given: list[int | None] = [n_frames] if isinstance(n_frames, int) else list(n_frames)
    if len(given) != videos:
        raise TokenMapError(
            f"n_frames has {len(given)} entries for {videos} videos.", remedy="Give one number a video."
        )
    return given


def _seconds_per_unit(family: Family, inputs: Mapping[str, Any], kind: Kind, number: int) -> float:
    """Seconds between units where the model is told them beside the text; NaN where it is not."""
    told = inputs.get("second_per_grid_ts")
    if kind is not Kind.VIDEO or family.tells_time or told is None:
        return float("nan")
    return float(_array(told).reshape(-1)[number])


def _slots(source: _Source, per_unit: int) -> Int[np.ndarray, "unit slot"]:
    """Which of the source's frames fill each unit's slots."""
    units = source.grid[0]
    frames = units * per_unit if source.n_frames is None else source.n_frames
    if -(-frames // per_unit) != units:
        raise TokenMapError(
            f"{frames} frames make {-(-frames // per_unit)} units of {per_unit}, the grid has {units}.",
            remedy="The processor sampled frames again: pass do_sample_frames=False and full video metadata.",
        )
    slots = np.arange(units * per_unit, dtype=np.int64)
    return np.where(slots < frames, slots, -1).reshape(units, per_unit)


def _check_types(layout: Layout, inputs: Mapping[str, Any], row: int) -> None:
    """Cross-check with the processor's own account of token types, where it gives one."""
    types = inputs.get("mm_token_type_ids")
    if types is None:
        return
    given = np.atleast_2d(_array(types))[row]
    for kind, code in ((Kind.IMAGE, 1), (Kind.VIDEO, 2)):
        wrong = np.flatnonzero((given == code) != (layout.kind == kind))
        if len(wrong):
            raise TokenMapError(
                f"mm_token_type_ids disagrees with the placeholders about {kind.name.lower()} at"
                f" {len(wrong)} positions, the first {wrong[0]}.",
                remedy=_REPORT,
            )


def _mark_surroundings(
    family: Family, tokenizer: Any, layout: Layout, number: int, source: _Source, ids: VisionIds
) -> None:
    """Check that units are contiguous, and mark the delimiters and times beside them."""
    apart = family.unit_delimited and source.kind is Kind.VIDEO
    units = np.flatnonzero(layout.unit_source == number).tolist()
    blocks = np.split(source.positions, source.grid[0] if apart else 1)
    for index, block in enumerate(blocks):
        first, last = int(block[0]), int(block[-1])
        name = f"unit {units[index]}" if apart else f"source {number}"
        if last - first + 1 != len(block):
            raise TokenMapError(
                f"The {len(block)} tokens of {name} are spread over positions {first} to {last}.",
                remedy=_REPORT,
            )
        _mark_delimiter(layout, first - 1, ids.start, units[index], name)
        _mark_delimiter(layout, last + 1, ids.end, units[index if apart else -1], name)
        if apart and family.tells_time:
            _mark_time(tokenizer, layout, first - 1, units[index])
    if apart:
        _mark_outer_pair(layout, units, source, ids)


def _mark_delimiter(layout: Layout, position: int, token: int, unit: int, name: str) -> None:
    found = int(layout.input_ids[position]) if 0 <= position < len(layout.input_ids) else None
    if found != token:
        raise TokenMapError(
            f"Position {position} beside {name} holds token {found}, not the delimiter {token}.",
            remedy=_REPORT,
        )
    layout.kind[position], layout.unit[position] = Kind.DELIMITER, unit


def _mark_time(tokenizer: Any, layout: Layout, before: int, unit: int) -> None:
    """Mark the tokens of `<t seconds>` that end right before a position, and read the time."""
    begin = max(0, before - _LONGEST_TIME)
    text = TokenText.decode(tokenizer, layout.input_ids[begin:before].tolist())
    match = _TIME.search(text.text)
    if match is None:
        raise TokenMapError(
            f"No time stands before unit {unit} at position {before}: {text.text[-40:]!r}.",
            remedy="Build the prompt with the checkpoint's own processor and video metadata.",
        )
    positions = begin + text.tokens(*match.span())
    layout.kind[positions], layout.unit[positions] = Kind.TIMESTAMP, unit
    layout.unit_shown_seconds[unit] = float(match.group(1))


def _mark_outer_pair(layout: Layout, units: list[int], source: _Source, ids: VisionIds) -> None:
    """Mark the pair around the whole video where the stack keeps one (transformers >= 5.10.1)."""
    first = int(np.flatnonzero(layout.unit == units[0])[0]) - 1
    last = int(source.positions[-1]) + 2
    opens = first >= 0 and layout.input_ids[first] == ids.start
    closes = last < len(layout.input_ids) and layout.input_ids[last] == ids.end
    if opens and closes:
        layout.kind[[first, last]] = Kind.DELIMITER
        layout.unit[[first, last]] = units[0], units[-1]
