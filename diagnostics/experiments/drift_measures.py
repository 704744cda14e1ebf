"""Attention drift in numbers: from one item's captured arrays to its measures. No model, no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

import probes
from diagnostics.data.items import Item
from diagnostics.experiments.definitions import Definition, pooled_share
from diagnostics.video.selection import Selection

__all__ = [
    "Redundancy",
    "RoleMass",
    "ShownUnits",
    "control_measures",
    "measure_definition",
    "redundancy_of",
    "sink_measures",
]


@dataclass(frozen=True, eq=False)
class RoleMass:
    """Attention of one role's rows: mass on each unit, and on all that is not video."""

    units: Float[np.ndarray, "layer head unit"]
    rest: Float[np.ndarray, "layer head"] | None


@dataclass(frozen=True, eq=False)
class ShownUnits:
    """What each temporal unit shows, by slot."""

    frame_index: Int[np.ndarray, "unit slot"]
    true_seconds: Float[np.ndarray, "unit slot"]
    shown_seconds: Float[np.ndarray, "unit slot"]
    evidence: Bool[np.ndarray, "unit slot"]

    @classmethod
    def of(cls, selection: Selection, unit_slots: Int[np.ndarray, "unit slot"], item: Item) -> ShownUnits:
        """Look up each unit's slots in the selection; empty ones are -1, NaN and False."""
        empty = unit_slots < 0

        def looked_up(values: np.ndarray, nothing: float) -> np.ndarray:
            return np.where(empty, nothing, values[np.where(empty, 0, unit_slots)])

        return cls(
            frame_index=looked_up(selection.frame_indices, -1).astype(np.int64),
            true_seconds=looked_up(selection.true_seconds, np.nan),
            shown_seconds=looked_up(selection.shown_seconds, np.nan),
            evidence=looked_up(selection.holds(item.evidence, item.video_id), False).astype(bool),
        )

    @property
    def filled(self) -> Bool[np.ndarray, "unit slot"]:
        """Which slots hold a frame."""
        return np.isfinite(self.shown_seconds)

    @property
    def seconds(self) -> Float[np.ndarray, " unit"]:
        """Mean true time of each unit's frames."""
        counts = np.isfinite(self.true_seconds).sum(axis=1)
        sums = np.nansum(self.true_seconds, axis=1)
        return np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)


def measure_definition(
    definition: Definition,
    mass: RoleMass,
    taken: Bool[np.ndarray, "layer head"],
    shown: ShownUnits,
    tokens_per_unit: Int[np.ndarray, " unit"],
    has_evidence: bool,
) -> probes.HeadSummary:
    """Concentration, and alignment with evidence where the item has any, by one definition.

    Args:
        taken: the definition's heads (`head_mask` of the plain attention, whatever `mass` is weighted by).
        has_evidence: whether windows single out a part of the video.
    """
    return probes.pooled_and_per_head(
        mass.units[taken][None],
        rest_mass=None if mass.rest is None else mass.rest[taken][None],
        tokens_per_unit=tokens_per_unit if definition.pooling == "mean" else None,
        evidence=shown.evidence if has_evidence else None,
        shown=shown.filled if has_evidence else None,
        weighting="mass" if definition.head_pooling == "mass" else "equal",
    )


def control_measures(
    definition: Definition,
    mass: RoleMass,
    control: RoleMass,
    taken: Bool[np.ndarray, "layer head"],
    shown: ShownUnits,
    has_evidence: bool,
) -> dict[str, float]:
    """How much of the attention over units position alone explains, per head and on pooled attention."""
    heads, baseline = mass.units[taken], control.units[taken]
    counts = np.ones(heads.shape[-1], dtype=int)  # equal units in both: their sizes cancel
    roads = {
        "": (heads, baseline),
        "_pooled": (pooled_share(definition, heads, counts), pooled_share(definition, baseline, counts)),
    }
    measures: dict[str, float] = {}
    for suffix, (real, position_only) in roads.items():
        named = dict(probes.position_corrected(real, position_only).measures())
        if has_evidence:
            named["evidence_log_lift_corrected"] = probes.evidence_log_lift_corrected(
                real, position_only, shown.evidence
            )
        measures |= {f"{name}{suffix}": _defined_mean(values) for name, values in named.items()}
    return measures


