"""How much of the attention falls on the evidence: mass, share, lift and log-lift.

With a constant logit advantage D of one evidence unit over U - 1 others, lift = U e^D / (e^D + U - 1) grows
with U for the same behaviour (3.2, 5.1, 7.2, 9.0 at 4, 8, 16, 32 units for D = 2.5), so budgets cannot be
compared by it. The log-odds of the evidence share minus the log-odds of |E|/U is D at every U: it is the
headline. "Share" and "lift" follow the evidence-attention scores of retrieval-head work (arXiv 2404.15574,
2605.27243) and MedHorizon (arXiv 2605.06537); the log-odds form is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from probes.shares import attention_fraction, checked_mass, unit_shares

__all__ = ["EvidenceAlignment", "evidence_alignment", "evidence_weights"]


@dataclass(frozen=True, eq=False)
class EvidenceAlignment:
    """Attention on the evidence; arrays carry the leading axes of the mass they came from."""

    covered: bool
    """Whether any evidence was shown. Where not, every measure is NaN: nothing can be said."""
    n_evidence_units: float
    """|E|: units with evidence, or the sum of their fractions."""
    n_units: int
    """U."""
    mass: Float[np.ndarray, "*batch"]
    """Attention on evidence as a fraction of all attention."""
    share: Float[np.ndarray, "*batch"]
    """Attention on evidence as a share of the attention on the video."""
    lift: Float[np.ndarray, "*batch"]
    """share / (|E|/U); undefined where every unit is evidence, since it is 1 whatever the model does."""
    log_lift: Float[np.ndarray, "*batch"]
    """logit(share) - logit(|E|/U), in nats; undefined too where it has no bound (share exactly 0 or 1)."""
    n_unbounded: int
    """How many log-lifts were dropped for having no bound."""

    def measures(self) -> dict[str, Float[np.ndarray, "*batch"]]:
        """The measures by the names they have in records, summary and tables."""
        return {
            "evidence_covered": np.full(np.shape(self.share), float(self.covered)),
            "evidence_mass": self.mass,
            "evidence_share": self.share,
            "evidence_lift": self.lift,
            "evidence_log_lift": self.log_lift,
        }


def evidence_weights(
    evidence: Bool[np.ndarray, " unit *slot"] | Float[np.ndarray, " unit *slot"],
    *,
    fractional: bool = False,
    shown: Bool[np.ndarray, "unit slot"] | None = None,
) -> Float[np.ndarray, " unit"]:
    """How much of each unit is evidence, from 0 to 1.

    Args:
        evidence: per unit, or per unit and slot. Numbers in [0, 1] are fractions already.
        fractional: a unit of two frames of which one is evidence counts as a half; otherwise as one.
        shown: which slots hold a frame, so that an empty one (frame index -1) is not counted.

    Raises:
        ValueError: fractions outside [0, 1], more than two axes, or `shown` of another shape.
    """
    weights = np.asarray(evidence, dtype=np.float64)
    if weights.ndim not in (1, 2):
        raise ValueError(f"evidence has axes [unit] or [unit, slot], got shape {weights.shape}")
    if not ((weights >= 0) & (weights <= 1)).all():
        raise ValueError("evidence must lie in [0, 1]")
    if weights.ndim == 1:
        return weights if fractional else (weights > 0).astype(np.float64)
    filled = np.ones(weights.shape, dtype=bool) if shown is None else np.asarray(shown, dtype=bool)
    if filled.shape != weights.shape:
        raise ValueError(f"shown has shape {filled.shape}, evidence {weights.shape}")
    weights = np.where(filled, weights, 0.0)
    if not fractional:
        return np.asarray(weights.any(axis=1), dtype=np.float64)
    return np.asarray(weights.sum(axis=1) / np.maximum(filled.sum(axis=1), 1))


def evidence_alignment(
    unit_mass: Float[np.ndarray, "*batch unit"],
    evidence: Bool[np.ndarray, " unit *slot"] | Float[np.ndarray, " unit *slot"],
    *,
    rest_mass: Float[np.ndarray, "*batch"] | None = None,
    tokens_per_unit: Int[np.ndarray, " unit"] | None = None,
    fractional: bool = False,
    shown: Bool[np.ndarray, "unit slot"] | None = None,
) -> EvidenceAlignment:
    """Measure the attention of every distribution along the last axis on the evidence.

    Args:
        unit_mass: attention summed over the tokens of each unit, for instance [layer, head, role, unit].
        evidence, fractional, shown: see `evidence_weights`.
        rest_mass, tokens_per_unit: see `concentration`.

    Raises:
        ValueError: mass that cannot be attention, or evidence of another number of units.

    Example:
        >>> first = np.array([True, False, False, False])
        >>> float(evidence_alignment(np.array([0.5, 0.1, 0.2, 0.2]), first).lift)
        2.0
    """
    mass = checked_mass(unit_mass)
    weights = evidence_weights(evidence, fractional=fractional, shown=shown)
    n_units = mass.shape[-1]
    if len(weights) != n_units:
        raise ValueError(f"evidence is given for {len(weights)} units, attention for {n_units}")
    amount = float(weights.sum())
    shares = unit_shares(mass, tokens_per_unit=tokens_per_unit)
    undefined = np.full(shares.shape[:-1], np.nan)
    if amount == 0:
        return EvidenceAlignment(False, amount, n_units, undefined, undefined, undefined, undefined, 0)

    share = np.asarray(shares @ weights)
    on_evidence = attention_fraction(np.asarray(mass @ weights), mass, rest_mass)
    on_evidence = np.where(np.isnan(share), np.nan, on_evidence)
    rest = n_units - amount
    if rest == 0:
        return EvidenceAlignment(True, amount, n_units, on_evidence, share, undefined, undefined, 0)

    # Both sides of the odds are summed: 1 - share would lose a share near one to rounding.
    elsewhere = shares @ (1.0 - weights)
    bounded = (share > 0) & (elsewhere > 0)
    odds = np.divide(share, elsewhere, out=undefined.copy(), where=bounded)
    return EvidenceAlignment(
        covered=True,
        n_evidence_units=amount,
        n_units=n_units,
        mass=on_evidence,
        share=share,
        lift=np.asarray(share / (amount / n_units)),
        log_lift=np.asarray(np.log(odds) - np.log(amount / rest)),
        n_unbounded=int(np.count_nonzero(~bounded & np.isfinite(share))),
    )
