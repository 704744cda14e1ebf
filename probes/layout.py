"""Where visual tokens lie: the tokens of each unit in one order of places, whatever order they came in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

__all__ = ["TokenLayout", "unit_embeddings"]


@dataclass(frozen=True, eq=False)
class TokenLayout:
    """The tokens sorted by (unit, row, column), with the bounds of each unit."""

    order: Int[np.ndarray, " token"]
    """Token indices in sorted order."""
    bounds: Int[np.ndarray, " unit_plus_one"]
    """Unit u holds order[bounds[u]:bounds[u + 1]]."""
    places: Int[np.ndarray, "token 2"]
    """(row, column) in sorted order."""
    in_order: bool
    """Whether the tokens came sorted, as they do from every known family: then units are slices."""

    @classmethod
    def of(
        cls,
        unit: Int[np.ndarray, " token"],
        row: Int[np.ndarray, " token"],
        col: Int[np.ndarray, " token"],
        n_units: int | None = None,
    ) -> TokenLayout:
        """Sort the tokens.

        Raises:
            ValueError: lengths that differ, a unit out of range, or two tokens in one place of one unit.
        """
        units, places = np.asarray(unit), np.stack([np.asarray(row), np.asarray(col)], axis=-1)
        if len(units) != len(places):
            raise ValueError(f"{len(units)} tokens have a unit, {len(places)} a place")
        count = n_units if n_units is not None else int(units.max(initial=-1)) + 1
        if units.size and (units.min() < 0 or units.max() >= count):
            raise ValueError(f"unit indices run from {units.min()} to {units.max()}, there are {count} units")
        order = np.lexsort((places[:, 1], places[:, 0], units))
        sorted_units, sorted_places = units[order], places[order]
        same = (np.diff(sorted_units) == 0) & (np.diff(sorted_places, axis=0) == 0).all(axis=1)
        if same.any():
            where = int(np.argmax(same))
            raise ValueError(
                f"two tokens lie at {tuple(sorted_places[where].tolist())} of unit {sorted_units[where]}"
            )
        return cls(
            order=order,
            bounds=np.searchsorted(sorted_units, np.arange(count + 1)),
            places=sorted_places,
            in_order=bool((order == np.arange(len(order))).all()),
        )

    @property
    def n_units(self) -> int:
        """Units, those without tokens included."""
        return len(self.bounds) - 1

    def tokens(self, unit: int) -> slice | Int[np.ndarray, " place"]:
        """Index of the unit's tokens, by place: a slice where possible, so that features are not copied."""
        span = slice(int(self.bounds[unit]), int(self.bounds[unit + 1]))
        return span if self.in_order else self.order[span]

    def grid(self, unit: int) -> Int[np.ndarray, "place 2"]:
        """(row, column) of the unit's tokens."""
        return self.places[self.bounds[unit] : self.bounds[unit + 1]]


def unit_embeddings(
    token_features: Float[np.ndarray, "token dim"],
    unit: Int[np.ndarray, " token"],
    n_units: int | None = None,
) -> Float[np.ndarray, "unit dim"]:
    """Mean of each unit's token features, float64; NaN for a unit without tokens.

    Raises:
        ValueError: a unit index that is negative or not below `n_units`.
    """
    units = np.asarray(unit)
    layout = TokenLayout.of(units, np.arange(len(units)), np.zeros(len(units), dtype=int), n_units)
    means = np.full((layout.n_units, token_features.shape[1]), np.nan)
    for index in range(layout.n_units):
        features = token_features[layout.tokens(index)]
        if len(features):
            means[index] = features.mean(axis=0, dtype=np.float64)
    return means
