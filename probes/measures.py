"""The measures and their names: the same in records, summary and tables. Formulas are in docs/measures.md."""

from __future__ import annotations

__all__ = ["MEASURES", "SUFFIXES"]

MEASURES: dict[str, str] = {
    "unit_fraction_50": "smallest fraction of the units that holds 50% of the attention on the video",
    "unit_fraction_80": "smallest fraction of the units that holds 80% of the attention on the video",
    "unit_fraction_90": "smallest fraction of the units that holds 90% of the attention on the video",
    "unit_fraction_95": "smallest fraction of the units that holds 95% of the attention on the video",
    "entropy": "entropy of attention over units, 0 on one unit and 1 when uniform",
    "effective_units": "number of equally attended units with the same entropy",
    "gini": "inequality of attention over units, 0 when uniform",
    "visual_mass": "attention on the video as a fraction of all attention",
    "head_divergence": "how differently the heads spread their attention, 0 when all alike",
    "evidence_covered": "whether any evidence was shown; its mean is the coverage",
    "evidence_mass": "attention on evidence as a fraction of all attention",
    "evidence_share": "attention on evidence as a share of the attention on the video",
    "evidence_lift": "evidence share over the share that uniform attention would give",
    "evidence_log_lift": "log-odds of the evidence share over those of uniform attention: the headline",
    "evidence_log_lift_corrected": "log-odds of the evidence share over those of position-only attention",
    "unit_similarity": "mean cosine of pairs of units of one video",
    "unit_similarity_centred": "the same after subtracting the mean unit",
    "unit_similarity_between": "mean cosine of pairs of units from two videos",
    "patch_similarity": "mean cosine of a patch to the same place in the nearest preceding keyframe",
    "attended_similarity": "the same, weighted by attention",
    "redundancy_preference": "attention-weighted minus plain mean of that similarity",
    "redundancy_preference_null": "mean preference when attention is shifted circularly in time",
    "redundancy_preference_z": "preference against that null, in its standard deviations",
    "redundancy_preference_p": "two-sided p-value of the preference under that null",
    "redundancy_preference_stratified": "preference among patches equally far in time from their keyframe",
    "redundancy_preference_stratified_z": "stratified preference against its own null",
    "redundancy_preference_within_unit": "preference among patches of one unit",
    "patch_fraction_80": "smallest fraction of patches outside keyframes that holds 80% of their attention",
    "attention_above_80": "share of their attention on patches with a similarity above 0.8",
    "attention_above_90": "share of their attention on patches with a similarity above 0.9",
    "position_kl": "divergence of attention from position-only attention",
    "position_js": "the same by Jensen-Shannon, bounded by log 2",
    "position_spearman": "rank correlation of attention with position-only attention",
    "position_explained": "part of the concentration that position alone gives",
    "accuracy": "fraction of items answered correctly; no answer counts as wrong",
    "none_rate": "fraction of items whose reply names no option",
    "choice_accuracy": "fraction of items whose right option has the likeliest letter",
}

SUFFIXES: dict[str, str] = {
    "_pooled": "measured on the attention pooled over layers and heads, not per head and then averaged",
    "_value_weighted": "measured on attention times the length of the value it carries",
    "_position_only": "measured on a blank or permuted video of the same layout",
    "_uniform": "what uniform attention over as many units gives",
}
