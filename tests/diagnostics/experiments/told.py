"""What a run's own lines say, read as plain JSON: the tests' road to its tables, beside the experiment's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from diagnostics.data.items import Item

Line = Mapping[str, Any]


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """Every record, as written."""
    found = [json.loads(line) for path in sorted(folder.glob("samples.*.jsonl")) for line in path.open()]
    assert found, f"{folder} holds no record"
    return found


def under(lines: Sequence[Line], **condition: Any) -> dict[str, Line]:
    """Records under exactly this condition, by item."""
    return {line["item_id"]: line for line in lines if line["condition"] == condition}


def table(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(folder / "tables" / f"{name}.csv", keep_default_na=False, na_values=["", "nan"])


def frames(line: Line) -> list[int]:
    return [slot["frame_index"] for slot in line["slots"]]


def clock(line: Line) -> list[float]:
    return [slot["shown_seconds"] for slot in line["slots"]]


def sources(line: Line) -> set[str]:
    return {slot["source"] for slot in line["slots"]}


def windows(item: Item) -> list[tuple[int, int]]:
    assert item.evidence is not None
    return [(window.start_frame, window.end_frame) for window in item.evidence.windows]


def shows_evidence(line: Line, item: Item) -> np.ndarray:
    """By slot: a frame of the item's own video that lies in its evidence."""
    return np.array(
        [
            slot["source"] == item.video_id
            and any(first <= slot["frame_index"] < end for first, end in windows(item))
            for slot in line["slots"]
        ],
        dtype=bool,
    )


def mean(lines: Mapping[str, Line], measure: str | None = None) -> float:
    """Of right answers, or of a measure where it is defined."""
    values = [
        line["correct"] if measure is None else line["measures"].get(measure) for line in lines.values()
    ]
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else float("nan")


def letters_odds(line: Line, letter: str) -> float:
    """Log-odds of one option's letter, from the probabilities in the record."""
    # Over the whole vocabulary: the constant cancels among the options.
    chances = {name: np.exp(value) for name, value in line["option_logprobs"].items()}
    return float(np.log(chances[letter] / sum(value for name, value in chances.items() if name != letter)))
