"""One item's measures from many heads, by both roads: per head then averaged, and on the pooled attention.

Entropy is concave: heads that each peak on another unit look diffuse once their attention is pooled
(measured in the dossier, 32 units and 16 heads: 0.88 of the units for 90% pooled, 0.80 per head). Neither
road is the true one, so both are reported with their divergence, the generalised Jensen-Shannon divergence
of the heads (Lin, "Divergence measures based on the Shannon entropy", IEEE Trans. Inf. Theory 1991, section
V): entropy of the mixture minus the mean entropy. It is zero only where all heads look alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import entr

from probes.concentration import FRACTIONS, Concentration, concentration
from probes.evidence import evidence_alignment, evidence_weights

__all__ = ["HeadSummary", "pooled_and_per_head"]


@dataclass(frozen=True, eq=False)
class HeadSummary:
    """Measures of one item over a set of heads, by both roads."""

    per_head: dict[str, float]
    """Each measure computed per head, then averaged over the heads where it is defined."""
    n_defined: dict[str, int]
    """How many heads each of those averages is over."""
    pooled: dict[str, float]
    """Each measure on the pooled attention."""
    difference: dict[str, float]
    """Pooled minus per head."""
    divergence: float
    """Generalised Jensen-Shannon divergence of the heads' shares, in nats, from 0 to log of their number."""
    divergence_normalised: float
    """The same over log U; undefined at U = 1."""
    n_heads: int
    """Heads taken, over all layers."""
    n_undefined: int
    """Of these, heads with no attention on the video: outside every average."""
    heads: Concentration
    """Concentration of each head [layer, head]."""
    mixture: Concentration
    """Concentration of the pooled attention."""

    def measures(self) -> dict[str, float]:
        """Flat names for a record: `entropy` (per head), `entropy_pooled`, ..., `head_divergence`."""
        pooled = {f"{name}_pooled": value for name, value in self.pooled.items()}
        # Coverage is the item's, not a head's: one number.
        pooled.pop("evidence_covered_pooled", None)
        return self.per_head | pooled | {"head_divergence": self.divergence_normalised}


def pooled_and_per_head(
    unit_mass: Float[np.ndarray, "layer head unit"],
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    weighting: Literal["mass", "equal"] = "mass",
    rest_mass: Float[np.ndarray, "layer head"] | None = None,
    tokens_per_unit: Int[np.ndarray, " unit"] | None = None,
    fractions: Sequence[float] = FRACTIONS,
    evidence: Bool[np.ndarray, " unit *slot"] | Float[np.ndarray, " unit *slot"] | None = None,
    fractional: bool = False,
    shown: Bool[np.ndarray, "unit slot"] | None = None,
) -> HeadSummary:
    """Measure concentration, and alignment where evidence is given, over layers and heads by both roads.

    Args:
        unit_mass: attention of one role's rows, summed over the tokens of each unit.
        layers, heads: which to take; all where None. The same heads are taken in every layer.
        weighting: how heads are pooled. "mass" averages their attention, so that a head counts by what it
            gives to the video; "equal" averages their shares. The divergence mixes them in the same way.
        rest_mass, tokens_per_unit, fractions: see `concentration`.
        evidence, fractional, shown: see `evidence_alignment`.

    Raises:
        ValueError: mass without the three axes or that cannot be attention, or an unknown weighting.
        IndexError: a layer or head that is not there.
    """
    mass = np.asarray(unit_mass, dtype=np.float64)
    if mass.ndim != 3:
        raise ValueError(f"unit_mass needs axes [layer, head, unit], got shape {mass.shape}")
    if weighting not in ("mass", "equal"):
        raise ValueError(f"heads are pooled by 'mass' or 'equal', not {weighting!r}")
    taken = np.ix_(_indices(layers, mass.shape[0]), _indices(heads, mass.shape[1]))
    mass = mass[taken]
    rest = None if rest_mass is None else np.asarray(rest_mass, dtype=np.float64)[taken]

    each = concentration(mass, rest_mass=rest, tokens_per_unit=tokens_per_unit, fractions=fractions)
    pooled_mass, pooled_rest = _pool(mass, rest, each, tokens_per_unit, weighting)
    mixture = concentration(
        pooled_mass, rest_mass=pooled_rest, tokens_per_unit=tokens_per_unit, fractions=fractions
    )
    of_heads, of_mixture = each.measures(), mixture.measures()
    if evidence is not None:
        weights = evidence_weights(evidence, fractional=fractional, shown=shown)
        of_heads |= _evidence_measures(mass, weights, rest, tokens_per_unit)
        of_mixture |= _evidence_measures(pooled_mass, weights, pooled_rest, tokens_per_unit)
    per_head = {name: _defined_mean(values) for name, values in of_heads.items()}
    pooled = {name: float(value) for name, value in of_mixture.items()}
    divergence = _divergence(mass, each, tokens_per_unit, weighting)
    return HeadSummary(
        per_head=per_head,
        n_defined={name: int(np.isfinite(values).sum()) for name, values in of_heads.items()},
        pooled=pooled,
        difference={name: pooled[name] - per_head[name] for name in per_head},
        divergence=divergence,
        divergence_normalised=divergence / float(np.log(each.n_units)) if each.n_units > 1 else float("nan"),
        n_heads=int(each.defined.size),
        n_undefined=each.n_undefined,
        heads=each,
        mixture=mixture,
    )


