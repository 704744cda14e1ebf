"""How relevant each frame is to a question: one scorer a module, found by the module's name.

A scorer is a module with `load(config) -> Scorer`; adding one is adding one file here. `signals` runs
them over a video's candidates and keeps what they say; `config` says which one. Which is good for what,
and the formats of a file of scores, are in docs/sampling.md.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt8

from diagnostics.errors import ConfigError
from diagnostics.strict import near_match
from diagnostics.video.relevance.config import ScorerConfig

__all__ = ["FeatureScorer", "FrameScorer", "Scorer", "load_scorer", "score", "scorer_names"]

_NOT_SCORERS = frozenset({"cache", "checkpoint", "config", "signals"})


@runtime_checkable
class Scorer(Protocol):
    """What all scorers have.

    Attributes:
        name: for people and for the cache.
        version: changes whenever scores or features could: the checkpoint's identity and our own.
        uses_question: False where scores are the same for every question.
    """

    name: str
    version: str
    uses_question: bool

    def features(self, frames: UInt8[np.ndarray, "n h w 3"]) -> Float[np.ndarray, "n dim"]:
        """An embedding of each frame, of the frame alone."""
        ...


@runtime_checkable
class FeatureScorer(Scorer, Protocol):
    """A scorer whose scores follow from the features: a new question costs no look at the pictures."""

    def scores(self, features: Float[np.ndarray, "n dim"], text: str) -> Float[np.ndarray, " n"]:
        """Relevance of each frame to `text`, larger is more; `features` are those of all candidates."""
        ...


@runtime_checkable
class FrameScorer(Scorer, Protocol):
    """A scorer that looks at picture and text together: all questions of a video in one pass."""

    def score_texts(
        self, frames: UInt8[np.ndarray, "n h w 3"], texts: Sequence[str]
    ) -> tuple[Float[np.ndarray, "text n"], Float[np.ndarray, "n dim"]]:
        """Relevance of each frame to each of `texts`, and the frames' features."""
        ...


def scorer_names() -> tuple[str, ...]:
    """Names of the scorers that come with the toolkit."""
    names = {module.name for module in pkgutil.iter_modules(__path__)}
    return tuple(sorted(names - _NOT_SCORERS))


def load_scorer(config: ScorerConfig) -> Scorer:
    """The scorer that `config` names, ready to score.

    Raises:
        ConfigError: there is no such scorer.
        ScorerUnavailableError: it cannot be loaded here.
    """
    name = config.name
    if "." not in name and name not in scorer_names():
        raise ConfigError(f"unknown scorer {name!r}.", remedy=near_match(name, scorer_names()))
    try:
        module = importlib.import_module(name if "." in name else f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        raise ConfigError(f"scorer {name!r} cannot be loaded ({error}).", remedy="Check its name.") from error
    if not hasattr(module, "load"):
        raise ConfigError(f"scorer {name!r} lacks `load`.", remedy="See docs/sampling.md.")
    scorer: Scorer = module.load(config)
    return scorer


def score(
    scorer: Scorer, frames: UInt8[np.ndarray, "n h w 3"], text: str
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"]]:
    """Relevance of each frame to `text`, and the frames' features, whichever kind the scorer is."""
    if isinstance(scorer, FrameScorer):
        scores, features = scorer.score_texts(frames, [text])
        return scores[0], features
    if isinstance(scorer, FeatureScorer):
        features = scorer.features(frames)
        return scorer.scores(features, text), features
    raise ConfigError(f"scorer {scorer.name!r} scores nothing.", remedy="Give it `scores` or `score_texts`.")
