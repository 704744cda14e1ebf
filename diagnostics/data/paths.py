"""Paths named by data files: inside the root or refused; missing files with their near matches."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from diagnostics.errors import DataFileError, PathLeavesRootError, RecordError

__all__ = ["existing_file", "existing_folder", "inside_root"]

_WINDOWS_ABSOLUTE = re.compile(r"^[A-Za-z]:[\\/]|^[\\/]{2}")


def inside_root(root: Path, written: str, *, where: str, item_id: str | None = None) -> Path:
    r"""The file a record names, resolved; it need not exist.

    A backslash separates folders on every platform, so that a file written on Windows reads the same
    elsewhere. An absolute path is accepted only where it lies inside the root.

    Args:
        root: the data set's root.
        written: the path as the record has it, relative to the root.
        where: file and line, for the message.
        item_id: for the message.

    Raises:
        PathLeavesRootError: it is absolute and elsewhere, climbs out by `..`, or leads out by a link.
        RecordError: it is empty or cannot be a path.
    """
    if not written.strip() or "\0" in written:
        raise RecordError(
            f"{written!r} is not a path.",
            remedy="Write a path relative to the root.",
            item_id=item_id,
            path=where,
        )
    home = root.resolve()
    try:
        target = (home / written.replace("\\", "/")).resolve()
    except (OSError, RuntimeError) as error:  # a loop of links: an error that changed its type in 3.13
        raise PathLeavesRootError(
            f"{written!r} cannot be resolved: {error}.",
            remedy="Look at the links on the way.",
            item_id=item_id,
            path=where,
        ) from error
    foreign = _WINDOWS_ABSOLUTE.match(written) is not None and not Path(written).is_absolute()
    if foreign or not target.is_relative_to(home) or target == home:
        raise PathLeavesRootError(
            f"{written!r} points outside the root {home}.",
            remedy="Write a path below the root, or set data.root to a folder that holds the file.",
            item_id=item_id,
            path=where,
        )
    return target


def existing_file(path: Path, *, what: str) -> Path:
    """`path` with `~` expanded, once it is known to be a file.

    Raises:
        DataFileError: it is missing (near matches of its folder are named) or is a folder.
    """
    path = path.expanduser()
    if path.is_dir():
        raise DataFileError(f"The {what} is a folder.", remedy="Name the file in it.", path=path)
    if not path.is_file():
        raise DataFileError(f"There is no such {what}.", remedy=_near(path), path=path)
    return path


def existing_folder(path: Path, *, what: str) -> Path:
    """`path` with `~` expanded, once it is known to be a folder.

    Raises:
        DataFileError: it is missing (near matches are named) or is a file.
    """
    path = path.expanduser()
    if path.is_file():
        raise DataFileError(f"The {what} is a file.", remedy="Name the folder that holds it.", path=path)
    if not path.is_dir():
        raise DataFileError(f"There is no such {what}.", remedy=_near(path), path=path)
    return path


def _near(path: Path) -> str:
    """The nearest names in the deepest folder of `path` that exists."""
    missing = path.absolute()
    while not missing.parent.is_dir():
        missing = missing.parent
    names = sorted(entry.name for entry in missing.parent.iterdir())
    matches = difflib.get_close_matches(missing.name, names, n=3, cutoff=0.6)
    if matches:
        return f"Did you mean {' or '.join(str(missing.parent / name) for name in matches)}?"
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"{missing.parent} holds {shown}." if names else f"{missing.parent} is empty."
