"""Engines that answer: the same request, one file each.

A module that is an engine has a frozen dataclass `Config` of its own parameters and
`engine(load, settings, note) -> Engine`: `load` gives the loaded model when first needed (an engine with a
process or a server of its own never calls it), `settings` is its `Config`, `note(name, finding)` keeps a fact
for the manifest. Keys that cannot change answers stand in `diagnostics.config.NOT_RESULTS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from diagnostics.catalogue import options
from diagnostics.errors import ConfigError
from diagnostics.strict import from_mapping, near_match

if TYPE_CHECKING:
    from diagnostics.models.backends.requests import Engine
    from diagnostics.models.config import BackendConfig, ModelConfig
    from diagnostics.models.loading import LoadedModel

__all__ = ["engine_settings", "open_engine"]


def engine_settings(config: BackendConfig) -> Any:
    """The engine's own parameters, converted.

    Raises:
        ConfigError: there is no such engine, or a key is unknown (the near match is named) or of a wrong
            type.
    """
    return from_mapping(_module(config.name).Config, config.parameters, "backend")


def open_engine(
    load: Callable[[], LoadedModel],
    model: ModelConfig,
    config: BackendConfig,
    note: Callable[[str, Any], None],
) -> Engine:
    """The engine that the configuration names; nothing is loaded before it is asked something.

    Raises:
        ConfigError: see `engine_settings`.
    """
    opened: Engine = _module(config.name).engine(load, model, engine_settings(config), note)
    return opened


def _module(name: str) -> ModuleType:
    """The engine's module: one of this package, or any by its dotted name."""
    path = name if "." in name else f"{__name__}.{name}"
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not path.startswith(error.name):
            raise  # the engine is there, and something that it imports is not
        raise ConfigError(f"unknown engine {name!r}.", remedy=near_match(name, _names())) from error
    if not all(hasattr(module, part) for part in ("Config", "engine")):
        raise ConfigError(f"unknown engine {name!r}.", remedy=near_match(name, _names()))
    return module


def _names() -> list[str]:
    """Engines that come with the toolkit: those that can be chosen on the command line."""
    return sorted(options("backend"))
