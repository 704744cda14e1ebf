"""Heads that attend to the evidence: a score for each, how far to trust it, and what to compare them with.

Retrieval heads (arXiv 2404.15574) are found by copying, which pixels do not allow; for video the score is
attention on the evidence against what position alone would give ("Can Retrieval Heads See Images?", arXiv
2605.27243; temporal grounding heads, arXiv 2605.21954; both leave their exact formula open). Here: the
log-lift of the evidence share, or what goes to the evidence beyond its share of the units (of attention, or
of attention times the length of the values), less the same on a blank video, averaged over items. What is
a finding is told by a null of the largest score over all heads, since hundreds of heads are looked at.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import spearmanr

from probes.intervals import clustered_mean
from probes.resampling import group_index
from probes.shares import unit_shares

__all__ = [
    "HeadNull",
    "HeadScore",
    "HeadScores",
    "SplitHalf",
    "attribution_null",
    "bounded_log_lift",
    "evidence_excess",
    "head_null",
    "head_scores",
    "heads_like",
    "split_half",
    "top_heads",
    "video_halves",
]

Head = tuple[int, int]
"""Layer and head."""


@runtime_checkable
class HeadScore(Protocol):
    """From attention [layer, head, unit] and evidence [unit] to a score of each head [layer, head]."""

    def __call__(self, unit_mass: np.ndarray, evidence: np.ndarray) -> np.ndarray:
        """The score of every distribution along the last axis."""
        ...


FLOOR = 1e-3
"""Of uniform attention mixed into a head's share: a head that sees nothing but the evidence, or none of it,
has a bound, log(1/FLOOR) away, and is ranked instead of dropped."""


def bounded_log_lift(
    unit_mass: Float[np.ndarray, "*batch unit"], evidence: Bool[np.ndarray, " unit"], *, floor: float = FLOOR
) -> Float[np.ndarray, "*batch"]:
    """Log-lift of the evidence, in nats, of shares with a little uniform attention mixed in.

    logit(s) - logit(|E|/U) with s = (1 - floor) share + floor |E|/U. Equal to `evidence_log_lift` but for
    shares near 0 or 1, and defined there. NaN where the video has no attention, or all units or none are
    evidence.
    """
    if not 0 < floor < 1:
        raise ValueError(f"the floor lies in (0, 1), got {floor}")
    shares = unit_shares(unit_mass)
    chosen = np.asarray(evidence, dtype=bool)
    if chosen.shape != shares.shape[-1:]:
        raise ValueError(f"evidence is given for {chosen.shape} units, attention for {shares.shape[-1]}")
    part = chosen.mean()
    if part in (0.0, 1.0):
        return np.full(shares.shape[:-1], np.nan)
    inside = (1 - floor) * shares[..., chosen].sum(axis=-1) + floor * part
    outside = (1 - floor) * shares[..., ~chosen].sum(axis=-1) + floor * (1 - part)
    return np.asarray(np.log(inside / outside) - np.log(part / (1 - part)))


def evidence_excess(
    unit_mass: Float[np.ndarray, "*batch unit"], evidence: Bool[np.ndarray, " unit"]
) -> Float[np.ndarray, "*batch"]:
    """What goes to the evidence beyond its share of the units: sum over E, less |E|/U of the sum over all.

    Of attention it is the additive score of the head literature, as a fraction of all attention; of
    attention times the length of the values, how much more the head moves from there. Zero for uniform
    attention, and small for a head that hardly looks at the video, which a ratio does not tell. NaN where
    all units or none are evidence.
    """
    mass, chosen = np.asarray(unit_mass, dtype=np.float64), np.asarray(evidence, dtype=bool)
    if chosen.shape != mass.shape[-1:]:
        raise ValueError(f"evidence is given for {chosen.shape} units, attention for {mass.shape[-1]}")
    part = chosen.mean()
    if part in (0.0, 1.0):
        return np.full(mass.shape[:-1], np.nan)
    return np.asarray(mass[..., chosen].sum(axis=-1) - part * mass.sum(axis=-1))


@dataclass(frozen=True, eq=False)
class HeadScores:
    """Mean over items of each head's score, with its interval over videos."""

    mean: Float[np.ndarray, "layer head"]
    ci_low: Float[np.ndarray, "layer head"]
    ci_high: Float[np.ndarray, "layer head"]
    n: Float[np.ndarray, "layer head"]
    """Items in which the head's score is defined."""


