"""Data sets: each a module with a strict `Config` and one function `load(config) -> Loaded`.

Adding one is one file here (or anywhere importable: a dotted name works too) and one YAML.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from diagnostics.data.subset import SubsetConfig
from diagnostics.data.validation import Loaded
from diagnostics.errors import ConfigError
from diagnostics.strict import from_mapping, near_match

__all__ = ["Loaded", "load_items", "loader", "loader_names", "task_order"]


def loader_names() -> list[str]:
    """Names of the bundled data sets, sorted."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in names if _is_loader(importlib.import_module(f"{__name__}.{name}")))


def loader(name: str) -> ModuleType:
    """The module that loads data set `name`: one of this package, or any dotted module name.

    Raises:
        ConfigError: there is no such module, or it lacks `Config` or `load`.
    """
    target = name if "." in name else f"{__name__}.{name}"
    try:
        module = importlib.import_module(target)
    except ModuleNotFoundError as error:
        # Only the loader's own absence is the person's typo; a library it needs is another matter.
        if error.name is None or not (target == error.name or target.startswith(f"{error.name}.")):
            raise
        raise ConfigError(
            f"There is no data set {name!r}.", remedy=near_match(name, loader_names())
        ) from error
    if not _is_loader(module):
        raise ConfigError(
            f"{name!r} is not a data set: module {target} has no `Config` and `load`.",
            remedy=near_match(name, loader_names()),
        )
    return module


def task_order(name: str) -> tuple[str, ...]:
    """The tasks of data set `name` in the order of its paper's table; empty where its loader names none.

    Raises:
        ConfigError: see `loader`.
    """
    return tuple(getattr(loader(name), "TASKS", ()))


def load_items(name: str, config: Mapping[str, Any]) -> Loaded:
    """The items of data set `name`, and the errors of those that cannot be used.

    Args:
        name: see `loader`.
        config: the loader's own parameters (not the subset's).

    Raises:
        ConfigError: unknown data set, unknown or missing key, wrong type.
        DataFileError: a file as a whole cannot be read.
    """
    module = loader(name)
    own = [field.name for field in dataclasses.fields(module.Config)]
    known = [*own, *(field.name for field in dataclasses.fields(SubsetConfig))]
    unknown = [key for key in config if key not in own]
    if unknown:
        raise ConfigError(
            f"Unknown key 'data.{unknown[0]}' for data={name}.", remedy=near_match(unknown[0], known)
        )
    return module.load(from_mapping(module.Config, config, "data"))


def _is_loader(module: ModuleType) -> bool:
    return hasattr(module, "Config") and callable(getattr(module, "load", None))
