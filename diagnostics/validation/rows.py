"""One measurement against its planted truth: what it should be, what it is, and whether that will do.

A row is judged by a band. Either the measured value has to lie in it, or its whole confidence interval. The
second is how a claim about a mean is made: "above zero" is an interval above zero, and "equal within five
points" is an interval within five points (two one-sided tests, TOST: Schuirmann, J. Pharmacokinet. Biopharm.
15 (1987); at 5% each they are the 90% interval inside the margin). A test that merely fails to find a
difference proves nothing, so no row is judged by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from probes import Estimate

__all__ = ["Row"]

_DIGITS = 4


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        name: what is measured, on what.
        planted: what it should be, in words and numbers.
        target: the planted number; None where only a bound is planted.
        measured: what came out; NaN fails.
        low, high: the band of the tolerance; None is no bound.
        judged: whether the `value` has to lie in the band, or the whole `interval`.
        ci_low, ci_high: interval of `measured`, videos resampled; None where there is nothing to resample.
        n: what `measured` is the mean of.
        why: where the tolerance comes from.
        details: split, budget, heads and whatever else a reader must know.
        group: the check it belongs to; the runner fills it in.
    """

    name: str
    planted: str
    target: float | None
    measured: float
    low: float | None
    high: float | None
    judged: Literal["value", "interval"]
    ci_low: float | None = None
    ci_high: float | None = None
    n: int = 1
    why: str
    details: Mapping[str, Any] = field(default_factory=dict)
    group: str = ""

    @property
    def passed(self) -> bool:
        """Whether it lies in its band. Undefined never does."""
        judged = (self.measured,) if self.judged == "value" else (self.ci_low, self.ci_high)
        return all(value is not None and self._in_band(value) for value in judged)

    @property
    def tolerance(self) -> str:
        """The band, in words."""
        what = {"value": "", "interval": "interval "}[self.judged]
        if self.low is not None and self.high is not None:
            if self.target is not None and math.isclose(
                self.target - self.low, self.high - self.target, rel_tol=1e-6, abs_tol=1e-15
            ):
                within = (self.high - self.low) / 2
                return f"{what}within ± {within:.3g}" if within else "exact"
            return f"{what}in {_told(self.low)} to {_told(self.high)}"
        if self.low is not None:
            return f"{what}{'above' if self.judged == 'interval' else 'at least'} {_told(self.low)}"
        assert self.high is not None, "a row has a bound"
        return f"{what}{'below' if self.judged == 'interval' else 'at most'} {_told(self.high)}"

    def _in_band(self, value: float) -> bool:
        """NaN is in none; an open bound of an interval is not reached."""
        strict = self.judged == "interval" and (self.low is None or self.high is None)
        above = self.low is None or (value > self.low if strict else value >= self.low)
        below = self.high is None or (value < self.high if strict else value <= self.high)
        return math.isfinite(value) and above and below

    # -- how rows are made

    @classmethod
    def exact(
        cls,
        name: str,
        planted: str,
        target: float,
        measured: float,
        *,
        tolerance: float,
        why: str,
        **more: Any,
    ) -> Self:
        """A number that arithmetic fixes: the value has to lie within `tolerance` of it."""
        return cls(
            name=name,
            planted=planted,
            target=target,
            measured=measured,
            low=target - tolerance,
            high=target + tolerance,
            judged="value",
            why=why,
            **more,
        )

    @classmethod
    def at_least(cls, name: str, floor: float, estimate: Estimate, *, why: str, **more: Any) -> Self:
        """A floor for the measured value itself, as for an accuracy that is to be reached."""
        return cls._estimated(
            name, f"at least {_told(floor)}", floor, estimate, floor, None, "value", why=why, **more
        )

    @classmethod
    def above(cls, name: str, bound: float, estimate: Estimate, *, why: str, **more: Any) -> Self:
        """More than `bound`, the whole interval."""
        planted = more.pop("planted", f"above {_told(bound)}")
        return cls._estimated(name, planted, bound, estimate, bound, None, "interval", why=why, **more)

    @classmethod
    def below(cls, name: str, bound: float, estimate: Estimate, *, why: str, **more: Any) -> Self:
        """Less than `bound`, the whole interval."""
        planted = more.pop("planted", f"below {_told(bound)}")
        return cls._estimated(name, planted, bound, estimate, None, bound, "interval", why=why, **more)

    @classmethod
    def equivalent(
        cls,
        name: str,
        planted: str,
        target: float,
        estimate: Estimate,
        *,
        margin: float,
        why: str,
        **more: Any,
    ) -> Self:
        """Equal within `margin`: give the estimate with its 90% interval, for two tests at 5% each."""
        return cls._estimated(
            name, planted, target, estimate, target - margin, target + margin, "interval", why=why, **more
        )

    @classmethod
    def _estimated(
        cls,
        name: str,
        planted: str,
        target: float,
        estimate: Estimate,
        low: float | None,
        high: float | None,
        judged: Literal["value", "interval"],
        **more: Any,
    ) -> Self:
        return cls(
            name=name,
            planted=planted,
            target=target,
            measured=estimate.mean,
            low=low,
            high=high,
            judged=judged,
            ci_low=estimate.ci_low,
            ci_high=estimate.ci_high,
            n=estimate.n,
            **more,
        )

    # -- how they are kept

    def as_json(self) -> dict[str, Any]:
        """Every field, and the verdict."""
        return {**asdict(self), "details": dict(self.details), "passed": self.passed}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The row that `as_json` gave; the verdict is made anew. Undefined was written as null."""
        kept = {name: value for name, value in values.items() if name != "passed"}
        measured = float("nan") if kept["measured"] is None else kept["measured"]
        return cls(**{**kept, "measured": measured})


def _told(value: float) -> str:
    return f"{value:.{_DIGITS}g}"
