"""What samplers find on MiniHorizon with the offline scorer: share of evidence windows that get a frame.

    python tests/benchmarks/retrieval.py [--budget K] [--splits needle redundant test]

The tables of docs/sampling.md. Candidates are one a second (needle, redundant: up to an hour long) or every
frame (test: 20 to 28 s). Lesion windows are those of questions on a lesion (Hist, Size, Site, LLS, LA); the
others ask for phases, steps and instruments. Items of one video share windows; each is counted once a video.
Videos are written to the cache on first use (needle: some minutes).
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from diagnostics.data.items import Item
from diagnostics.data.minihorizon.files import content, ensure_files
from diagnostics.data.minihorizon.settings import Config
from diagnostics.video.reading import FrameReader
from diagnostics.video.relevance.signals import Signals
from diagnostics.video.sampling import load_sampler, select_frames
from diagnostics.video.selection import in_window

LESIONS = {"Hist", "Size", "Site", "LLS", "LA"}
VIDEOS = {"test": 24}
RULES: list[tuple[str, dict[str, Any]]] = [
    ("uniform", {}),
    ("random", {}),
    ("differential", {}),
    ("hybrid", {}),
    ("aks", {"strategy": "top"}),
    ("aks", {"strategy": "bin"}),
    ("aks", {}),
    ("dks", {}),
    ("wfs_sb", {}),
]


def windows_of(items: list[Item]) -> dict[bool, dict[tuple, Any]]:
    """Windows by whether they show a lesion, each once a video."""
    found: dict[bool, dict[tuple, Any]] = {True: {}, False: {}}
    for item in items:
        if item.evidence is not None and item.evidence.kind != "global":
            for window in item.evidence.windows:
                key = (item.video_id, window.start_frame, window.end_frame, window.start_seconds)
                found[item.task in LESIONS][key] = (item, window)
    return found


def main() -> None:
    """Print a row a sampler and split."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=int, default=16)
    parser.add_argument("--splits", nargs="+", default=["needle", "redundant", "test"])
    given = parser.parse_args()
    with FrameReader() as reader:
        signals = Signals(reader)
        for split in given.splits:
            config = Config(split=split, n_videos=VIDEOS.get(split))
            items = content(config, ensure_files(config))[1]
            for name, parameters in RULES:
                module = load_sampler(name)
                rate = {"candidate_fps": None} if split == "test" else {}
                told = parameters | (rate if "candidate_fps" in module.Config.__dataclass_fields__ else {})
                rule = module.Config(budget=given.budget, **told)
                hits: dict[bool, list[bool]] = defaultdict(list)
                shown: dict[str, Any] = {}
                for lesion, windows in windows_of(items).items():
                    for item, window in windows.values():
                        if item.video_id not in shown:
                            index = reader.index(item.video)
                            shown[item.video_id] = select_frames(module, rule, index, item, signals)
                        selection = shown[item.video_id]
                        inside = in_window(window, selection.frame_indices, selection.true_seconds)
                        hits[lesion].append(bool(inside.any()))
                label = f"{name} {parameters.get('strategy', '')}".strip()
                numbers = "  ".join(
                    f"{'lesions' if lesion else 'others'} {np.mean(hits[lesion]):.2f} of {len(hits[lesion])}"
                    for lesion in (True, False)
                )
                print(f"{split:<10} {label:<14} {numbers}", flush=True)


if __name__ == "__main__":
    main()
