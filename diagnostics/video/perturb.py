"""Perturbations: from a selection to another, everything that was changed still told.

Two that serve as controls of an attention measurement: `blank` leaves a model nothing to look at but
its positions; `permuted` keeps every picture and destroys their order. `blank_frames` and
`permuted_frames` do the same to pictures that are at hand already; `fill` reads what a selection shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
from jaxtyping import Int, UInt8

from diagnostics.video.selection import BLANK, Frames, Selection, Slot

__all__ = [
    "GREY",
    "Clock",
    "ReadPixels",
    "blank",
    "blank_frames",
    "drawn_order",
    "fill",
    "moved",
    "permuted",
    "permuted_frames",
]

GREY = 128
"""Value of all channels of a blank picture."""

ReadPixels = Callable[[Int[np.ndarray, " n"]], UInt8[np.ndarray, "n height width 3"]]
"""Given frame numbers of a video, their pictures in that order."""

Clock = Literal["slot", "carry"]


def blank(selection: Selection) -> Selection:
    """Every picture replaced by uniform grey; the times the model is told stay."""
    slots = tuple(Slot(BLANK, -1, float("nan"), slot.shown_seconds) for slot in selection.slots)
    return replace(selection, slots=slots, rule=f"{selection.rule}; blank")


def permuted(selection: Selection, seed: int, timestamps: Clock = "slot") -> Selection:
    """The pictures in another order, drawn with `seed`; never the order they were in.

    Whole temporal units, and milder orders, are moved by `diagnostics.video.order`.

    Args:
        selection: with a single slot it comes back in the only order there is.
        seed: of NumPy's default generator.
        timestamps: `slot` leaves the times where they are, so that the model is told a normal clock;
            `carry` moves each with its picture.
    """
    order = drawn_order(len(selection), np.random.default_rng(seed))
    return moved(selection, order, timestamps, f"permuted(seed={seed}, timestamps={timestamps})")


def blank_frames(frames: Frames) -> Frames:
    """`blank` with its pictures, of the same size."""
    return Frames(np.full_like(frames.pixels, GREY), blank(frames.selection))


def permuted_frames(frames: Frames, seed: int, timestamps: Clock = "slot") -> Frames:
    """`permuted` with its pictures."""
    order = drawn_order(len(frames.selection), np.random.default_rng(seed))
    return Frames(frames.pixels[order], permuted(frames.selection, seed, timestamps))


def fill(selection: Selection, read_pixels: ReadPixels, size: tuple[int, int] | None = None) -> Frames:
    """Read a selection's pictures; blank slots are uniform grey of the video's size.

    Args:
        selection: what to show, from one video.
        read_pixels: called once, with each frame that is shown once, in order of time.
        size: height and width of the pictures; needed only where every slot is blank
            (`diagnostics.video.index.size_within` tells it).

    Raises:
        ValueError: every slot is blank and no size was given, or the slots come from several videos.
    """
    sources = {slot.source for slot in selection.slots} - {BLANK}
    if len(sources) > 1:
        raise ValueError(f"fill reads from one video, and the slots come from {sorted(sources)}")
    numbers = selection.frame_indices
    real = np.array([slot.source != BLANK for slot in selection.slots])
    if not real.any():
        if size is None:
            raise ValueError("every slot is blank: give the size of the pictures")
        return Frames(np.full((len(selection), *size, 3), GREY, dtype=np.uint8), selection)
    wanted, places = np.unique(numbers[real], return_inverse=True)
    pixels = read_pixels(wanted)
    if real.all():
        in_order = np.array_equal(places, np.arange(len(pixels)))
        return Frames(pixels if in_order else pixels[places], selection)
    shown = np.full((len(selection), *pixels.shape[1:]), GREY, dtype=np.uint8)
    shown[real] = pixels[places]
    return Frames(shown, selection)


def moved(selection: Selection, order: Int[np.ndarray, " slot"], timestamps: Clock, how: str) -> Selection:
    """The slots in a given order; `how` goes into the rule. See `permuted` for `timestamps`."""
    slots = [selection.slots[place] for place in order.tolist()]
    if timestamps == "slot":
        clock = [slot.shown_seconds for slot in selection.slots]
        slots = [replace(slot, shown_seconds=shown) for slot, shown in zip(slots, clock, strict=True)]
    return replace(selection, slots=tuple(slots), rule=f"{selection.rule}; {how}")


def drawn_order(count: int, generator: np.random.Generator) -> Int[np.ndarray, " place"]:
    """A permutation other than the identity, where there is one."""
    order = np.arange(count)
    while count > 1 and np.array_equal(order, np.arange(count)):
        order = generator.permutation(count)
    return order
