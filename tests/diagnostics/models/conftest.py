"""Checkpoints of the two families, written once a session, and what loads and asks them."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: idle threads must not spin

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diagnostics.data.items import Item
from diagnostics.models.config import ModelConfig
from diagnostics.models.loading import LoadedModel, load_model
from diagnostics.video.selection import Frames, Selection, Slot

from ...checkpoints import qwen2_5_checkpoint, qwen3_checkpoint

FAMILIES = ("qwen3_vl", "qwen2_5_vl")


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint folder for each family."""
    root = tmp_path_factory.mktemp("checkpoints")
    return {
        "qwen3_vl": qwen3_checkpoint(root / "qwen3_vl"),
        "qwen2_5_vl": qwen2_5_checkpoint(root / "qwen2_5_vl"),
    }


def load(path: Path, **changes: Any) -> LoadedModel:
    values: dict[str, Any] = {"name": path.name, "path": str(path), "dtype": "float32", "device": "cpu"}
    return load_model(ModelConfig(**{**values, "local_files_only": True, **changes}))


@pytest.fixture(scope="session")
def loaded(checkpoints: dict[str, Path]) -> dict[str, LoadedModel]:
    """Both checkpoints as they are; tests must not change them."""
    return {name: load(path) for name, path in checkpoints.items()}


def a_question(**changes: Any) -> Item:
    values = {"id": "q", "video": Path("v.mp4"), "video_id": "v", "question": "What colour is the lesion?"}
    return Item(**{**values, "options": ("red", "blue", "green"), "answer": "A", **changes})


def a_video(
    seconds: list[float], *, fps: float, source_frames: int, size: tuple[int, int] = (56, 84), seed: int = 0
) -> Frames:
    """Noise at the given times of a video of constant frame rate."""
    slots = tuple(Slot("v", round(s * fps), s, s) for s in seconds)
    pixels = np.random.default_rng(seed).integers(0, 256, (len(slots), *size, 3), dtype=np.uint8)
    return Frames(pixels, Selection(slots, "test", fps, source_frames, source_frames / fps, len(slots)))


def uniform(n: int, *, fps: float, source_frames: int, size: tuple[int, int] = (56, 84)) -> Frames:
    """`n` frames from the first to the last."""
    indices = np.linspace(0, source_frames - 1, n).round()
    return a_video((indices / fps).tolist(), fps=fps, source_frames=source_frames, size=size)
