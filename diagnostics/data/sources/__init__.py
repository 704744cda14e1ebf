"""Evidence for MedHorizon from its eight source data sets' own annotations (docs/medhorizon.md).

A reader is one module here with a constant `SOURCE`; its name is the key of `exp.folders`. Adding one is
adding one file.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from diagnostics.data.sources._source import Source

__all__ = ["all_sources"]


@cache
def all_sources() -> Mapping[str, Source]:
    """The readers that come with the toolkit, by the name of their module, sorted."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name[0] != "_")
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    found = {name: module.SOURCE for name, module in modules.items() if hasattr(module, "SOURCE")}
    return MappingProxyType(found)
