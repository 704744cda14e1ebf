"""Statistics for outcomes of items that share videos: differences, tests, intervals, baselines.

Arrays in, frozen results out; no model, no file, no torch. `docs/statistics.md` says which to use when, and
what was measured of their error rates. Undefined is NaN in and NaN out, and is counted.
"""

from __future__ import annotations

from diagnostics.scoring.statistics.answers import (
    FlipRate,
    Gauge,
    LetterEntropy,
    PositionAccuracy,
    by_position,
    flip_rate,
    gauge,
    letter_entropy,
)
from diagnostics.scoring.statistics.baselines import (
    Baseline,
    LetterBaseline,
    constant_letter_baseline,
    majority_text_baseline,
    text_only_baseline,
)
from diagnostics.scoring.statistics.bootstrap import Bootstrap, cluster_bootstrap
from diagnostics.scoring.statistics.chains import EVIDENCE_STEPS, PERFECT, Chain, ChainStep, chain
from diagnostics.scoring.statistics.chance import AgainstChance, against_chance
from diagnostics.scoring.statistics.equivalence import (
    Equivalence,
    RobustMean,
    cluster_robust_mean,
    equivalence,
    minimum_detectable_difference,
    video_variance,
)
from diagnostics.scoring.statistics.families import Holm, holm
from diagnostics.scoring.statistics.ladders import BestLevel, Trend, best_level, monotone_trend
from diagnostics.scoring.statistics.paired import (
    McNemar,
    PairedDifference,
    SignFlip,
    mcnemar,
    paired_difference,
    sign_flip,
)

__all__ = [
    "EVIDENCE_STEPS",
    "PERFECT",
    "AgainstChance",
    "Baseline",
    "BestLevel",
    "Bootstrap",
    "Chain",
    "ChainStep",
    "Equivalence",
    "FlipRate",
    "Gauge",
    "Holm",
    "LetterBaseline",
    "LetterEntropy",
    "McNemar",
    "PairedDifference",
    "PositionAccuracy",
    "RobustMean",
    "SignFlip",
    "Trend",
    "against_chance",
    "best_level",
    "by_position",
    "chain",
    "cluster_bootstrap",
    "cluster_robust_mean",
    "constant_letter_baseline",
    "equivalence",
    "flip_rate",
    "gauge",
    "holm",
    "letter_entropy",
    "majority_text_baseline",
    "mcnemar",
    "minimum_detectable_difference",
    "monotone_trend",
    "paired_difference",
    "sign_flip",
    "text_only_baseline",
    "video_variance",
]
