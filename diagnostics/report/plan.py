"""Tables of what a run will cost: for files, and for the screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
from rich.table import Table
from rich.text import Text

from diagnostics.report.style import plain_text

if TYPE_CHECKING:
    from diagnostics.experiments.planning import PlannedItem, Unplanned
    from diagnostics.experiments.rehearsal import Disk
    from diagnostics.models.cost import Memory

__all__ = ["COUNT", "ESTIMATE", "Line", "item_table", "screen_table", "totals_table", "unplanned_table"]

COUNT, ESTIMATE = "count", "estimate"


@dataclass(frozen=True)
class Line:
    """One total: its name, its value (None where it is not known), whether it is counted or estimated."""

    name: str
    value: float | None
    kind: str
    note: str = ""


def item_table(
    items: Sequence[PlannedItem], flops: Sequence[int], memories: Sequence[Memory], disks: Sequence[Disk]
) -> pd.DataFrame:
    """One row an item, as if it were asked by itself."""
    rows = []
    for one, operations, memory, disk in zip(items, flops, memories, disks, strict=True):
        units, tall, wide = one.grid
        rows.append(
            {
                "item": one.item.id,
                "video": one.item.video_id,
                "task": one.item.task,
                "frames": len(one.selection),
                "frames_to_decode": one.pictures,
                "height": one.frame_size[0],
                "width": one.frame_size[1],
                "resized_height": tall * one.patch,
                "resized_width": wide * one.patch,
                "units": units,
                "visual_tokens": one.n_visual,
                "prompt_tokens": one.n_prompt,
                "prefill_flops": operations,
                "weight_bytes": memory.weights,
                "cache_bytes": memory.cache,
                "activation_bytes": memory.activations,
                "record_bytes": round(disk.record),
                "tensor_bytes": round(disk.tensors),
            }
        )
    return pd.DataFrame(rows)


def totals_table(lines: Sequence[Line]) -> pd.DataFrame:
    """One row a total: `measure, value, kind, note`."""
    rows = [(line.name, line.value, line.kind, line.note) for line in lines]
    return pd.DataFrame(rows, columns=["measure", "value", "kind", "note"])


def unplanned_table(unplanned: Sequence[Unplanned]) -> pd.DataFrame:
    """One row an item that cannot be asked: `item, video, error, message`."""
    rows = [(one.item_id, one.video, type(one.error).__name__, str(one.error)) for one in unplanned]
    return pd.DataFrame(rows, columns=["item", "video", "error", "message"])


def screen_table(title: str, lines: Sequence[Line]) -> Table:
    """The totals in units a person reads."""
    table = Table(title=Text(plain_text(title)), title_justify="left")
    table.add_column("total")
    table.add_column("value", justify="right")
    table.add_column("kind")
    table.add_column("note", overflow="fold")
    for line in lines:
        table.add_row(line.name.replace("_", " "), _told(line), line.kind, Text(line.note))
    return table


def _told(line: Line) -> str:
    if line.value is None:
        return "not known"
    if line.name == "fits":
        return "yes" if line.value else "no"
    if line.name.endswith("_bytes"):
        return _scaled(line.value, 1024.0, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
    if "flops" in line.name:
        return _scaled(line.value, 1000.0, ("", "K", "M", "G", "T", "P", "E", "Z"))
    return f"{line.value:,.3g}" if line.name.endswith("_hours") else f"{line.value:,.0f}"


def _scaled(value: float, step: float, units: Sequence[str]) -> str:
    place = 0
    while value >= step and place < len(units) - 1:
        value, place = value / step, place + 1
    return f"{value:.4g} {units[place]}".strip()
