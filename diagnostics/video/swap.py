"""Evidence put in, taken out, moved, or exchanged for another's: whole temporal units, the clock untouched.

A selection keeps its number of slots and its shown times; only what stands in a slot changes. So a model
gets the same number of tokens and the same timestamps whatever the dose.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Int

from diagnostics.data.items import Item
from diagnostics.errors import NoEvidenceError
from diagnostics.video.index import VideoIndex
from diagnostics.video.selection import Selection, Slot, in_window

__all__ = ["evidence_frames", "evidence_units", "near", "place_units", "thinned", "without_evidence"]


def evidence_frames(item: Item, index: VideoIndex) -> Int[np.ndarray, " n"]:
    """Frames that lie in a window of the item's evidence, in order; raises `NoEvidenceError` without any."""
    frames = np.flatnonzero(_in_evidence(item, index))
    if not len(frames):
        raise NoEvidenceError(
            "no frame lies in its evidence.",
            remedy="Leave such items out (data.tasks=...), or give windows of a frame or more.",
            item_id=item.id,
            path=item.video,
        )
    return frames


def evidence_units(item: Item, index: VideoIndex, count: int, unit: int) -> tuple[tuple[Slot, ...], ...]:
    """At most `count` units of evidence frames, spread evenly over them, in order of time.

    No frame is shown twice: evidence of fewer frames gives fewer units; of fewer frames than one unit holds,
    one unit with its last frame repeated.
    """
    frames = evidence_frames(item, index)
    most = max(1, min(count, len(frames) // unit))
    chosen = frames[np.rint(np.linspace(0, len(frames) - 1, min(len(frames), most * unit))).astype(int)]
    chosen = np.concatenate([chosen, np.repeat(chosen[-1:], most * unit - len(chosen))])
    slots = [_slot(item.video_id, index, frame) for frame in chosen.tolist()]
    return tuple(tuple(slots[start : start + unit]) for start in range(0, len(slots), unit))


def without_evidence(
    selection: Selection, item: Item, index: VideoIndex, guard_seconds: float = 0.0
) -> Selection:
    """Each slot that shows evidence shows the nearest frame that does not.

    Args:
        selection: frames of the item's own video; others are left alone.
        guard_seconds: also kept away from the windows: a proxy window may be too short.

    Raises:
        NoEvidenceError: every frame of the video lies in the evidence or its guard band.
    """
    inside = _in_evidence(item, index, guard_seconds)
    outside = np.flatnonzero(~inside)
    if not len(outside):
        raise NoEvidenceError(
            "every frame lies in its evidence, so that nothing can stand in for it.",
            remedy="Leave the item out, or lower the guard band.",
            item_id=item.id,
            path=item.video,
        )
    slots = []
    for slot in selection.slots:
        if slot.source == item.video_id and inside[slot.frame_index]:
            nearest = outside[np.argmin(np.abs(index.seconds[outside] - index.seconds[slot.frame_index]))]
            slot = replace(_slot(slot.source, index, int(nearest)), shown_seconds=slot.shown_seconds)
        slots.append(slot)
    return replace(selection, slots=tuple(slots), rule=f"{selection.rule}; evidence removed")


def near(selection: Selection, units: tuple[tuple[Slot, ...], ...], unit: int) -> Int[np.ndarray, " unit"]:
    """The places of the selection nearest in shown time to given units, one each, in order.

    Nearest pairs go first, so that a unit whose place is taken gets the next.
    """
    clock = selection.shown_seconds.reshape(-1, unit).mean(axis=1)
    times = np.array([np.mean([slot.true_seconds for slot in one]) for one in units])
    distance = np.abs(times[:, None] - clock[None, :])
    free, taken = set(range(len(units))), set()
    for flat in np.argsort(distance, axis=None, kind="stable").tolist():
        row, place = divmod(flat, len(clock))
        if row in free and place not in taken:
            free.remove(row)
            taken.add(place)
    return np.array(sorted(taken), dtype=np.int64)


def place_units(
    selection: Selection, units: tuple[tuple[Slot, ...], ...], places: Int[np.ndarray, " unit"], what: str
) -> Selection:
    """The selection with units in given places, at the shown times that stand there.

    Args:
        units: of equally many slots, which a whole number of the selection's slots makes up.
        places: which units of the selection they take the place of.
        what: for the rule's line.
    """
    slots = list(selection.slots)
    for one, place in zip(units, places.tolist(), strict=True):
        for offset, slot in enumerate(one):
            spot = place * len(one) + offset
            slots[spot] = replace(slot, shown_seconds=slots[spot].shown_seconds)
    return replace(selection, slots=tuple(slots), rule=f"{selection.rule}; {what}")


def thinned(
    selection: Selection,
    item: Item,
    index: VideoIndex,
    share: float,
    keep: Bool[np.ndarray, " unit"],
    *,
    alike: bool,
    unit: int,
    seed: int,
) -> Selection:
    """A share of the other units replaced: by near-duplicates of one another, or by distinct ones.

    Near-duplicates are the frames right after one frame, drawn where a stretch without evidence is long
    enough; distinct ones are spread evenly over all frames without evidence. Which units are replaced does
    not depend on which of both replaces them.

    Args:
        share: of the units that are not kept, rounded to whole units.
        keep: units that stay.
        alike: near-duplicates, or distinct frames.
        unit: slots of a unit.
        seed: of the draws.

    Raises:
        NoEvidenceError: no stretch without evidence has as many frames as are to be replaced.
    """
    random = np.random.default_rng(seed)
    others = np.flatnonzero(~keep)
    replaced = np.sort(random.permutation(others)[: round(share * len(others))])
    wanted = len(replaced) * unit
    outside = ~_in_evidence(item, index)
    if not wanted:
        return replace(selection, rule=f"{selection.rule}; none replaced")
    if alike:
        runs = np.convolve(outside, np.ones(wanted, dtype=int), mode="valid")
        starts = np.flatnonzero(runs == wanted)
        if not len(starts):
            raise NoEvidenceError(
                f"no stretch without evidence has {wanted} frames.",
                remedy="Lower the budget, or leave the item out.",
                item_id=item.id,
                path=item.video,
            )
        first = int(random.choice(starts))
        frames = np.arange(first, first + wanted)
    else:
        frames = np.flatnonzero(outside)
        frames = frames[np.rint(np.linspace(0, len(frames) - 1, wanted)).astype(int)]
    slots = [_slot(item.video_id, index, frame) for frame in frames.tolist()]
    units = tuple(tuple(slots[start : start + unit]) for start in range(0, wanted, unit))
    what = f"{len(replaced)} units {'near-duplicates' if alike else 'distinct'} (seed={seed})"
    return place_units(selection, units, replaced, what)


def _in_evidence(item: Item, index: VideoIndex, guard_seconds: float = 0.0) -> Bool[np.ndarray, " frame"]:
    frames, seconds = np.arange(index.n_frames), index.seconds
    inside = np.zeros(index.n_frames, dtype=bool)
    if item.evidence is None or item.evidence.kind == "global":
        return inside
    for window in item.evidence.windows:
        inside |= in_window(window, frames, seconds)
        if guard_seconds:
            low, high = window.start_seconds - guard_seconds, window.end_seconds + guard_seconds
            inside |= (seconds >= low) & (seconds < high)
    return inside


def _slot(source: str, index: VideoIndex, frame: int) -> Slot:
    seconds = float(index.seconds[frame])
    return Slot(source, frame, seconds, seconds)
