"""Facts about real films, found by decoding them whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import av
import numpy as np
import pytest

CLIPS = ("bikes.mp4", "bigbuckbunny.mp4", "carphone.mp4", "world.mp4")
OPTIONS = ("a street", "a meadow", "a car", "the sky")


@dataclass(frozen=True)
class Film:
    """One file, decoded from its start to its end, with no index and no seek."""

    path: Path

    @cached_property
    def fps(self) -> float:
        with av.open(str(self.path)) as container:
            return float(container.streams.video[0].average_rate)

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        with av.open(str(self.path)) as container:
            return container.streams.video[0].height, container.streams.video[0].width

    @cached_property
    def n_frames(self) -> int:
        with av.open(str(self.path)) as container:
            return sum(1 for _ in container.decode(video=0))

    def shown(self, budget: int) -> np.ndarray:
        """Numbers of `budget` frames, uniform from the first to the last."""
        if budget >= self.n_frames:
            return np.arange(self.n_frames)
        return np.round(np.linspace(0, self.n_frames - 1, budget)).astype(int)

    def pictures(self, numbers: set[int]) -> dict[int, np.ndarray]:
        found = {}
        with av.open(str(self.path)) as container:
            for number, frame in enumerate(container.decode(video=0)):
                if number in numbers:
                    found[number] = frame.to_ndarray(format="rgb24")
        return found


@pytest.fixture(scope="session")
def films(real_clips: dict[str, Path]) -> dict[str, Film]:
    return {name: Film(real_clips[name]) for name in CLIPS}


@pytest.fixture(scope="session")
def questions(
    films: dict[str, Film], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[str, str, str]]:
    """Arguments that ask one question about each of the named films."""

    def ask(*names: str) -> tuple[str, str, str]:
        path = tmp_path_factory.mktemp("questions") / "questions.jsonl"
        records = [
            {
                "id": name,
                "video": name,
                "question": f"What does {name} show at its end?",
                "options": OPTIONS,
                "answer": "B",
                "evidence": [[0.0, 0.5]],
            }
            for name in names
        ]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return "data=jsonl", f"data.path={path}", f"data.root={films[names[0]].path.parent}"

    return ask
