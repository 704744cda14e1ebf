"""Many tests at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from statsmodels.stats.multitest import multipletests

__all__ = ["Holm", "holm"]


@dataclass(frozen=True, eq=False)
class Holm:
    """A family of p-values, adjusted."""

    adjusted: Float[np.ndarray, " test"]
    """Adjusted p, in the order given; NaN where the test's own p is."""
    rejected: Bool[np.ndarray, " test"]
    """Whether it is below alpha; False where NaN."""
    n: int
    """Size of the family: the p-values that are defined."""
    names: tuple[str, ...]
    """Names of the tests, where the family was given by name; else empty."""


def holm(
    p_values: Mapping[str, float] | Sequence[float] | Float[np.ndarray, " test"], *, alpha: float = 0.05
) -> Holm:
    """Holm's step-down adjustment: the chance of any false rejection in the family stays below alpha.

    It needs no independence of the tests. An undefined test (NaN) belongs to no family: it does not make
    the others' adjustment larger.

    Raises:
        ValueError: a p outside [0, 1].

    Source: Holm, Scand. J. Statist. 6, 1979; computed by statsmodels.
    """
    names = tuple(p_values) if isinstance(p_values, Mapping) else ()
    given = list(p_values.values()) if isinstance(p_values, Mapping) else p_values
    values = np.asarray(given, dtype=np.float64).reshape(-1)
    defined = ~np.isnan(values)
    if ((values[defined] < 0) | (values[defined] > 1)).any():
        raise ValueError(f"a p-value lies in [0, 1], got {values[defined].min()} to {values[defined].max()}")
    adjusted, rejected = np.full(values.shape, np.nan), np.zeros(values.shape, dtype=bool)
    if defined.any():
        rejected[defined], adjusted[defined], *_ = multipletests(values[defined], alpha=alpha, method="holm")
    return Holm(adjusted, rejected, int(defined.sum()), names)
