"""Measurements: arrays in, numbers out. No model, no file, no configuration.

    probes.concentration(unit_mass).unit_fraction[0.9]

Each measure has an entry in docs/measures.md: formula, source, unit, denominator, when it is undefined.
Undefined is NaN, never zero, and is counted.
"""

from probes.attended import AttendedTest, attended_test, sets_like
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
from probes.decoding import DecodeCourse, RowDrift, decode_course, row_drift
from probes.effects import (
    MassDrift,
    indirect_effect,
    logit_difference,
    mass_drift,
    option_probability,
    percent_change,
)
from probes.evidence import EvidenceAlignment, evidence_alignment, evidence_weights
from probes.faithfulness import (
    AreaTriple,
    Curves,
    curve_area,
    forwards_needed,
    normalised_area,
    normalised_area_change,
    ordering,
    pooled_normalised_area,
    rank_agreement,
    removal_curves,
    removal_steps,
    removed,
)
from probes.heads import (
    HeadNull,
    HeadScore,
    HeadScores,
    SplitHalf,
    attribution_null,
    bounded_log_lift,
    evidence_excess,
    head_null,
    head_scores,
    heads_like,
    split_half,
    top_heads,
    video_halves,
)
from probes.intervals import (
    CurveEstimate,
    Estimate,
    clustered_curve,
    clustered_difference,
    clustered_mean,
)
from probes.layout import TokenLayout, unit_embeddings
from probes.lens import OptionCourse, first_in_top, option_course, word_share
from probes.linear import ProbeScore, fit_probe, probe_layers, unit_pairs
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
from probes.sinks import image_centric, sink_mask, sink_share, units_without_sinks, without_sinks

