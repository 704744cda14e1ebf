"""Arrays kept by what they depend on, one file each, for caches that several processes share.

A key is a mapping of everything that an array's values depend on. Its file, `<2 digits>/<32 digits>.npz`
without pickled objects, is named by the key's hash; the key is written inside and compared when it is read.
The file is stored, not compressed; its zip checksum (CRC-32) tells damage.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from diagnostics.store.atomic import publish

__all__ = ["SUFFIX", "DamagedArrayError", "Key", "array_path", "read_array", "write_array"]

Key = Mapping[str, Any]
"""Plain values only."""

SUFFIX = ".npz"


class DamagedArrayError(ValueError):
    """A file is there and does not hold the array of its key. Not for people: the array is made again."""


def array_path(folder: Path, key: Key) -> Path:
    """Where the array of `key` is kept below `folder`."""
    name = hashlib.sha256(_text(key).encode()).hexdigest()[:32]
    return folder / name[:2] / f"{name}{SUFFIX}"


def read_array(path: Path, key: Key) -> np.ndarray:
    """The array that was kept for `key`.

    Raises:
        FileNotFoundError: none is kept.
        DamagedArrayError: the file cannot be read, fails its checksum, or is of another key.
    """
    try:
        with np.load(path, allow_pickle=False) as kept:
            same = str(kept["key"]) == _text(key)
            values: np.ndarray = kept["values"]
    except FileNotFoundError:
        raise
    except Exception as error:  # what zipfile and numpy raise on damage has no common type
        raise DamagedArrayError(f"{type(error).__name__}: {error}") from error
    if not same:
        raise DamagedArrayError("it is of another key")
    return values


def write_array(path: Path, key: Key, values: np.ndarray) -> int:
    """Keep `values`: they appear whole or not at all. Gives the file's size in bytes.

    Raises:
        OSError: the folder cannot be written, the disk is full...
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not durable: after a power failure a torn file is found by its checksum and made again.
    with publish(path, durable=False) as temporary:
        with temporary.open("wb") as file:
            np.savez(file, values=values, key=np.array(_text(key)))
        return temporary.stat().st_size


def _text(key: Key) -> str:
    return json.dumps(key, sort_keys=True)
