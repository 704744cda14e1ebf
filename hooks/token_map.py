"""What each position of a prompt is: text, a patch of a unit of a video, a delimiter, a time, padding.

The map is built from what the processor returned (token ids, grids, sizes) and verified against it, not
assumed: every visual token is covered once, counts are those of the grid, units follow one another,
delimiters stand where the family says. A *temporal unit* is the smallest stretch of video with its own
tokens; it shows one frame or, in the Qwen-VL families, two, its *slots*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from hooks.families import family_of
from hooks.layout import Kind, lay_out
from hooks.roles import find_roles
from hooks.text_spans import TokenText

__all__ = ["Kind", "TokenMap", "token_map"]


@dataclass(frozen=True, eq=False)
class TokenMap:
    """The verified map of one sequence. Positions count from the start of the padded row.

    Attributes:
        input_ids: the prompt's token ids, padding included.
        kind: `Kind` of each position.
        unit: temporal unit of each visual token, and that a delimiter or time stands beside; -1 elsewhere.
        row, col: place of each visual token in its unit's grid of merged patches; -1 elsewhere.
        unit_grid: rows and columns of each unit. Families that drop tokens leave places of it empty.
        unit_source: which video or image of the prompt a unit belongs to, counted in prompt order.
        unit_slots: for each unit the frames it shows, as indices into the frames given for its source;
            -1 where a slot is empty (the last frame of an odd number is only repeated by the processor).
        unit_shown_seconds: the time the model is told for each unit; NaN where it is told none.
        unit_feature_start: where the unit's tokens begin among the vision tower's merged outputs of its
            kind for the whole batch.
        feature: which of those outputs each visual token is; -1 elsewhere.
        two_way: the block of positions that see one another in both directions; -1 where attention is causal.
        question, options, last: positions of the question's tokens, the options' tokens, and the prompt's
            last token.
        each_option: the positions of each option's tokens, in the order of the prompt; none where no
            options were named.
    """

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
    question: Int[np.ndarray, " question"]
    options: Int[np.ndarray, " option_token"]
    last: Int[np.ndarray, " one"]
    each_option: tuple[Int[np.ndarray, " option_token"], ...] = ()

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def visual(self) -> Int[np.ndarray, " token"]:
        """Positions of the visual tokens, ascending: the order of every `token` axis."""
        return np.flatnonzero((self.kind == Kind.VIDEO) | (self.kind == Kind.IMAGE))

    @property
    def n_visual(self) -> int:
        """Number of visual tokens."""
        return len(self.visual)

    @property
    def n_units(self) -> int:
        """Number of temporal units, images among them."""
        return len(self.unit_grid)

    @property
    def tokens_per_unit(self) -> Int[np.ndarray, " unit"]:
        """Visual tokens of each unit: rows times columns, less those the family dropped."""
        return np.bincount(self.unit[self.visual], minlength=self.n_units)

    @property
    def audio(self) -> Int[np.ndarray, " token"]:
        """Positions of the audio tokens, ascending."""
        return np.flatnonzero(self.kind == Kind.AUDIO)

    @property
    def unit_first_token(self) -> Int[np.ndarray, " unit"]:
        """Index of each unit's first token on the `token` axis."""
        return np.cumsum(self.tokens_per_unit) - self.tokens_per_unit

    def unit_sum(self, values: Float[np.ndarray, "*axes token"]) -> Float[np.ndarray, "*axes unit"]:
        """Add up what is given per visual token (last axis) within each unit."""
        return np.add.reduceat(values, self.unit_first_token, axis=-1)

    def unit_tokens(self, unit: int) -> slice:
        """Where a unit's tokens lie on the `token` axis."""
        first = int(self.unit_first_token[unit])
        return slice(first, first + int(self.tokens_per_unit[unit]))

    def unit_picture(self, values: Float[np.ndarray, " token"], unit: int) -> Float[np.ndarray, "row col"]:
        """One unit's values on its grid; NaN where it has no token."""
        at = self.visual[self.unit_tokens(unit)]
        picture = np.full(tuple(self.unit_grid[unit]), np.nan, dtype=np.float64)
        picture[self.row[at], self.col[at]] = values[self.unit_tokens(unit)]
        return picture

    def rows(self, name: str) -> Int[np.ndarray, " query"]:
        """Positions of a role by name: `question`, `options` or `last`."""
        if name not in ("question", "options", "last"):
            raise KeyError(f"{name!r} is not a role of a token map: question, options, last.")
        return getattr(self, name)

    def describe(self, tokenizer: Any) -> str:
        """The prompt as a table a person can read: positions, kind, unit, and the text or grid there."""
        role = np.full(len(self), "", dtype=object)
        for name in ("question", "options", "last"):
            role[self.rows(name)] = name

        def key(position: int) -> tuple:
            return int(self.kind[position]), int(self.unit[position]), role[position]

        lines = ["positions      kind       unit  role      content"]
        for (kind, unit, name), run in groupby(range(len(self)), key):
            positions = list(run)
            if kind in (Kind.VIDEO, Kind.IMAGE):
                rows, cols = self.unit_grid[unit]
                slots = ", ".join(str(slot) for slot in self.unit_slots[unit] if slot >= 0)
                content = f"{len(positions)} tokens, {rows} x {cols}, frames {slots}"
            elif kind in (Kind.PADDING, Kind.AUDIO):
                content = f"{len(positions)} tokens"
            else:
                content = repr(TokenText.decode(tokenizer, self.input_ids[positions].tolist()).text)
            where = f"{positions[0]}-{positions[-1]}"
            beside = str(unit) if unit >= 0 else ""
            lines.append(f"{where:<14} {Kind(kind).name.lower():<10} {beside:<5} {name:<9} {content}")
        return "\n".join(lines)


