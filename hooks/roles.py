"""Where the question and the options stand in a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from hooks.errors import TokenMapError
from hooks.layout import Kind
from hooks.text_spans import TokenText, special_ids

__all__ = ["find_roles"]


def find_roles(
    tokenizer: Any,
    input_ids: Int[np.ndarray, " position"],
    kind: Int[np.ndarray, " position"],
    *,
    question: str | None,
    options: str | Sequence[str] | None,
) -> tuple[
    Int[np.ndarray, " question"],
    Int[np.ndarray, " option_token"],
    tuple[Int[np.ndarray, " option_token"], ...],
]:
    """Positions of question, options, and each option, all after the last visual token.

    A token that carries any character of a text belongs to it, so tokens merged across its edges are
    included; of two options that share one, it is the earlier's. Options are looked for one after another,
    from the end of the question on; of a single text each line is an option.

    Raises:
        TokenMapError: a text is not there.
    """
    visual = np.flatnonzero((kind == Kind.VIDEO) | (kind == Kind.IMAGE))
    start = int(visual[-1]) + 1 if len(visual) else int(np.sum(kind == Kind.PADDING))
    suffix = TokenText.decode(tokenizer, input_ids[start:].tolist())
    asked: Int[np.ndarray, " question"] = np.empty(0, dtype=np.int64)
    end = 0
    if question is not None:
        begin, end = _locate(suffix, question, 0, "question")
        asked = start + suffix.tokens(begin, end)
    offered: list[Int[np.ndarray, " option_token"]] = []
    texts = [options] if isinstance(options, str) else list(options or ())
    each: list[Int[np.ndarray, " option_token"]] = []
    for number, text in enumerate(texts, start=1):
        begin, end = _locate(suffix, text, end, f"option {number}")
        offered.append(start + suffix.tokens(begin, end))
        for line in text.split("\n") if isinstance(options, str) else [text]:
            if line.strip():
                begin, after = _locate(suffix, line, begin, f"option {line!r}")
                taken = np.concatenate([np.empty(0, np.int64), *each])
                each.append(np.setdiff1d(start + suffix.tokens(begin, after), taken))
                begin = after
    option_positions = np.unique(np.concatenate(offered)) if offered else np.empty(0, dtype=np.int64)
    if question is None:
        asked = np.setdiff1d(_first_text(tokenizer, input_ids, kind, start), option_positions)
    return asked, option_positions, tuple(each)


def _locate(suffix: TokenText, text: str, after: int, name: str) -> tuple[int, int]:
    found = suffix.find(text, after)
    if found is None:
        raise TokenMapError(
            f"The {name} {text[:80]!r} is not in the prompt after the last visual token"
            f" (searched from character {after} of {suffix.text[:400]!r}).",
            remedy="Pass the text as it stands in the prompt, after the video.",
        )
    return found


def _first_text(
    tokenizer: Any,
    input_ids: Int[np.ndarray, " position"],
    kind: Int[np.ndarray, " position"],
    start: int,
) -> Int[np.ndarray, " question"]:
    """The first run of text after `start`: ends at a special token, blank tokens at its edges dropped.

    Raises:
        TokenMapError: there is no text.
    """
    special = special_ids(tokenizer)
    run: list[int] = []
    for position in range(start, len(input_ids)):
        if kind[position] != Kind.TEXT or int(input_ids[position]) in special:
            if _strip_blank(tokenizer, input_ids, run):
                break
            run = []
            continue
        run.append(position)
    stripped = _strip_blank(tokenizer, input_ids, run)
    if not stripped:
        raise TokenMapError(
            f"No text follows the last visual token at position {start - 1}.",
            remedy="Put the question after the video, or pass rows by hand.",
        )
    return np.array(stripped, dtype=np.int64)


def _strip_blank(tokenizer: Any, input_ids: Int[np.ndarray, " position"], run: list[int]) -> list[int]:
    blank = [not tokenizer.decode([int(input_ids[position])]).strip() for position in run]
    inked = [index for index, empty in enumerate(blank) if not empty]
    return run[inked[0] : inked[-1] + 1] if inked else []
