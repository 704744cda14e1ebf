"""Signals kept on disk, so that a video is looked at once for all its questions and all runs.

One file an array (`store.keyed_arrays`), below `cache_folder("relevance")`, by everything its values depend
on: the video file (path, size, date), the candidate frames, how they are read (decoder, size), the signal,
and the scorer's name and version.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from diagnostics.cache import cache_folder
from diagnostics.errors import ConfigError
from diagnostics.store.keyed_arrays import DamagedArrayError, array_path, read_array, write_array
from diagnostics.video.content import file_stamp
from diagnostics.video.index import VideoIndex

__all__ = ["SignalCache", "video_key"]

_log = logging.getLogger(__name__)

Key = dict[str, Any]


def video_key(index: VideoIndex, frames: Int[np.ndarray, " n"]) -> Key:
    """What a video's signals are valid for: the file as it is now, and the frames looked at.

    Raises:
        MissingVideoError: the file is gone.
    """
    path, modified, size = file_stamp(index.path)
    digest = hashlib.sha256(np.ascontiguousarray(frames, dtype="<i8").tobytes()).hexdigest()
    return {"video": path, "size": size, "modified": modified, "frames": digest}


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
            return read_array(path, key)
        except FileNotFoundError:
            return None
        except DamagedArrayError as error:
            _log.warning("%s is damaged (%s) and is made again", path, error)
        return None

    def save(self, key: Key, values: Float[np.ndarray, " n *dim"]) -> None:
        """Keep `values`: they appear whole or not at all.

        Raises:
            ConfigError: the folder cannot be written.
        """
        try:
            write_array(self._path(key), key, values)
        except OSError as error:
            raise ConfigError(
                f"the cache of relevance scores cannot be written: {error}.",
                remedy="Set DIAGNOSTICS_CACHE to a folder with space that you may write.",
            ) from error

    def _path(self, key: Key) -> Path:
        return array_path(self._folder or cache_folder("relevance"), key)