def _indices(chosen: Sequence[int] | None, size: int) -> list[int]:
    return list(range(size)) if chosen is None else list(chosen)


def _pool(
    mass: Float[np.ndarray, "layer head unit"],
    rest: Float[np.ndarray, "layer head"] | None,
    each: Concentration,
    tokens_per_unit: Int[np.ndarray, " unit"] | None,
    weighting: str,
) -> tuple[Float[np.ndarray, " unit"], Float[np.ndarray, ""] | None]:
    """The pooled attention [unit] and what it leaves to the rest; heads with NaN rows are left out."""
    present = ~np.isnan(mass).any(axis=-1)
    if not present.any():
        nothing = np.full(mass.shape[-1], np.nan)
        return nothing, None if rest is None else np.array(np.nan)
    pooled = mass[present].mean(axis=0)
    pooled_rest = None if rest is None else np.asarray(rest[present].mean())
    if weighting == "equal" and each.defined.any():
        # Each defined head counts once: the mean of shares, brought back to the mean attention on the video
        # so that visual_mass is the same by both weightings.
        totals = _share_totals(mass, tokens_per_unit)[each.defined]
        equal = (mass[each.defined] / totals[:, None]).mean(axis=0)
        pooled = equal * (pooled.sum() / equal.sum())
    return pooled, pooled_rest


def _share_totals(
    mass: Float[np.ndarray, "layer head unit"], tokens_per_unit: Int[np.ndarray, " unit"] | None
) -> Float[np.ndarray, "layer head"]:
    """What `unit_shares` divides by."""
    return (mass if tokens_per_unit is None else mass / np.asarray(tokens_per_unit)).sum(axis=-1)


def _divergence(
    mass: Float[np.ndarray, "layer head unit"],
    each: Concentration,
    tokens_per_unit: Int[np.ndarray, " unit"] | None,
    weighting: str,
) -> float:
    if not each.defined.any():
        return float("nan")
    shares = each.shares[each.defined]
    totals = _share_totals(mass, tokens_per_unit)[each.defined]
    weights = totals / totals.sum() if weighting == "mass" else np.full(len(shares), 1 / len(shares))
    gap = entr(weights @ shares).sum() - weights @ entr(shares).sum(axis=-1)
    # Jensen: never negative but for rounding.
    return max(float(gap), 0.0)


def _evidence_measures(
    mass: Float[np.ndarray, "*batch unit"],
    weights: Float[np.ndarray, " unit"],
    rest: Float[np.ndarray, "*batch"] | None,
    tokens_per_unit: Int[np.ndarray, " unit"] | None,
) -> dict[str, Float[np.ndarray, "*batch"]]:
    aligned = evidence_alignment(
        mass, weights, rest_mass=rest, tokens_per_unit=tokens_per_unit, fractional=True
    )
    return aligned.measures()


def _defined_mean(values: Float[np.ndarray, "*batch"]) -> float:
    defined = values[np.isfinite(values)]
    return float(defined.mean()) if defined.size else float("nan")
