"""Evidence put in, taken out, moved, or exchanged for another's: whole temporal units, the clock untouched.

A selection keeps its number of slots and its shown times; only what stands in a slot changes. So a model
gets the same number of tokens and the same timestamps whatever the dose.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int

from diagnostics.data.items import Item
from diagnostics.errors import NoEvidenceError
from diagnostics.video.index import VideoIndex
from diagnostics.video.selection import Selection, Slot, in_window

__all__ = [
    "evidence_frames",
    "evidence_units",
    "near",
    "place_units",
    "put_in_place_of",
    "short_of",
    "stretched",
    "thinned",
    "without_evidence",
]


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
    """At most `count` units of evidence, in order of time: shared among its windows, spread evenly in each.

    A unit is made of frames next to each other in one window, so that it never mixes two events. No unit is
    shown twice: shorter evidence gives fewer. A window of fewer frames than a unit holds gives one unit with
    its last frame repeated. A window that gives fewer than its share leaves the rest to the others.

    Raises:
        NoEvidenceError: no frame lies in the evidence.
    """
    blocks = sorted(_blocks(evidence_frames(item, index), item, index, unit), key=len)
    chosen: list[Int[np.ndarray, " unit"]] = []
    for rank, window in enumerate(blocks):
        share = min(len(window), -(-(count - len(chosen)) // (len(blocks) - rank)))
        middles = ((np.arange(share) + 0.5) * len(window) / max(share, 1)).astype(int)
        chosen += [window[place] for place in middles.tolist()]
    return tuple(
        tuple(_slot(item.video_id, index, frame) for frame in block.tolist())
        for block in sorted(chosen, key=lambda frames: int(frames[0]))
    )


def _blocks(
    frames: Int[np.ndarray, " n"], item: Item, index: VideoIndex, unit: int
) -> list[list[Int[np.ndarray, " unit"]]]:
    """Each window's units: as many runs of `unit` neighbours as fit, spread evenly."""
    assert item.evidence is not None
    free = np.ones(len(frames), dtype=bool)
    found = []
    for window in item.evidence.windows:
        held = in_window(window, frames, index.seconds[frames]) & free  # where two overlap: the first's
        free &= ~held
        own = frames[held]
        if len(own):
            own = np.concatenate([own, np.repeat(own[-1:], max(0, unit - len(own)))])
            # Rounded half up: rounding half to even could let two runs share a frame.
            starts = np.floor(np.linspace(0, len(own) - unit, len(own) // unit) + 0.5).astype(int)
            found.append([own[start : start + unit] for start in starts.tolist()])
    return found


def short_of(wanted: int, put_in: int, room: int) -> tuple[str, ...]:
    """A notice where fewer units were put in than asked for; `room` is how many the input has."""
    if put_in == wanted:
        return ()
    why = f"the input has room for {room}" if put_in == room else "the evidence has no more"
    return (f"short_evidence: {put_in} of {wanted} units put in, {why}",)


def stretched(evidence: Selection, model: Selection) -> Selection:
    """Evidence frames in the slots and at the shown times of another selection, each as often as any other.

    In order of time, repeated where the evidence has fewer frames.
    """
    places = np.arange(len(model)) * len(evidence) // len(model)
    slots = tuple(
        replace(evidence.slots[place], shown_seconds=slot.shown_seconds)
        for place, slot in zip(places.tolist(), model.slots, strict=True)
    )
    return replace(model, slots=slots, rule=f"{evidence.rule}; stretched to {len(model)} slots")


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


def put_in_place_of(
    selection: Selection,
    units: tuple[tuple[Slot, ...], ...],
    own: tuple[tuple[Slot, ...], ...],
    unit: int,
    whose: str,
) -> tuple[Selection, int]:
    """Units of another item where the item's own evidence would stand, so that the places tell nothing.

    Args:
        units: to put in; as many of them as `own` has places for.
        own: the item's own units of evidence.
        whose: evidence it is, for the rule's line.

    Returns:
        The selection, and how many units were put in.
    """
    places = near(selection, own, unit)[: len(units)]
    shown = place_units(selection, units[: len(places)], places, f"{len(places)} units of {whose}'s evidence")
    return shown, len(places)


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
    stretch_seconds: float = 1.0,
) -> Selection:
    """A share of the other units replaced: by near-duplicates of one another, or by distinct ones.

    Near-duplicates are the frames of one drawn short stretch without evidence; its units, made of neighbours,
    are repeated in order of time, each as often as any other. Distinct ones are spread evenly over all frames
    without evidence. Which units are replaced does not depend on which of both replaces them.

    Args:
        share: of the units that are not kept, rounded to whole units.
        keep: units that stay.
        alike: near-duplicates, or distinct frames.
        stretch_seconds: how long the stretch of the near-duplicates is, at most; one unit at least.
        unit: slots of a unit.
        seed: of the draws; each item has its own, so that which units are replaced evens out over items.

    Raises:
        NoEvidenceError: no stretch without evidence has the frames of one unit.
    """
    random = np.random.default_rng([seed, *item.id.encode()])
    others = np.flatnonzero(~keep)
    replaced = np.sort(random.permutation(others)[: round(share * len(others))])
    wanted = len(replaced) * unit
    outside = ~_in_evidence(item, index)
    if not wanted:
        return replace(selection, rule=f"{selection.rule}; none replaced")
    if alike:
        frames = _alike(outside, index.seconds, stretch_seconds, wanted, unit, random)
        if not len(frames):
            raise NoEvidenceError(
                f"no stretch without evidence has {unit} frames.",
                remedy="Leave the item out.",
                item_id=item.id,
                path=item.video,
            )
    else:
        frames = np.flatnonzero(outside)
        frames = frames[np.rint(np.linspace(0, len(frames) - 1, wanted)).astype(int)]
    slots = [_slot(item.video_id, index, frame) for frame in frames.tolist()]
    units = tuple(tuple(slots[start : start + unit]) for start in range(0, wanted, unit))
    what = f"{len(replaced)} units {'near-duplicates' if alike else 'distinct'} (seed={seed})"
    return place_units(selection, units, replaced, what)


def _alike(
    outside: Bool[np.ndarray, " frame"],
    seconds: Float[np.ndarray, " frame"],
    longest: float,
    wanted: int,
    unit: int,
    random: np.random.Generator,
) -> Int[np.ndarray, " wanted"]:
    """The frames of one drawn stretch, its units repeated in order; none where no stretch holds a unit."""
    starts = np.arange(len(seconds))
    inside = np.append(np.flatnonzero(~outside), len(seconds))
    ends = np.minimum(
        inside[np.searchsorted(inside, starts)], np.searchsorted(seconds, seconds + longest, side="left")
    )
    # A second may hold less than a unit; the next frame of evidence, or the end, bounds it all the same.
    ends = np.maximum(ends, np.minimum(starts + unit, inside[np.searchsorted(inside, starts)]))
    lengths = np.minimum(ends - starts, wanted)
    if lengths.max(initial=0) < unit:
        return np.empty(0, dtype=np.int64)
    first = int(random.choice(np.flatnonzero(lengths == lengths.max())))
    units = int(lengths[first]) // unit
    repeated = np.arange(wanted // unit) * units // (wanted // unit)
    return (first + repeated[:, None] * unit + np.arange(unit)).ravel()


def _in_evidence(item: Item, index: VideoIndex, guard_seconds: float = 0.0) -> Bool[np.ndarray, " frame"]:
    frames, seconds = np.arange(index.n_frames), index.seconds
    inside = np.zeros(index.n_frames, dtype=bool)
    for window in item.local_evidence.windows if item.local_evidence else ():
        inside |= in_window(window, frames, seconds)
        if guard_seconds:
            low, high = window.start_seconds - guard_seconds, window.end_seconds + guard_seconds
            inside |= (seconds >= low) & (seconds < high)
    return inside


def _slot(source: str, index: VideoIndex, frame: int) -> Slot:
    seconds = float(index.seconds[frame])
    return Slot(source, frame, seconds, seconds)
