"""Whether a map over units (or patches) says what matters: deletion and insertion curves between two ends.

*Deletion*: the most important parts are removed first, and the outcome is followed; *insertion*: all are
removed, and the most important come back first (Petsiuk et al., RISE, arXiv 1806.07421, section 4.2;
Samek et al., arXiv 1509.06321). A curve's area alone says little: it depends on how much the outcome can
move at all. Here every area is placed between that of random orderings, 0, and that of an oracle's, 1:

    deletion:  (area_random - area) / (area_random - area_oracle)
    insertion: (area - area_random) / (area_oracle - area_random)

A map worse than chance is negative; one better than the oracle is above 1, for the oracle is an
ordering that someone proposes and not a bound. Areas are trapezoids over the part removed, from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from probes.intervals import Estimate
from probes.resampling import group_draws, group_index, percentile_interval

__all__ = [
    "AreaTriple",
    "Curves",
    "curve_area",
    "forwards_needed",
    "normalised_area",
    "normalised_area_change",
    "ordering",
    "pooled_normalised_area",
    "rank_agreement",
    "removal_curves",
    "removal_steps",
    "removed",
]

Direction = Literal["deletion", "insertion"]
AreaTriple = tuple[Float[np.ndarray, " item"], Float[np.ndarray, " item"], Float[np.ndarray, " item"]]
"""Areas of a map, of random orderings and of the oracle, each by item."""


@dataclass(frozen=True, eq=False)
class Curves:
    """The two curves of one ordering.

    Attributes:
        fraction: part of the units that was removed (deletion) or put back (insertion), from 0 to 1.
        deletion: the outcome with the first ones of the ordering removed.
        insertion: the outcome with only the first ones left.
    """

    fraction: Float[np.ndarray, " step"]
    deletion: Float[np.ndarray, " step"]
    insertion: Float[np.ndarray, " step"]


def ordering(scores: Float[np.ndarray, " unit"], seed: int = 0) -> Int[np.ndarray, " unit"]:
    """Units from the highest score to the lowest; equal ones in an order drawn with `seed`.

    Ties in order of time would lend a map that says nothing the quality of "early first".

    Raises:
        ValueError: a score is NaN: what a map does not say cannot be ordered.
    """
    values = np.asarray(scores, dtype=np.float64)
    if np.isnan(values).any():
        raise ValueError(f"{int(np.isnan(values).sum())} of {len(values)} scores are undefined")
    drawn = np.random.default_rng(seed).permutation(len(values))
    return drawn[np.argsort(-values[drawn], kind="stable")]


def removal_steps(n_units: int, steps: int) -> Int[np.ndarray, " step"]:
    """How many units are removed at each point: from 0 to all, at most `steps` stretches of equal length.

    Raises:
        ValueError: no unit, or no step.
    """
    if n_units < 1 or steps < 1:
        raise ValueError(f"a curve needs at least one unit and one step, not {n_units} and {steps}")
    return np.unique(np.round(np.linspace(0, n_units, min(steps, n_units) + 1)).astype(np.int64))


def removed(
    order: Int[np.ndarray, " unit"], counts: Int[np.ndarray, " step"], direction: Direction
) -> Bool[np.ndarray, "step unit"]:
    """Which units are removed at each point of an ordering's curve.

    Raises:
        ValueError: the ordering does not name every unit once.
    """
    places = np.asarray(order)
    if not np.array_equal(np.sort(places), np.arange(len(places))):
        raise ValueError("an ordering names every unit once")
    rank = np.empty(len(places), dtype=np.int64)
    rank[places] = np.arange(len(places))
    first = rank[None, :] < np.asarray(counts)[:, None]
    return first if direction == "deletion" else ~first


def removal_curves(
    orders: Mapping[str, Int[np.ndarray, " unit"]],
    outcome: Callable[[Bool[np.ndarray, " unit"]], float],
    steps: int,
) -> dict[str, Curves]:
    """Both curves of each ordering; `outcome` is asked once for each set of removed units.

    Args:
        orders: by name, over the same units.
        outcome: of the model with these units removed.
        steps: see `removal_steps`; at most `forwards_needed` calls of `outcome`.
    """
    known: dict[bytes, float] = {}

    def ask(without: Bool[np.ndarray, " unit"]) -> float:
        key = np.packbits(without).tobytes()
        if key not in known:
            known[key] = float(outcome(without.copy()))
        return known[key]

    curves = {}
    for name, order in orders.items():
        counts = removal_steps(len(order), steps)
        down, up = (
            np.array([ask(without) for without in removed(order, counts, direction)])
            for direction in ("deletion", "insertion")
        )
        curves[name] = Curves(counts / len(order), down, up)
    return curves


def forwards_needed(n_orders: int, n_units: int, steps: int) -> int:
    """At most so many outcomes: two ends, and the inner points of both curves of every ordering."""
    return 2 + 2 * n_orders * (len(removal_steps(n_units, steps)) - 2)


def curve_area(fraction: Float[np.ndarray, " step"], outcome: Float[np.ndarray, " step"]) -> float:
    """Trapezoid area under a curve whose fractions run from 0 to 1.

    Raises:
        ValueError: they do not.
    """
    x = np.asarray(fraction, dtype=np.float64)
    if len(x) < 2 or x[0] != 0.0 or x[-1] != 1.0 or (np.diff(x) <= 0).any():
        raise ValueError("a curve runs from fraction 0 to 1, ascending")
    return float(np.trapezoid(np.asarray(outcome, dtype=np.float64), x))


def normalised_area(area: float, random: float, oracle: float, *, least: float = 1e-9) -> float:
    """Where an area lies between random (0) and oracle (1); the same formula serves both directions.

    NaN where oracle and random are less than `least` apart: the outcome does not depend on the units.
    """
    reach = oracle - random
    return (area - random) / reach if abs(reach) > least else float("nan")


def pooled_normalised_area(
    areas: Float[np.ndarray, " item"],
    randoms: Float[np.ndarray, " item"],
    oracles: Float[np.ndarray, " item"],
    groups: Sequence[Hashable],
    *,
    n_resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """The normalised area of the mean curves, with an interval from resampling groups (videos).

    The mean over items is taken before the division: an item whose outcome hardly moves would otherwise
    weigh most, by dividing by almost nothing. Items with an undefined area are dropped and counted.
    """
    return _pooled((areas, randoms, oracles), groups, _place, n_resamples, seed)


def normalised_area_change(
    before: AreaTriple,
    after: AreaTriple,
    groups: Sequence[Hashable],
    *,
    n_resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """How far a normalised area of the mean curves moves, each side in its own reach.

    Of two maps on one model, or of one map on two models. The interval resamples groups (videos) for both
    sides at once; items with an undefined area on either side are dropped and counted.

    Args:
        before, after: areas of the map, of random orderings and of the oracle, each by item: the same items.
        groups: of each item.

    Raises:
        ValueError: as many groups as items are needed.
    """
    return _pooled(
        (*before, *after),
        groups,
        lambda totals: _place(totals[:, 3:]) - _place(totals[:, :3]),
        n_resamples,
        seed,
    )


def _place(totals: Float[np.ndarray, "r 3"]) -> Float[np.ndarray, " r"]:
    """Normalised areas of sums; NaN where oracle and random are equal."""
    reach = totals[:, 2] - totals[:, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.abs(reach) > 1e-9, (totals[:, 0] - totals[:, 1]) / reach, np.nan)


def _pooled(
    columns: Sequence[Float[np.ndarray, " item"]],
    groups: Sequence[Hashable],
    statistic: Callable[[Float[np.ndarray, "r column"]], Float[np.ndarray, " r"]],
    n_resamples: int,
    seed: int,
) -> Estimate:
    """A statistic of the columns' sums over items, with an interval from resampling groups."""
    table = np.stack([np.asarray(part, dtype=np.float64) for part in columns], axis=1)
    if len(table) != len(groups):
        raise ValueError(f"{len(table)} areas belong to {len(groups)} groups")
    kept = np.isfinite(table).all(axis=1)
    of_item, n_groups = group_index([groups[place] for place in np.flatnonzero(kept).tolist()])
    sums = np.zeros((n_groups, table.shape[1]))
    np.add.at(sums, of_item, table[kept])
    low = high = float("nan")
    if n_groups > 1:
        drawn = group_draws(n_groups, n_resamples, np.random.default_rng(seed)).astype(np.float64)
        low, high = map(float, percentile_interval(statistic(drawn @ sums), 0.95))
    mean = float(statistic(sums.sum(axis=0, keepdims=True))[0])
    return Estimate(mean, low, high, int(kept.sum()), n_groups, int((~kept).sum()))


def rank_agreement(first: Float[np.ndarray, " unit"], second: Float[np.ndarray, " unit"]) -> float:
    """Kendall's tau-b of two maps over the same units; NaN where one of them is constant."""
    one, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.shape != other.shape or one.ndim != 1:
        raise ValueError(f"maps of shapes {one.shape} and {other.shape} cannot be compared")
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return float("nan")
    return float(stats.kendalltau(one, other).statistic)
