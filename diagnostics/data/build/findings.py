"""What the annotations offer to ask about: the form in which evidence retrieval gives it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from diagnostics.data.build.annotations import Procedure
from diagnostics.data.build.reasons import Rejection
from diagnostics.data.build.settings import Config
from diagnostics.data.build.spaces import Labels, Numbers, Spaces

__all__ = ["Ask", "Finding", "clock", "ordinal", "stream"]


@dataclass(frozen=True, eq=False)
class Ask:
    """One family on one procedure: what a retrieval rule is given."""

    task: str
    procedure: Procedure
    spaces: Spaces
    config: Config


@dataclass(frozen=True, eq=False)
class Finding:
    """What one question could be made of.

    Attributes:
        subject: what is asked about; with procedure and task it names the question.
        right: every right answer: labels or a number.
        space: where wrong options come from.
        windows: the evidence in seconds; empty where it is the whole video.
        asked: the window the question names or rests on.
        coverage: share of `asked` that is labelled with the answer.
        others: labels the evidence also shows, without being the answer: no fair wrong options.
        before, after: labels near in time on either side, nearest first.
        near: labels easily confused with the answer, likeliest first.
        fixed: the wrong options, where the question itself names them.
        doubt: why the annotations cannot be trusted here; empty where they can.
        too_few: what there would have to be more of; empty where there is enough.
        ambiguous: why the question could be about two things; empty where it could not.
        excluded: why it is none of the questions that are asked, whatever its answer; None where it is.
        order_dependent: the question names an order of events, so that its answer changes with it.
    """

    task: str
    procedure: Procedure
    subject: Mapping[str, str]
    right: tuple[str | float, ...]
    space: Labels | Numbers
    windows: tuple[tuple[float, float], ...] = ()
    asked: tuple[float, float] | None = None
    coverage: float = 1.0
    others: frozenset[str] = frozenset()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    doubt: str = ""
    too_few: str = ""
    ambiguous: str = ""
    excluded: Rejection | None = None
    order_dependent: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    """What the question's wording names."""


def stream(seed: int, *names: object) -> np.random.Generator:
    """Random numbers that depend on seed and names only: another procedure changes nothing."""
    digest = hashlib.sha256("\0".join(map(str, (seed, *names))).encode()).digest()
    return np.random.default_rng(list(digest))


def clock(seconds: float) -> str:
    """`h:mm:ss`, with as many decimals as the time has, up to three."""
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    decimals = f".{thousandths:03}".rstrip("0") if thousandths else ""
    return f"{hours}:{minutes:02}:{rest:02}{decimals}"


def ordinal(number: int) -> str:
    """`first`... `tenth`, then `11th`."""
    words = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
    if number <= len(words):
        return words[number - 1]
    tail = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{tail}"
