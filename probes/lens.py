"""The logit lens in numbers: when the right option comes out on top, and where the right word shows up.

Layers are numbered as states: k is what enters layer k, so what is first seen at k was written by layer
k - 1, and the last number is what the model answers from. Option probabilities by layer: answer tracing of
Map the Flow (ICLR 2026, arXiv 2510.13251), whose crossing layer is `first`; words at visual positions: Neo
et al. (ICLR 2025, arXiv 2410.07149). The logits come from `hooks.unembed`; here there is no model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import log_softmax

__all__ = ["OptionCourse", "first_in_top", "option_course", "word_share"]


@dataclass(frozen=True, eq=False)
class OptionCourse:
    """One option against the others, layer by layer."""

    log_probability: Float[np.ndarray, "layer option"]
    """Log of softmax over the options alone."""
    on_top: Bool[np.ndarray, " layer"]
    """The option has the greatest logit, strictly: a tie is nobody's."""
    first: float
    """First layer at which it is on top; NaN where it never is."""
    settled: float
    """First layer from which it is on top in every later one; NaN where it is not on top at the end."""

    @property
    def probability(self) -> Float[np.ndarray, "layer option"]:
        """Among the options: they sum to one in each layer."""
        return np.exp(self.log_probability)


def option_course(
    logits: Float[np.ndarray, "layer option"],
    option: int,
    *,
    layers: Int[np.ndarray, " layer"] | None = None,
) -> OptionCourse:
    """Follow one option (the right one, or the one that is answered) through the layers.

    Args:
        logits: the lens's logits of the options' tokens at the last position.
        option: its place.
        layers: number of each layer, ascending; by default they count from 0.

    Raises:
        ValueError: fewer than two options, an option that is not there, or logits that are not finite.
    """
    values = np.asarray(logits, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 2:
        raise ValueError(f"logits need axes [layer, option] and two options, got shape {values.shape}")
    if not 0 <= option < values.shape[1]:
        raise ValueError(f"there is no option {option} among {values.shape[1]}")
    if not np.isfinite(values).all():
        raise ValueError("logits are not finite")
    numbers = np.arange(len(values)) if layers is None else np.asarray(layers)
    if numbers.shape != values.shape[:1] or (np.diff(numbers) <= 0).any():
        raise ValueError(f"{len(values)} layers need as many ascending numbers, got {numbers.tolist()}")
    on_top = values[:, option] > np.delete(values, option, axis=1).max(axis=1)
    later = np.flatnonzero(~on_top)
    start = int(later[-1]) + 1 if len(later) else 0
    return OptionCourse(
        log_probability=np.asarray(log_softmax(values, axis=1)),
        on_top=on_top,
        first=_first(on_top[:, None], numbers)[0],
        settled=float(numbers[start]) if start < len(numbers) else float("nan"),
    )


def first_in_top(
    rank: Int[np.ndarray, "layer ..."], k: int, *, layers: Int[np.ndarray, " layer"] | None = None
) -> Float[np.ndarray, "*place"]:
    """First layer at which a word is among the k likeliest of the vocabulary, at each place; NaN if never.

    Args:
        rank: how many tokens have a greater logit (`hooks.unembed`); of a word with several tokens the least.
        k: at least 1.
        layers: number of each layer; by default they count from 0.
    """
    if k < 1:
        raise ValueError(f"the top {k} hold nothing")
    ranks = np.asarray(rank)
    numbers = np.arange(len(ranks)) if layers is None else np.asarray(layers)
    found = (ranks < k).reshape(len(ranks), -1)
    return np.array(_first(found, numbers)).reshape(ranks.shape[1:])


def _first(found: Bool[np.ndarray, "layer place"], numbers: Int[np.ndarray, " layer"]) -> list[float]:
    return [float(numbers[int(column.argmax())]) if column.any() else float("nan") for column in found.T]


def word_share(
    log_probability: Float[np.ndarray, "layer place word"], word: int
) -> Float[np.ndarray, "layer place"]:
    """Probability of one word among several at each place: what a unit says when only these can be said."""
    values = np.asarray(log_probability, dtype=np.float64)
    return np.exp(log_softmax(values, axis=-1)[..., word])
