"""Engines that answer: the same request, one file each.

A module that is an engine has `engine(load, config, note) -> Engine`: `load` gives the loaded model when
first needed (an engine with a process or a server of its own never calls it), `config` is the backend's
configuration, `note(name, finding)` keeps a fact for the manifest.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diagnostics.models.backends.requests import Engine
    from diagnostics.models.config import BackendConfig
    from diagnostics.models.loading import LoadedModel

__all__ = ["open_engine"]


def open_engine(
    load: Callable[[], LoadedModel], config: BackendConfig, note: Callable[[str, Any], None]
) -> Engine:
    """The engine that the configuration names; nothing is loaded before it is asked something."""
    module = importlib.import_module(f"{__name__}.{config.name}")
    opened: Engine = module.engine(load, config, note)
    return opened
