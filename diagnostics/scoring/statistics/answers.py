"""What the answers themselves show: flips between conditions, favoured letters, favoured positions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

import probes

__all__ = [
    "FlipRate",
    "Gauge",
    "LetterEntropy",
    "PositionAccuracy",
    "by_position",
    "flip_rate",
    "gauge",
    "letter_entropy",
]

Shape = Literal["stable", "neighbor", "head", "u_shaped", "volatile", "undefined"]


@dataclass(frozen=True, eq=False)
class FlipRate:
    """How often an answer changed, whether or not it was right."""

    rate: float
    """Share of the items with another answer; NaN without items."""
    flipped: Float[np.ndarray, " item"]
    """1 where it changed, 0 where not: for a paired difference with the flips of a null perturbation."""
    n: int
    """Items."""
    n_unanswered: int
    """Items with no answer in one condition or both. To or from an answer is a flip; none twice is not."""


@dataclass(frozen=True)
class LetterEntropy:
    """How evenly the letters are used."""

    entropy: float
    """Shannon entropy of the letters answered, in bits; NaN without answers."""
    normalised: float
    """Divided by log2 of the alphabet: 1 is even use, 0 is one letter always; NaN with one letter to use."""
    counts: dict[str, int]
    """Answers of each letter of the alphabet."""
    n: int
    """Answers."""
    n_unanswered: int
    """Items without an answer, left out."""


@dataclass(frozen=True)
class PositionAccuracy:
    """Accuracy where the right option (or the evidence) stands at one position."""

    position: int
    """The position."""
    accuracy: probes.Estimate
    """Mean, interval, items, videos, undefined."""


@dataclass(frozen=True, eq=False)
class Gauge:
    """Video-LevelGauge's summary of accuracy against position; percent throughout."""

    relative: Float[np.ndarray, " position"]
    """Accuracy as a percentage of that with the probe alone (the paper's RS)."""
    range: float
    """Pran: largest less smallest."""
    variance: float
    """Pvar: population variance, in squared percent."""
    mean: float
    """Pmean."""
    composite: float
    """CM = 4 Pran + 3 (100 - Pmean) + 3 Pvar; less is better."""
    shape: Shape
    """`stable`, `neighbor` (rises to the end), `head` (falls), `u_shaped` (a parabola, of either
    curvature), `volatile`; `undefined` with fewer than three positions or where the rest is."""


def flip_rate(answers_a: Sequence[str | None], answers_b: Sequence[str | None]) -> FlipRate:
    """Share of the items whose answer differs between two conditions; None is no answer.

    Raises:
        ValueError: lengths that differ.
    """
    if len(answers_a) != len(answers_b):
        raise ValueError(f"paired answers are of the same items, got {len(answers_a)} and {len(answers_b)}")
    pairs = list(zip(answers_a, answers_b, strict=True))
    flipped = np.asarray([a != b for a, b in pairs], dtype=np.float64)
    unanswered = sum(a is None or b is None for a, b in pairs)
    return FlipRate(float(flipped.mean()) if pairs else np.nan, flipped, len(pairs), unanswered)


def letter_entropy(letters: Sequence[str | None], alphabet: Sequence[str]) -> LetterEntropy:
    """Entropy of the letters answered.

    Even answers need an even key: compare it with the entropy of the right letters.

    Args:
        letters: the answers; None is no answer.
        alphabet: the letters that could have been given.

    Raises:
        ValueError: an answer outside the alphabet, or a letter in it twice.
    """
    given = [letter for letter in letters if letter is not None]
    counts = dict.fromkeys(alphabet, 0)
    if len(counts) != len(alphabet):
        raise ValueError(f"a letter is twice in the alphabet {list(alphabet)}")
    for letter in given:
        if letter not in counts:
            raise ValueError(f"the answer {letter!r} is none of {list(alphabet)}")
        counts[letter] += 1
    entropy = np.nan
    if given:
        shares = np.asarray([count for count in counts.values() if count]) / len(given)
        entropy = float(abs((shares * np.log2(shares)).sum()))
    normalised = entropy / float(np.log2(len(counts))) if len(counts) > 1 else np.nan
    return LetterEntropy(entropy, normalised, counts, len(given), len(letters) - len(given))


