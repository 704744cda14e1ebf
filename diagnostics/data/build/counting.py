"""Which questions count as localised evidence, by the rule of MedHorizon's audit.

Of its 1,253 questions 1,035 are called localisable, 894 of them exact and 141 by proxy (arXiv 2605.06537,
section 6.4). Its totals give the rule: Site, Hist and Size are the proxies; BPQ, LLS, LA, WR, RSR, CPR and
everything from US-Study are left out, 218 in all. Evidence windows exist for LLS and LA all the same: they
are the union of the lesions, and serve as oracle evidence.
"""

from __future__ import annotations

import re
from typing import Literal

from diagnostics.data.build.settings import TASKS
from diagnostics.data.items import Item

__all__ = [
    "EXCLUDED_SOURCES",
    "EXCLUDED_TASKS",
    "PROXY_TASKS",
    "Counted",
    "counted_as",
    "source_of",
    "task_of",
]

Counted = Literal["exact", "proxy", "excluded"]

PROXY_TASKS = ("Site", "Hist", "Size")
EXCLUDED_TASKS = ("BPQ", "LLS", "LA", "WR", "RSR", "CPR")
EXCLUDED_SOURCES = ("US-Study",)
"""By source, not by task: its thirty questions carry the names of localised families."""

_FAMILIES = {task.casefold(): task for task in TASKS}


def task_of(item: Item) -> str:
    """The item's family by MedHorizon's abbreviation, where it has one; else its own task name."""
    for written in (item.metadata.get("task_id"), item.task):
        if isinstance(written, str) and written.casefold() in _FAMILIES:
            return _FAMILIES[written.casefold()]
    return item.task


def source_of(item: Item) -> str:
    """The data set the item's video comes from; the empty text where nobody said."""
    for key in ("source", "dataset"):
        written = item.metadata.get(key)
        if isinstance(written, str):
            return written
    return ""


def counted_as(item: Item) -> Counted:
    """How the audit counts the item.

    Items of MedHorizon's families by family and source, whether their evidence is at hand or not; items
    of other tasks by the kind of their evidence, and those without windows as excluded.
    """
    task = task_of(item)
    if _plain(source_of(item)) in map(_plain, EXCLUDED_SOURCES) or task in EXCLUDED_TASKS:
        return "excluded"
    if task in PROXY_TASKS:
        return "proxy"
    if task in TASKS:
        return "exact"
    if item.evidence is None or item.evidence.kind == "global":
        return "excluded"
    return item.evidence.kind


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())
