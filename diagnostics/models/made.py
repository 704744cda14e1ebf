"""Checkpoints that are made on first use and kept in the cache, named by what they are made of."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from diagnostics.cache import cache_folder

__all__ = ["made_once"]


def made_once(name: str, recipe: Mapping[str, Any], write: Callable[[Path], None]) -> Path:
    """The folder that `recipe` describes, written by `write` if it is not in the cache yet.

    Two processes that ask at once make it once; a half-written folder is never seen.

    Args:
        name: what the folder's name begins with.
        recipe: everything the content depends on, as JSON can hold it; its digest ends the folder's name.
        write: given an empty folder, fills it.
    """
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True, default=str).encode()).hexdigest()[:12]
    root = cache_folder("models")
    folder = root / f"{name}-{digest}"
    with FileLock(root / f"{name}-{digest}.lock"):
        if not folder.exists():
            staging = Path(tempfile.mkdtemp(prefix=f".{name}-{digest}-", dir=root))
            try:
                write(staging)
                staging.replace(folder)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    return folder
