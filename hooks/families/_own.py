"""Families from outside this package: installed ones, and one given by its dotted path.

An installed package offers a family by an entry point of the group `video_mllm_diagnostics.families` whose
name is the model type and whose value is the `Family` instance, one entry point a model type. It is imported
when a model of that type is met, and not before, so that a broken one is nobody else's trouble.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Collection
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from hooks.errors import FamilyError
from hooks.families._family import Family

__all__ = ["GROUP", "assigned", "family_at", "installed_family", "installed_types", "use_family"]

GROUP = "video_mllm_diagnostics.families"
_ATTRIBUTE = "_diagnostics_family"
"""On the model itself, so that a copy of it has the same family."""


def installed_types() -> dict[str, tuple[EntryPoint, ...]]:
    """The entry points of each model type that installed packages offer a family for; nothing is imported."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in _entry_points(tuple(sys.path)):
        found[point.name] = (*found.get(point.name, ()), point)
    return found


@lru_cache(maxsize=4)
def _entry_points(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Of everything on the path: looked for once, for a family is asked for at every capture."""
    del path
    return tuple(entry_points(group=GROUP))


def installed_family(points: tuple[EntryPoint, ...], bundled: Collection[str]) -> Family:
    """The family behind the entry points of one model type.

    Args:
        points: there must be one.
        bundled: model types that have a family already, of which it may be none.

    Raises:
        FamilyError: two families answer to the type; or the one does not import, is no family, or does not
            answer to the model type it is offered for.
    """
    point, *others = points
    if others or point.name in bundled:
        other = "hooks/families" if point.name in bundled else others[0].value
        raise FamilyError(
            f"Two families answer to model type {point.name!r}: {point.value} and {other}.",
            remedy="Uninstall one package, or say which with model.family=path.to.Class.",
        )
    try:
        found = point.load()
    except (ImportError, AttributeError) as error:
        raise FamilyError(
            f"The family {point.value} offered for {point.name!r} does not import: {error}.",
            remedy=f"Repair or uninstall the package that has the entry point in {GROUP}.",
        ) from error
    family = _instance(found, point.value)
    _refuse_type(family, point.name, point.value)
    return family


def family_at(path: str) -> Family:
    """The family at a dotted path: a `Family` instance, a class that is made without arguments, or a module
    that holds `FAMILY`.

    Raises:
        FamilyError: the path does not import, or leads to something else.
    """
    module, _, name = path.replace(":", ".").rpartition(".")
    found: Any
    try:
        found = importlib.import_module(path)
    except ImportError as whole:
        try:
            found = getattr(importlib.import_module(module), name) if module else None
        except (ImportError, AttributeError) as error:
            raise FamilyError(
                f"The family {path!r} does not import: {error}.", remedy=_near(module, name)
            ) from error
        if found is None:
            raise FamilyError(
                f"The family {path!r} does not import: {whole}.",
                remedy="Give a path such as my_package.my_family.MyFamily, its package on PYTHONPATH.",
            ) from whole
    return _instance(getattr(found, "FAMILY", found), path)


def _near(module: str, name: str) -> str:
    """What to do about a path that does not import, with names like the one that is not there."""
    remedy = "The module must be importable: install it, or put its folder on PYTHONPATH."
    try:
        names = dir(importlib.import_module(module))
    except (ImportError, ValueError):  # said in the message already
        return remedy
    close = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {module}.{close[0]}?" if close else f"{module} has no such name."


def _instance(found: Any, path: str) -> Family:
    if isinstance(found, type) and issubclass(found, Family):
        made: Callable[[], Any] = found
        try:
            found = made()
        except TypeError as error:
            raise FamilyError(
                f"The family {path!r} cannot be made without arguments: {error}.",
                remedy="Give its fields defaults, or give the path of an instance.",
            ) from error
    if not isinstance(found, Family):
        raise FamilyError(
            f"{path!r} is {type(found).__name__}, not a family.",
            remedy="Give a hooks.families.Family, or a subclass with defaults: see docs/families.md.",
        )
    return found


def _refuse_type(family: Family, model_type: str, path: str) -> None:
    if model_type not in family.model_types:
        raise FamilyError(
            f"{path} is a family of {', '.join(family.model_types) or 'no model type'}; the model is "
            f"{model_type!r}.",
            remedy="Add the type to its model_types if it is laid out alike, or take another family.",
        )


def use_family(model: Any, family: Family) -> None:
    """Let a model be read by this family, whatever other one answers to its model type.

    Raises:
        FamilyError: it is no family, or not one of this model's type.
    """
    checked = _instance(family, repr(family))
    _refuse_type(checked, str(getattr(getattr(model, "config", None), "model_type", None)), checked.name)
    setattr(model, _ATTRIBUTE, checked)


def assigned(model: Any) -> Family | None:
    """The family a model was given by `use_family`; None where it was given none."""
    return getattr(model, _ATTRIBUTE, None)
