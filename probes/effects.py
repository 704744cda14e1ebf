"""What an intervention did to an answer: from option logits and probabilities to effects.

Arrays over anything (items, layers, units) go in and come out; undefined is NaN, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import log_softmax
from scipy.special import logit as log_odds_of

__all__ = [
    "MassDrift",
    "indirect_effect",
    "logit_difference",
    "mass_drift",
    "option_probability",
    "percent_change",
]

_LEAST_DIFFERENCE = 1e-3
"""Clean and corrupt logit differences nearer than this leave nothing to restore."""


def logit_difference(logits: Float[np.ndarray, "*any option"], gold: int) -> Float[np.ndarray, "*any"]:
    """Logit of the right option less the largest of the others: positive where it is chosen.

    Methods: ROME's and NOTICE's metric for several options (arXiv 2202.05262; 2406.16320, section 3).

    Raises:
        ValueError: fewer than two options, or no such option.
    """
    logits = np.asarray(logits, dtype=np.float64)
    _require_option(logits, gold)
    return logits[..., gold] - np.delete(logits, gold, axis=-1).max(axis=-1)


def option_probability(logits: Float[np.ndarray, "*any option"], gold: int) -> Float[np.ndarray, "*any"]:
    """Probability of one option's letter among the options.

    Map the Flow takes it over the whole vocabulary; among the options it does not move where an
    intervention only makes the model less sure that a letter comes next.

    Raises:
        ValueError: fewer than two options, or no such option.
    """
    logits = np.asarray(logits, dtype=np.float64)
    _require_option(logits, gold)
    return np.exp(log_softmax(logits, axis=-1)[..., gold])


def percent_change(
    after: Float[np.ndarray, "*any"], before: Float[np.ndarray, "*any"], *, least: float = 1e-6
) -> Float[np.ndarray, "*any"]:
    """100 (p_after - p_before) / p_before; NaN where `before` is under `least`.

    Geva et al. (arXiv 2304.14767, section 4.1); Map the Flow (arXiv 2510.13251, section 3). -100 is a
    probability gone; the mean over items is dominated by items with a small probability before, so it is
    taken over items that were answered correctly, and over all apart.
    """
    before = np.asarray(before, dtype=np.float64)
    change = np.asarray(after, dtype=np.float64) - before
    return 100.0 * np.divide(change, before, out=np.full(np.shape(change), np.nan), where=before >= least)


def indirect_effect(
    patched: Float[np.ndarray, "*any"],
    clean: Float[np.ndarray, "*any"] | float,
    corrupt: Float[np.ndarray, "*any"] | float,
    *,
    least: float = _LEAST_DIFFERENCE,
) -> Float[np.ndarray, "*any"]:
    """(patched - corrupt) / (clean - corrupt) of logit differences: 0 nothing restored, 1 everything.

    The normalised indirect effect of denoising (Wang et al., arXiv 2211.00593, section 3.2). Noising is the
    same with clean and corrupt exchanged. Values outside 0 to 1 are kept: a patch can overshoot.

    Args:
        least: NaN where |clean - corrupt| is under it: corruption changed nothing that could be restored.
    """
    clean, corrupt = np.asarray(clean, dtype=np.float64), np.asarray(corrupt, dtype=np.float64)
    gap = np.broadcast_to(clean - corrupt, np.broadcast_shapes(np.shape(patched), clean.shape, corrupt.shape))
    moved = np.asarray(patched, dtype=np.float64) - corrupt
    return np.divide(moved, gap, out=np.full(gap.shape, np.nan), where=np.abs(gap) >= least)


@dataclass(frozen=True)
class MassDrift:
    """Attention on the evidence of the rows that read the question and of those that write the answer.

    Attributes:
        prefill, decode: share of the attention on the video that goes to the evidence.
        share: decode less prefill.
        log_odds: the same as a difference of log-odds, which does not depend on how many units there are;
            NaN where a share is 0 or 1.
    """

    prefill: Float[np.ndarray, "*any"]
    decode: Float[np.ndarray, "*any"]
    share: Float[np.ndarray, "*any"]
    log_odds: Float[np.ndarray, "*any"]


def mass_drift(
    prefill: Float[np.ndarray, "*any unit"],
    decode: Float[np.ndarray, "*any unit"],
    evidence: Float[np.ndarray, " unit"],
) -> MassDrift:
    """How far attention to the evidence moves between reading the question and writing the answer.

    TG-Heads (arXiv 2605.21954) report that attention of the question's rows peaks on the right interval and
    that of the answer's rows does not; this is that difference, head by head.

    Args:
        prefill: attention mass of the question's rows on each unit.
        decode: attention mass of the answer's rows: generated tokens, or the last position.
        evidence: how much of each unit is evidence, 0 to 1 (`evidence_weights`, or booleans).

    Returns:
        `MassDrift`, each over the leading axes; NaN where a row has no attention on the video, or where no
        unit, or every one, is evidence.

    Raises:
        ValueError: the numbers of units differ.
    """
    weights = np.asarray(evidence, dtype=np.float64)
    if np.shape(prefill)[-1:] != weights.shape or np.shape(decode)[-1:] != weights.shape:
        raise ValueError(
            f"prefill {np.shape(prefill)}, decode {np.shape(decode)} and evidence {weights.shape} must end in"
            " the same number of units"
        )
    before, after = _share(prefill, weights), _share(decode, weights)
    inside = (before > 0) & (before < 1) & (after > 0) & (after < 1)
    odds = np.full(np.shape(after - before), np.nan)
    odds[inside] = log_odds_of(after[inside]) - log_odds_of(before[inside])
    return MassDrift(before, after, after - before, odds)


def _share(mass: Float[np.ndarray, "*any unit"], weights: Float[np.ndarray, " unit"]) -> np.ndarray:
    mass = np.asarray(mass, dtype=np.float64)
    total = mass.sum(axis=-1)
    undefined = not weights.any() or bool((weights == 1).all())
    found = np.full(np.shape(total), np.nan)
    return found if undefined else np.divide(mass @ weights, total, out=found, where=total > 0)


def _require_option(logits: np.ndarray, gold: int) -> None:
    n = logits.shape[-1] if logits.ndim else 0
    if n < 2 or not 0 <= gold < n:
        raise ValueError(f"option {gold} of {n}: at least two options are compared, counted from 0")
