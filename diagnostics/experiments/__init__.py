"""Experiments: one readable recipe a file.

A module is named as on the command line (`+exp=attention_drift`) and has a strict `Config` and
`run(context, config) -> Summary`. A dotted name reaches a module outside this package.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from diagnostics.errors import ConfigError
from diagnostics.strict import near_match

__all__ = ["load_experiment"]


def load_experiment(name: str) -> ModuleType:
    """The recipe called `name`.

    Raises:
        ConfigError: there is none.
    """
    target = name if "." in name else f"{__name__}.{name}"
    try:
        return importlib.import_module(target)
    except ModuleNotFoundError as error:
        if error.name != target:
            raise
        known = [module.name for module in pkgutil.iter_modules(__path__)]
        raise ConfigError(f"There is no experiment {name!r}.", remedy=near_match(name, known)) from error
