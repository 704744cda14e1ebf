"""Names and hashes that stay the same on every machine: of values, configurations, pairs and files.

Everything that identifies a result is hashed from *canonical JSON*: keys sorted, no spaces, ASCII,
numpy scalars as Python ones, and a float without a fractional part as an integer, so that `1` and
`1.0` (a YAML file and a command line) name the same condition.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence, Set
from pathlib import PurePath
from typing import Any

import numpy as np

__all__ = [
    "Difference",
    "Pair",
    "canonical_json",
    "condition_id",
    "config_hash",
    "differing_keys",
    "pair_file_name",
    "pair_stem",
    "plain",
    "slug",
]

Pair = tuple[str, str]
"""What one record is about: (item id, condition id)."""

_ABSENT = "(not set)"
_SLUG_LENGTH = 48
_CONDITION_SLUG_LENGTH = 40


def plain(value: Any) -> Any:
    """`value` as JSON has it: dicts with text keys, lists, text, numbers, booleans, None.

    Undefined is null: NaN and the infinities become None. Paths become text, sets sorted lists,
    dataclasses and mappings dicts, numpy scalars and arrays Python numbers and lists.

    Raises:
        TypeError: the value, or a key of a mapping, has no such form (bytes, a tensor, a function...).
    """
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, PurePath):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {_text_key(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, Set):
        return sorted((plain(entry) for entry in value), key=json.dumps)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [plain(entry) for entry in value]
    raise TypeError(f"a {type(value).__name__} has no JSON form: {value!r:.80}")


def _text_key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"JSON keys are text, this one is a {type(key).__name__}: {key!r:.80}")
    return str(key)


def canonical_json(value: Any) -> str:
    """`value` as the one JSON text that all equal values share.

    Raises:
        ValueError: a number is NaN or infinite: an identity cannot hold an undefined value.
        TypeError: see `plain`.
    """
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _canonical(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return _canonical(value.tolist())
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} cannot be part of an identity (a condition or a configuration)")
        return int(value) if value.is_integer() else float(value)
    if isinstance(value, Mapping):
        return {_text_key(key): _canonical(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        return [_canonical(entry) for entry in value]
    if isinstance(value, Set):
        return sorted((_canonical(entry) for entry in value), key=json.dumps)
    return plain(value)


def _digest(value: Any, digits: int) -> str:
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()[:digits]


def slug(text: str, length: int = _SLUG_LENGTH) -> str:
    """`text` as a short piece of a file name: lower-case ASCII letters, digits, `.`, `_`, `-`.

    Not unique by itself; never begins or ends with a dot or a dash, and is never empty.
    """
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii").lower()
    return re.sub(r"[^a-z0-9._]+", "-", ascii_text)[:length].strip("-._") or "x"


def condition_id(condition: Mapping[str, Any]) -> str:
    """A short id of a condition, readable at its front and unique by its hash; `-` for `{}`.

    Example: `{"budget": 64, "order": "shuffle"}` gives `budget=64,order=shuffle-` and ten digits.

    Raises:
        ValueError, TypeError: see `canonical_json`.
    """
    if not condition:
        return "-"
    values = _canonical(condition)  # so that what has one hash also has one front
    words = ",".join(f"{key}={_word(values[key])}" for key in sorted(values))
    readable = re.sub(r"[^A-Za-z0-9._=,+-]+", "_", words)[:_CONDITION_SLUG_LENGTH]
    return f"{readable}-{_digest(condition, 10)}"


def _word(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value)


def pair_stem(item_id: str, condition: str) -> str:
    """`<slug>-<hash>` of a pair: a file name for any id, on any file system.

    Two pairs never share it by case, by Unicode form or by being cut: the 16 hex digits are those of
    both ids as they are, and the slug is only there for people.

    Args:
        item_id: any text.
        condition: the condition's id (`condition_id`).
    """
    return f"{slug(item_id)}-{_digest([item_id, condition], 16)}"


def pair_file_name(item_id: str, condition: str) -> str:
    """The name of a pair's tensor file, `<slug>-<hash>.h5`; see `pair_stem`."""
    return f"{pair_stem(item_id, condition)}.h5"


def config_hash(config: Mapping[str, Any], ignore: Collection[str] = frozenset()) -> str:
    """The first 12 hex digits of the sha256 of a configuration's canonical JSON.

    Args:
        config: the resolved configuration, nested mappings.
        ignore: dotted keys left out because they cannot change results (`workers`, `hydra.launcher`);
            a key that names a mapping leaves out all of it.

    Raises:
        ValueError, TypeError: see `canonical_json`.
    """
    return _digest(_without(config, ignore), 12)


def _without(config: Mapping[str, Any], ignore: Collection[str], prefix: str = "") -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in config.items():
        path = f"{prefix}{key}"
        if path not in ignore:
            kept[key] = _without(value, ignore, f"{path}.") if isinstance(value, Mapping) else value
    return kept


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """One dotted key on which two configurations disagree, and its value in each, as JSON."""

    key: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.key}: {self.old} there, {self.new} here"


def differing_keys(
    old: Mapping[str, Any], new: Mapping[str, Any], ignore: Collection[str] = frozenset()
) -> list[Difference]:
    """The dotted keys whose values differ, in order of name; `(not set)` where one side lacks the key."""
    left, right = _leaves(_without(old, ignore)), _leaves(_without(new, ignore))
    return [
        Difference(key, left.get(key, _ABSENT), right.get(key, _ABSENT))
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    ]


def _leaves(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    leaves: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            leaves.update(_leaves(value, f"{prefix}{key}."))
        else:
            leaves[f"{prefix}{key}"] = canonical_json(value)
    return leaves
