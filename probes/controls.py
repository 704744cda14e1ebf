"""What attention would look like without the content: position-only and value-weighted controls.

The same prompt over a blank or a permuted video has the same positions and none of the evidence in its
place, so what its attention shares with the real one is position alone (the positional prior that
Video-LevelGauge, arXiv 2508.19650, measures by accuracy, read off attention here). Value-weighted attention
multiplies each weight by the length of the value it carries, since a weight on a short value moves nothing
(Kobayashi et al., "Attention is Not Only a Weight", arXiv 2004.10102, section 3; for multimodal models CAPA,
arXiv 2602.00247).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import rel_entr
from scipy.stats import rankdata

from probes.evidence import evidence_alignment
from probes.shares import unit_shares, unit_sums

__all__ = [
    "PositionControl",
    "evidence_log_lift_corrected",
    "position_corrected",
    "value_weighted_units",
]


@dataclass(frozen=True, eq=False)
class PositionControl:
    """Attention against the attention that position alone draws; arrays carry the leading axes given.

    All NaN where either distribution is undefined.
    """

    log_ratio: Float[np.ndarray, "*batch unit"]
    """log(share / baseline share), nats: above zero where content draws attention. NaN where one is zero."""
    kl: Float[np.ndarray, "*batch"]
    """KL(real || baseline), nats. NaN (no bound) where the baseline gives nothing to an attended unit."""
    js: Float[np.ndarray, "*batch"]
    """Jensen-Shannon divergence, nats, 0 to log 2: always defined where both distributions are."""
    spearman: Float[np.ndarray, "*batch"]
    """Rank correlation over units, ties at their mean rank; NaN where either is constant."""
    explained: Float[np.ndarray, "*batch"]
    """1 - KL(real || baseline) / KL(real || uniform): the part of the concentration that position gives.
    1 where the two are equal, 0 for a uniform baseline, negative for one that misleads; NaN where attention
    is uniform, since there is no concentration to explain."""

    def measures(self) -> dict[str, Float[np.ndarray, "*batch"]]:
        """The scalars by the names they have in records, summary and tables."""
        return {
            "position_kl": self.kl,
            "position_js": self.js,
            "position_spearman": self.spearman,
            "position_explained": self.explained,
        }


def position_corrected(
    unit_share: Float[np.ndarray, "*batch unit"],
    baseline_share: Float[np.ndarray, "*batch unit"],
) -> PositionControl:
    """Compare attention per unit with that on a blank or permuted video of the same layout.

    Args:
        unit_share: shares, or masses (they are normalised here).
        baseline_share: the same from the control run, unit by unit in the same positions.

    Raises:
        ValueError: shapes that differ, or values that cannot be attention.
    """
    p, q = unit_shares(unit_share), unit_shares(baseline_share)
    if p.shape != q.shape:
        raise ValueError(f"attention has shape {p.shape}, its baseline {q.shape}")
    both = (p > 0) & (q > 0)
    log_ratio = np.log(np.divide(p, q, out=np.full_like(p, np.nan), where=both))
    kl = np.asarray(rel_entr(p, q).sum(axis=-1))
    kl = np.where(np.isinf(kl), np.nan, kl)
    middle = (p + q) / 2
    from_uniform = np.asarray(rel_entr(p, np.full_like(p, 1 / p.shape[-1])).sum(axis=-1))
    # Shares of uniform float32 attention differ from 1/U by rounding: that is no concentration.
    concentrated = from_uniform > 1e-12
    return PositionControl(
        log_ratio=log_ratio,
        kl=kl,
        js=np.asarray((rel_entr(p, middle) + rel_entr(q, middle)).sum(axis=-1) / 2),
        spearman=_spearman(p, q),
        explained=np.asarray(
            1 - np.divide(kl, from_uniform, out=np.full_like(kl, np.nan), where=concentrated)
        ),
    )


def evidence_log_lift_corrected(
    unit_mass: Float[np.ndarray, "*batch unit"],
    baseline_mass: Float[np.ndarray, "*batch unit"],
    evidence: Bool[np.ndarray, " unit *slot"] | Float[np.ndarray, " unit *slot"],
    *,
    fractional: bool = False,
) -> Float[np.ndarray, "*batch"]:
    """logit(evidence share) minus logit(evidence share of the baseline), nats: alignment beyond position.

    |E|/U cancels, so it is the difference of two log-lifts, and NaN where either is.
    """
    real = evidence_alignment(unit_mass, evidence, fractional=fractional)
    baseline = evidence_alignment(baseline_mass, evidence, fractional=fractional)
    return np.asarray(real.log_lift - baseline.log_lift)


def value_weighted_units(
    token_attention: Float[np.ndarray, "*batch token"],
    value_norm: Float[np.ndarray, "*batch token"],
    unit: Int[np.ndarray, " token"],
    n_units: int | None = None,
) -> Float[np.ndarray, "*batch unit"]:
    """Sum over each unit's tokens of attention times length of the value: ||A v|| a token, as A is a number.

    Args:
        token_attention: attention on each visual token, for instance [layer, head, token].
        value_norm: Euclidean length of that token's value vector in the same layer and head.
        unit: the unit of each token.

    Raises:
        ValueError: shapes that differ, or lengths that are negative.

    Rows no longer sum to one: give `concentration` the weighted rest as `rest_mass` for a visual mass.
    """
    attention, norm = np.asarray(token_attention), np.asarray(value_norm)
    if attention.shape != norm.shape:
        raise ValueError(f"attention has shape {attention.shape}, value_norm {norm.shape}")
    if (norm < 0).any():
        raise ValueError("value_norm holds negative lengths")
    return unit_sums(attention * norm, unit, n_units)


def _spearman(
    p: Float[np.ndarray, "*batch unit"], q: Float[np.ndarray, "*batch unit"]
) -> Float[np.ndarray, "*batch"]:
    """Pearson correlation of ranks for every row at once; scipy.stats.spearmanr takes one pair a call."""
    ranks = [rankdata(shares, axis=-1) for shares in (p, q)]
    x, y = (rank - rank.mean(axis=-1, keepdims=True) for rank in ranks)
    scale = np.asarray(np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1)))
    undefined = np.isnan(p).any(axis=-1) | np.isnan(q).any(axis=-1)
    return np.divide(
        (x * y).sum(axis=-1), scale, out=np.full_like(scale, np.nan), where=(scale > 0) & ~undefined
    )
