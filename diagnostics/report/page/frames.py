"""What the model was shown, as the page's film strip has it: temporal units, their times, their pictures."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from PIL import Image

from diagnostics.data.items import Item
from diagnostics.errors import DamagedRunError
from diagnostics.report.item_pictures import slot_positions
from diagnostics.store import PairTensors, Record, pair_stem
from diagnostics.video.selection import in_window

__all__ = ["finite", "pictures_of", "units_of", "windows_of"]


def units_of(record: Record, tensors: PairTensors | None, item: Item | None) -> dict[str, Any]:
    """What was shown, by temporal unit; by frame where nothing says what a unit is.

    Returns:
        `kind`, and by unit `seconds` and `shown` (the time in the video and the one told; null where there is
        none), `frames`, `evidence`, `key` (whether it is a keyframe; null as a whole where unknown) and
        `other` (null, or what a picture that is not of the item's video is of).
    """
    positions = _positions(record, tensors)
    slots = [[record.slots[slot] for slot in row if slot >= 0] for row in positions.tolist()]
    similarity = None if tensors is None else tensors.similarity
    return {
        "kind": "frame" if tensors is None and positions.shape[1] == 1 else "unit",
        "seconds": [_first([slot.true_seconds for slot in unit]) for unit in slots],
        "shown": [_first([slot.shown_seconds for slot in unit]) for unit in slots],
        "frames": [[slot.frame_index for slot in unit if slot.frame_index >= 0] for unit in slots],
        "other": [
            next((slot.source for slot in unit if slot.source != record.video_id), None) for unit in slots
        ],
        "evidence": _evidence(record, tensors, item, positions).any(axis=1).tolist(),
        "key": None if similarity is None else similarity.is_key.tolist(),
    }


def _positions(record: Record, tensors: PairTensors | None) -> Int[np.ndarray, "unit slot"]:
    """Which slot of the selection each place of each unit shows; -1 where empty.

    Without tensors the record's number of units says how many slots in a row make one.
    """
    if tensors is not None:
        return slot_positions(record, tensors)
    n_slots, n_units = len(record.slots), record.n_units or 0
    per_unit = -(-n_slots // n_units) if 0 < n_units < n_slots else 1
    if per_unit > 1 and -(-n_slots // per_unit) != n_units:
        per_unit = 1
    positions = np.full(-(-n_slots // per_unit) * per_unit, -1)
    positions[:n_slots] = np.arange(n_slots)
    return positions.reshape(-1, per_unit)


def _evidence(
    record: Record, tensors: PairTensors | None, item: Item | None, positions: Int[np.ndarray, "unit slot"]
) -> Bool[np.ndarray, "unit slot"]:
    """Which slots show evidence; of a pair without tensors by the windows that its data set wrote."""
    if tensors is not None:
        return np.asarray(tensors.units.evidence)
    held = np.zeros(len(record.slots) + 1, bool)  # the last for a place without a slot
    evidence = None if item is None else item.local_evidence
    if evidence is not None:
        frames = np.array([slot.frame_index for slot in record.slots], np.int64)
        seconds = np.array([slot.true_seconds for slot in record.slots], np.float64)
        own = np.array([slot.source == record.video_id for slot in record.slots], bool)
        for window in evidence.windows:
            held[:-1] |= in_window(window, frames, seconds) & own
    return held[positions]


def windows_of(item: Item | None) -> list[list[float]]:
    """The evidence's windows in seconds; those without times are left out."""
    windows = () if item is None or item.evidence is None else item.evidence.windows
    told = [[window.start_seconds, window.end_seconds] for window in windows]
    return [window for window in told if all(map(math.isfinite, window))]


def pictures_of(
    run_dir: Path, record: Record, tensors: PairTensors | None, item: Item | None
) -> list[dict[str, Any]]:
    """One picture of each unit that has any: the `unit`, the `place` in it, `src`, a `data:` address, and its
    `size`, width and height in pixels.

    Of several pictures of a unit it is the first of evidence, or else the first.

    Raises:
        DamagedRunError: a file is no picture.
    """
    folder = run_dir / "thumbnails" / pair_stem(record.item_id, record.condition_id)
    if not folder.is_dir():
        return []
    files = {int(path.stem): path for path in sorted(folder.glob("*.jpg")) if path.stem.isdecimal()}
    positions = _positions(record, tensors)
    evidence = _evidence(record, tensors, item, positions)
    found = []
    for unit, row in enumerate(positions.tolist()):
        places = [place for place, slot in enumerate(row) if slot in files]
        if places:
            place = next((place for place in places if evidence[unit, place]), places[0])
            found.append({"unit": unit, "place": place, **_picture(files[row[place]])})
    return found


def _picture(path: Path) -> dict[str, Any]:
    told = path.read_bytes()
    try:
        with Image.open(io.BytesIO(told)) as picture:
            size = picture.size
    except OSError as error:
        raise DamagedRunError(
            f"This is no picture: {error}.", remedy="Delete it: it illustrates only.", path=path
        ) from error
    address = f"data:image/jpeg;base64,{base64.b64encode(told).decode('ascii')}"
    return {"src": address, "size": list(size)}


def _first(values: Sequence[float] | Float[np.ndarray, " slot"]) -> float | None:
    """The first of a unit's times that is one."""
    return next((finite(value) for value in values if math.isfinite(value)), None)


def finite(value: float | None) -> float | None:
    """A number as the page has it: six digits, null where undefined."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