def token_map(
    model: Any,
    processor: Any,
    inputs: Mapping[str, Any],
    *,
    question: str | None = None,
    options: str | Sequence[str] | None = None,
    row: int = 0,
    n_frames: int | Sequence[int] | None = None,
) -> TokenMap:
    """Map one sequence of what the processor returned, and verify the map.

    Args:
        model: the loaded model; its configuration gives token ids, merge size and frames a unit.
        processor: the processor (or tokenizer) that made `inputs`; decodes text.
        inputs: `input_ids` and grids, as returned by the processor. Batches are left-padded.
        question: the question as it stands in the prompt. None: the first stretch of text after the
            last visual token that holds no special token, less the options.
        options: the options as they stand in the prompt: one text, an option a line, or several in prompt
            order.
        row: which sequence of the batch.
        n_frames: frames given for each video of the sequence, to tell an odd number from an even one.
            None: every slot counts as filled.

    Raises:
        TokenMapError: prompt and grids disagree, delimiters or times are not where the family says,
            or a text is not in the prompt.
        UnsupportedModelError: no family file knows the model.
    """
    family = family_of(model)
    tokenizer = getattr(processor, "tokenizer", processor)
    layout = lay_out(family, model, processor, inputs, row=row, n_frames=n_frames)
    asked, offered, each = find_roles(
        tokenizer, layout.input_ids, layout.kind, question=question, options=options
    )
    return TokenMap(
        input_ids=layout.input_ids,
        kind=layout.kind,
        unit=layout.unit,
        row=layout.row,
        col=layout.col,
        unit_grid=layout.unit_grid,
        unit_source=layout.unit_source,
        unit_slots=layout.unit_slots,
        unit_shown_seconds=layout.unit_shown_seconds,
        unit_feature_start=layout.unit_feature_start,
        feature=layout.feature,
        two_way=layout.two_way,
        question=asked,
        options=offered,
        last=np.array([len(layout.input_ids) - 1], dtype=np.int64),
        each_option=each,
    )
