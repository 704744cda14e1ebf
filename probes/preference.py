"""Whether attention prefers redundant patches, and against what that is judged.

`redundancy_preference` is the attention-weighted mean of the similarities of `redundancy` minus their plain
mean: above zero where the model looks at patches that repeat their keyframe. The analysis is MedHorizon's
(arXiv 2605.06537, section 4.4) after ViLAMP (arXiv 2504.02438); the score, its strata and its nulls are
ours, because a raw preference has innocent causes:

- Patches near their keyframe in time are both more alike and more attended. *Strata*: the plain mean is taken
  among units at the same distance. With m(x) the mean similarity of x's stratum, the stratified preference is
  sum a(x) (c(x) - m(x)) / sum a(x): each stratum's own preference weighted by its attention. Raw minus
  stratified is what the distance alone explains. With every unit its own stratum nothing of time is left.
- Both maps are smooth, so far fewer of their values are independent than there are tokens. *Circular-shift
  nulls* keep each map's own smoothness and break only their alignment. `time` turns attention along the units
  that have a keyframe, places kept: it asks whether attention follows what changes at those moments, and a
  fixed taste for static places lies inside it. `space` turns all attention maps by one common vector, moments
  kept: it asks whether attention follows where things are, and the distance confound lies inside it. All
  shifts are taken (by the correlation theorem), none sampled, so there is no seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from probes.layout import TokenLayout
from probes.redundancy import KeyframeSimilarity, keyframes, patch_to_keyframe
from probes.shares import unit_sums
from probes.shifts import ShiftNull, shift_null

__all__ = ["PatchRedundancy", "Stratum", "distance_strata", "patch_redundancy", "redundancy_preference"]


@dataclass(frozen=True)
class Stratum:
    """Patches whose units lie at a similar distance in time from their keyframe."""

    nearest: float
    """Smallest distance in it."""
    farthest: float
    """Largest distance in it."""
    n_patches: int
    """Patches with a similarity."""
    attention_share: float
    """Their share of the attention on all such patches."""
    patch_similarity: float
    """Plain mean similarity."""
    preference: float
    """Attention-weighted mean minus plain mean, within the stratum; NaN where it has no attention."""


@dataclass(frozen=True, eq=False)
class PatchRedundancy:
    """Redundancy of the patches outside keyframes and attention's preference for it.

    Unless said otherwise over the `n_patches` patches that have a similarity, and attention as a share of
    theirs. Every number is NaN where there are none or they get no attention.
    """

    similarity: KeyframeSimilarity
    """Cosine of each patch to its keyframe, and the counts of the undefined."""
    is_key: Bool[np.ndarray, " unit"]
    """The keyframes."""
    distance: Float[np.ndarray, " unit"]
    """Time from the keyframe to the unit, in seconds (in units where no times were given)."""
    n_patches: int
    """Patches outside keyframes with a similarity."""
    patch_similarity: float
    """Plain mean similarity."""
    attended_similarity: float
    """Attention-weighted mean similarity."""
    redundancy_preference: float
    """attended_similarity - patch_similarity."""
    stratified_preference: float
    """The same within strata of distance in time, weighted by their attention."""
    within_unit_preference: float
    """The same with every unit its own stratum."""
    strata: tuple[Stratum, ...]
    """The strata, near to far."""
    nulls: dict[str, ShiftNull]
    """By `time`, `space`, `stratified_time`, `stratified_space`."""
    patch_fraction: float
    """Smallest fraction of all patches outside keyframes, with a similarity or not, that holds
    `attention_fraction` of their attention."""
    curve_fraction: Float[np.ndarray, " point"]
    """Fractions f of the patches, from most to least attended."""
    curve_similarity: Float[np.ndarray, " point"]
    """Mean similarity of the ceil(f n) most attended patches; at f = 1 it is patch_similarity."""
    attention_above: dict[float, float]
    """Share of the attention on patches with a similarity above each tau."""
    patches_above: dict[float, float]
    """Share of the patches above each tau: what attention_above is compared with."""
    histogram: Int[np.ndarray, "similarity_bin attention_bin"]
    """Patches by similarity and by log10 of attention over its mean; beyond an edge counts in the end bin."""
    similarity_edges: Float[np.ndarray, " similarity_edge"]
    """Edges of the histogram's first axis."""
    attention_edges: Float[np.ndarray, " attention_edge"]
    """Edges of its second axis, in log10 of attention over its mean."""

    def measures(self) -> dict[str, float]:
        """The numbers by the names they have in records, summary and tables."""
        time = self.nulls["time"]
        return {
            "patch_similarity": self.patch_similarity,
            "attended_similarity": self.attended_similarity,
            "redundancy_preference": self.redundancy_preference,
            "redundancy_preference_null": time.mean,
            "redundancy_preference_z": time.z,
            "redundancy_preference_p": time.p_value,
            "redundancy_preference_stratified": self.stratified_preference,
            "redundancy_preference_stratified_z": self.nulls["stratified_time"].z,
            "redundancy_preference_within_unit": self.within_unit_preference,
            "patch_fraction_80": self.patch_fraction,
        } | {f"attention_above_{100 * tau:g}": share for tau, share in self.attention_above.items()}


