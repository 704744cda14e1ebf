"""The same pictures in another order: reversed, in shuffled blocks, shuffled nearby, shuffled throughout.

MedHorizon (arXiv 2605.06537), section 8 (RQ3): original, reverse, block shuffle with 8 blocks, local shuffle
with windows of 16. The paper leaves open whether what moves is a frame or a temporal unit of the model (two
frames for Qwen-VL: moving single frames also mixes two pictures in one unit) and whether the shown times
move too; both are parameters here. A drawn order is never the one the pictures were in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from diagnostics.video.perturb import Clock, drawn_order, moved
from diagnostics.video.selection import Selection

__all__ = ["ORDERS", "Order", "padded", "reorder", "whole_units"]

Order = Literal["original", "reversed", "blocks", "local", "full"]
ORDERS: tuple[Order, ...] = get_args(Order)


def reorder(
    selection: Selection,
    order: Order,
    *,
    seed: int = 0,
    timestamps: Clock = "slot",
    unit: int = 1,
    blocks: int = 8,
    window: int = 16,
) -> Selection:
    """The pictures in another order.

    Args:
        selection: what is moved; too few pieces to be moved (one block, one unit) stay as they are.
        order: `original`; `reversed`; `blocks`: cut into `blocks` runs as equal as possible, whose order
            is drawn and whose inside stays; `local`: drawn within each run of `window`; `full`: throughout.
        seed: of NumPy's default generator; `original` and `reversed` have none.
        timestamps: `slot` leaves the shown times where they are; `carry` moves each with its picture.
        unit: slots that stay together, in their order: the pieces that are moved. Blocks and windows
            count pieces.

    Raises:
        ValueError: the slots are no whole number of units (see `padded`).
    """
    if len(selection) % unit:
        raise ValueError(f"{len(selection)} slots are no whole number of units of {unit}")
    if order == "original":
        return selection
    count = len(selection) // unit
    random = np.random.default_rng(seed)
    if order == "reversed":
        places = np.arange(count)[::-1]
    elif order == "blocks":
        pieces = np.array_split(np.arange(count), min(blocks, count))
        places = np.concatenate([pieces[place] for place in drawn_order(len(pieces), random)])
    else:
        size = count if order == "full" else window
        starts = range(0, count, size)
        places = np.concatenate([start + drawn_order(min(size, count - start), random) for start in starts])
    told = "" if order == "reversed" else f"seed={seed}, "
    size_told = {"blocks": f"blocks={blocks}, ", "local": f"window={window}, "}.get(order, "")
    slots = (places[:, None] * unit + np.arange(unit)).ravel()
    return moved(
        selection, slots, timestamps, f"{order}({told}{size_told}unit={unit}, timestamps={timestamps})"
    )


def padded(selection: Selection, unit: int) -> Selection:
    """A whole number of units: the last slot repeated, as the processors do, where some are missing."""
    missing = -len(selection) % unit
    return (
        replace(selection, slots=selection.slots + selection.slots[-1:] * missing) if missing else selection
    )


def whole_units(selection: Selection, unit: int) -> tuple[Selection, tuple[str, ...]]:
    """`padded`, and the notices of it: a repeated frame is none of those that were asked for."""
    whole = padded(selection, unit)
    if whole is selection:
        return selection, ()
    notices = ["repeated_frame: the last frame fills the last unit"]
    if len(selection) < selection.requested:  # told here: a count of the slots would take the repeated one in
        notices.append(f"fewer_frames: {len(selection)} shown of {selection.requested} asked for")
    return replace(whole, requested=len(whole)), tuple(notices)
