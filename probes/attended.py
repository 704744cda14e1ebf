"""Was the evidence attended to? Its log-lift against that of as many other units, by the best heads of each.

Heads have tasks of their own, so a mean over all of them hides the few that look. Taking the best heads for
the evidence alone would flatter it: so each set of other units is given its own best heads, and the evidence
has to beat those (a maximum-statistic permutation test; Westfall and Young's idea, applied to units).
Evidence comes in stretches, and attention to neighbours is alike: so the other sets are made of stretches as
long as the evidence's. Scattered units would average out what neighbours share, and the test would find
attention where there is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import logit

from probes.shares import checked_mass

__all__ = ["AttendedTest", "attended_test", "sets_like"]

_LEAST = 1e-12
"""Shares are kept this far from 0 and 1, where log-odds have no bound."""
_TRIES = 10
"""Placements that are tried for each set of several stretches that is asked for."""


@dataclass(frozen=True, eq=False)
class AttendedTest:
    """How the evidence's log-lift compares with other units'.

    Attributes:
        statistic: log-lift of the evidence, mean over its best heads, in nats; NaN where undefined.
        null: the same of each set of other units.
        p: share of the null that reaches it, the evidence counted in; NaN where undefined.
        threshold: what the statistic has to be above to be attended; NaN where undefined.
        attended: whether it is; False where undefined.
        best: which heads these were for the evidence: places in the leading axes of the mass, one row a head;
            none where undefined.
    """

    statistic: float
    null: Float[np.ndarray, " draw"]
    p: float
    threshold: float
    attended: bool
    best: Int[np.ndarray, "head axis"]

    @property
    def defined(self) -> bool:
        """Whether there is evidence, and enough other sets to tell it from them."""
        return math.isfinite(self.p)


def attended_test(
    unit_mass: Float[np.ndarray, "*batch unit"],
    evidence: Bool[np.ndarray, " unit"],
    *,
    baseline_mass: Float[np.ndarray, "*batch unit"] | None = None,
    top: float = 0.1,
    level: float = 0.1,
    draws: int = 200,
    seed: int | list[int] = 0,
) -> AttendedTest:
    """Compare the attention on the evidence with that on sets of as many other units (`sets_like`).

    Args:
        unit_mass: attention on each unit by whatever comes first: layers, heads.
        evidence: which units show evidence.
        baseline_mass: of a control, such as blank pictures in the same places: subtracted as log-odds, so
            that units favoured by their position are taken for evidence no more than for the null.
        top: share of the heads that count, at least one, chosen anew for every set.
        level: share of false alarms: the evidence is attended where `p` is at most this.
        draws: sets of other units; all of them where there are no more.
        seed: as numpy takes it.

    Returns:
        Undefined (`defined` False) without evidence, and with too few other sets for `p` to come to `level`:
        nine are needed for 0.1.

    Raises:
        ValueError: mass that cannot be attention, or of another number of units than the evidence.
    """
    mass = checked_mass(unit_mass)
    mask = np.asarray(evidence, dtype=bool)
    if mass.shape[-1] != len(mask):
        raise ValueError(f"evidence is given for {len(mask)} units, attention for {mass.shape[-1]}")
    heads = mass.reshape(-1, len(mask))
    base = None if baseline_mass is None else checked_mass(baseline_mass).reshape(-1, len(mask))
    if base is not None and base.shape != heads.shape:
        raise ValueError(f"attention and its control are given for {heads.shape} and {base.shape}")
    seen = np.flatnonzero((heads.sum(axis=1) > 0) & (True if base is None else base.sum(axis=1) > 0))
    others = sets_like(mask, draws, seed)
    allowed = math.floor(level * (1 + len(others)) + 1e-9) - 1
    if allowed < 0 or not len(seen):
        nowhere = np.empty((0, mass.ndim - 1), dtype=np.int64)
        return AttendedTest(math.nan, np.empty(0), math.nan, math.nan, False, nowhere)
    lifts = _log_lifts(heads[seen], None if base is None else base[seen], np.vstack([mask, others]))
    order = np.argsort(lifts, axis=1, kind="stable")[:, -max(1, round(top * len(seen))) :]
    found = np.take_along_axis(lifts, order, axis=1).mean(axis=1)
    statistic, null = float(found[0]), found[1:]
    p = float((1 + np.count_nonzero(null >= statistic)) / (1 + len(null)))
    return AttendedTest(
        statistic=statistic,
        null=null,
        p=p,
        threshold=float(np.sort(null)[::-1][allowed]),
        attended=p <= level + 1e-9,
        best=np.stack(np.unravel_index(seen[order[0]], mass.shape[:-1]), axis=1),
    )


def sets_like(
    evidence: Bool[np.ndarray, " unit"], draws: int, seed: int | list[int] = 0
) -> Bool[np.ndarray, "draw unit"]:
    """Sets of other units that are as many and stand together as the evidence's do, each set once.

    Every stretch of evidence is put elsewhere, clear of the evidence and of the other stretches.

    Args:
        evidence: which units show evidence.
        draws: at most so many; all there are of a single stretch, if those are no more.
        seed: as numpy takes it.

    Returns:
        None at all where there is no evidence, or no room for it elsewhere.
    """
    mask = np.asarray(evidence, dtype=bool)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    lengths = sorted((edges[1::2] - edges[::2]).tolist(), reverse=True)
    generator = np.random.default_rng(seed)
    if len(lengths) == 1:
        starts = _room(mask, lengths[0])
        if len(starts) > draws:
            starts = generator.choice(starts, draws, replace=False)
        sets = [_run(len(mask), start, lengths[0]) for start in starts.tolist()]
        return np.array(sets, dtype=bool).reshape(-1, len(mask))
    found: dict[bytes, np.ndarray] = {}
    for _ in range(_TRIES * draws if lengths else 0):
        placed = np.zeros_like(mask)
        for length in lengths:
            starts = _room(mask | placed, length)
            if not len(starts):
                break
            placed |= _run(len(mask), int(generator.choice(starts)), length)
        if placed.sum() == mask.sum():
            found.setdefault(placed.tobytes(), placed)
        if len(found) == draws:
            break
    return np.array(list(found.values()), dtype=bool).reshape(-1, len(mask))


def _room(taken: Bool[np.ndarray, " unit"], length: int) -> Int[np.ndarray, " start"]:
    """Where a stretch of so many units fits among those that are not taken."""
    if length > len(taken):
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(~np.lib.stride_tricks.sliding_window_view(taken, length).any(axis=1))


def _run(n_units: int, start: int, length: int) -> Bool[np.ndarray, " unit"]:
    places = np.arange(n_units)
    return np.asarray((places >= start) & (places < start + length))


def _log_lifts(
    heads: Float[np.ndarray, "head unit"],
    base: Float[np.ndarray, "head unit"] | None,
    sets: Bool[np.ndarray, "draw unit"],
) -> Float[np.ndarray, "draw head"]:
    """Log-odds of each set's share in each head, less those by chance or of the control."""
    chance = logit(sets.mean(axis=1)[:, None]) if base is None else _log_odds(base, sets)
    return np.asarray(_log_odds(heads, sets) - chance)


def _log_odds(
    heads: Float[np.ndarray, "head unit"], sets: Bool[np.ndarray, "draw unit"]
) -> Float[np.ndarray, "draw head"]:
    shares = (sets @ heads.T) / heads.sum(axis=1)
    return logit(np.clip(shares, _LEAST, 1 - _LEAST))
