"""Signals kept on disk, so that a video is looked at once for all its questions and all runs.

One `.npz` file without pickled objects an array, below `cache_folder("relevance")`, named by the hash of
everything its values depend on: the video file (path, size, date), the candidate frames, how they are
read (decoder, size), the signal, and the scorer's name and version. The key is written inside and compared
when the file is read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from diagnostics.cache import cache_folder
from diagnostics.errors import ConfigError, MissingVideoError
from diagnostics.store.atomic import publish
from diagnostics.video.index import VideoIndex

__all__ = ["SignalCache", "video_key"]

_log = logging.getLogger(__name__)

Key = dict[str, Any]


def video_key(index: VideoIndex, frames: Int[np.ndarray, " n"]) -> Key:
    """What a video's signals are valid for: the file as it is now, and the frames looked at.

    Raises:
        MissingVideoError: the file is gone.
    """
    path = Path(index.path).resolve()
    try:
        facts = path.stat()
    except OSError as error:
        raise MissingVideoError(
            f"it cannot be reached ({error.strerror}).", remedy="Check the data set's root.", path=path
        ) from error
    digest = hashlib.sha256(np.ascontiguousarray(frames, dtype="<i8").tobytes()).hexdigest()
    return {"video": str(path), "size": facts.st_size, "modified": facts.st_mtime_ns, "frames": digest}


class SignalCache:
    """Arrays by key.

    Args:
        folder: where they are kept; the machine's cache by default.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def load(self, key: Key) -> Float[np.ndarray, " n *dim"] | None:
        """The array of `key`; None where there is none or its file is damaged (then it is made again)."""
        path = self._path(key)
        try:
            with np.load(path, allow_pickle=False) as kept:
                if str(kept["key"]) == _text(key):
                    values: np.ndarray = kept["values"]
                    return values
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            _log.warning("%s is damaged (%s) and is made again", path, error)
        return None

    def save(self, key: Key, values: Float[np.ndarray, " n *dim"]) -> None:
        """Keep `values`: they appear whole or not at all.

        Raises:
            ConfigError: the folder cannot be written.
        """
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with publish(path, durable=False) as temporary, temporary.open("wb") as file:
                np.savez(file, values=values, key=np.array(_text(key)))
        except OSError as error:
            raise ConfigError(
                f"the cache of relevance scores cannot be written: {error}.",
                remedy="Set DIAGNOSTICS_CACHE to a folder with space that you may write.",
            ) from error

    def _path(self, key: Key) -> Path:
        folder = self._folder or cache_folder("relevance")
        name = hashlib.sha256(_text(key).encode()).hexdigest()[:32]
        return folder / name[:2] / f"{name}.npz"


def _text(key: Key) -> str:
    return json.dumps(key, sort_keys=True)
