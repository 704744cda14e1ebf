"""What was asked, in words: `items.jsonl` of a run, one item a line.

Records hold answers and letters; the question and the options are the item's, whatever was done to it. They
are kept once an item, so that a report reads without the data set.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from diagnostics.data.items import Evidence, Item, Turn, Window
from diagnostics.errors import DamagedRunError
from diagnostics.store.atomic import write_text
from diagnostics.store.canonical import plain

__all__ = ["ITEMS_FILE", "read_items", "write_items"]

ITEMS_FILE = "items.jsonl"

_KEPT = (
    "id", "video_id", "question", "options", "answer", "task", "task_family", "turns", "evidence", "clip",
)  # fmt: skip


def write_items(run_dir: Path, items: Iterable[Item], *, shard: int = 0) -> Path:
    """Write the items of a run, in their order; the file appears whole and replaces an older one.

    Where the video lies is left out: it says nothing on another machine.
    """
    lines = []
    for item in items:
        values = asdict(item)
        kept = plain({name: values[name] for name in _KEPT})
        lines.append(json.dumps(kept, allow_nan=False, separators=(",", ":")) + "\n")
    path = run_dir / ITEMS_FILE
    write_text(path, "".join(lines), shard=shard)
    return path


def read_items(run_dir: Path) -> dict[str, Item]:
    """The items of a run by id; empty for a run that kept none (older ones).

    An item's `video` is its `video_id`, which no file need have. Windows without times have NaN.

    Raises:
        DamagedRunError: a line is no item.
    """
    path = run_dir / ITEMS_FILE
    if not path.exists():
        return {}
    items = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if line:
            try:
                item = _item(json.loads(line))
            except (ValueError, TypeError, KeyError) as error:
                raise DamagedRunError(
                    f"line {number} is no item: {error!r}.",
                    remedy="Run the same command again: the file is written anew.",
                    path=path,
                ) from error
            items[item.id] = item
    return items


def _item(values: dict[str, Any]) -> Item:
    evidence, clip = values["evidence"], values["clip"]
    texts = {name: values[name] for name in ("id", "video_id", "question", "answer", "task", "task_family")}
    return Item(
        **texts,
        video=Path(values["video_id"]),
        options=tuple(values["options"]),
        turns=tuple(Turn(**turn) for turn in values["turns"]),
        evidence=None if evidence is None else _evidence(evidence),
        clip=None if clip is None else (float(clip[0]), float(clip[1])),
    )


def _evidence(values: dict[str, Any]) -> Evidence:
    return Evidence(tuple(_window(window) for window in values["windows"]), values["kind"])


def _window(values: dict[str, Any]) -> Window:
    start, end = (
        float("nan") if values[name] is None else float(values[name])
        for name in ("start_seconds", "end_seconds")
    )
    return Window(start, end, values["start_frame"], values["end_frame"])
