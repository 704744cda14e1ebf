"""Items that an evidence experiment must survive: by the issue's list of bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import av
import numpy as np

from diagnostics.data.minihorizon.plan import LESION_COLOURS
from diagnostics.data.minihorizon.questions import question

FPS = 4
COLOURS = list(LESION_COLOURS)[:4]

ODD: dict[str, dict[str, Any]] = {
    "good": {"evidence": {"frames": [[16, 22]]}},
    "good foil": {"video": "second.mp4", "evidence": {"frames": [[8, 14]]}, "answer": "B"},
    "short": {"video": "short.mp4", "evidence": {"frames": [[4, 6]]}},
    "one frame": {"video": "one.mp4", "evidence": {"frames": [[0, 1]]}},
    "between frames": {"evidence": {"seconds": [[1.01, 1.1]]}},
    "all of it": {"video": "short.mp4", "evidence": {"frames": [[0, 12]]}},
    "global": {"evidence": {"kind": "global"}},
    "nothing": {},
    "open": {"evidence": {"frames": [[16, 22]]}, "options": None, "answer": "red"},
    "unanswered": {"evidence": {"frames": [[16, 22]]}, "answer": None},
    "beyond": {"evidence": {"seconds": [[100.0, 110.0]]}},
}
"""What is odd about each, over a video of 40 frames, four colours, the first of them right."""


def write_odd(folder: Path) -> list[str]:
    """Write the videos and the items; gives the arguments that make them a run's data."""
    for name, n_frames in (("video", 40), ("second", 40), ("short", 12), ("one", 1)):
        _write_video(folder / f"{name}.mp4", n_frames, seed=n_frames + len(name))
    base = {
        "video": "video.mp4",
        "question": question("Hist"),
        "options": COLOURS,
        "answer": "A",
        "task": "Hist",
    }
    with (folder / "odd.jsonl").open("w") as out:
        for name, told in ODD.items():
            line = {"id": name, **base, "flags": ["order_free"], **told}
            out.write(json.dumps({key: value for key, value in line.items() if value is not None}) + "\n")
    return ["data=jsonl", f"data.path={folder / 'odd.jsonl'}"]


def _write_video(path: Path, n_frames: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width = stream.height = 96
        stream.pix_fmt = "yuv420p"
        for colour in random.integers(0, 256, (n_frames, 1, 1, 3), dtype=np.uint8):
            picture = np.broadcast_to(colour, (96, 96, 3)).copy()
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
