"""From attention mass per temporal unit to a distribution over units: the first step of every measure.

Attention that a row gives to the video is seldom all of its attention, so every measure has one of two
denominators: the attention on the video (a *share*) or all attention (a *mass*). Definitions: frame
scores of ViLAMP (arXiv 2504.02438, the redundancy analysis), as MedHorizon uses them (arXiv 2605.06537,
section 4.4); both are silent about units of unequal size and about rows with no attention on the video,
which are decided here.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

__all__ = ["attention_fraction", "unit_shares", "unit_sums"]


def unit_shares(
    unit_mass: Float[np.ndarray, "*batch unit"],
    *,
    tokens_per_unit: Int[np.ndarray, " unit"] | None = None,
) -> Float[np.ndarray, "*batch unit"]:
    """Attention mass as shares of the attention on the video, float64, each row summing to one.

    Args:
        unit_mass: attention summed over the tokens of each unit, not negative.
        tokens_per_unit: how many tokens each unit has. Given, a unit counts by its mean attention a token
            and not by its sum, which matters only where units differ in size.

    Returns:
        Shares; a row with no attention on the video, or with a NaN, is undefined: NaN throughout.

    Raises:
        ValueError: no units, negative or infinite mass, or token counts that are not positive.
    """
    mass = checked_mass(unit_mass)
    if tokens_per_unit is not None:
        counts = np.asarray(tokens_per_unit)
        if counts.shape != mass.shape[-1:] or (counts <= 0).any():
            raise ValueError(
                f"tokens_per_unit must hold {mass.shape[-1]} positive counts, got shape {counts.shape}"
            )
        mass = mass / counts
    total = mass.sum(axis=-1, keepdims=True)
    return np.divide(mass, total, out=np.full_like(mass, np.nan), where=total > 0)


def attention_fraction(
    mass: Float[np.ndarray, "*batch"],
    unit_mass: Float[np.ndarray, "*batch unit"],
    rest_mass: Float[np.ndarray, "*batch"] | None,
) -> Float[np.ndarray, "*batch"]:
    """`mass` as a fraction of all attention of its row.

    Without `rest_mass` the row is taken to sum to one, as softmax rows do, and `mass` is that fraction. With
    it the row's own total divides, which also serves attention that does not sum to one (value-weighted).
    Undefined (NaN) where the row's total is zero.
    """
    if rest_mass is None:
        return np.asarray(mass, dtype=np.float64)
    rest = np.asarray(rest_mass, dtype=np.float64)
    visual = checked_mass(unit_mass).sum(axis=-1)
    if rest.shape != visual.shape:
        raise ValueError(f"rest_mass has shape {rest.shape}, the rows of unit_mass {visual.shape}")
    if (rest < 0).any():
        raise ValueError("rest_mass holds negative attention")
    total = visual + rest
    return np.divide(mass, total, out=np.full_like(total, np.nan), where=total > 0)


def unit_sums(
    token_values: Float[np.ndarray, "*batch token"],
    unit: Int[np.ndarray, " token"],
    n_units: int | None = None,
) -> Float[np.ndarray, "*batch unit"]:
    """Sum values of tokens into their units, float64.

    Raises:
        ValueError: a unit index that is negative or not below `n_units`.
    """
    index = np.asarray(unit)
    if n_units is None:
        n_units = int(index.max()) + 1 if index.size else 0
    if index.size and (index.min() < 0 or index.max() >= n_units):
        raise ValueError(f"unit indices run from {index.min()} to {index.max()}, there are {n_units} units")
    values = np.asarray(token_values, dtype=np.float64)
    rows = values.reshape(-1, values.shape[-1])
    sums = np.stack([np.bincount(index, weights=row, minlength=n_units) for row in rows])
    return sums.reshape(*values.shape[:-1], n_units)


def checked_mass(unit_mass: Float[np.ndarray, "*batch unit"]) -> Float[np.ndarray, "*batch unit"]:
    """`unit_mass` in float64; raises ValueError where it cannot be attention. NaN marks an absent row."""
    mass = np.asarray(unit_mass, dtype=np.float64)
    if mass.ndim == 0 or mass.shape[-1] == 0:
        raise ValueError(f"unit_mass needs at least one unit on its last axis, got shape {mass.shape}")
    if np.isinf(mass).any():
        raise ValueError("unit_mass holds infinite attention")
    if (mass < 0).any():
        raise ValueError(f"unit_mass holds negative attention ({np.nanmin(mass):.3g})")
    return mass
