"""Families whose processor returns a grid (units, rows, columns in patches) for each video and image.

Every video token carries the video placeholder, every image token the image's; a merge window of
`merge_size` patches a side becomes one token; tokens are row-major within a unit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from einops import reduce
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.errors import TokenMapError
from hooks.families._family import Family
from hooks.families._sources import (
    REPORT,
    Kind,
    Mark,
    Source,
    Unit,
    array,
    frames_given,
    full_grid,
    sequence,
    token_id,
)
from hooks.text_spans import TokenText

__all__ = ["GridFamily", "VisionIds", "check_types", "counted_off", "time_before"]

_TIME = re.compile(r"<(\d+(?:\.\d+)?) seconds>$")
_LONGEST_TIME = 24  # tokens; "<133200.0 seconds>" is 12 where every digit is one


@dataclass(frozen=True)
class VisionIds:
    """Token ids of the placeholders and of the delimiters around them."""

    video: int
    image: int
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class _Placed:
    """One video or image of the sequence: its merged grid and where its tokens stand."""

    kind: Kind
    grid: tuple[int, int, int]
    positions: Int[np.ndarray, " token"]
    feature_start: int
    seconds_per_unit: float
    n_frames: int | None


@dataclass(frozen=True)
class GridFamily(Family):
    """The layout shared by the Qwen-VL models.

    Attributes:
        unit_delimited: True where each temporal unit of a video stands between its own pair of
            vision delimiters, False where one pair encloses the whole video.
    """

    unit_delimited: bool = False
    least_frames: int = 2
    units_alone: bool = True

    def token_ids(self, model: Any) -> VisionIds:
        """Placeholder and delimiter ids, from the model's configuration."""
        names = ("video_token_id", "image_token_id", "vision_start_token_id", "vision_end_token_id")
        return VisionIds(*(token_id(model, name) for name in names))

    def stands(
        self, model: Any, ids: Int[np.ndarray, "batch position"]
    ) -> dict[Kind, Bool[np.ndarray, "batch position"]]:
        """Which positions are placeholders of videos, and which of images."""
        known = self.token_ids(model)
        return {Kind.VIDEO: ids == known.video, Kind.IMAGE: ids == known.image}

    def merge_size(self, model: Any) -> int:
        """Patches along each side that become one visual token."""
        return int(model.config.vision_config.spatial_merge_size)

    def slots_per_unit(self, model: Any) -> int:
        """Frames that share one temporal unit."""
        return int(model.config.vision_config.temporal_patch_size)

    def vision(self, model: Any) -> Any:
        """The vision tower, merger included."""
        return self.base(model).visual

    def sources(
        self,
        model: Any,
        processor: Any,
        inputs: Mapping[str, Any],
        row: int,
        n_frames: int | Sequence[int] | None,
    ) -> list[Source]:
        """As in the base class: units by placeholder and grid, never by counting delimiters."""
        tokenizer = getattr(processor, "tokenizer", processor)
        ids, _ = sequence(inputs, row)
        placed = self._placed(model, inputs, row, n_frames)
        for kind in (Kind.IMAGE, Kind.VIDEO):
            mine = [one.positions for one in placed if one.kind is kind]
            check_types(inputs, row, kind, np.concatenate([np.empty(0, np.int64), *mine]))
        return [self._source(model, tokenizer, ids[row], number, one) for number, one in enumerate(placed)]

    def _placed(
        self, model: Any, inputs: Mapping[str, Any], row: int, n_frames: int | Sequence[int] | None
    ) -> list[_Placed]:
        """The videos and images of the sequence in prompt order, each with its positions."""
        ids, padding = sequence(inputs, row)
        stands, merge = self.stands(model, ids), self.merge_size(model)
        found: list[_Placed] = []
        for kind, grid_name in ((Kind.VIDEO, "video_grid_thw"), (Kind.IMAGE, "image_grid_thw")):
            merged = _merged_grids(inputs, grid_name, merge)
            here = stands[kind] & ~padding
            sizes = merged.prod(axis=1)
            starts = np.cumsum(sizes) - sizes
            blocks = counted_off(here, sizes, row, grid_name)
            frames = frames_given(n_frames, len(blocks)) if kind is Kind.VIDEO else [1] * len(blocks)
            for (number, block), given in zip(blocks.items(), frames, strict=True):
                units, rows, cols = (int(size) for size in merged[number])
                found.append(
                    _Placed(
                        kind=kind,
                        grid=(units, rows, cols),
                        positions=block,
                        feature_start=int(starts[number]),
                        seconds_per_unit=self._seconds_per_unit(inputs, kind, number),
                        n_frames=given,
                    )
                )
        return sorted(found, key=lambda one: int(one.positions[0]))

    def _seconds_per_unit(self, inputs: Mapping[str, Any], kind: Kind, number: int) -> float:
        """Seconds between units where the model is told them beside the text; NaN where it is not."""
        told = inputs.get("second_per_grid_ts")
        if kind is not Kind.VIDEO or self.tells_time or told is None:
            return float("nan")
        return float(array(told).reshape(-1)[number])

    def _source(
        self, model: Any, tokenizer: Any, ids: Int[np.ndarray, " position"], number: int, placed: _Placed
    ) -> Source:
        units, rows, cols = placed.grid
        place_row, place_col = full_grid(rows, cols)
        slots = _slots(placed, self.slots_per_unit(model))
        blocks = np.split(placed.positions, units)
        apart = self.unit_delimited and placed.kind is Kind.VIDEO
        marks, times = self._surroundings(model, tokenizer, ids, number, placed, blocks if apart else None)
        return Source(
            kind=placed.kind,
            units=[
                Unit(
                    positions=block,
                    row=place_row,
                    col=place_col,
                    grid=(rows, cols),
                    slots=tuple(slots[index].tolist()),
                    feature_start=placed.feature_start + index * rows * cols,
                    shown_seconds=times.get(index, placed.seconds_per_unit * index),
                )
                for index, block in enumerate(blocks)
            ],
            marks=marks,
        )

    def _surroundings(
        self,
        model: Any,
        tokenizer: Any,
        ids: Int[np.ndarray, " position"],
        number: int,
        placed: _Placed,
        apart: list[Int[np.ndarray, " token"]] | None,
    ) -> tuple[list[Mark], dict[int, float]]:
        """Check that units are contiguous, and find the delimiters and times beside them.

        Returns:
            The marks, and the time that is told of each unit.
        """
        vision_ids = self.token_ids(model)
        marks: list[Mark] = []
        times: dict[int, float] = {}
        for index, block in enumerate(apart or [placed.positions]):
            first, last = int(block[0]), int(block[-1])
            name = f"unit {index} of source {number}" if apart else f"source {number}"
            if last - first + 1 != len(block):
                raise TokenMapError(
                    f"The {len(block)} tokens of {name} are spread over positions {first} to {last}.",
                    remedy=REPORT,
                )
            end_unit = index if apart else placed.grid[0] - 1
            marks.append(_delimiter(ids, first - 1, vision_ids.start, index, name))
            marks.append(_delimiter(ids, last + 1, vision_ids.end, end_unit, name))
            if apart and self.tells_time:
                positions, times[index] = time_before(tokenizer, ids, first - 1, name)
                marks.append(Mark(Kind.TIMESTAMP, index, positions))
        if apart:
            marks += _outer_pair(ids, marks, vision_ids, len(apart))
        return marks, times

    def size_limits(
        self, min_pixels: int | None, max_pixels: int | None, current: Mapping[str, int]
    ) -> dict[str, int]:
        """The video processor's `size`: `shortest_edge` and `longest_edge` count pixels."""
        limits = dict(current)
        if min_pixels is not None:
            limits["shortest_edge"] = min_pixels
        if max_pixels is not None:
            limits["longest_edge"] = max_pixels
        return limits

    def frame_limit(self, frame_pixels: int, n_frames: int, current: Mapping[str, int]) -> dict[str, int]:
        """The budget is of each frame, whatever their number."""
        del n_frames
        return {**current, "longest_edge": frame_pixels}

    def shown_size(self, processor: Any, inputs: Mapping[str, Any]) -> tuple[int, int] | None:
        """Height and width in pixels that the first video's frames were resized to."""
        if inputs.get("video_grid_thw") is None:
            return None
        _, rows, cols = (int(size) for size in array(inputs["video_grid_thw"])[0])
        patch = int(processor.video_processor.patch_size)
        return rows * patch, cols * patch

    def vit_tokens(self, model: Any, output: Any, arguments: Mapping[str, Any]) -> Float[Tensor, "token dim"]:
        """Processors order patches (unit, row, column, row within window, column within window), so a
        merge window is `merge_size ** 2` neighbours."""
        del arguments
        window = self.merge_size(model) ** 2
        hidden = output.last_hidden_state.float()
        return reduce(hidden, "(token window) dim -> token dim", "mean", window=window)


