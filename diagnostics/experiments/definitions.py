"""Named sets of layers and heads: the choices by which published attention figures differ.

A *definition* is one choice of query role, layers, heads, weighting and pooling of a unit's tokens. One
capture holds every layer, head and role, so all definitions are measured from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
from jaxtyping import Bool, Float, Int

import probes

__all__ = [
    "HEAD_SETS",
    "LAYER_SETS",
    "Definition",
    "definitions",
    "head_mask",
    "layer_mask",
    "pooled_share",
]

LAYER_SETS = ("all", "early", "middle", "late", "last")
"""All layers, each third of them from the input on, or the last layer alone."""

HEAD_SETS = ("all", "most_visual")
"""All heads of the layers taken, or the quarter of them with the most attention on the video."""

_MOST_VISUAL_SHARE = 0.25


@dataclass(frozen=True)
class Definition:
    """One way to read the captured attention.

    Attributes:
        role: which query rows.
        layers: one of `LAYER_SETS`.
        heads: one of `HEAD_SETS`.
        weighting: `attention`, or `value` for attention times the norm of the value vector.
        pooling: a unit counts by the `sum` over its tokens, or by their `mean`; the same where units have
            equally many tokens, as in every family so far.
        head_pooling: for the measures on pooled attention, heads count by their attention on the video
            (`mass`) or equally (`equal`).
    """

    role: str
    layers: str = "all"
    heads: str = "all"
    weighting: str = "attention"
    pooling: str = "sum"
    head_pooling: str = "mass"

    def as_columns(self) -> dict[str, str]:
        """The definition as columns of a table."""
        return asdict(self)


def definitions(
    roles: Sequence[str],
    layers: Sequence[str],
    heads: Sequence[str],
    weightings: Sequence[str],
    poolings: Sequence[str],
    head_poolings: Sequence[str],
) -> Iterator[Definition]:
    """Every combination."""
    for choices in product(roles, layers, heads, weightings, poolings, head_poolings):
        yield Definition(*choices)


def layer_mask(name: str, n_layers: int) -> Bool[np.ndarray, " layer"]:
    """Layers of the set called `name`; thirds are cut so that early and late never overlap."""
    index = np.arange(n_layers)
    if name == "all":
        return np.ones(n_layers, dtype=bool)
    if name == "last":
        return index == n_layers - 1
    third = index * 3 // n_layers
    return third == ("early", "middle", "late").index(name)


def pooled_share(
    definition: Definition,
    heads: Float[np.ndarray, "head unit"],
    tokens_per_unit: Int[np.ndarray, " unit"],
) -> Float[np.ndarray, " unit"]:
    """Share of the video's attention on each unit, over the heads taken, pooled as the definition says."""
    counts = tokens_per_unit if definition.pooling == "mean" else None
    if definition.head_pooling == "mass":
        return probes.unit_shares(heads.mean(axis=0), tokens_per_unit=counts)
    each = probes.unit_shares(heads, tokens_per_unit=counts)
    defined = np.isfinite(each).all(axis=-1)
    return each[defined].mean(axis=0) if defined.any() else np.full(heads.shape[-1], np.nan)


def head_mask(
    definition: Definition, unit_mass: Float[np.ndarray, "layer head unit"]
) -> Bool[np.ndarray, "layer head"]:
    """The heads that a definition takes from one item's attention.

    `most_visual` ranks the heads of the definition's layers by this item's own attention on the video.
    """
    n_layers, n_heads, _ = unit_mass.shape
    mask = np.repeat(layer_mask(definition.layers, n_layers)[:, None], n_heads, axis=1)
    if definition.heads == "all":
        return mask
    visual = np.where(mask, unit_mass.sum(axis=-1), -np.inf)
    keep = int(np.ceil(_MOST_VISUAL_SHARE * mask.sum()))
    chosen = np.zeros_like(mask)
    chosen.ravel()[np.argsort(-visual, axis=None, kind="stable")[:keep]] = True
    return chosen
