"""How few temporal units hold most of the attention on the video.

Units are ranked by (-share, index), so that of two equal units the earlier comes first; C(k) is the share
of the k first. The smallest fraction of units holding 90% of the attention is the number MedHorizon
reports (arXiv 2605.06537, section 4.4 and figure 9) after ViLAMP (arXiv 2504.02438). It is a multiple of
1/U: uniform attention over U units gives ceil(aU)/U, not a (1.0 for a = 0.9 at U = 8), so it is compared
with `uniform_reference` and not with a.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import entr

from probes.shares import attention_fraction, checked_mass, unit_shares

__all__ = ["Concentration", "concentration", "fraction_name", "uniform_reference"]

FRACTIONS = (0.5, 0.8, 0.9, 0.95)
# A cumulated share this close below its target has reached it: nine tenths added up in float64 are not 0.9.
REACHED = 1e-12


@dataclass(frozen=True, eq=False)
class Concentration:
    """Concentration of each distribution; arrays carry the leading axes of the mass they came from.

    Every array but `visual_mass` is NaN where the distribution is undefined (no attention on the video).
    """

    shares: Float[np.ndarray, "*batch unit"]
    """Attention of each unit as a share of the attention on the video."""
    ranking: Int[np.ndarray, "*batch unit"]
    """Units from most to least attended; the given order where undefined."""
    cumulative: Float[np.ndarray, "*batch unit"]
    """C(k) for k = 1..U: the share of the k most attended units."""
    unit_fraction: dict[float, Float[np.ndarray, "*batch"]]
    """For each a: min{k: C(k) >= a} / U."""
    entropy: Float[np.ndarray, "*batch"]
    """H(p) / log U, from 0 (one unit) to 1 (uniform); undefined at U = 1."""
    effective_units: Float[np.ndarray, "*batch"]
    """exp H(p): the number of equally attended units with the same entropy."""
    gini: Float[np.ndarray, "*batch"]
    """Mean absolute difference of two shares over twice the mean share, 0 to (U-1)/U; undefined at U = 1."""
    visual_mass: Float[np.ndarray, "*batch"]
    """Attention on the video as a fraction of all attention. Zero is a value here, not a gap."""
    defined: Bool[np.ndarray, "*batch"]
    """Where the distribution exists."""
    n_units: int
    """U."""

    @property
    def n_undefined(self) -> int:
        """How many of the distributions are undefined."""
        return int(np.size(self.defined) - np.count_nonzero(self.defined))

    def measures(self) -> dict[str, Float[np.ndarray, "*batch"]]:
        """The scalars by the names they have in records, summary and tables."""
        named = {fraction_name(fraction): value for fraction, value in self.unit_fraction.items()}
        return named | {
            "entropy": self.entropy,
            "effective_units": self.effective_units,
            "gini": self.gini,
            "visual_mass": self.visual_mass,
        }


def concentration(
    unit_mass: Float[np.ndarray, "*batch unit"],
    *,
    rest_mass: Float[np.ndarray, "*batch"] | None = None,
    tokens_per_unit: Int[np.ndarray, " unit"] | None = None,
    fractions: Sequence[float] = FRACTIONS,
) -> Concentration:
    """Measure the concentration of every distribution along the last axis.

    Args:
        unit_mass: attention summed over the tokens of each unit, for instance [layer, head, role, unit].
        rest_mass: attention on all that is not video; without it rows are taken to sum to one with it.
        tokens_per_unit: given, units count by their mean attention a token (see `unit_shares`).
        fractions: the a of `unit_fraction`, each in (0, 1].

    Raises:
        ValueError: mass that cannot be attention, or a fraction outside (0, 1].

    Example:
        >>> round(float(concentration(np.array([0.1, 0.6, 0.2, 0.1])).unit_fraction[0.8]), 2)
        0.5
    """
    _check_fractions(fractions)
    mass = checked_mass(unit_mass)
    shares = unit_shares(mass, tokens_per_unit=tokens_per_unit)
    n_units = shares.shape[-1]
    defined = np.asarray(np.isfinite(shares).all(axis=-1))

    ranking = np.argsort(-shares, axis=-1, kind="stable")
    ranked = np.take_along_axis(shares, ranking, axis=-1)
    # Rounding may carry the last sum past one; a share cannot.
    cumulative = np.minimum(np.cumsum(ranked, axis=-1), 1.0)
    nats = np.asarray(entr(shares).sum(axis=-1))
    undefined_at_one = np.full_like(nats, np.nan)
    return Concentration(
        shares=shares,
        ranking=ranking,
        cumulative=cumulative,
        unit_fraction={a: _unit_fraction(cumulative, a, defined) for a in fractions},
        entropy=np.asarray(nats / np.log(n_units)) if n_units > 1 else undefined_at_one,
        effective_units=np.asarray(np.exp(nats)),
        gini=_gini(ranked) if n_units > 1 else undefined_at_one,
        visual_mass=attention_fraction(np.asarray(mass.sum(axis=-1)), mass, rest_mass),
        defined=defined,
        n_units=n_units,
    )


def uniform_reference(n_units: int, fractions: Sequence[float] = FRACTIONS) -> dict[float, float]:
    """`unit_fraction` of uniform attention over `n_units` units: ceil(aU)/U for each a.

    Raises:
        ValueError: no units, or a fraction outside (0, 1].
    """
    if n_units < 1:
        raise ValueError(f"there is no uniform attention over {n_units} units")
    _check_fractions(fractions)
    return {a: float(np.ceil(n_units * (a - REACHED)) / n_units) for a in fractions}


def fraction_name(fraction: float) -> str:
    """Name of a unit fraction in records and tables: 0.9 is `unit_fraction_90`."""
    return f"unit_fraction_{100 * fraction:g}"


def _check_fractions(fractions: Sequence[float]) -> None:
    outside = [a for a in fractions if not 0 < a <= 1]
    if outside:
        raise ValueError(f"fractions of the attention lie in (0, 1], got {outside}")


def _unit_fraction(
    cumulative: Float[np.ndarray, "*batch unit"], fraction: float, defined: Bool[np.ndarray, "*batch"]
) -> Float[np.ndarray, "*batch"]:
    n_units = cumulative.shape[-1]
    short = np.count_nonzero(cumulative < fraction - REACHED, axis=-1)
    return np.where(defined, np.minimum(short + 1, n_units) / n_units, np.nan)


def _gini(ranked: Float[np.ndarray, "*batch unit"]) -> Float[np.ndarray, "*batch"]:
    """Gini of shares sorted downwards: the pairwise definition in one pass, since the order is known."""
    n_units = ranked.shape[-1]
    weights = n_units - 1 - 2.0 * np.arange(n_units)
    return np.asarray(ranked @ weights / n_units)
