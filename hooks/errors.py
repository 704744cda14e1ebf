"""What `hooks` raises on purpose: what is wrong, and what the person can do about it."""

from __future__ import annotations

__all__ = [
    "CaptureError",
    "FamilyError",
    "HooksError",
    "InterventionError",
    "SelfCheckError",
    "TokenMapError",
    "UnsupportedModelError",
]


class HooksError(Exception):
    """Base of every deliberate error of this package.

    Args:
        problem: what is wrong, in one sentence that names the offending value.
        remedy: what the person can do about it, in one sentence.
    """

    def __init__(self, problem: str, *, remedy: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple:
        """Survive pickling between processes: keyword-only arguments need help."""
        return _rebuild, (type(self), self.problem, self.remedy)

    def __str__(self) -> str:
        return f"{self.problem} {self.remedy}"


def _rebuild(cls: type[HooksError], problem: str, remedy: str) -> HooksError:
    return cls(problem, remedy=remedy)


class UnsupportedModelError(HooksError):
    """The model's attention cannot be observed exactly, so it is not observed at all."""


class FamilyError(HooksError):
    """A family of one's own cannot be used: it does not import, is none, or answers to other models."""


class TokenMapError(HooksError):
    """The prompt and what the processor says about it disagree, or a text cannot be found in it."""


class CaptureError(HooksError):
    """A capture was asked for, used or read in a way that has no single right answer."""


class SelfCheckError(HooksError):
    """A capture ran but what it saw is not what it promised: a layer or row is missing, sums are off."""


class InterventionError(HooksError):
    """An intervention was asked for, or used, in a way that is impossible or has no single meaning."""
