"""The checks, one a module, found by name: `rows(bench) -> Iterable[Row]` makes a module one."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

from diagnostics.errors import ConfigError
from diagnostics.strict import near_match

if TYPE_CHECKING:
    from diagnostics.validation.bench import Bench
    from diagnostics.validation.rows import Row

__all__ = ["Check", "check_names", "load_check", "refuse_unknown"]

Check = Callable[["Bench"], Iterable["Row"]]


def check_names() -> tuple[str, ...]:
    """Names of the checks, sorted: the groups of the table."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def refuse_unknown(names: Sequence[str]) -> None:
    """Raise where a name is no check's.

    Raises:
        ConfigError: it names the nearest check.
    """
    for name in names:
        if name not in check_names():
            raise ConfigError(
                f"There is no check {name!r}.", remedy=f"exp.checks: {near_match(name, check_names())}"
            )


def load_check(name: str) -> Check:
    """The function `rows` of the check called `name`.

    Raises:
        ConfigError: there is no such check.
    """
    refuse_unknown([name])
    return cast("Check", importlib.import_module(f"{__name__}.{name}").rows)