def by_position(
    correct: Float[np.ndarray, " item"] | Sequence[float],
    positions: Int[np.ndarray, " item"] | Sequence[int],
    clusters: Sequence[Hashable],
    *,
    n_positions: int,
    n_resamples: int = 2000,
    seed: int = 0,
) -> tuple[PositionAccuracy, ...]:
    """Accuracy at each position of the right option (or of the evidence), with clustered intervals.

    Args:
        correct: outcome of each item; NaN is dropped and counted.
        positions: position of each item, 0 to n_positions - 1.
        clusters: the video of each item.
        n_positions: how many there are; one without items has a NaN mean and n = 0.
        n_resamples, seed: of the bootstrap.

    Raises:
        ValueError: lengths that differ, or a position out of range.
    """
    if not len(correct) == len(positions) == len(clusters):
        raise ValueError(
            f"{len(correct)} items have outcomes, {len(positions)} a position and {len(clusters)} a video"
        )
    place = np.asarray(positions, dtype=np.float64)
    if not np.isin(place, np.arange(n_positions)).all():
        raise ValueError(f"positions go from 0 to {n_positions - 1}, got {sorted(set(place.tolist()))}")
    outcomes = np.asarray(correct, dtype=np.float64)
    found = []
    for position in range(n_positions):
        at = np.flatnonzero(place == position)
        videos = [clusters[item] for item in at.tolist()]
        estimate = probes.clustered_mean(
            outcomes[at], videos, n_resamples=n_resamples, seed=seed, expanded=True
        )
        found.append(PositionAccuracy(position, estimate))
    return tuple(found)


def gauge(accuracies: Float[np.ndarray, " position"] | Sequence[float], probe_only: float) -> Gauge:
    """Video-LevelGauge's Pran, Pvar, Pmean, CM and shape.

    The release calls a model whose accuracy on the probe alone is zero 0 throughout; here it is undefined.
    Its thresholds (mean squared error 3 and 2, slope 0.5 per position) were set for ten positions.

    Args:
        accuracies: at each position in order, as fractions.
        probe_only: accuracy with nothing but the evidence shown, as a fraction.

    Raises:
        ValueError: an infinite or negative accuracy.

    Source: Video-LevelGauge, arXiv 2508.19650, and its release (metric/metric.py) for the variance, the
    thresholds and the order of the rules.
    """
    given = np.asarray(accuracies, dtype=np.float64)
    if np.isinf(given).any() or (given < 0).any() or np.isinf(probe_only) or probe_only < 0:
        raise ValueError(
            f"accuracies are fractions, got {given.tolist()} and {probe_only} for the probe alone"
        )
    if given.size == 0 or probe_only == 0 or np.isnan(probe_only) or np.isnan(given).any():
        nothing = np.full(given.shape, np.nan)
        return Gauge(nothing, np.nan, np.nan, np.nan, np.nan, "undefined")
    relative = 100 * given / probe_only
    spread, variance, mean = float(np.ptp(relative)), float(relative.var()), float(relative.mean())
    composite = 4 * spread + 3 * (100 - mean) + 3 * variance
    return Gauge(relative, spread, variance, mean, composite, _shape(relative))


def _shape(relative: Float[np.ndarray, " position"]) -> Shape:
    if relative.size < 3:
        return "undefined"
    places = np.arange(relative.size)
    line, parabola = np.polyfit(places, relative, 1), np.polyfit(places, relative, 2)
    off_line, off_parabola = (
        float(((relative - np.polyval(fit, places)) ** 2).mean()) for fit in (line, parabola)
    )
    if off_line <= 3:
        return "stable" if abs(line[0]) <= 0.5 else "neighbor" if line[0] > 0.5 else "head"
    return "u_shaped" if off_parabola <= 2 else "volatile"
