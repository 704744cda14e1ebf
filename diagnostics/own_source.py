"""The source of a family or probe that a person brings: it decides what is measured, and no version tells it.

The toolkit's own have the version and the commit of the manifest; a file of `model.family` or `exp.probes`
has its hash, in the configuration of the run and so in the run's own.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

__all__ = ["source_sha256"]

_OWN = "hooks"


def source_sha256(path: str) -> str | None:
    """SHA-256 of the file that holds a family or probe; None of the toolkit's own, and where there is none.

    Nothing is imported. What that file imports in its turn is not looked at.

    Args:
        path: of a module or something in it, as `hooks.families.family_at` takes it.
    """
    parts = path.replace(":", ".").split(".")
    if parts[0] == _OWN:
        return None
    file, within = None, None
    for part in parts:
        spec = _spec(part, within)  # by its last name alone: its package is not imported, and is not known
        if spec is None:
            break
        file, within = spec.origin, spec.submodule_search_locations
        if within is None:
            break
    if file is None or not Path(file).is_file():
        return None  # said where it is loaded
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _spec(name: str, within: Sequence[str] | None) -> ModuleSpec | None:
    """Where a module lies: of a package by its folders, else by all finders, for editable installs bring
    their own."""
    if within is not None:
        return PathFinder.find_spec(name, list(within))
    for finder in sys.meta_path:
        found = finder.find_spec(name, None) if hasattr(finder, "find_spec") else None
        if found is not None:
            return found
    return None