def head_scores(
    scores: Float[np.ndarray, "item layer head"], videos: Sequence[Hashable], *, seed: int = 0
) -> HeadScores:
    """Average each head's score over the items where it is defined."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 3 or len(values) != len(videos):
        raise ValueError(f"scores of shape {values.shape} do not fit {len(videos)} items")
    shape = values.shape[1:]
    found = [clustered_mean(column, videos, seed=seed) for column in values.reshape(len(values), -1).T]
    return HeadScores(
        mean=np.array([one.mean for one in found]).reshape(shape),
        ci_low=np.array([one.ci_low for one in found]).reshape(shape),
        ci_high=np.array([one.ci_high for one in found]).reshape(shape),
        n=np.array([float(one.n) for one in found]).reshape(shape),
    )


@dataclass(frozen=True, eq=False)
class HeadNull:
    """The largest score over all heads when what is looked for is put elsewhere in every item."""

    largest: Float[np.ndarray, " draw"]
    """Of each draw, ascending."""
    threshold: float
    """95th percentile of them: a head above it is a finding, however many heads there are."""
    p: Float[np.ndarray, "layer head"]
    """Of each head against the largest ones, the observed score counted in."""


def head_null(
    masses: Sequence[Float[np.ndarray, "layer head unit"]],
    evidence: Sequence[Bool[np.ndarray, " unit"]],
    baselines: Sequence[Float[np.ndarray, "layer head unit"]] | None = None,
    *,
    score: HeadScore = bounded_log_lift,
    draws: int = 500,
    seed: int = 0,
) -> HeadNull:
    """Turn each item's evidence round the circle of its units by a random amount, and score all heads again.

    Turning keeps the evidence as long and as contiguous as it is, and keeps the attention as it is. The
    largest mean score over all heads of each draw makes the null, which holds the chance of any false
    finding at 5% (max statistic: Westfall & Young, "Resampling-Based Multiple Testing", 1993).

    Args:
        masses: attention of each item's rows on its units.
        evidence: which units of each item hold evidence.
        baselines: the same attention on a blank video, whose score is subtracted.
        score: of one item's heads: `bounded_log_lift` or `evidence_excess`.
        draws: random turns of all items.

    Raises:
        ValueError: no item with evidence in some of its units, or lists that differ in length.
    """
    others = [None] * len(masses) if baselines is None else list(baselines)
    turned = [
        _turned(mass, np.asarray(shown, dtype=bool), other, score)
        for mass, shown, other in zip(masses, evidence, others, strict=True)
        if 0 < np.sum(shown) < len(shown)
    ]
    if not turned:
        raise ValueError("no item has evidence in some of its units and not in others")
    generator = np.random.default_rng(seed)
    observed = np.nanmean(np.stack([scores[0] for scores in turned]), axis=0)
    total = np.zeros((draws, *observed.shape))
    counted = np.zeros_like(total)
    for scores in turned:  # every draw of an item at once: items are many, and so are draws
        drawn = scores[generator.integers(1, len(scores), draws)]
        total += np.nan_to_num(drawn)
        counted += np.isfinite(drawn)
    means = np.divide(total, counted, out=np.full_like(total, np.nan), where=counted > 0)
    largest = np.nanmax(means.reshape(draws, -1), axis=1)
    return _null_of(largest, observed)


def _turned(
    mass: Float[np.ndarray, "layer head unit"],
    evidence: Bool[np.ndarray, " unit"],
    baseline: Float[np.ndarray, "layer head unit"] | None,
    score: HeadScore,
) -> Float[np.ndarray, "turn layer head"]:
    """The score with the evidence turned by 0, 1, ... units."""
    scores = []
    for turn in range(len(evidence)):
        moved = np.roll(evidence, turn)
        found = score(mass, moved)
        scores.append(found if baseline is None else found - score(baseline, moved))
    return np.stack(scores)


def attribution_null(
    parts: Sequence[Float[np.ndarray, "layer head option"]],
    gold: Sequence[int],
    *,
    draws: int = 500,
    seed: int = 0,
) -> tuple[Float[np.ndarray, "item layer head"], HeadNull]:
    """How much each head speaks for the right option, and the same with right options exchanged.

    Exchanged between items with as many options: a head that always speaks for one letter gains nothing by
    that letter being right more often.

    Args:
        parts: of each item, the part of each option's logit that each head writes (`hooks.head_writes`).
        gold: the place of the right option.
        draws: of options for all items.

    Returns:
        What each head gives the right option beyond the mean of the others, and the null of the largest mean.

    Raises:
        ValueError: no item, or one with fewer than two options.
    """
    if not len(parts) or min(part.shape[-1] for part in parts) < 2:
        raise ValueError("attribution needs items, each with two options")
    # Option against the mean of the others, for every option of an item.
    each = [
        (part - (part.sum(axis=-1, keepdims=True) - part) / (part.shape[-1] - 1)).astype(np.float64)
        for part in parts
    ]
    scores = np.stack([one[..., right] for one, right in zip(each, gold, strict=True)])
    generator = np.random.default_rng(seed)
    total = np.zeros((*scores.shape[1:], draws))
    right, sizes = np.asarray(gold), np.array([one.shape[-1] for one in each])
    for size in np.unique(sizes).tolist():
        alike = np.flatnonzero(sizes == size)
        drawn = np.stack([generator.permutation(right[alike]) for _ in range(draws)], axis=1)
        for item, options in zip(alike.tolist(), drawn, strict=True):
            total += each[item][..., options]
    largest = (total / len(each)).max(axis=(0, 1))
    return scores, _null_of(largest, scores.mean(axis=0))


def _null_of(largest: Float[np.ndarray, " draw"], observed: Float[np.ndarray, "layer head"]) -> HeadNull:
    above = (largest[:, None, None] >= observed).sum(axis=0)
    p = np.where(np.isnan(observed), np.nan, (1 + above) / (1 + len(largest)))
    return HeadNull(np.sort(largest), float(np.quantile(largest, 0.95)), p)


@dataclass(frozen=True)
class SplitHalf:
    """How alike the heads' ranking is in two halves of the videos."""

    correlation: float
    """Spearman's, mean over random splits."""
    low: float
    """2.5th percentile over the splits."""
    high: float
    """97.5th percentile."""
    splits: int