def patch_redundancy(
    token_features: Float[np.ndarray, "token dim"],
    token_attention: Float[np.ndarray, " token"],
    unit: Int[np.ndarray, " token"],
    row: Int[np.ndarray, " token"],
    col: Int[np.ndarray, " token"],
    *,
    is_key: Bool[np.ndarray, " unit"] | None = None,
    key_fraction: float = 0.25,
    unit_seconds: Float[np.ndarray, " unit"] | None = None,
    strata: int | Sequence[float] = 4,
    taus: Sequence[float] = (0.8, 0.9),
) -> PatchRedundancy:
    """Redundancy of the patches outside keyframes, and attention's preference for it.

    Args:
        token_features: one vector a visual token; which (projector output, layer l) is the caller's choice.
        token_attention: attention of each visual token, not negative.
        unit, row, col: where each token lies.
        is_key: the keyframes; where None the `key_fraction` most attended units.
        unit_seconds: the true time of each unit; where None distance is counted in units.
        strata, taus: see `redundancy_preference`.

    Raises:
        ValueError: arrays that do not fit together, or attention that is negative or infinite.
    """
    if is_key is None:
        is_key = keyframes(unit_sums(token_attention, unit), key_fraction)
    similarity = patch_to_keyframe(token_features, unit, row, col, is_key)
    return redundancy_preference(
        similarity,
        token_attention,
        unit,
        row,
        col,
        is_key,
        unit_seconds=unit_seconds,
        strata=strata,
        taus=taus,
    )


def redundancy_preference(
    similarity: KeyframeSimilarity,
    token_attention: Float[np.ndarray, " token"],
    unit: Int[np.ndarray, " token"],
    row: Int[np.ndarray, " token"],
    col: Int[np.ndarray, " token"],
    is_key: Bool[np.ndarray, " unit"],
    *,
    unit_seconds: Float[np.ndarray, " unit"] | None = None,
    strata: int | Sequence[float] = 4,
    taus: Sequence[float] = (0.8, 0.9),
    attention_fraction: float = 0.8,
    n_points: int = 100,
    bins: tuple[int, int] = (40, 30),
) -> PatchRedundancy:
    """`patch_redundancy` from similarities already at hand: for several attentions over one set of keyframes.

    Args:
        similarity: from `patch_to_keyframe`.
        strata: how many strata of distance at most (each distance its own where there are no more of them,
            quantiles otherwise), or the inner edges between them.
        taus: thresholds of "redundant".
        attention_fraction: what `patch_fraction` holds.
        n_points: points of the curve, at f = 1/n, 2/n, ..., 1.
        bins: of the histogram, by similarity from -1 to 1 and by attention from a thousandth to a thousand
            times its mean.
    """
    attention = np.asarray(token_attention, dtype=np.float64)
    units, values = np.asarray(unit), similarity.similarity
    if attention.shape != values.shape:
        raise ValueError(f"attention is given for {attention.shape}, similarity for {values.shape} tokens")
    if (attention < 0).any() or np.isinf(attention).any():
        raise ValueError("token_attention holds negative or infinite attention")
    layout = TokenLayout.of(units, row, col, n_units=len(is_key))
    distance = _distance(similarity.keyframe, unit_seconds)
    stratum = distance_strata(distance, strata)[units]

    used = np.isfinite(values) & np.isfinite(attention)
    c, a, s = values[used], attention[used], stratum[used]
    by_stratum, by_unit = c - _group_mean(c, s), c - _group_mean(c, units[used])
    residual = np.full_like(values, np.nan)
    residual[used] = by_stratum
    raw_time, raw_space = (shift_null(layout, values, attention, axis) for axis in ("time", "space"))
    strat_time, strat_space = (shift_null(layout, residual, attention, axis) for axis in ("time", "space"))
    curve_fraction, curve_similarity = _attended_curve(c, a, n_points)
    similarity_edges = np.linspace(-1, 1, bins[0] + 1)
    attention_edges = np.linspace(-3, 3, bins[1] + 1)
    plain = float(c.mean()) if c.size else float("nan")
    attended = _weighted_mean(c, a)
    return PatchRedundancy(
        similarity=similarity,
        is_key=np.asarray(is_key, dtype=bool),
        distance=distance,
        n_patches=int(c.size),
        patch_similarity=plain,
        attended_similarity=attended,
        redundancy_preference=attended - plain,
        stratified_preference=_weighted_mean(by_stratum, a),
        within_unit_preference=_weighted_mean(by_unit, a),
        strata=_strata_table(c, a, s, distance[units[used]]),
        nulls={
            "time": raw_time,
            "space": raw_space,
            "stratified_time": strat_time,
            "stratified_space": strat_space,
        },
        patch_fraction=_fraction_holding(
            attention[~np.asarray(is_key, dtype=bool)[units]], attention_fraction
        ),
        curve_fraction=curve_fraction,
        curve_similarity=curve_similarity,
        attention_above={tau: _weighted_mean((c > tau).astype(float), a) for tau in taus},
        patches_above={tau: float((c > tau).mean()) if c.size else float("nan") for tau in taus},
        histogram=_histogram(c, a, similarity_edges, attention_edges),
        similarity_edges=similarity_edges,
        attention_edges=attention_edges,
    )


