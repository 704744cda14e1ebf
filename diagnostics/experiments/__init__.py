"""Experiments: one readable recipe a file.

A module is named as on the command line (`+exp=attention_drift`) and has a strict `Config` and
`run(context, config) -> Outcome`. One that reads only some groups of the configuration names them in `USES`
(without `data` no items are loaded); `ANY_ENGINE` says that it needs answers only, `WHOLE` that it is not cut
into shards. In the place of `run` it may have `whole_run(config) -> RunConfig`, the run that it finishes, or
`on_run(config, console) -> Outcome`, what it does with a finished run's files, without a folder of its own. A
dotted name reaches a module outside this package.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from diagnostics.catalogue import options
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
        module = importlib.import_module(target)
    except ModuleNotFoundError as error:
        # Only the experiment's own absence is the person's typo; a library it needs is another matter.
        if error.name is None or not (target == error.name or target.startswith(f"{error.name}.")):
            raise
        raise _unknown(name) from error
    if not _is_experiment(module):
        raise _unknown(name)
    return module


def _is_experiment(module: ModuleType) -> bool:
    return hasattr(module, "Config") and any(
        callable(getattr(module, name, None)) for name in ("run", "whole_run", "on_run")
    )


def _unknown(name: str) -> ConfigError:
    return ConfigError(f"There is no experiment {name!r}.", remedy=near_match(name, list(options("exp"))))