__all__ = [
    "MEASURES",  # name of each measure -> its meaning in one line
    "SUFFIXES",  # ending of a measure's name -> on which attention it was taken
    "AreaTriple",  # areas of a map, of random orderings and of the oracle
    "AttendedTest",  # result of `attended_test`
    "Concentration",  # result of `concentration`
    "CurveEstimate",  # result of `clustered_curve`
    "Curves",  # deletion and insertion of one ordering
    "DecodeCourse",  # result of `decode_course`
    "Estimate",  # result of `clustered_mean`
    "EvidenceAlignment",  # result of `evidence_alignment`
    "HeadNull",  # the largest score over all heads when the evidence is moved elsewhere
    "HeadScore",  # from attention and evidence to a score of each head
    "HeadScores",  # mean score of each head, with its interval over videos
    "HeadSummary",  # result of `pooled_and_per_head`
    "KeyframeSimilarity",  # result of `patch_to_keyframe`
    "MassDrift",  # result of `mass_drift`
    "MeanCurve",  # result of `mean_cumulative_curve`
    "OptionCourse",  # one option against the others, layer by layer
    "PairSimilarity",  # result of `pair_similarity`
    "PatchRedundancy",  # result of `patch_redundancy`
    "PositionControl",  # result of `position_corrected`
    "ProbeScore",  # one linear probe, its controls, and how far it is above them
    "RowDrift",  # result of `row_drift`
    "ShiftNull",  # a preference against its circular-shift null
    "SplitHalf",  # how alike the ranking of heads is in two halves of the videos
    "Stratum",  # patches equally far in time from their keyframe
    "TokenLayout",  # the tokens of each unit, in one order of places
    "attended_test",  # is the evidence looked at more than as many other units, by the best heads of each?
    "attention_fraction",  # attention as a fraction of all attention of its row
    "attribution_null",  # what heads say for the right option, and the null of the largest
    "bounded_log_lift",  # log-lift of the evidence with a bound, so that every head is ranked
    "clustered_curve",  # mean curve over items, interval by resampling videos
    "clustered_difference",  # difference of two means of different items, interval by resampling videos
    "clustered_mean",  # mean over items, interval by resampling videos
    "concentration",  # how few units hold most of the attention
    "cumulative_on_grid",  # a cumulative curve read at fractions of the units
    "curve_area",  # trapezoid area under a curve from 0 to 1
    "decode_course",  # attention on video and evidence, row by row of the reply
    "distance_strata",  # units grouped by distance in time from their keyframe
    "evidence_alignment",  # attention on the evidence: mass, share, lift, log-lift
    "evidence_excess",  # attention on the evidence beyond its share of the units
    "evidence_log_lift_corrected",  # log-lift beyond that of position alone
    "evidence_weights",  # evidence per slot reduced to units
    "first_in_top",  # first layer at which a word is among the k likeliest
    "fit_probe",  # a linear probe on videos held out, with shuffled labels and position alone beside it
    "forwards_needed",  # how many outcomes removal curves ask for at most
    "fraction_name",  # 0.9 -> "unit_fraction_90"
    "group_draws",  # how often each group is in each bootstrap resample
    "group_index",  # names of groups as numbers
    "head_null",  # null of the largest head score, the evidence turned round
    "head_scores",  # mean score of each head
    "heads_like",  # random other heads of the same layers
    "image_centric",  # heads that look at the video and not at its sinks
    "indirect_effect",  # share of a logit difference that a patch restores
    "keyframes",  # the most attended quarter of the units
    "logit_difference",  # the right option against the best of the others
    "mass_drift",  # attention to the evidence: writing the answer less reading the question
    "mean_cumulative_curve",  # cumulative curves of items of different length, averaged
    "nearest_preceding",  # the last keyframe before each unit
    "normalised_area",  # an area between random orderings, 0, and an oracle's, 1
    "normalised_area_change",  # how far it moves between two maps or two models
    "on_time_grid",  # attention over units as attention over normalised time
    "option_course",  # when an option comes out on top of the others
    "option_probability",  # of one option among the options
    "ordering",  # a map's units from the highest score to the lowest
    "pair_similarity",  # mean cosine of pairs of units
    "patch_redundancy",  # patches against their keyframe, and attention's preference among them
    "patch_to_keyframe",  # cosine of each patch to the same place in its keyframe
    "percent_change",  # of the answer's probability
    "percentile_interval",  # interval of resampled statistics, widened for few groups where asked
    "pooled_and_per_head",  # one item's measures by both roads, and the heads' divergence
    "pooled_normalised_area",  # the same of several items, interval by resampling videos
    "position_corrected",  # attention against that on a blank or permuted video
    "probe_layers",  # the same at each layer
    "rank_agreement",  # Kendall's tau-b of two maps
    "redundancy_preference",  # `patch_redundancy` from similarities already at hand
    "removal_curves",  # deletion and insertion curves of several orderings
    "removal_steps",  # how many units are removed at each point
    "removed",  # which units those are
    "resampled_group_means",  # means over the items of groups drawn with replacement
    "row_drift",  # a measure of the reply's rows against the prefill's last one, and its slope
    "sets_like",  # other units that stand together as the evidence does
    "shift_null",  # null distribution of a preference by circular shifts
    "sink_mask",  # which tokens are sinks, from their scores
    "sink_share",  # share of the video's attention that goes to sinks
    "split_half",  # rank correlation of head scores between halves of the videos
    "top_heads",  # the heads of the highest scores
    "uniform_reference",  # unit fractions of uniform attention
    "unit_cosine",  # cosine matrix of units
    "unit_embeddings",  # mean token feature of each unit
    "unit_intervals",  # the stretch of video each unit stands for
    "unit_pairs",  # pairs of different units, either one first
    "unit_shares",  # attention mass -> shares of the attention on the video
    "unit_sums",  # values of tokens summed into units
    "units_without_sinks",  # attention by unit less sinks, from attention by token
    "value_weighted_units",  # attention times value length, summed into units
    "video_halves",  # a random half of the videos, item by item
    "without_sinks",  # attention by unit less that on sinks, and the rest
    "word_share",  # probability of one word among several
]