def _merged_grids(inputs: Mapping[str, Any], name: str, merge: int) -> Int[np.ndarray, "source 3"]:
    """The grids of the whole batch in tokens."""
    grids = inputs.get(name)
    grids = np.empty((0, 3), dtype=np.int64) if grids is None else array(grids).astype(np.int64)
    if (grids[:, 1:] % merge).any():
        raise TokenMapError(
            f"{name} {grids.tolist()} does not divide by the merge size {merge}.", remedy=REPORT
        )
    return grids // np.array([1, merge, merge])


def counted_off(
    stands: Bool[np.ndarray, "batch position"], sizes: Int[np.ndarray, " source"], row: int, name: str
) -> dict[int, Int[np.ndarray, " token"]]:
    """The sources of a row, by number in the batch, and where each one's placeholders are.

    Sources come in batch order, so placeholders are counted off.

    Args:
        stands: where placeholders of their kind stand, padding left out.
        sizes: tokens of each source of the batch.
        row: which row.
        name: what gave the sizes, for the error.

    Raises:
        TokenMapError: the counts are not those of whole sources.
    """
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    through = np.concatenate([[0], np.cumsum(stands.sum(axis=1))])
    if ends[-1] != through[-1]:
        raise TokenMapError(
            f"The prompt holds {through[-1]} placeholders for {name}, whose sizes {sizes.tolist()} (merged)"
            f" give {ends[-1]}.",
            remedy=REPORT + " A prompt truncated by the tokenizer has this fault too.",
        )
    borders = np.searchsorted(ends, through)
    wrong = np.flatnonzero(ends[borders] != through)
    if len(wrong):
        raise TokenMapError(
            f"Rows 0 to {wrong[0] - 1} hold {through[wrong[0]]} placeholders for {name}, which no number of"
            f" whole ones of {sizes.tolist()} (merged) gives.",
            remedy=REPORT,
        )
    first, after = int(borders[row]), int(borders[row + 1])
    if first == after:
        return {}
    blocks = np.split(np.flatnonzero(stands[row]), np.cumsum(sizes[first:after])[:-1])
    return dict(zip(range(first, after), blocks, strict=True))


