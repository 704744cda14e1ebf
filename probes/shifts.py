"""Null distributions by circular shifts: keep two maps as they are, turn one against the other.

The usual permutation test treats each patch as independent, which attention and similarity maps are not.
Turning one map by every shift keeps the autocorrelation of both (toroidal shift test: Lotwick & Silverman,
"Methods for analysing spatial processes of several types of points", JRSS B 1982).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Shaped

from probes.layout import TokenLayout

__all__ = ["ShiftNull", "shift_null"]

# Attention-weighted means closer than this are equal: the transforms return them with some rounding.
EQUAL = 1e-10


@dataclass(frozen=True)
class ShiftNull:
    """A preference against its values under every circular shift but the identity.

    All NaN, with `n_shifts` 0, where no shift exists: fewer than two units or places, grids that differ
    between units, no attention; for `space` also a grid with holes.
    """

    observed: float
    """The preference on the units that take part."""
    mean: float
    """Mean under the null."""
    low: float
    """2.5th percentile of the null."""
    high: float
    """97.5th percentile of the null."""
    z: float
    """(observed - mean) / standard deviation of the null; NaN where the null does not vary."""
    p_value: float
    """Two-sided: twice the smaller tail with the observed value counted in, at most 1."""
    n_shifts: int
    """Shifts behind it; the p-value cannot be below 2 / (n_shifts + 1)."""


NAN = float("nan")
UNDEFINED = ShiftNull(NAN, NAN, NAN, NAN, NAN, NAN, n_shifts=0)


def shift_null(
    layout: TokenLayout,
    values: Float[np.ndarray, " token"],
    attention: Float[np.ndarray, " token"],
    axis: Literal["time", "space"],
) -> ShiftNull:
    """Null of the attention-weighted mean of `values` minus their plain mean.

    Only units with a value take part, in their order, as though adjacent: keyframes, which have none, are
    left out, so their attention, the highest by construction, is never moved onto other patches.

    Args:
        layout: where the tokens lie.
        values: similarity, or its residual within strata; NaN where undefined.
        attention: not negative.
        axis: `time` moves attention along the units, `space` all units' maps by one (row, column) vector.
    """
    cubes = _cubes(layout, values, attention, axis)
    if cubes is None:
        return UNDEFINED
    known, value, weight = cubes
    axes = (0,) if axis == "time" else (1, 2)
    amount = _shifted_sums(weight, known, axes)
    if not (amount > EQUAL * weight.sum()).all():
        return UNDEFINED  # some shift puts all attention on undefined patches: also where there is none
    shifted = _shifted_sums(weight, value, axes) / amount - value.sum() / known.sum()
    observed, null = float(shifted[0]), shifted[1:]
    if null.size == 0:
        return UNDEFINED
    spread = float(null.std())
    above = 1 + int(np.count_nonzero(null >= observed - EQUAL))
    below = 1 + int(np.count_nonzero(null <= observed + EQUAL))
    low, high = np.quantile(null, [0.025, 0.975])
    return ShiftNull(
        observed=observed,
        mean=float(null.mean()),
        low=float(low),
        high=float(high),
        z=(observed - float(null.mean())) / spread if spread > EQUAL else float("nan"),
        p_value=min(1.0, 2 * min(above, below) / (null.size + 1)),
        n_shifts=int(null.size),
    )


def _cubes(
    layout: TokenLayout,
    values: Float[np.ndarray, " token"],
    attention: Float[np.ndarray, " token"],
    axis: str,
) -> tuple[Float[np.ndarray, "unit row col"], ...] | None:
    """Known (0 or 1), value and attention on a common grid of the units with a value; None without one."""
    known = np.isfinite(values) & np.isfinite(attention)
    units = [u for u in range(layout.n_units) if known[layout.tokens(u)].any()]
    if not units or any(not np.array_equal(layout.grid(u), layout.grid(units[0])) for u in units[1:]):
        return None
    grid = layout.grid(units[0])
    rows, cols = (len(np.unique(grid[:, side])) for side in (0, 1))
    if axis == "space" and rows * cols != len(grid):
        return None
    shape = (len(units), rows, cols) if rows * cols == len(grid) else (len(units), len(grid), 1)

    def cube(per_token: Shaped[np.ndarray, " token"]) -> Shaped[np.ndarray, "unit row col"]:
        return np.stack([per_token[layout.tokens(u)] for u in units]).reshape(shape)

    here = cube(known)
    # Attention on a patch without a value counts nowhere as it lies, and moves like the rest.
    return here.astype(float), np.where(here, cube(values), 0.0), np.nan_to_num(cube(attention))


def _shifted_sums(
    moved: Float[np.ndarray, "unit row col"],
    fixed: Float[np.ndarray, "unit row col"],
    axes: tuple[int, ...],
) -> Float[np.ndarray, " shift"]:
    """Sum of moved(x - k) fixed(x) over x for every shift k along `axes`, the identity first."""
    rest = tuple(axis for axis in range(3) if axis not in axes)
    spectrum = np.conj(np.fft.fftn(moved, axes=axes)) * np.fft.fftn(fixed, axes=axes)
    return np.fft.ifftn(spectrum.sum(axis=rest)).real.ravel()
