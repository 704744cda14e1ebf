"""Measurements: arrays in, numbers out. No model, no file, no configuration.

    probes.concentration(unit_mass).unit_fraction[0.9]

Each measure has an entry in docs/measures.md: formula, source, unit, denominator, when it is undefined.
Undefined is NaN, never zero, and is counted.
"""

from probes.concentration import Concentration, concentration, fraction_name, uniform_reference
from probes.controls import (
    PositionControl,
    evidence_log_lift_corrected,
    position_corrected,
    value_weighted_units,
)
from probes.curves import (
    MeanCurve,
    cumulative_on_grid,
    mean_cumulative_curve,
    on_time_grid,
    unit_intervals,
)
from probes.evidence import EvidenceAlignment, evidence_alignment, evidence_weights
from probes.intervals import (
    CurveEstimate,
    Estimate,
    clustered_curve,
    clustered_difference,
    clustered_mean,
)
from probes.layout import TokenLayout, unit_embeddings
from probes.measures import MEASURES, SUFFIXES
from probes.pooling import HeadSummary, pooled_and_per_head
from probes.preference import (
    PatchRedundancy,
    Stratum,
    distance_strata,
    patch_redundancy,
    redundancy_preference,
)
from probes.redundancy import (
    KeyframeSimilarity,
    PairSimilarity,
    keyframes,
    nearest_preceding,
    pair_similarity,
    patch_to_keyframe,
    unit_cosine,
)
from probes.resampling import group_draws, group_index, percentile_interval, resampled_group_means
from probes.shares import attention_fraction, unit_shares, unit_sums
from probes.shifts import ShiftNull, shift_null

__all__ = [
    "MEASURES",  # name of each measure -> its meaning in one line
    "SUFFIXES",  # ending of a measure's name -> on which attention it was taken
    "Concentration",  # result of `concentration`
    "CurveEstimate",  # result of `clustered_curve`
    "Estimate",  # result of `clustered_mean`
    "EvidenceAlignment",  # result of `evidence_alignment`
    "HeadSummary",  # result of `pooled_and_per_head`
    "KeyframeSimilarity",  # result of `patch_to_keyframe`
    "MeanCurve",  # result of `mean_cumulative_curve`
    "PairSimilarity",  # result of `pair_similarity`
    "PatchRedundancy",  # result of `patch_redundancy`
    "PositionControl",  # result of `position_corrected`
    "ShiftNull",  # a preference against its circular-shift null
    "Stratum",  # patches equally far in time from their keyframe
    "TokenLayout",  # the tokens of each unit, in one order of places
    "attention_fraction",  # attention as a fraction of all attention of its row
    "clustered_curve",  # mean curve over items, interval by resampling videos
    "clustered_difference",  # difference of two means of different items, interval by resampling videos
    "clustered_mean",  # mean over items, interval by resampling videos
    "concentration",  # how few units hold most of the attention
    "cumulative_on_grid",  # a cumulative curve read at fractions of the units
    "distance_strata",  # units grouped by distance in time from their keyframe
    "evidence_alignment",  # attention on the evidence: mass, share, lift, log-lift
    "evidence_log_lift_corrected",  # log-lift beyond that of position alone
    "evidence_weights",  # evidence per slot reduced to units
    "fraction_name",  # 0.9 -> "unit_fraction_90"
    "group_draws",  # how often each group is in each bootstrap resample
    "group_index",  # names of groups as numbers
    "keyframes",  # the most attended quarter of the units
    "mean_cumulative_curve",  # cumulative curves of items of different length, averaged
    "nearest_preceding",  # the last keyframe before each unit
    "on_time_grid",  # attention over units as attention over normalised time
    "pair_similarity",  # mean cosine of pairs of units
    "patch_redundancy",  # patches against their keyframe, and attention's preference among them
    "patch_to_keyframe",  # cosine of each patch to the same place in its keyframe
    "percentile_interval",  # interval of resampled statistics, widened for few groups where asked
    "pooled_and_per_head",  # one item's measures by both roads, and the heads' divergence
    "position_corrected",  # attention against that on a blank or permuted video
    "redundancy_preference",  # `patch_redundancy` from similarities already at hand
    "resampled_group_means",  # means over the items of groups drawn with replacement
    "shift_null",  # null distribution of a preference by circular shifts
    "uniform_reference",  # unit fractions of uniform attention
    "unit_cosine",  # cosine matrix of units
    "unit_embeddings",  # mean token feature of each unit
    "unit_intervals",  # the stretch of video each unit stands for
    "unit_shares",  # attention mass -> shares of the attention on the video
    "unit_sums",  # values of tokens summed into units
    "value_weighted_units",  # attention times value length, summed into units
]
