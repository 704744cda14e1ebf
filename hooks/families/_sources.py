"""What a family makes of one prompt: its videos and images, their units, and what stands beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from einops import repeat
from jaxtyping import Bool, Int

from hooks.errors import TokenMapError

__all__ = [
    "REPORT",
    "Kind",
    "Mark",
    "Source",
    "Unit",
    "array",
    "frames_given",
    "full_grid",
    "sequence",
    "token_id",
]

REPORT = "The processor and the model disagree: use one checkpoint for both, and report it if you do."


class Kind(IntEnum):
    """What a position of the prompt is."""

    TEXT = 0
    VIDEO = 1
    IMAGE = 2
    DELIMITER = 3
    TIMESTAMP = 4
    PADDING = 5
    AUDIO = 6


@dataclass(frozen=True, eq=False)
class Unit:
    """One temporal unit of a video, or one image (or tile of it).

    Attributes:
        positions: of its visual tokens, ascending.
        row, col: place of each of them in `grid`.
        grid: rows and columns. Where tokens were dropped or merged there are fewer tokens than places.
        slots: frames it shows, as indices into the frames given for its source; -1 where a slot is empty.
        feature_start: where its tokens begin among the encoder's merged outputs for the whole batch.
        shown_seconds: the time the model is told; NaN where it is told none.
        features: which of those outputs each token is, from `feature_start` on; None where they are the
            tokens one after another. Families that drop tokens after encoding leave some out.
    """

    positions: Int[np.ndarray, " token"]
    row: Int[np.ndarray, " token"]
    col: Int[np.ndarray, " token"]
    grid: tuple[int, int]
    slots: tuple[int, ...]
    feature_start: int
    shown_seconds: float = float("nan")
    features: Int[np.ndarray, " token"] | None = None


@dataclass(frozen=True, eq=False)
class Mark:
    """Positions beside a unit: its delimiters, its time, a line break among its tokens.

    `unit` counts within the source. Delimiters may stand at placeholders too: what the encoder's output
    fills without being a patch, such as a newline embedding.
    """

    kind: Kind
    unit: int
    positions: Int[np.ndarray, " position"]


@dataclass(frozen=True, eq=False)
class Source:
    """One video, image or sound of the prompt: its units in order, and what stands beside them.

    A sound has no units: its positions are marks of `Kind.AUDIO`.
    """

    kind: Kind
    units: Sequence[Unit]
    marks: Sequence[Mark] = field(default_factory=tuple)


def full_grid(rows: int, cols: int) -> tuple[Int[np.ndarray, " token"], Int[np.ndarray, " token"]]:
    """Row and column of each token of a whole grid in row-major order."""
    row = repeat(np.arange(rows, dtype=np.int32), "row -> (row col)", col=cols)
    col = repeat(np.arange(cols, dtype=np.int32), "col -> (row col)", row=rows)
    return row, col


def array(value: Any) -> np.ndarray:
    """A tensor on any device, or a list, as a NumPy array."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def token_id(model: Any, name: str) -> int:
    """The id that the model's configuration gives a token of the prompt's layout.

    Raises:
        TokenMapError: it gives none; transformers' own defaults of some families leave ids out.
    """
    found = getattr(model.config, name, None)
    if found is None:
        raise TokenMapError(
            f"The configuration of {type(model).__name__} has no {name}.",
            remedy="Take config.json as it was published with the checkpoint, or add the token's id to it.",
        )
    return int(found)


def sequence(
    inputs: Mapping[str, Any], row: int
) -> tuple[Int[np.ndarray, "batch position"], Bool[np.ndarray, "batch position"]]:
    """All token ids, and which of them are padding, with the row's padding checked to be on the left.

    Raises:
        TokenMapError: there is no such row, or its padding is elsewhere.
    """
    ids = np.atleast_2d(array(inputs["input_ids"])).astype(np.int64)
    if not 0 <= row < len(ids):
        raise TokenMapError(f"Row {row} of a batch of {len(ids)} was asked for.", remedy="Count rows from 0.")
    mask = inputs.get("attention_mask")
    padding = np.zeros(ids.shape, dtype=bool) if mask is None else np.atleast_2d(array(mask)) == 0
    count = int(padding[row].sum())
    if padding[row][count:].any():
        raise TokenMapError(
            f"{count} padding tokens of row {row} are not all on the left.",
            remedy='Set tokenizer.padding_side = "left" before batching.',
        )
    return ids, padding


def frames_given(n_frames: int | Sequence[int] | None, videos: int) -> list[int | None]:
    """The number of frames given for each video of the row; None where it was not told.

    Raises:
        TokenMapError: not one number a video.
    """
    if n_frames is None:
        return [None] * videos
    given: list[int | None] = [int(n_frames)] if isinstance(n_frames, int | np.integer) else list(n_frames)
    if len(given) != videos:
        raise TokenMapError(
            f"n_frames has {len(given)} entries for {videos} videos.", remedy="Give one number a video."
        )
    return given
