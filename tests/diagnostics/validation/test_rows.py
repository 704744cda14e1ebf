from __future__ import annotations

import json
import math

import pytest

from diagnostics.store.canonical import plain
from diagnostics.validation.rows import Row
from probes import Estimate


def estimate(mean: float, low: float, high: float, n: int = 40) -> Estimate:
    return Estimate(mean, low, high, n, n, 0)


def exact(measured: float, tolerance: float = 0.01) -> Row:
    return Row.exact("x", "1", 1.0, measured, tolerance=tolerance, why="arithmetic")


@pytest.mark.parametrize(
    ("row", "passed", "tolerance"),
    [
        (exact(1.0), True, "within ± 0.01"),
        (exact(1.009), True, "within ± 0.01"),
        (exact(0.989), False, "within ± 0.01"),
        (exact(math.nan), False, "within ± 0.01"),
        (exact(1.0, 0.0), True, "exact"),
        (exact(1.0 + 1e-15, 0.0), False, "exact"),
        (Row.at_least("x", 0.85, estimate(0.85, 0.7, 0.9), why="w"), True, "at least 0.85"),
        (Row.at_least("x", 0.85, estimate(0.849, 0.7, 0.9), why="w"), False, "at least 0.85"),
        (Row.above("x", 0, estimate(1.0, 0.1, 2.0), why="w"), True, "interval above 0"),
        (Row.above("x", 0, estimate(1.0, 0.0, 2.0), why="w"), False, "interval above 0"),
        (Row.below("x", 0, estimate(-1.0, -2.0, -0.1), why="w"), True, "interval below 0"),
        (Row.below("x", 0, estimate(-1.0, -2.0, 0.1), why="w"), False, "interval below 0"),
        (
            Row.equivalent("x", "half", 0.5, estimate(0.52, 0.46, 0.58), margin=0.1, why="w"),
            True,
            "interval within ± 0.1",
        ),
        (
            Row.equivalent("x", "half", 0.5, estimate(0.5, 0.38, 0.62), margin=0.1, why="w"),
            False,
            "interval within ± 0.1",
        ),
        (Row.above("x", 0, estimate(1.0, math.nan, math.nan), why="w"), False, "interval above 0"),
    ],
)
def test_verdict_and_tolerance(row: Row, passed: bool, tolerance: str) -> None:
    assert row.passed is passed
    assert row.tolerance == tolerance


def test_an_equivalence_that_is_merely_undecided_fails() -> None:
    """A wide interval around the planted value proves nothing, however near its middle is."""
    row = Row.equivalent("x", "chance", 0.25, estimate(0.25, 0.05, 0.45, n=8), margin=0.05, why="w")
    assert not row.passed


def test_rows_survive_json_with_their_verdict() -> None:
    told = Row.above("x", 0, estimate(1.0, 0.5, 2.0), why="w", details={"heads": ["L1H2"], "budget": 32})
    lost = Row.exact("y", "0", 0.0, math.nan, tolerance=1.0, why="w")
    for row in (told, lost):
        kept = Row.from_json(json.loads(json.dumps(plain(row.as_json()))))
        assert kept.passed is row.passed
        assert plain(kept.as_json()) == plain(row.as_json())
    assert math.isnan(Row.from_json(json.loads(json.dumps(plain(lost.as_json())))).measured)
