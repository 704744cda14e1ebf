"""Subtitles, put before the question as text: SubRip files and LongVideoBench's JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnostics.errors import RecordError

__all__ = ["Subtitle", "read_subtitles", "with_subtitles"]

_TIME = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{1,2}(?:[.,]\d+)?)")
_MARKUP = re.compile(r"<[^>]*>|\{\\[^}]*\}")


@dataclass(frozen=True, slots=True)
class Subtitle:
    """What is said from `start` to `end`, in seconds."""

    start: float
    end: float
    text: str


def read_subtitles(path: Path) -> list[Subtitle]:
    """The lines of a `.srt` or `.json` file, in order of time, markup taken off.

    JSON has `{"start": "00:00:01.2", "end": ..., "line": ...}` or `{"timestamp": [1.2, 3.4], "text": ...}`;
    an end that is not given is infinite.

    Raises:
        RecordError: the file is not written so.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        lines = _from_json(json.loads(text)) if path.suffix.lower() == ".json" else _from_srt(text)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"Its subtitles cannot be read ({type(error).__name__}: {error}).",
            remedy="Download them again, or leave them out with data.subtitles=false.",
            path=path,
        ) from error
    return sorted((line for line in lines if line.text), key=lambda line: line.start)


def with_subtitles(question: str, lines: Sequence[Subtitle]) -> str:
    """The question below all that is said, one subtitle a line; repeats of the line before are left out."""
    said: list[str] = []
    for line in lines:
        if not said or said[-1] != line.text:
            said.append(line.text)
    return "\n".join(["This video's subtitles are listed below:", *said, question]) if said else question


def _from_srt(text: str) -> list[Subtitle]:
    lines = []
    for block in re.split(r"\n\s*\n", text.replace("\r\n", "\n").strip()):
        head, arrow, rest = block.partition("-->")
        if not arrow:
            if block.strip():
                raise ValueError(f"a block without times: {block[:60]!r}")
            continue
        end, _, said = rest.partition("\n")
        lines.append(Subtitle(_seconds(head.strip().splitlines()[-1]), _seconds(end), _clean(said)))
    return lines


def _from_json(entries: Any) -> list[Subtitle]:
    lines = []
    for entry in entries:
        if "timestamp" in entry:
            start, end = entry["timestamp"]
            end = math.inf if end is None else float(end)
            lines.append(Subtitle(float(start), end, _clean(entry["text"])))
        else:
            lines.append(Subtitle(_seconds(entry["start"]), _seconds(entry["end"]), _clean(entry["line"])))
    return lines


def _seconds(written: str) -> float:
    found = _TIME.search(written)
    if found is None:
        raise ValueError(f"{written!r} is no time")
    hours, minutes, seconds = found.groups()
    return int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds.replace(",", "."))


def _clean(text: str) -> str:
    return " ".join(_MARKUP.sub("", text).split())
