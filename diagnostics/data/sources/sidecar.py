"""What was derived, written: the sidecar that `data.evidence` takes, and the audit behind it.

The sidecar has one row an item, the audit one row an item with all that led to it. Times are rounded to
milliseconds in both; frames decide.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from diagnostics.data.sources.matching import Derived
from diagnostics.store.atomic import write_text

__all__ = ["audit_row", "audit_table", "sidecar_row", "write_lines"]

_DIGITS = 3


def sidecar_row(derived: Derived) -> dict[str, Any]:
    """The item's line of the sidecar (docs/data.md)."""
    row: dict[str, Any] = {"id": derived.item.id, "kind": derived.kind}
    if derived.frames:
        row |= {"seconds": _seconds(derived), "frames": [list(pair) for pair in derived.frames]}
    if derived.alternatives:
        row["alternatives"] = _alternatives(derived)
    if derived.source:
        row["source"] = derived.source
    if derived.rule:
        row["rule"] = derived.rule
    if derived.reason:
        row["reason"] = derived.reason
    return {**row, "question": derived.item.question}


def audit_row(derived: Derived) -> dict[str, Any]:
    """The item's line of the audit: all that is in the sidecar, and where it comes from."""
    item = derived.item
    return {
        "id": item.id,
        "kind": derived.kind,
        "task": derived.task,
        "counted": derived.counted,
        "dataset": item.metadata.get("dataset"),
        "source": derived.source,
        "video": item.video_id,
        "source_video": derived.stem,
        "question": item.question,
        "seconds": _seconds(derived),
        "frames": [list(pair) for pair in derived.frames],
        "alternatives": _alternatives(derived),
        "targeted": {
            track: {label: [list(pair) for pair in frames] for label, frames in labels.items()}
            for track, labels in derived.targeted.items()
        },
        **{name: _told(item.metadata.get(name)) for name in ("fps", "num_frames", "duration_seconds")},
        "rule": derived.rule,
        "base": derived.base,
        "time_base": derived.time_base,
        "label_version": derived.label_version,
        "files": [{"path": str(file.path), "sha256": file.sha256} for file in derived.files],
        "reason_kind": derived.reason_kind,
        "reason": derived.reason,
        "warnings": list(derived.warnings),
    }


def audit_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The audit as a table: windows counted and written as JSON, files and their hashes each in a column."""
    return pd.DataFrame([_flat(row) for row in rows])


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name == "seconds":
            flat["n_windows"] = len(row["frames"])
            flat["n_evidence_frames"] = sum(end - start for start, end in row["frames"])
        if name in ("seconds", "frames", "alternatives", "targeted"):
            flat[name] = json.dumps(value) if value else ""
        elif name == "files":
            flat[name] = "; ".join(file["path"] for file in value)
            flat["sha256"] = "; ".join(file["sha256"] for file in value)
        else:
            flat[name] = "; ".join(value) if name == "warnings" else value
    return flat


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """JSON Lines, whole or not at all."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows))
    return path


def _told(value: Any) -> Any:
    """A record's own value; in words where it is a number that JSON has none for."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _seconds(derived: Derived) -> list[list[float]]:
    return [[round(start, _DIGITS), round(end, _DIGITS)] for start, end in derived.seconds]


def _alternatives(derived: Derived) -> dict[str, list[list[int]]]:
    return {name: [list(pair) for pair in frames] for name, frames in derived.alternatives.items()}
