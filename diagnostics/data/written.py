"""What records of published benchmarks have in common: texts, options, stated durations, clips, video files.

Each function speaks of one record and raises a typed error that says which key is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from diagnostics.data.items import option_letter
from diagnostics.data.paths import inside_root
from diagnostics.errors import AnswerNotAnOptionError, RecordError
from diagnostics.strict import near_match

__all__ = [
    "STATED_FRAMES",
    "STATED_SECONDS",
    "candidates_of",
    "film",
    "number_of",
    "resolve_answer_letter",
    "resolve_answer_text",
    "resolve_clip",
    "rest_of",
    "text_of",
    "wrong",
]

STATED_SECONDS = "duration_seconds"
"""Key of an item's metadata: how long its video is, as the benchmark states it. `+exp=check` compares."""

STATED_FRAMES = "num_frames"
"""Key of an item's metadata: how many frames its video has, as the benchmark states it."""

_SUFFIXES = (".mp4", ".MP4", ".mkv", ".webm", ".avi", ".mov")


def wrong(key: str, value: object, wanted: str) -> RecordError:
    """The error of a key that is not as the release has it."""
    return RecordError(
        f"{key!r} is {value!r}, not {wanted}.", remedy="Compare the record with the released file."
    )


def text_of(record: Mapping[str, Any], key: str, *, required: bool = True) -> str:
    """The text at `key`, a whole number as its digits; empty where it is missing and not required.

    Raises:
        RecordError: it is no text, or missing or empty though required.
    """
    written = record.get(key)
    if isinstance(written, int) and not isinstance(written, bool):
        return str(written)
    if written is None and not required:
        return ""
    if not isinstance(written, str) or (required and not written.strip()):
        raise wrong(key, written, "a text")
    return written


def candidates_of(record: Mapping[str, Any], key: str) -> list[str]:
    """The option texts at `key`, numbers as their digits.

    Raises:
        RecordError: not a list of texts and numbers.
    """
    written = record.get(key)
    if not isinstance(written, list) or any(
        isinstance(entry, bool) or not isinstance(entry, str | int | float) for entry in written
    ):
        raise wrong(key, written, "a list of texts")
    return [str(entry) for entry in written]


def number_of(record: Mapping[str, Any], key: str) -> float | None:
    """The number at `key`, or None where it is missing.

    Raises:
        RecordError: it is no finite number.
    """
    written = record.get(key)
    if written is None:
        return None
    if isinstance(written, bool) or not isinstance(written, int | float) or not math.isfinite(written):
        raise wrong(key, written, "a number")
    return float(written)


def rest_of(record: Mapping[str, Any], used: Collection[str]) -> dict[str, Any]:
    """What the item's own fields do not hold, for its metadata."""
    return {key: value for key, value in record.items() if key not in used and value is not None}


def film(root: Path, folder: str, stem: str, *, where: str, item_id: str) -> Path:
    """The video that a release names without its suffix: the file that is there, else `<stem>.mp4`.

    Raises:
        PathLeavesRootError, RecordError: see `inside_root`.
    """
    paths = [
        inside_root(root, f"{folder}/{stem}{suffix}", where=where, item_id=item_id) for suffix in _SUFFIXES
    ]
    return next((path for path in paths if path.is_file()), paths[0])


def resolve_answer_letter(written: object, options: Sequence[str]) -> str | None:
    """The right option's letter, where a format writes answers as letters only; None where it has none.

    The letter decides, also between options of the same text: releases have such items, and everybody who
    reports a number on them scores them by letter.

    Raises:
        AnswerNotAnOptionError: no option has that letter.
        RecordError: it is not a text.
    """
    if written is None:
        return None
    if not isinstance(written, str) or not written.strip():
        raise RecordError(f"The answer is {written!r}, not a letter.", remedy="Write the option's letter.")
    letter = written.strip()
    letters = [option_letter(place) for place in range(len(options))]
    if letter not in letters:
        raise AnswerNotAnOptionError(
            f"The answer {letter!r} is none of the letters {', '.join(letters)}.",
            remedy="Correct the answer.",
        )
    return letter


def resolve_answer_text(written: object, candidates: Sequence[str]) -> str:
    """The letter of the option whose text is the answer, where a format writes answers as texts only.

    Unlike in `resolve_answer` a single letter is a text too: among the options `c, b, a` the answer `c` is
    the first.

    Args:
        written: the option's exact text.
        candidates: the options' texts as the source has them.

    Raises:
        AnswerNotAnOptionError: it is none of them, or two of them.
        RecordError: it is not a text.
    """
    if not isinstance(written, str) or not written.strip():
        raise RecordError(f"The answer is {written!r}, not a text.", remedy="Write the option's text.")
    answer = written.strip()
    places = [place for place, text in enumerate(candidates) if text.strip() == answer]
    if len(places) == 1:
        return option_letter(places[0])
    if places:
        letters = " and ".join(map(option_letter, places))
        raise AnswerNotAnOptionError(
            f"The answer {answer!r} is {letters}.", remedy="Make the options distinct."
        )
    raise AnswerNotAnOptionError(
        f"The answer {answer!r} is none of the options: {near_match(answer, list(candidates))}",
        remedy="Write the option's exact text.",
    )


def resolve_clip(written: object) -> tuple[float, float] | None:
    """The stretch of the video that is shown, in seconds.

    Args:
        written: `[start, end]`, or None for the whole video.

    Raises:
        RecordError: not two numbers, or not `0 <= start < end`.
    """
    if written is None:
        return None
    if not isinstance(written, list | tuple) or len(written) != 2:
        raise _clip_form(written)
    if not all(isinstance(edge, int | float) and not isinstance(edge, bool) for edge in written):
        raise _clip_form(written)
    start, end = float(written[0]), float(written[1])
    if not (0 <= start < end and math.isfinite(end)):
        raise RecordError(
            f"The clip {list(written)} is empty, reversed or before the video's beginning.",
            remedy="A clip is [start, end), 0 <= start < end.",
        )
    return start, end


def _clip_form(written: object) -> RecordError:
    return RecordError(f"The clip is {written!r}.", remedy="Write [start, end] in seconds.")