def _slots(placed: _Placed, per_unit: int) -> Int[np.ndarray, "unit slot"]:
    """Which of the source's frames fill each unit's slots."""
    units = placed.grid[0]
    frames = units * per_unit if placed.n_frames is None else placed.n_frames
    if -(-frames // per_unit) != units:
        raise TokenMapError(
            f"{frames} frames make {-(-frames // per_unit)} units of {per_unit}, the grid has {units}.",
            remedy="The processor sampled frames again: pass do_sample_frames=False and full video metadata.",
        )
    slots = np.arange(units * per_unit, dtype=np.int64)
    return np.where(slots < frames, slots, -1).reshape(units, per_unit)


_TYPE_CODES = {Kind.IMAGE: 1, Kind.VIDEO: 2, Kind.AUDIO: 3}


def check_types(
    inputs: Mapping[str, Any], row: int, kind: Kind, positions: Int[np.ndarray, " token"]
) -> None:
    """Cross-check with the processor's own account of token types, where it gives one.

    Raises:
        TokenMapError: `mm_token_type_ids` has the kind elsewhere.
    """
    types = inputs.get("mm_token_type_ids")
    if types is None:
        return
    given = np.atleast_2d(array(types))[row]
    here = np.zeros(len(given), dtype=bool)
    here[positions] = True
    wrong = np.flatnonzero((given == _TYPE_CODES[kind]) != here)
    if len(wrong):
        raise TokenMapError(
            f"mm_token_type_ids disagrees with the placeholders about {kind.name.lower()} at"
            f" {len(wrong)} positions, the first {wrong[0]}.",
            remedy=REPORT,
        )


def _delimiter(ids: Int[np.ndarray, " position"], position: int, token: int, unit: int, name: str) -> Mark:
    found = int(ids[position]) if 0 <= position < len(ids) else None
    if found != token:
        raise TokenMapError(
            f"Position {position} beside {name} holds token {found}, not the delimiter {token}.",
            remedy=REPORT,
        )
    return Mark(Kind.DELIMITER, unit, np.array([position]))


def time_before(
    tokenizer: Any,
    ids: Int[np.ndarray, " position"],
    before: int,
    name: str,
    pattern: re.Pattern[str] = _TIME,
) -> tuple[Int[np.ndarray, " position"], float]:
    """The tokens of the time that ends right before a position, and its seconds.

    Args:
        pattern: must end in `$`; its first group is the number of seconds.

    Raises:
        TokenMapError: no time stands there.
    """
    begin = max(0, before - _LONGEST_TIME)
    text = TokenText.decode(tokenizer, ids[begin:before].tolist())
    match = pattern.search(text.text)
    if match is None:
        raise TokenMapError(
            f"No time stands before {name} at position {before}: {text.text[-40:]!r}.",
            remedy="Build the prompt with the checkpoint's own processor and video metadata.",
        )
    return begin + np.asarray(text.tokens(*match.span())), float(match.group(1))


def _outer_pair(
    ids: Int[np.ndarray, " position"], marks: Sequence[Mark], vision_ids: VisionIds, units: int
) -> list[Mark]:
    """The pair around the whole video where the stack keeps one (transformers >= 5.10.1)."""
    beside = [int(position) for mark in marks for position in mark.positions]
    first, last = min(beside) - 1, max(beside) + 1
    opens = first >= 0 and ids[first] == vision_ids.start
    closes = last < len(ids) and ids[last] == vision_ids.end
    if not (opens and closes):
        return []
    return [
        Mark(Kind.DELIMITER, 0, np.array([first])),
        Mark(Kind.DELIMITER, units - 1, np.array([last])),
    ]
