"""One file an architecture family, found by the model's `config.model_type`.

Adding a family is adding a file with a module constant `FAMILY`, an instance of `Family` or of a
subclass that overrides what differs. Nothing else is edited. A family outside this package is found through
an entry point, or given to a model by `use_family`.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache
from typing import Any

from hooks.errors import UnsupportedModelError
from hooks.families._family import Encoder, Family, Shown
from hooks.families._frames import FrameFamily
from hooks.families._grid import GridFamily, VisionIds, counted_off, time_before
from hooks.families._own import assigned, family_at, installed_family, installed_types, use_family
from hooks.families._runs import beside, split_runs, text_before
from hooks.families._sources import Kind, Mark, Source, Unit, array, frames_given, full_grid, sequence

__all__ = [
    "Encoder",
    "Family",
    "FrameFamily",
    "GridFamily",
    "Kind",
    "Mark",
    "Shown",
    "Source",
    "Unit",
    "VisionIds",
    "array",
    "beside",
    "counted_off",
    "families",
    "family_at",
    "family_named",
    "family_of",
    "frames_given",
    "full_grid",
    "sequence",
    "split_runs",
    "text_before",
    "time_before",
    "use_family",
]


@cache
def families() -> dict[str, Family]:
    """Every model type of this package and the family that answers to it."""
    found: dict[str, Family] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("_"):
            continue
        family = importlib.import_module(f"{__name__}.{module.name}").FAMILY
        found |= dict.fromkeys(family.model_types, family)
    return found


def family_named(model_type: str) -> Family:
    """The family of a model type.

    Raises:
        UnsupportedModelError: no family file answers to it, and no installed package's.
        FamilyError: an installed package's family cannot be used, or answers to a type that has one.
    """
    installed = installed_types()
    if model_type in installed:
        return installed_family(installed[model_type], families())
    if model_type not in families():
        known = {*families(), *installed}
        near = difflib.get_close_matches(model_type, known, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise UnsupportedModelError(
            f"Model type {model_type!r} has no family in hooks/families.",
            remedy=f"{hint}Known: {', '.join(sorted(known))}. To add one, write one file: docs/families.md.",
        )
    return families()[model_type]


def family_of(model: Any) -> Family:
    """The family of a loaded model.

    Raises:
        UnsupportedModelError: it was given none, and no family answers to its `config.model_type`.
        FamilyError: an installed package's family cannot be used.
    """
    return assigned(model) or family_named(str(getattr(getattr(model, "config", None), "model_type", None)))
