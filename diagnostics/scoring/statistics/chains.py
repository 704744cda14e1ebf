"""The decomposition that closes: from chance to 1 in named steps, on the same items.

Accuracy under ever more help (text, video, evidence swapped in, evidence alone) is a chain of levels. The
differences of neighbours, with chance at one end and 1 at the other, sum to 1 - chance whatever they are.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from diagnostics.scoring.statistics.clusters import complete_rows
from diagnostics.scoring.statistics.paired import sign_flip

__all__ = ["EVIDENCE_STEPS", "PERFECT", "Chain", "ChainStep", "chain"]

EVIDENCE_STEPS = ("language prior", "video", "sampling", "distraction and length", "interpretation")
"""What the steps of chance -> text -> uniform -> evidence swapped in -> oracle matched -> 1 are called."""

PERFECT = "1"
"""Name of the level that closes the chain."""


@dataclass(frozen=True)
class ChainStep:
    """One step of a chain."""

    name: str
    """What the step stands for."""
    start: str
    """The level it leaves."""
    end: str
    """The level it reaches."""
    difference: float
    """Mean over items at the end less that at the start; NaN without items."""
    ci_low: float
    """Lower end of its cluster-bootstrap interval; NaN with fewer than two videos."""
    ci_high: float
    """Upper end."""
    p: float
    """Sign-flip p over videos; NaN for the last step, which cannot be negative."""


@dataclass(frozen=True, eq=False)
class Chain:
    """Levels and steps, all on the same items."""

    levels: tuple[str, ...]
    """Names of the levels, `PERFECT` last."""
    means: Float[np.ndarray, " level"]
    """Mean over items at each level, 1 last."""
    steps: tuple[ChainStep, ...]
    """Their differences sum to 1 less the first level's mean."""
    n: int
    """Items."""
    n_clusters: int
    """Videos."""
    n_undefined: int
    """Items dropped because a level is NaN."""


def chain(
    levels: Mapping[str, Float[np.ndarray, " item"] | Sequence[float]],
    clusters: Sequence[Hashable],
    *,
    steps: Sequence[str] | None = None,
    seed: int = 0,
    n_resamples: int = 10_000,
    confidence: float = 0.95,
) -> Chain:
    """The steps from the first level to 1, with intervals from one set of resamples.

        chain({"chance": 1 / n_options, "text": ..., "uniform": ..., "evidence swapped in": ...,
               "oracle matched": ...}, videos, steps=EVIDENCE_STEPS)

    Args:
        levels: outcome of the same items at each level, in order, chance first (1 / options of each item);
            an item that is NaN at any level is dropped from all.
        clusters: the video of each item.
        steps: a name for each step, the one to 1 included; by default `start -> end`.
        seed, n_resamples, confidence: as in `paired_difference`.

    Raises:
        ValueError: no level, lengths that differ, outcomes outside [0, 1], or not one name a step.
    """
    names = (*levels, PERFECT)
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"a chain has levels of different names, none of them {PERFECT!r}: {list(levels)}")
    if steps is not None and len(steps) != len(levels):
        raise ValueError(f"{len(levels)} levels make {len(levels)} steps, but {len(steps)} are named")
    lengths = {name: len(outcomes) for name, outcomes in levels.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"every level has the same items, got {lengths}")
    outcomes = np.column_stack([np.asarray(column, dtype=np.float64) for column in levels.values()])
    if (outcomes < 0).any() or (outcomes > 1).any():
        raise ValueError("outcomes of a chain lie between 0 and 1")
    rows = complete_rows(np.column_stack([outcomes, np.ones(len(outcomes))]), clusters, of="outcomes")
    low, high = rows.interval(np.diff(rows.resampled_means(n_resamples, seed), axis=1), confidence)
    differences, each = np.diff(rows.means), np.diff(rows.values, axis=1)
    last = len(levels) - 1
    videos = rows.of_row.tolist()
    made = tuple(
        ChainStep(
            name=f"{names[step]} -> {names[step + 1]}" if steps is None else steps[step],
            start=names[step],
            end=names[step + 1],
            difference=float(differences[step]),
            ci_low=float(low[step]),
            ci_high=float(high[step]),
            p=np.nan
            if step == last
            else sign_flip(each[:, step], videos, n_resamples=n_resamples, seed=seed).p,
        )
        for step in range(len(levels))
    )
    return Chain(names, rows.means, made, rows.n, rows.n_clusters, rows.n_undefined)
