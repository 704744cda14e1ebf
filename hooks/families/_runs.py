"""Prompts read from themselves: runs of placeholders, and the text that stands before and between them.

For families whose processor returns no grid of units, or whose units lie between delimiters, times and line
breaks of their own.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from hooks.errors import TokenMapError
from hooks.families._sources import Kind, Mark
from hooks.text_spans import TokenText

__all__ = ["beside", "placeholder_runs", "runs_before", "split_runs", "text_before"]


def split_runs(positions: Int[np.ndarray, " position"]) -> list[Int[np.ndarray, " token"]]:
    """Positions cut wherever they skip one."""
    if not len(positions):
        return []
    return np.split(positions, np.flatnonzero(np.diff(positions) != 1) + 1)


def placeholder_runs(
    ids: Int[np.ndarray, " position"], padding: Bool[np.ndarray, " position"], token: int
) -> list[Int[np.ndarray, " token"]]:
    """The unbroken runs of a placeholder in one sequence, in order."""
    return split_runs(np.flatnonzero((ids == token) & ~padding))


def runs_before(
    ids: Int[np.ndarray, "batch position"], padding: Bool[np.ndarray, "batch position"], row: int, token: int
) -> int:
    """How many runs of a placeholder the sequences before `row` hold."""
    return sum(len(placeholder_runs(ids[one], padding[one], token)) for one in range(row))


def text_before(
    tokenizer: Any,
    ids: Int[np.ndarray, " position"],
    before: int,
    pattern: re.Pattern[str],
    longest: int,
    after: int = 0,
) -> tuple[re.Match[str], Int[np.ndarray, " position"]] | None:
    """What matches `pattern` in the text that ends right before a position, and its tokens; None if nothing.

    Args:
        pattern: must end in `$`.
        longest: tokens that are looked at, at most.
        after: none before this position.
    """
    begin = max(after, before - longest)
    text = TokenText.decode(tokenizer, ids[begin:before].tolist())
    match = pattern.search(text.text)
    if match is None:
        return None
    return match, begin + text.tokens(*match.span())


def beside(ids: Int[np.ndarray, " position"], position: int, tokens: set[int], unit: int, name: str) -> Mark:
    """The delimiter at a position.

    Raises:
        TokenMapError: another token stands there.
    """
    found = int(ids[position]) if 0 <= position < len(ids) else None
    if found not in tokens:
        raise TokenMapError(
            f"Position {position} beside {name} holds token {found}, not one of {sorted(tokens)}.",
            remedy="Build the prompt with the checkpoint's own processor, and report it if you did.",
        )
    return Mark(Kind.DELIMITER, unit, np.array([position]))
