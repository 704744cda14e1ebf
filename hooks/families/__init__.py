"""One file an architecture family, found by the model's `config.model_type`.

Adding a family is adding a file with a module constant `FAMILY`, an instance of `Family` or of a
subclass that overrides what differs. Nothing else is edited.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from hooks.families._family import Family, VisionIds, refuse_unknown

__all__ = ["Family", "VisionIds", "families", "family_of"]


@cache
def families() -> dict[str, Family]:
    """Every known model type and the family that answers to it."""
    found: dict[str, Family] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("_"):
            continue
        family = importlib.import_module(f"{__name__}.{module.name}").FAMILY
        found |= dict.fromkeys(family.model_types, family)
    return found


def family_of(model: Any) -> Family:
    """The family of a loaded model.

    Raises:
        UnsupportedModelError: no family file answers to its `config.model_type`.
    """
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    known = families()
    if model_type not in known:
        raise refuse_unknown(str(model_type), list(known))
    return known[model_type]
