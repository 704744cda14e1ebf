"""The planted values of the constructed rows, derived by roads that neither the check nor the probe takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cosine
from scipy.stats import entropy

import probes
from diagnostics.validation.checks import concentration, redundancy
from diagnostics.validation.rows import Row

NOTHING: Any = None
"""The constructed rows need no bench."""


def rows_by_name(rows: list[Row]) -> dict[str, Row]:
    named = {row.name: row for row in rows}
    assert len(named) == len(rows), "two rows of one name"
    return named


@pytest.fixture(scope="module")
def attention() -> dict[str, Row]:
    return rows_by_name(list(concentration.rows(NOTHING)))


@pytest.fixture(scope="module")
def vectors() -> dict[str, Row]:
    return rows_by_name([*redundancy._similarity_by_hand(), *redundancy._patches_by_hand()])


def brute_fraction(mass: np.ndarray, fraction: float) -> float:
    """By trying every number of units, added up one by one from the largest."""
    ranked = sorted(mass.tolist(), reverse=True)
    for count in range(1, len(ranked) + 1):
        if sum(ranked[:count]) >= fraction * sum(ranked) - 1e-9:
            return count / len(ranked)
    raise AssertionError


def brute_gini(mass: np.ndarray) -> float:
    """Mean absolute difference of all pairs over twice the mean."""
    return float(np.abs(mass[:, None] - mass[None]).mean() / (2 * mass.mean()))


def two_level(units: int, many: int, weight: float) -> np.ndarray:
    return np.array([weight / many] * many + [(1 - weight) / (units - many)] * (units - many))


def test_all_pass(attention: dict[str, Row], vectors: dict[str, Row]) -> None:
    assert [row.name for row in (*attention.values(), *vectors.values()) if not row.passed] == []


@pytest.mark.parametrize("units", [8, 16, 128])
def test_uniform(attention: dict[str, Row], units: int) -> None:
    row = attention[f"unit_fraction_90, uniform over {units} units"]
    assert row.target == pytest.approx(brute_fraction(np.full(units, 1 / units), 0.9), abs=1e-12)


@pytest.mark.parametrize(("units", "many", "weight"), [(16, 4, 0.8), (64, 3, 0.5), (40, 10, 0.95)])
def test_two_levels(attention: dict[str, Row], units: int, many: int, weight: float) -> None:
    mass, what = two_level(units, many, weight), f"{many} of {units} units share {weight:g}"
    planted = {name: attention[f"{name}, {what}"].target for name in ("entropy", "gini")}
    assert planted["entropy"] == pytest.approx(float(entropy(mass, base=units)), abs=1e-12)
    assert planted["gini"] == pytest.approx(brute_gini(mass), abs=1e-12)
    for percent in (50, 90):
        target = attention[f"unit_fraction_{percent}, {what}"].target
        assert target == pytest.approx(brute_fraction(mass, percent / 100), abs=1e-12)


def test_one_hot_and_two_heads(attention: dict[str, Row]) -> None:
    hot = np.zeros(16)
    hot[2] = 1
    assert attention["gini, one hot unit of 16"].target == pytest.approx(brute_gini(hot), abs=1e-12)
    pooled = np.zeros(16)
    pooled[[2, 9]] = 0.5
    for weighting in ("mass", "equal"):
        what = f"two heads hot on two of 16 units, pooled by {weighting}"
        assert attention[f"unit_fraction_90, {what}: pooled"].target == brute_fraction(pooled, 0.9)
        # Entropy of the mixture, minus the heads' own, which is none.
        target = attention[f"head_divergence, {what}"].target
        assert target == pytest.approx(float(entropy(pooled, base=16)), abs=1e-12)


@pytest.mark.parametrize(("held", "units"), [(1, 4), (2, 16), (5, 128)])
def test_a_constant_advantage(attention: dict[str, Row], held: int, units: int) -> None:
    """By sampling softmax's definition in exact odds: e^2.5 to one for each unit of evidence."""
    what = f"advantage of 2.5 nats on {held} of {units} units"
    share = held * np.e**2.5 / (held * np.e**2.5 + (units - held))
    assert attention[f"evidence_lift, {what}"].target == pytest.approx(share / (held / units), rel=1e-12)
    odds = (share / (1 - share)) / ((held / units) / (1 - held / units))
    assert attention[f"evidence_log_lift, {what}"].target == pytest.approx(np.log(odds), abs=1e-12)


def test_similarity(vectors: dict[str, Row]) -> None:
    angle = np.radians(70)
    units = [np.array([1.0, 0.0])] * 4 + [np.array([np.cos(angle), np.sin(angle)])] * 4
    pairs = [1 - cosine(units[i], units[j]) for i in range(8) for j in range(i)]
    assert vectors["unit_similarity, two groups of 4 units at 70°"].target == pytest.approx(np.mean(pairs))
    middle = np.mean(units, axis=0)
    pairs = [1 - cosine(units[i] - middle, units[j] - middle) for i in range(8) for j in range(i)]
    row = vectors["unit_similarity_centred, the same: opposite groups"]
    assert row.target == pytest.approx(np.mean(pairs))
    for count in (4, 16):
        axes = np.eye(count) - 1 / count
        pairs = [1 - cosine(axes[i], axes[j]) for i in range(count) for j in range(i)]
        target = vectors[f"unit_similarity_centred, {count} orthogonal units"].target
        assert target == pytest.approx(np.mean(pairs))


def test_preference(vectors: dict[str, Row]) -> None:
    similarities = np.cos(np.linspace(0.1, 1.4, 24))
    plain = vectors["patch_similarity, patches turned by known angles"].target
    assert plain == pytest.approx(similarities.mean())
    attended = np.average(similarities, weights=np.arange(1, 25))
    row = vectors["redundancy_preference, attention 1, 2, 3... on them"]
    assert row.target == pytest.approx(attended - similarities.mean())


def test_a_probe_that_forgets_to_round_up_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = probes.concentration

    def wrong(*arguments: Any, **options: Any) -> Any:
        found = real(*arguments, **options)
        for fraction, value in found.unit_fraction.items():
            found.unit_fraction[fraction] = np.asarray(value) * 0 + fraction
        return found

    monkeypatch.setattr(probes, "concentration", wrong)
    failed = [row.name for row in concentration.rows(NOTHING) if not row.passed]
    assert "unit_fraction_90, uniform over 8 units" in failed
    assert "entropy, uniform over 16 units" not in failed, "only what is wrong is called wrong"


def test_a_preference_without_its_plain_mean_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    import probes.preference as preference

    monkeypatch.setattr(preference, "_weighted_mean", lambda values, weights: float(values.mean()))
    failed = [row.name for row in redundancy._patches_by_hand() if not row.passed]
    assert failed == ["redundancy_preference, attention 1, 2, 3... on them"]
