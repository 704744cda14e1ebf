"""The parameters of MiniHorizon, and the version of what they produce."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from fractions import Fraction
from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from diagnostics.strict import STRICT

__all__ = ["GENERATOR_VERSION", "Config"]

GENERATOR_VERSION = 1
"""Raised whenever the same parameters would give other pictures, files or questions."""

_MOST_QUESTIONS = 5

Side = Annotated[int, Field(ge=32, le=4096, multiple_of=2)]


@dataclass(frozen=True, config=STRICT)
class Config:
    """What to write.

    Attributes:
        n_videos: procedures.
        seconds: length of each.
        fps: frames a second, constant.
        height, width: of the picture, in pixels; even, as 4:2:0 colour needs.
        evidence_ratio: share of a video's frames that show the lesion, rounded to whole frames, at
            least one. At most a tenth, so that it fits in one phase and one quarter of the video.
        questions: on each video, at most one of each kind (`diagnostics.data.minihorizon.questions`).
        seed: of everything.
        cache: the folder to write into; the cache folder of the machine by default.
    """

    n_videos: Annotated[int, Field(ge=1)] = 6
    seconds: Annotated[float, Field(gt=0)] = 300.0
    fps: Annotated[float, Field(gt=0, le=120)] = 8.0
    height: Side = 96
    width: Side = 96
    evidence_ratio: Annotated[float, Field(gt=0, le=0.1)] = 0.0167
    questions: Annotated[int, Field(ge=1, le=_MOST_QUESTIONS)] = 3
    seed: Annotated[int, Field(ge=0)] = 0
    cache: str | None = None

    @model_validator(mode="after")
    def _long_enough(self) -> Self:
        if self.n_frames < 40:
            raise ValueError(
                f"{self.seconds:g} s at {self.fps:g} fps are {self.n_frames} frames: give 40 or more"
            )
        return self

    @property
    def rate(self) -> Fraction:
        """Frames a second as the container writes it."""
        return Fraction(self.fps).limit_denominator(1001)

    @property
    def n_frames(self) -> int:
        """Frames of each video."""
        return round(self.seconds * float(self.rate))

    @property
    def n_evidence_frames(self) -> int:
        """Frames of each video that show the lesion."""
        return max(1, round(self.evidence_ratio * self.n_frames))

    @property
    def content_hash(self) -> str:
        """Names the content: everything but where it is kept, and the generator's version."""
        content = {**asdict(self), "cache": None, "generator": GENERATOR_VERSION}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
