"""JSON Lines, read as a stream: one bad line is one rejected record, not the end of the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diagnostics.errors import DataFileError, RecordError

__all__ = ["parse_object", "read_lines"]

_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any] | RecordError]]:
    """The records of `path`, in order; blank lines are skipped, a byte order mark and CRLF are taken.

    Yields, for every other line, `file:line` and its object or the error that says why there is none.
    The file is never held whole.

    Raises:
        DataFileError: it is UTF-16, or a JSON array instead of one object a line.
    """
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if number == 1:
                _refuse_other_formats(path, raw)
                raw = raw.removeprefix(_UTF8_MARK)
            if raw.strip():
                where = f"{path}:{number}"
                yield where, parse_object(raw, where)


def _refuse_other_formats(path: Path, raw: bytes) -> None:
    if raw.startswith(_UTF16_MARKS):
        raise DataFileError("The file is UTF-16.", remedy="Save it as UTF-8.", path=path)
    if raw.removeprefix(_UTF8_MARK).lstrip().startswith(b"["):
        raise DataFileError(
            "The file is a JSON array, not JSON Lines.",
            remedy="Write one object a line: jq -c '.[]' in.json > out.jsonl.",
            path=path,
        )


def parse_object(raw: bytes, where: str) -> dict[str, Any] | RecordError:
    """The JSON object that `raw` holds, or why it holds none: not strict JSON, a key given twice."""
    try:
        text = raw.decode("utf-8")
        record = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
        if b"\\ud" in raw.lower():
            json.dumps(record, ensure_ascii=False).encode("utf-8")  # half a surrogate pair fails here
    except (ValueError, RecursionError) as error:
        return _not_json(where, str(error))
    if not isinstance(record, dict):
        return _not_json(where, f"a {type(record).__name__}, not an object")
    return record


def _not_json(where: str, reason: str) -> RecordError:
    return RecordError(
        f"This line is not a JSON object: {reason}.", remedy="Write one JSON object a line.", path=where
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} is given twice")
    return record


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
