"""The parameters of MiniHorizon, and the version of what they produce."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from dataclasses import dataclass as plain_dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from diagnostics.strict import STRICT

__all__ = ["GENERATOR_VERSION", "SPLITS", "Config", "Split"]

GENERATOR_VERSION = 3
"""Raised whenever the same parameters would give other pictures, files or questions."""

_MOST_QUESTIONS = 9

Side = Annotated[int, Field(ge=32, le=4096, multiple_of=2)]
Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(gt=0, le=120)]
Ratio = Annotated[float, Field(gt=0, le=0.1)]


@plain_dataclass(frozen=True, slots=True)
class Split:
    """What a split is made of, where the configuration says nothing else.

    Attributes:
        n_videos: procedures.
        seconds: lengths; the videos take them in turn.
        fps: frames a second.
        evidence_ratio: shares of a video's frames that show one lesion; the videos take them in turn.
        questions: on each video, at most.
        single: whether every procedure has one lesion, so that no question is about several.
        phases: in every procedure, at most four.
        motion: of the camera: 1 wanders, 0 stands still.
        noise: of the sensor, in levels of 255.
        room: keeps the splits' random numbers apart.
    """

    n_videos: int
    seconds: tuple[float, ...]
    fps: float
    evidence_ratio: tuple[float, ...]
    questions: int
    single: bool = False
    phases: int = 4
    motion: float = 1.0
    noise: float = 3.0
    room: int = 0


SPLITS: Mapping[str, Split] = MappingProxyType(
    {
        "train": Split(320, (24.0, 20.0, 28.0), 4.0, (0.0625, 0.05, 0.08), 9, room=1),
        "test": Split(180, (24.0, 20.0, 28.0), 4.0, (0.0625, 0.05, 0.08), 9, room=2),
        "needle": Split(
            6,
            (3600.0, 1800.0, 900.0, 600.0, 300.0, 300.0),
            2.0,
            (0.0005, 0.001, 0.002, 0.004, 0.007, 0.01),
            9,
            single=True,
            room=3,
        ),
        "redundant": Split(
            6, (300.0,), 4.0, (0.01,), 9, single=True, phases=1, motion=0.0, noise=0.5, room=4
        ),
    }
)
"""By name."""


@dataclass(frozen=True, config=STRICT)
class Config:
    """What to write. None takes the split's own value (`SPLITS`).

    Attributes:
        split: `train`, `test`, `needle` or `redundant`.
        n_videos: procedures.
        seconds: length of each.
        fps: frames a second, constant.
        height, width: of the picture, in pixels; even, as 4:2:0 colour needs.
        evidence_ratio: share of a video's frames that show one lesion, rounded to whole frames, at
            least one. At most a tenth, so that all of several fit beside the steps.
        questions: on each video, at most; one of each task, which take turns where that makes more.
        motion: of the camera: 1 wanders, 0 stands still, more is faster.
        seed: of everything.
        cache: the folder to write into; the cache folder of the machine by default.
    """

    split: Literal["train", "test", "needle", "redundant"] = "needle"
    n_videos: Annotated[int, Field(ge=1)] | None = None
    seconds: Positive | None = None
    fps: Rate | None = None
    height: Side = 96
    width: Side = 96
    evidence_ratio: Ratio | None = None
    questions: Annotated[int, Field(ge=1, le=_MOST_QUESTIONS)] | None = None
    motion: Annotated[float, Field(ge=0, le=100)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    cache: str | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for seconds in (self.seconds,) if self.seconds else self.preset.seconds:
            n_frames = round(seconds * float(self.rate))
            if n_frames < 40:
                raise ValueError(
                    f"{seconds:g} s at {float(self.rate):g} fps are {n_frames} frames: give 40 or more"
                )
        return self

    @property
    def preset(self) -> Split:
        """The split's own values, and the camera's motion where the configuration gives one."""
        own = SPLITS[self.split]
        return own if self.motion is None else replace(own, motion=self.motion)

    @property
    def videos(self) -> int:
        """Number of procedures."""
        return self.n_videos or self.preset.n_videos

    @property
    def most_questions(self) -> int:
        """Questions on each video, at most."""
        return self.questions or self.preset.questions

    @property
    def rate(self) -> Fraction:
        """Frames a second as the container writes it."""
        return Fraction(self.fps or self.preset.fps).limit_denominator(1001)

    def of_video(self, index: int) -> Config:
        """The same with the length and the evidence ratio of procedure `index` written out."""
        seconds, ratios = self.preset.seconds, self.preset.evidence_ratio
        return replace(
            self,
            seconds=self.seconds or seconds[index % len(seconds)],
            evidence_ratio=self.evidence_ratio or ratios[index % len(ratios)],
        )

    @property
    def n_frames(self) -> int:
        """Frames of the video (the first one where lengths differ)."""
        return round((self.seconds or self.preset.seconds[0]) * float(self.rate))

    @property
    def n_evidence_frames(self) -> int:
        """Frames of the video that show one lesion."""
        return max(1, round((self.evidence_ratio or self.preset.evidence_ratio[0]) * self.n_frames))

    @property
    def content_hash(self) -> str:
        """Names the content: everything but where it is kept, and the generator's version."""
        content = {**asdict(self), "cache": None, "generator": GENERATOR_VERSION}
        content["preset"] = asdict(self.preset)
        del content["motion"]  # stands in the preset
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
