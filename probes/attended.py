"""Was the evidence attended to? Its log-lift against that of as many other units, by the best heads of each.

Heads have tasks of their own, so a mean over all of them hides the few that look. Taking the best heads for
the evidence alone would flatter it: so each set of other units is given its own best heads, and the evidence
has to beat those (a maximum-statistic permutation test; Westfall and Young's idea, applied to units).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import logit

from probes.shares import checked_mass

__all__ = ["AttendedTest", "attended_test"]

_LEAST = 1e-12
"""Shares are kept this far from 0 and 1, where log-odds have no bound."""


@dataclass(frozen=True, eq=False)
class AttendedTest:
    """How the evidence's log-lift compares with other units'.

    Attributes:
        statistic: log-lift of the evidence, mean over its best heads, in nats; NaN where undefined.
        null: the same of each set of other units.
        threshold: the null's quantile that counts as attended.
        attended: whether the statistic is above it; False where undefined.
        best: which heads these were for the evidence: places in the leading axes of the mass, one row a head;
            none where undefined.
    """

    statistic: float
    null: Float[np.ndarray, " draw"]
    threshold: float
    attended: bool
    best: Int[np.ndarray, "head axis"]

    @property
    def defined(self) -> bool:
        """Whether there is evidence, and enough units beside it to compare it with."""
        return math.isfinite(self.statistic) and len(self.null) > 0


def attended_test(
    unit_mass: Float[np.ndarray, "*batch unit"],
    evidence: Bool[np.ndarray, " unit"],
    *,
    baseline_mass: Float[np.ndarray, "*batch unit"] | None = None,
    top: float = 0.1,
    quantile: float = 0.95,
    draws: int = 200,
    seed: int | list[int] = 0,
) -> AttendedTest:
    """Compare the attention on the evidence with that on random sets of as many other units.

    Args:
        unit_mass: attention on each unit by whatever comes first: layers, heads.
        evidence: which units show evidence.
        baseline_mass: of a control, such as blank pictures in the same places: subtracted as log-odds, so
            that units favoured by their position are taken for evidence no more than for the null.
        top: share of the heads that count, at least one, chosen anew for every set.
        quantile: of the null, above which the evidence is attended.
        draws: sets of other units; all of them where there are no more.
        seed: as numpy takes it.

    Returns:
        Undefined (`defined` False) without evidence, or with fewer than as many other units.

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
    size, others = int(mask.sum()), np.flatnonzero(~mask)
    seen = np.flatnonzero((heads.sum(axis=1) > 0) & (True if base is None else base.sum(axis=1) > 0))
    if size == 0 or len(others) < size or not len(seen):
        nowhere = np.empty((0, mass.ndim - 1), dtype=np.int64)
        return AttendedTest(math.nan, np.empty(0), math.nan, False, nowhere)
    sets = np.vstack([mask, _other_sets(others, size, len(mask), draws, seed)])
    lifts = _log_lifts(heads[seen], None if base is None else base[seen], sets)
    order = np.argsort(lifts, axis=1, kind="stable")[:, -max(1, round(top * len(seen))) :]
    found = np.take_along_axis(lifts, order, axis=1).mean(axis=1)
    threshold = float(np.quantile(found[1:], quantile))
    places = np.stack(np.unravel_index(seen[order[0]], mass.shape[:-1]), axis=1)
    return AttendedTest(float(found[0]), found[1:], threshold, bool(found[0] > threshold), places)


def _other_sets(
    others: np.ndarray, size: int, n_units: int, draws: int, seed: int | list[int]
) -> Bool[np.ndarray, "draw unit"]:
    """Distinct sets of other units where there are few of them, else random ones."""
    if size == 1 and len(others) <= draws:
        chosen = others[:, None]
    else:
        generator = np.random.default_rng(seed)
        chosen = np.stack([generator.choice(others, size, replace=False) for _ in range(draws)])
    sets = np.zeros((len(chosen), n_units), dtype=bool)
    np.put_along_axis(sets, chosen, True, axis=1)
    return sets


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
