"""Readers: one module each, chosen by name.

A reader is a module with one function:

    read(index: VideoIndex, indices: Int[n], out: UInt8[n, h, w, 3], threads: int) -> None

It fills `out[i]` with frame `indices[i]` (checked to exist; repeats and any order allowed), upright,
RGB, scaled to `out`'s size where that differs from the video's. It raises a `VideoError` rather than
give a picture it is not sure of. What it gives for a frame does not depend on the other frames it
is asked for: frames are kept one by one (`frame_cache`). It may have a second function,
`versions() -> dict[str, str]`: the libraries that its pictures depend on. Adding one is adding one
file here, or naming a module of your own by its dotted name.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import platform
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

import numpy as np
from jaxtyping import Int, UInt8

from diagnostics.errors import ConfigError
from diagnostics.video import agreement, decoding, index, scanning, structure
from diagnostics.video.index import VideoIndex

__all__ = ["Reader", "load_reader", "reader_identity", "reader_names"]


@runtime_checkable
class Reader(Protocol):
    """What a reader module offers."""

    def read(
        self,
        index: VideoIndex,
        indices: Int[np.ndarray, " n"],
        out: UInt8[np.ndarray, "n h w 3"],
        threads: int,
    ) -> None:
        """Fill `out` with the frames at `indices`."""
        ...


def reader_names() -> tuple[str, ...]:
    """Names of the readers that come with the toolkit."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load_reader(name: str) -> Reader:
    """The reader called `name`, or the module of that dotted name.

    Raises:
        ConfigError: there is no such reader, or what it needs is not installed.
    """
    if "." not in name and name not in reader_names():
        raise ConfigError(f"unknown reader {name!r}.", remedy=f"Known: {', '.join(reader_names())}.")
    try:
        module = importlib.import_module(name if "." in name else f"{__name__}.{name}")
    except (ImportError, OSError, RuntimeError) as error:
        raise ConfigError(
            f"reader {name!r} cannot be loaded ({error}).",
            remedy="Install what it needs, or use reader=pyav.",
        ) from error
    if not hasattr(module, "read"):
        raise ConfigError(f"reader {name!r} has no function `read`.", remedy="See diagnostics/video/readers.")
    return cast(Reader, module)


def reader_identity(name: str) -> dict[str, str]:
    """The reader called `name` in its present version: what its pictures depend on beside file and frame.

    The source of its module and of the toolkit's numbering and drawing of frames, the libraries that it names
    (`versions`), PyAV's FFmpeg, and the kind of machine: FFmpeg's colour conversion has code of its own for
    each. A reader of one's own that lies in several files, or leans on a library, should have `versions`.

    Raises:
        ConfigError: see `load_reader`.
    """
    reader = load_reader(name)
    digest = hashlib.sha256()
    for module in (reader, agreement, decoding, index, scanning, structure):
        source = getattr(module, "__file__", None)
        digest.update(Path(source).read_bytes() if source else b"")
    versions = {**decoding.versions(), **getattr(reader, "versions", dict)()}
    told = [f"{library} {version}" for library, version in sorted(versions.items())]
    digest.update("\n".join([*told, platform.machine()]).encode())
    return {"reader": name, "reader_version": digest.hexdigest()}
