"""Which items of a data set a run takes: by id, by task, a stratified pilot, the first few."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.errors import ConfigError
from diagnostics.strict import STRICT, near_match

__all__ = ["SubsetConfig", "select_subset"]


def _as_texts(value: Any) -> Any:
    """One name for a list of one, and numbers for texts: `data.ids=12` arrives as an integer."""
    if isinstance(value, str | int) and not isinstance(value, bool):
        value = (value,)
    if isinstance(value, list | tuple):
        return tuple(str(entry) if isinstance(entry, int) else entry for entry in value)
    return value


Names = Annotated[tuple[str, ...] | None, BeforeValidator(_as_texts)]
Count = Annotated[int, Field(ge=1)] | None


@dataclass(frozen=True, config=STRICT)
class SubsetConfig:
    """Which items to take; the narrowings apply in this order.

    Attributes:
        ids: these items only.
        tasks: items of these tasks only.
        pilot: a sample of this many, stratified by task.
        limit: the first so many, in the order of the data set.
        pilot_seed: of the pilot sample.
    """

    ids: Names = None
    tasks: Names = None
    limit: Count = None
    pilot: Count = None
    pilot_seed: int = 0


def select_subset(
    items: Sequence[Item], config: SubsetConfig, *, rejected_ids: Iterable[str] = ()
) -> list[Item]:
    """The items `config` asks for, in the order of the data set.

    The pilot gives each task its proportional share (largest remainder) and at least one item where
    the pilot is no smaller than the number of tasks. Inside a task the items with the smallest hash of
    seed and id are taken, so that the sample depends on which items there are, not on their order.

    Args:
        items: all usable items.
        config: what to take.
        rejected_ids: items the loader refused; naming one in `ids` is no mistake of the person's.

    Raises:
        ConfigError: an id or a task is unknown (the near match is named), or nothing is left.
    """
    rejected = set(rejected_ids)
    chosen = list(items)
    if config.ids is not None:
        _refuse_unknown("ids", config.ids, [*dict.fromkeys(item.id for item in items), *rejected])
        chosen = [item for item in chosen if item.id in config.ids]
    if config.tasks is not None:
        _refuse_unknown("tasks", config.tasks, list(dict.fromkeys(item.task for item in items)))
        chosen = [item for item in chosen if item.task in config.tasks]
    if config.pilot is not None:
        kept = _pilot(chosen, config.pilot, config.pilot_seed)
        chosen = [item for item in chosen if item.id in kept]
    if config.limit is not None:
        chosen = chosen[: config.limit]
    if items and not chosen and not (config.ids and rejected.issuperset(config.ids)):
        raise ConfigError("No item is left of the data set.", remedy="Loosen data.ids or data.tasks.")
    return chosen


def _refuse_unknown(key: str, wanted: Sequence[str], known: list[str]) -> None:
    present = set(known)
    unknown = [name for name in wanted if name not in present]
    if unknown:
        hints = "; ".join(f"{name!r}: {_hint(name, known)}" for name in unknown[:5])
        raise ConfigError(
            f"data.{key} names {len(unknown)} unknown: {hints}",
            remedy="Correct the names; quote those that look like numbers.",
        )


def _hint(name: str, known: list[str]) -> str:
    """The near match; a data set of thousands is not listed whole."""
    hint = near_match(name, known)
    return hint if hint.startswith("Did you mean") or len(known) <= 20 else f"{len(known)} others are known."


def _pilot(items: Sequence[Item], size: int, seed: int) -> set[str]:
    """Ids of a stratified sample."""
    shares = _shares(Counter(item.task for item in items), size, seed)
    ranked = sorted(items, key=lambda item: _rank(seed, item.id))
    kept: set[str] = set()
    for task, share in shares.items():
        kept.update([item.id for item in ranked if item.task == task][:share])
    return kept


def _shares(counts: Counter[str], size: int, seed: int) -> dict[str, int]:
    """How many items each task gives: proportional, at least one each where `size` allows."""
    total = sum(counts.values())
    if size >= total:
        return dict(counts)
    tasks = sorted(counts, key=lambda task: _rank(seed, task))
    exact = {task: size * counts[task] / total for task in tasks}
    floor = 1 if size >= len(tasks) else 0
    shares = {task: max(floor, int(exact[task])) for task in tasks}
    while sum(shares.values()) < size:
        hungry = [task for task in tasks if shares[task] < counts[task]]
        shares[max(hungry, key=lambda task: exact[task] - shares[task])] += 1
    while sum(shares.values()) > size:  # the guaranteed ones came on top: the best served give back
        shares[max((t for t in tasks if shares[t] > floor), key=lambda task: shares[task] - exact[task])] -= 1
    return shares


def _rank(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{name}".encode()).digest()