def distance_strata(
    distance: Float[np.ndarray, " unit"], strata: int | Sequence[float] = 4
) -> Int[np.ndarray, " unit"]:
    """Stratum of each unit by its distance, from 0; -1 where the distance is NaN.

    Args:
        distance: time from the keyframe.
        strata: at most how many, or the inner edges between them, ascending: a distance equal to an edge
            falls above it.

    Raises:
        ValueError: no strata, or edges out of order.
    """
    values = np.round(np.asarray(distance, dtype=np.float64), 6)  # to the microsecond: 2.0 s is one distance
    known = np.isfinite(values)
    result = np.full(values.shape, -1)
    distinct = np.unique(values[known])
    if not isinstance(strata, int):
        edges = np.asarray(strata, dtype=np.float64)
        if (np.diff(edges) <= 0).any():
            raise ValueError(f"the edges of strata must ascend, got {list(strata)}")
    elif strata < 1:
        raise ValueError(f"at least one stratum is needed, got {strata}")
    elif len(distinct) <= strata:
        edges = distinct[1:].astype(np.float64)
    else:
        edges = np.unique(np.quantile(values[known], np.arange(1, strata) / strata)).astype(np.float64)
    result[known] = np.searchsorted(edges, values[known], side="right")
    return result


def _distance(
    keyframe: Int[np.ndarray, " unit"], unit_seconds: Float[np.ndarray, " unit"] | None
) -> Float[np.ndarray, " unit"]:
    seconds = (
        np.arange(len(keyframe), dtype=float) if unit_seconds is None else np.asarray(unit_seconds, float)
    )
    if seconds.shape != keyframe.shape:
        raise ValueError(f"times are given for {seconds.shape}, keyframes for {keyframe.shape} units")
    return np.where(keyframe >= 0, seconds - seconds[keyframe], np.nan)


def _weighted_mean(values: Float[np.ndarray, " patch"], weights: Float[np.ndarray, " patch"]) -> float:
    total = weights.sum()
    return float(values @ weights / total) if total > 0 else float("nan")


def _group_mean(
    values: Float[np.ndarray, " patch"], group: Int[np.ndarray, " patch"]
) -> Float[np.ndarray, " patch"]:
    """The mean of each patch's group, at the patch."""
    if not values.size:
        return values
    sums, counts = np.bincount(group, weights=values), np.bincount(group)
    return (sums / np.maximum(counts, 1))[group]


def _strata_table(
    c: Float[np.ndarray, " patch"],
    a: Float[np.ndarray, " patch"],
    stratum: Int[np.ndarray, " patch"],
    distance: Float[np.ndarray, " patch"],
) -> tuple[Stratum, ...]:
    table = []
    total = a.sum()
    for index in np.unique(stratum):
        inside = stratum == index
        mean = float(c[inside].mean())
        table.append(
            Stratum(
                nearest=float(distance[inside].min()),
                farthest=float(distance[inside].max()),
                n_patches=int(inside.sum()),
                attention_share=float(a[inside].sum() / total) if total > 0 else float("nan"),
                patch_similarity=mean,
                preference=_weighted_mean(c[inside], a[inside]) - mean,
            )
        )
    return tuple(table)


def _attended_curve(
    c: Float[np.ndarray, " patch"], a: Float[np.ndarray, " patch"], n_points: int
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    fraction = np.arange(1, n_points + 1) / n_points
    if not c.size or not a.sum() > 0:
        return fraction, np.full(n_points, np.nan)
    ranked = c[np.argsort(-a, kind="stable")]
    running = np.cumsum(ranked) / np.arange(1, c.size + 1)
    taken = np.ceil(c.size * (fraction - 1e-12)).astype(int)
    return fraction, running[taken - 1]


def _fraction_holding(attention: Float[np.ndarray, " patch"], target: float) -> float:
    total = attention.sum()
    if not total > 0:
        return float("nan")
    cumulative = np.cumsum(np.sort(attention)[::-1]) / total
    return float((np.count_nonzero(cumulative < target - 1e-12) + 1) / attention.size)


def _histogram(
    c: Float[np.ndarray, " patch"],
    a: Float[np.ndarray, " patch"],
    similarity_edges: Float[np.ndarray, " similarity_edge"],
    attention_edges: Float[np.ndarray, " attention_edge"],
) -> Int[np.ndarray, "similarity_bin attention_bin"]:
    if not c.size or not a.sum() > 0:
        return np.zeros((len(similarity_edges) - 1, len(attention_edges) - 1), dtype=int)
    low, high = 10.0 ** attention_edges[[0, -1]]
    relative = np.log10(np.clip(a / a.mean(), low, high)).clip(attention_edges[0], attention_edges[-1])
    counts, _, _ = np.histogram2d(c, relative, bins=(similarity_edges, attention_edges))
    return counts.astype(int)