def split_half(
    scores: Float[np.ndarray, "item layer head"],
    videos: Sequence[Hashable],
    *,
    splits: int = 100,
    seed: int = 0,
) -> SplitHalf:
    """Rank correlation of the heads' mean scores between random halves of the videos.

    NaN with fewer than two videos or two heads.
    """
    values = np.asarray(scores, dtype=np.float64).reshape(len(scores), -1)
    index, n_videos = group_index(videos)
    if n_videos < 2 or values.shape[1] < 2:
        return SplitHalf(float("nan"), float("nan"), float("nan"), 0)
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(splits):
        first = generator.permutation(n_videos) < n_videos // 2
        halves = [np.nanmean(values[first[index] == side], axis=0) for side in (True, False)]
        found.append(float(spearmanr(*halves).statistic))
    low, high = np.nanquantile(found, [0.025, 0.975])
    return SplitHalf(float(np.nanmean(found)), float(low), float(high), splits)


def video_halves(videos: Sequence[Hashable], *, seed: int = 0) -> Bool[np.ndarray, " item"]:
    """A random half of the videos, as the items of them: all questions about a video are on one side."""
    index, n_videos = group_index(videos)
    return (np.random.default_rng(seed).permutation(n_videos) < (n_videos + 1) // 2)[index]


def top_heads(score: Float[np.ndarray, "layer head"], share: float) -> list[Head]:
    """The heads of the highest scores, the best first: a share of all, at least one. NaN is never among them.

    Raises:
        ValueError: a share outside (0, 1], or no head with a score.
    """
    if not 0 < share <= 1:
        raise ValueError(f"the share of heads lies in (0, 1], got {share}")
    values = np.where(np.isfinite(score), score, -np.inf)
    count = min(max(1, round(share * values.size)), int(np.isfinite(score).sum()))
    if not count:
        raise ValueError("no head has a score")
    order = np.argsort(-values, axis=None, kind="stable")[:count]
    layers, heads = np.unravel_index(order, values.shape)
    return [(int(layer), int(head)) for layer, head in zip(layers, heads, strict=True)]


def heads_like(chosen: Sequence[Head], n_heads: int, *, seed: int | Sequence[int] = 0) -> list[Head]:
    """Random other heads of the same layers, as many in each: what a choice of heads is to be compared with.

    Raises:
        ValueError: a layer has fewer other heads than chosen ones.
    """
    generator = np.random.default_rng(seed)
    found: list[Head] = []
    for layer in sorted({layer for layer, _ in chosen}):
        taken = {head for own, head in chosen if own == layer}
        others = [head for head in range(n_heads) if head not in taken]
        if len(others) < len(taken):
            raise ValueError(f"layer {layer} has {len(others)} other heads for {len(taken)} chosen ones")
        drawn = generator.choice(others, len(taken), replace=False)
        found += [(layer, int(head)) for head in sorted(drawn)]
    return found
