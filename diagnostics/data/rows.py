"""Rows of a released file, one record each: JSON Lines, a JSON array, or Parquet.

Parquet needs pyarrow, which is large and used by nothing else here: it is an extra.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from diagnostics.data.items import Item
from diagnostics.data.lines import read_lines
from diagnostics.data.validation import Collector, Loaded
from diagnostics.errors import ConfigError, DataFileError, ItemError, RecordError

__all__ = ["Row", "collect", "read_rows"]

Row = tuple[str, dict[str, Any] | RecordError]
"""Where a record is (`file:line`, or `file[place]` from 0), and the record or why there is none."""


def read_rows(path: Path) -> Iterator[Row]:
    """The records of `path`, in order; its suffix says how they are written.

    In a JSON array or Parquet file an undefined number (NaN) reads as null.

    Raises:
        ConfigError: it is Parquet, and pyarrow is not installed.
        DataFileError: it cannot be read, or its suffix is none of `.jsonl`, `.json`, `.parquet`.
    """
    suffix = path.suffix.lower()
    if suffix == ".jsonl":
        yield from read_lines(path)
    elif suffix == ".json":
        yield from _placed(path, _array(path))
    elif suffix == ".parquet":
        yield from _placed(path, _parquet(path))
    else:
        raise DataFileError(
            f"The suffix {path.suffix!r} says nothing of how the file is written.",
            remedy="Name a .jsonl, .json or .parquet file.",
            path=path,
        )


def collect(
    rows: Iterable[Row],
    identify: Callable[[dict[str, Any]], str],
    build: Callable[[dict[str, Any], str, str], Item],
    collector: Collector | None = None,
) -> Loaded:
    """One item a row; rows that cannot be used are rejected with their id and place.

    Args:
        identify: the id of a record's item; a `RecordError` where it has none.
        build: the item of `(record, id, where)`.
        collector: where the items go, if there are others already.
    """
    collector = collector or Collector()
    for where, record in rows:
        if isinstance(record, RecordError):
            collector.reject(record, where=where)
            continue
        try:
            item_id = identify(record)
        except ItemError as error:
            collector.reject(error, where=where)
            continue
        collector.add(item_id, where, partial(build, record, item_id, where))
    return collector.loaded()


def _placed(path: Path, records: Iterable[Any]) -> Iterator[Row]:
    for place, record in enumerate(records):
        where = f"{path}[{place}]"
        if isinstance(record, dict):
            yield where, record
        else:
            kind = type(record).__name__
            yield (
                where,
                RecordError(
                    f"This entry is a {kind}, not an object.",
                    remedy="Compare it with the released file.",
                    path=where,
                ),
            )


def _array(path: Path) -> list[Any]:
    try:
        written = json.loads(path.read_text(encoding="utf-8-sig"), parse_constant=_undefined)
    except (ValueError, RecursionError) as error:
        raise DataFileError(
            f"The file is not JSON: {error}.", remedy="Download it again.", path=path
        ) from error
    if not isinstance(written, list):
        raise DataFileError(
            f"The file holds a {type(written).__name__}, not an array of records.",
            remedy="Name the file of the questions.",
            path=path,
        )
    return written


def _undefined(_name: str) -> None:
    return None


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        import pyarrow  # noqa: F401 - pandas reads Parquet through it
    except ImportError as error:
        raise ConfigError(
            f"Reading {path.name} needs pyarrow.",
            remedy='Install it: pip install ".[datasets]". Or name a .jsonl or .json file with data.path=.',
            path=path,
        ) from error
    import pandas as pd

    try:
        table = pd.read_parquet(path, engine="pyarrow")
    except (OSError, ValueError) as error:
        raise DataFileError(
            f"The file is not Parquet: {error}.", remedy="Download it again.", path=path
        ) from error
    return [_plain(record) for record in table.to_dict(orient="records")]


def _plain(value: Any) -> Any:
    """What Parquet's nested columns come as, in the types of JSON."""
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
