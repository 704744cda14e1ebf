"""The pictures of one measured item, from its record, tensor file and thumbnails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

import probes
from diagnostics.data.items import Item
from diagnostics.errors import DamagedRunError
from diagnostics.experiments.definitions import Definition
from diagnostics.experiments.definitions import pooled_share as pool_heads
from diagnostics.models.cropping import middle, shown_part
from diagnostics.report.from_run import (
    headline_definition,
    patch_attention,
    pooled_share,
    record_tensors,
    unit_mass,
)
from diagnostics.report.item import (
    AttendedFrames,
    ItemAttention,
    contact_sheet,
    item_attention_figure,
)
from diagnostics.report.slices import on_one_picture
from diagnostics.report.style import save_figure
from diagnostics.store import PairTensors, Record, pair_stem

__all__ = ["attended_frames", "draw_item", "item_attention", "slot_positions"]


def draw_item(run_dir: Path, item: Item, record: Record) -> list[Path]:
    """Attention over time, and the contact sheet of the most attended frames, as PNG and PDF.

    Returns:
        What was written; empty for a record without attention.

    Raises:
        DamagedRunError: a file cannot be read, or record and tensor file disagree.
    """
    if record.tensor_file is None or (tensors := record_tensors(run_dir, record)).attention is None:
        return []
    stem = run_dir / "figures" / "items" / pair_stem(record.item_id, record.condition_id)
    definition = headline_definition(tensors)
    time = item_attention_figure(item_attention(item, record, tensors, definition))
    written = save_figure(time, f"{stem}-time")
    if (frames := attended_frames(run_dir, record, tensors, definition)) is not None:
        written += save_figure(contact_sheet(frames), f"{stem}-frames")
    return written


def item_attention(item: Item, record: Record, tensors: PairTensors, definition: Definition) -> ItemAttention:
    """One item's attention over time under a definition.

    Raises:
        RunError: the file holds no attention, or not the definition's.
    """
    mass, taken = unit_mass(tensors, definition)
    shares = probes.unit_shares(mass[taken])
    defined = shares[np.isfinite(shares).all(axis=1)]
    low, high = np.percentile(defined, [25, 75], axis=0) if len(defined) > 1 else (None, None)
    control = None
    if tensors.control is not None:
        blank = tensors.control.unit_mass[:, :, tensors.role.index(definition.role)]
        counts = np.bincount(tensors.tokens.unit_index, minlength=len(tensors.units.frame_index))
        control = pool_heads(definition, np.asarray(blank[taken], np.float64), counts)
    windows = () if item.evidence is None else item.evidence.windows
    return ItemAttention(
        item_id=item.id,
        question=item.question,
        answer=record.answer,
        target=record.target,
        correct=record.correct,
        unit_share=pooled_share(tensors, definition),
        slot_seconds=tensors.units.true_seconds,
        duration=float("nan") if record.source_seconds is None else record.source_seconds,
        head_low=low,
        head_high=high,
        control_share=control,
        evidence_windows=[(window.start_seconds, window.end_seconds) for window in windows],
        is_key=None if tensors.similarity is None else tensors.similarity.is_key,
    )


def attended_frames(
    run_dir: Path, record: Record, tensors: PairTensors, definition: Definition, count: int = 8
) -> AttendedFrames | None:
    """The most attended units, as far as their thumbnails were saved; None where the first one's were not.

    A unit of several pictures is shown by the first of them that shows evidence, or else the first.

    Raises:
        RunError: the file holds no attention, or not the definition's.
        DamagedRunError: record and tensor file speak of different frames.
    """
    folder = run_dir / "thumbnails" / pair_stem(record.item_id, record.condition_id)
    share = pooled_share(tensors, definition)
    position = slot_positions(record, tensors)
    units, slots, pictures = [], [], []
    for unit in np.argsort(-share, kind="stable")[:count].tolist():
        slot = int(np.argmax(tensors.units.evidence[unit]))
        path = folder / f"{position[unit, slot]:05d}.jpg"
        if not path.exists():
            break  # ranks are told by place: a unit left out would shift those behind it
        units.append(unit)
        slots.append(slot)
        pictures.append(middle(_picture(path), shown_part(record.warnings)))
    if not units:
        return None
    attention = patch_attention(tensors, definition)
    return AttendedFrames(
        item_id=record.item_id,
        thumbnails=np.stack(pictures),
        heat=[
            on_one_picture(_heat(tensors, attention / attention.sum(), unit), record.warnings)
            for unit in units
        ],
        shares=share[units],
        seconds=tensors.units.true_seconds[units, slots],
        evidence=np.asarray(tensors.units.evidence[units].any(axis=1)),
    )


def slot_positions(record: Record, tensors: PairTensors) -> Int[np.ndarray, "unit slot"]:
    """Which slot of the selection each place of each unit shows; -1 where empty.

    Units take the slots in the order shown.

    Raises:
        DamagedRunError: record and tensor file speak of different frames.
    """
    filled = np.isfinite(tensors.units.shown_seconds)
    shown = np.array([slot.frame_index for slot in record.slots], dtype=np.int64)
    if not np.array_equal(tensors.units.frame_index[filled], shown):
        raise DamagedRunError(
            "The record and its tensor file show different frames.",
            remedy="Delete the tensor file and run the same command again.",
            item_id=record.item_id,
            path=record.tensor_file,
        )
    return np.where(filled, np.cumsum(filled.ravel()).reshape(filled.shape) - 1, -1)


def _picture(path: Path) -> UInt8[np.ndarray, "height width 3"]:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def _heat(
    tensors: PairTensors, attention: Float[np.ndarray, " token"], unit: int
) -> Float[np.ndarray, "row col"]:
    """Attention on the unit's patches, each in its place; NaN where there is none.

    The grid is that of all units of the video: a unit of which tokens were dropped may lack its last ones.
    """
    inside, places = tensors.tokens.unit_index == unit, (tensors.tokens.row, tensors.tokens.col)
    heat = np.full([int(place.max(initial=0)) + 1 for place in places], np.nan)
    heat[places[0][inside], places[1][inside]] = attention[inside]
    return heat
