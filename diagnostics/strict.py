"""From a mapping to a frozen dataclass, strictly: unknown keys are errors that name the near match.

Configuration objects are `pydantic` dataclasses decorated with `STRICT`; this is the only place
where a plain mapping becomes one.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from diagnostics.errors import ConfigError

__all__ = ["STRICT", "from_mapping", "near_match"]

STRICT = ConfigDict(extra="forbid", validate_default=True)
"""Pass as `config=` to `pydantic.dataclasses.dataclass`: unknown fields are refused."""

T = TypeVar("T")


def near_match(name: str, known: list[str] | tuple[str, ...]) -> str:
    """A hint for a misspelt name: the nearest known one, or the list of them all."""
    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if matches:
        return f"Did you mean {matches[0]!r}?"
    return f"Known: {', '.join(sorted(known))}."


def from_mapping(config: type[T], values: Mapping[str, Any], where: str) -> T:
    """Build `config` from `values`.

    Args:
        config: a pydantic dataclass decorated with `STRICT`.
        values: what the person wrote.
        where: the configuration path of `values`, used in messages (`data`, `sampling`...).

    Raises:
        ConfigError: a key is unknown, missing, or its value has the wrong type; all are named.
    """
    try:
        return TypeAdapter(config).validate_python(dict(values))
    except ValidationError as error:
        complaints = [_complaint(config, entry, where) for entry in error.errors()]
        raise ConfigError(
            "; ".join(complaints) + ".", remedy="Correct the configuration or the command line."
        ) from error


def _complaint(config: type, entry: Any, where: str) -> str:
    path = ".".join([where, *[str(part) for part in entry["loc"]]])
    if entry["type"] == "unexpected_keyword_argument":
        owner = _owner(config, entry["loc"][:-1])
        known = [f.name for f in dataclasses.fields(owner)] if dataclasses.is_dataclass(owner) else []
        return f"unknown key {path!r}. {near_match(str(entry['loc'][-1]), known)}".rstrip(".")
    if entry["type"] in ("missing", "missing_argument"):
        return f"{path!r} must be given"
    return f"{path!r} is {entry['input']!r}: {entry['msg'][0].lower()}{entry['msg'][1:]}"


def _owner(config: type, loc: tuple) -> Any:
    """The dataclass that holds the field at `loc`, as far as annotations tell."""
    owner: Any = config
    for part in loc:
        kinds = getattr(owner, "__pydantic_fields__", {})
        owner = kinds[part].annotation if part in kinds else owner
    return owner
