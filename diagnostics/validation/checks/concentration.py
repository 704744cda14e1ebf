"""Cumulative attention, entropy, inequality and alignment on attention that was made by hand.

Every planted value is closed arithmetic, worked out here in whole numbers or by textbook formula and never by
the probe. Tolerance: the rounding of sums in float64, nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

import probes
from diagnostics.validation.bench import Bench
from diagnostics.validation.rows import Row

__all__ = ["rows"]

_ROUNDING = 1e-9
_WHY = "closed form: only float64 rounding"
_FRACTIONS = (Fraction(1, 2), Fraction(4, 5), Fraction(9, 10), Fraction(19, 20))


def rows(bench: Bench) -> Iterable[Row]:
    """Uniform, one hot, two levels, two heads, and a constant advantage of the evidence."""
    del bench
    yield from _uniform()
    yield from _one_hot()
    yield from _two_levels()
    yield from _two_heads()
    yield from _evidence()


def _exact(name: str, planted: str, target: float | Fraction, measured: Any, n: int = 1) -> Row:
    return Row.exact(name, planted, float(target), float(measured), tolerance=_ROUNDING, why=_WHY, n=n)


def _uniform() -> Iterator[Row]:
    """ceil(aU) / U, in whole numbers."""
    for units in (8, 16, 128):
        target = Fraction(math.ceil(Fraction(9, 10) * units), units)
        measured = probes.concentration(np.full(units, 1 / units)).unit_fraction[0.9]
        yield _exact(
            f"unit_fraction_90, uniform over {units} units", f"⌈0.9 U⌉/U = {target}", target, measured
        )
    worst = 0.0
    for units in range(1, 257):
        found = probes.concentration(np.full(units, 1 / units)).unit_fraction
        for fraction in _FRACTIONS:
            target = Fraction(math.ceil(fraction * units), units)
            worst = max(worst, abs(float(found[float(fraction)]) - float(target)))
    name = "unit_fraction_50, _80, _90, _95, uniform over 1 to 256 units: largest error"
    yield _exact(name, "⌈aU⌉/U for every a and U", 0, worst, n=1024)
    spread = probes.concentration(np.full(16, 1 / 16))
    yield _exact("entropy, uniform over 16 units", "1", 1, spread.entropy)
    yield _exact("effective_units, uniform over 16 units", "U = 16", 16, spread.effective_units)
    yield _exact("gini, uniform over 16 units", "0", 0, spread.gini)
    part = probes.concentration(np.full(16, 0.3 / 16), rest_mass=np.array(0.7))
    yield _exact("visual_mass, 0.3 on the video and 0.7 elsewhere", "0.3", 0.3, part.visual_mass)


def _one_hot() -> Iterator[Row]:
    hot = probes.concentration(np.eye(16)[5])
    yield _exact("unit_fraction_90, one hot unit of 16", "1/U = 0.0625", 1 / 16, hot.unit_fraction[0.9])
    yield _exact("entropy, one hot unit of 16", "0", 0, hot.entropy)
    yield _exact("effective_units, one hot unit of 16", "1", 1, hot.effective_units)
    yield _exact("gini, one hot unit of 16", "(U-1)/U", 15 / 16, hot.gini)


def _two_levels() -> Iterator[Row]:
    """K of U units share W of the attention equally, the others the rest."""
    for units, many, weight in ((16, 4, Fraction(4, 5)), (64, 3, Fraction(1, 2)), (40, 10, Fraction(19, 20))):
        mass = np.full(units, float((1 - weight) / (units - many)))
        mass[::-1][:many] = float(weight / many)  # the last ones, so that ranking has work to do
        found = probes.concentration(mass)
        what = f"{many} of {units} units share {float(weight):g}"
        for fraction in (Fraction(1, 2), Fraction(9, 10)):
            if fraction <= weight:
                count = math.ceil(fraction * many / weight)
            else:
                count = many + math.ceil((fraction - weight) * (units - many) / (1 - weight))
            name = probes.fraction_name(float(fraction))
            measured = found.unit_fraction[float(fraction)]
            yield _exact(f"{name}, {what}", f"{count}/{units}", count / units, measured)
        high, low = float(weight), float(1 - weight)
        nats = -high * math.log(high / many) - low * math.log(low / (units - many))
        yield _exact(f"entropy, {what}", "closed form", nats / math.log(units), found.entropy)
        yield _exact(f"gini, {what}", "W - K/U", float(weight - Fraction(many, units)), found.gini)


def _two_heads() -> Iterator[Row]:
    """Two heads, each hot on another unit: alone each is as concentrated as can be, pooled half as much."""
    heads = np.stack([np.eye(16)[3], np.eye(16)[11]])[None]
    for weighting in ("mass", "equal"):
        both = probes.pooled_and_per_head(heads, weighting=weighting)
        what = f"two heads hot on two of 16 units, pooled by {weighting}"
        per_head, pooled = both.per_head["unit_fraction_90"], both.pooled["unit_fraction_90"]
        yield _exact(f"unit_fraction_90, {what}: per head", "1/U", 1 / 16, per_head)
        yield _exact(f"unit_fraction_90, {what}: pooled", "2/U", 2 / 16, pooled)
        divergence = both.measures()["head_divergence"]
        yield _exact(f"head_divergence, {what}", "log 2 / log U", math.log(2) / math.log(16), divergence)


def _evidence() -> Iterator[Row]:
    """Softmax with a logit advantage D of the evidence: the log-lift is D, whatever U and |E|."""
    advantage = 2.5
    for units, held in ((4, 1), (16, 2), (128, 5)):
        logits = np.zeros(units)
        logits[:held] = advantage
        mass = np.exp(logits) / np.exp(logits).sum()
        found = probes.evidence_alignment(0.4 * mass, logits > 0, rest_mass=np.array(0.6))
        what = f"advantage of 2.5 nats on {held} of {units} units"
        yield _exact(f"evidence_log_lift, {what}", "D = 2.5", advantage, found.log_lift)
        share = held * math.exp(advantage) / (held * math.exp(advantage) + units - held)
        yield _exact(f"evidence_lift, {what}", "closed form", share * units / held, found.lift)
        yield _exact(f"evidence_mass, {what}, 0.4 on the video", "0.4 of the share", 0.4 * share, found.mass)