def sink_measures(
    heads: Float[np.ndarray, "head unit"],
    on_sinks: Float[np.ndarray, "head unit"],
    is_sink: Bool[np.ndarray, "layer token"],
) -> dict[str, float]:
    """How many of the video's tokens are sinks, and the share of its attention that goes to them."""
    return {
        "sink_share": _defined_mean(probes.sink_share(heads, on_sinks)),
        "sink_tokens": float(is_sink.mean()),
    }


def _defined_mean(values: Float[np.ndarray, "*head"]) -> float:
    """Mean over the heads where a measure is defined; NaN where it is nowhere."""
    defined = np.asarray(values, dtype=np.float64)
    defined = defined[np.isfinite(defined)]
    return float(defined.mean()) if defined.size else float("nan")


@dataclass(frozen=True, eq=False)
class Redundancy:
    """Similarity of one item's units and patches, by each embedding and keyframe share.

    Attributes:
        headline: the patch measures of the headline embedding and keyframe share.
        unit_cosine: cosine of each pair of units, of the headline embedding.
        mean_direction: mean of the units' unit-length embeddings: the dot product of two videos' is the mean
            cosine between their units.
        measures: the headline numbers.
        variants: the numbers of every other choice, by a name that tells it.
    """

    headline: probes.PatchRedundancy
    unit_cosine: Float[np.ndarray, "unit unit_other"]
    mean_direction: Float[np.ndarray, " feature"]
    measures: Mapping[str, float]
    variants: Mapping[str, float]


def redundancy_of(
    token_attention: Float[np.ndarray, " token"],
    features: Mapping[str, Float[np.ndarray, "token dim"]],
    layout: tuple[Int[np.ndarray, " token"], Int[np.ndarray, " token"], Int[np.ndarray, " token"]],
    unit_seconds: Float[np.ndarray, " unit"],
    key_fractions: Sequence[float],
) -> Redundancy:
    """Redundancy of one item; the first embedding and keyframe share are the headline.

    Args:
        token_attention: attention of each visual token, pooled over layers and heads.
        features: by name, in the order asked for.
        layout: unit, row and column of each token.
        unit_seconds: true time of each unit.
        key_fractions: shares of the units that are keyframes.
    """
    found: dict[tuple[str, float], probes.PatchRedundancy] = {}
    variants: dict[str, float] = {}
    for name, embedded in features.items():
        for fraction in key_fractions:
            found[name, fraction] = redundancy = probes.patch_redundancy(
                embedded, token_attention, *layout, key_fraction=fraction, unit_seconds=unit_seconds
            )
            suffix = f"@feature={name},key_fraction={fraction:g}"
            variants |= {f"{key}{suffix}": value for key, value in redundancy.measures().items()}
        variants |= {
            f"{key}@feature={name}": value for key, value in _similarity(embedded, layout[0]).items()
        }
    first = next(iter(features))
    units = probes.unit_embeddings(features[first], layout[0])
    lengths = np.linalg.norm(units, axis=1, keepdims=True)
    directions = np.divide(units, lengths, out=np.full_like(units, np.nan), where=lengths > 0)
    headline = found[first, key_fractions[0]]
    variants |= _strata(headline, f"@feature={first},key_fraction={key_fractions[0]:g}")
    return Redundancy(
        headline=headline,
        unit_cosine=probes.unit_cosine(units),
        mean_direction=np.nanmean(directions, axis=0),
        measures=headline.measures() | _similarity(features[first], layout[0]),
        variants=variants,
    )


def _strata(redundancy: probes.PatchRedundancy, suffix: str) -> dict[str, float]:
    """The headline within each stratum of distance in time from the keyframe, near to far."""
    return {
        f"{name}{suffix},stratum={place}": value
        for place, stratum in enumerate(redundancy.strata, start=1)
        for name, value in (
            ("nearest_seconds", stratum.nearest),
            ("farthest_seconds", stratum.farthest),
            ("patch_similarity", stratum.patch_similarity),
            ("redundancy_preference", stratum.preference),
        )
    }


def _similarity(
    features: Float[np.ndarray, "token dim"], unit: Int[np.ndarray, " token"]
) -> dict[str, float]:
    units = probes.unit_embeddings(features, unit)
    return {
        "unit_similarity": probes.pair_similarity(units).mean,
        "unit_similarity_centred": probes.pair_similarity(units, centre=True).mean,
    }
