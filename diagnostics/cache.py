"""The cache folder: what is made once and can always be made again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder(room: str) -> Path:
    """A folder for `room` (videos, models...), created if need be.

    `DIAGNOSTICS_CACHE` names the root; else the platform's place for caches.
    """
    if "DIAGNOSTICS_CACHE" in os.environ:
        root = Path(os.environ["DIAGNOSTICS_CACHE"])
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches" / "video-mllm-diagnostics"
    elif sys.platform == "win32" and "LOCALAPPDATA" in os.environ:
        root = Path(os.environ["LOCALAPPDATA"]) / "video-mllm-diagnostics"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "video-mllm-diagnostics"
    folder = root.expanduser() / room
    folder.mkdir(parents=True, exist_ok=True)
    return folder
