"""Annotated procedures without their videos: tracks by numpy, and a probe that knows their lengths."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diagnostics.data.build.annotations import VideoFacts
from diagnostics.errors import MissingVideoError

PHASES = ["access", "mobilisation", "resection", "anastomosis", "leak test", "closure"]
STEPS = ["clip", "cut", "suction", "irrigate", "staple", "sew", "tie", "inspect"]
REGIONS = ["oesophagus", "stomach", "small intestine", "colon", "rectum"]
INSTRUMENTS = ["scissors", "grasper", "clip applier", "needle driver", "stapler"]
SITES = ["caecum", "ascending colon", "transverse colon", "sigmoid", "rectum"]
HISTOLOGIES = ["adenoma", "hyperplastic polyp", "serrated lesion", "carcinoma"]
SIZES = ["tiny", "small", "medium", "large", "huge"]
SPACES = {
    "phases": PHASES,
    "steps": STEPS,
    "regions": REGIONS,
    "instruments": INSTRUMENTS,
    "sites": SITES,
    "histologies": HISTOLOGIES,
    "sizes": SIZES,
    "bowel_preparation": [str(score) for score in range(10)],
}
FPS = 5.0


def _tiling(random: np.random.Generator, labels: list[str], duration: float, n: int) -> list[dict[str, Any]]:
    """`n` rows that cover the video, neighbours different."""
    edges = np.sort(
        random.choice(np.arange(20, int(duration) - 20), n - 1, replace=False) + random.random(n - 1)
    )
    edges = np.round([0.0, *edges, duration], 3)
    rows, last = [], ""
    for start, end in pairwise(edges):
        last = str(random.choice([label for label in labels if label != last]))
        rows.append({"start": float(start), "end": float(end), "label": last})
    return rows


def procedure(number: int, seed: int = 0) -> dict[str, Any]:
    """One procedure of 10 to 30 minutes in the JSON form."""
    random = np.random.default_rng([seed, number])
    duration = float(random.integers(600, 1800))
    phases = _tiling(random, PHASES, duration, 8)
    lesions = []
    for lesion in range(int(random.integers(0, 4))):
        starts = np.sort(random.uniform(0, duration - 40, int(random.integers(1, 3))))
        starts = starts if len(starts) == 1 or starts[1] - starts[0] > 20 else starts[:1]
        lesions.append(
            {
                "lesion": f"L{lesion}",
                "windows": [[round(t, 3), round(t + float(random.uniform(2, 15)), 3)] for t in starts],
                "site": str(random.choice(SITES)),
                "size": str(random.choice(SIZES)),
                "histology": str(random.choice(HISTOLOGIES)),
            }
        )
    instruments = [
        {"start": row["start"], "end": round(row["start"] + 30, 3), "label": str(random.choice(INSTRUMENTS))}
        for row in phases
        if row["start"] + 30 < duration
    ]
    return {
        "procedure": f"case-{number:02}",
        "video": f"videos/case-{number:02}.mp4",
        "fps": FPS,
        "frames": round(duration * FPS),
        "phases": phases,
        "steps": _tiling(random, STEPS, duration, 14),
        "regions": _tiling(random, REGIONS, duration, 5),
        "instruments": instruments,
        "lesions": lesions,
        "labels": {"bowel_preparation": str(random.integers(0, 10))},
    }


@dataclass
class Tracks:
    """A set of procedures that can be written in both forms, and the probe that opens their videos."""

    procedures: list[dict[str, Any]]
    spaces: dict[str, list[str]] = field(default_factory=lambda: dict(SPACES))
    durations: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for one in self.procedures:
            self.durations.setdefault(Path(one["video"]).name, one["frames"] / one["fps"])

    def by_name(self) -> dict[str, dict[str, Any]]:
        return {one["procedure"]: one for one in self.procedures}

    def json(self, path: Path) -> Path:
        whole = {"source": "made up", "spaces": self.spaces, "procedures": self.procedures}
        path.write_text(json.dumps(whole), encoding="utf-8")
        return path

    def probe(self, video: Path) -> VideoFacts:
        if video.name not in self.durations:
            raise MissingVideoError("there is no such file.", remedy="Check the path.", path=video)
        duration = self.durations[video.name]
        return VideoFacts(duration, FPS, np.arange(round(duration * FPS)) / FPS)


@pytest.fixture
def thirty() -> Tracks:
    return Tracks([procedure(number) for number in range(30)])


@pytest.fixture
def make_tracks() -> Callable[..., Tracks]:
    """Tracks of the given procedures."""

    def make(*procedures: dict[str, Any], **settings: Any) -> Tracks:
        return Tracks(list(procedures), **settings)

    return make
