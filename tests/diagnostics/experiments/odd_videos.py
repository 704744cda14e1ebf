"""Videos and questions at the edges: one frame, an odd few, no evidence, no options, no file."""

from __future__ import annotations

import json
from pathlib import Path

import av
import numpy as np

__all__ = ["FRAMES", "write_odd_questions"]

FRAMES = {"one.mp4": 1, "five.mp4": 5, "plain.mp4": 40}
"""Frames of each video, ten a second."""

_ASKED = {"question": "What colour is the lesion?", "options": ["red", "blue", "green"], "answer": "B"}


def _write(path: Path, n_frames: int) -> None:
    random = np.random.default_rng(n_frames)
    with av.open(str(path), "w", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for _ in range(n_frames):
            picture = random.integers(0, 256, (8, 8, 3), dtype=np.uint8).repeat(8, axis=0).repeat(8, axis=1)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


def write_odd_questions(root: Path) -> list[str]:
    """Write them below `root`; the arguments that choose them, and a model that has never seen any."""
    for name, n_frames in FRAMES.items():
        _write(root / name, n_frames)
    lines = [
        {"id": "one frame", "video": "one.mp4", **_ASKED, "evidence": {"seconds": [[0.0, 0.1]]}},
        {"id": "five frames", "video": "five.mp4", **_ASKED, "evidence": {"seconds": [[0.2, 0.3]]}},
        # Shorter than the interval between frames, and between two of them.
        {"id": "short window", "video": "plain.mp4", **_ASKED, "evidence": {"seconds": [[1.01, 1.09]]}},
        {"id": "no evidence", "video": "plain.mp4", **_ASKED, "flags": ["order_dependent"]},
        {"id": "first of two", "video": "plain.mp4", **_ASKED, "options": ["cut", "rinse"], "answer": "A",
         "flags": ["order_dependent"]},
        {"id": "none", "video": "plain.mp4", **_ASKED, "options": ["red", "None of the above."]},
        {"id": "open", "video": "plain.mp4", "question": "Describe it."},
        {"id": "missing", "video": "nowhere.mp4", **_ASKED},
        {"id": "one option", "video": "plain.mp4", **_ASKED, "options": ["red"]},
    ]  # fmt: skip
    path = root / "questions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return ["model=tiny_random", "data=jsonl", f"data.path={path}"]
