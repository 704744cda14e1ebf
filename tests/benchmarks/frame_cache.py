"""What the frame cache saves: 64 spread frames of a 720p film, decoded, decoded and kept, and read back.

    python tests/benchmarks/frame_cache.py [--rounds N]

The film is that of `reading.py`: 30 minutes of H.264 with groups of 250. Each round starts a fresh reader
three times, in the reading process and all: without a cache, with an empty one, with the one just filled.
The index is opened before the clock starts, on all sides. Pixels must be equal bit for bit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from reading import HEIGHT, MINUTE, MINUTES, WANTED, WIDTH, made, make_minute, repeat, spread  # noqa: E402

from diagnostics.video.frame_cache import FrameCache  # noqa: E402
from diagnostics.video.reading import FrameReader  # noqa: E402


def read(film: Path, cache: FrameCache | None) -> tuple[float, np.ndarray]:
    """Wall-clock seconds of one request by a fresh reader, and its pixels."""
    with FrameReader(cache=cache) as reader:
        reader.index(film)
        started = time.perf_counter()
        pixels = reader.read(film, WANTED)
        return time.perf_counter() - started, pixels


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    minute = made("minute.mp4", make_minute)
    film = made("thirty_minutes.mp4", lambda part: repeat(minute, part, MINUTES, MINUTE))
    print(f"{film.name}: {WIDTH}x{HEIGHT}, {len(WANTED)} spread frames; {os.cpu_count()} cores")
    seconds: dict[str, list[float]] = {"without": [], "filling": [], "filled": []}
    exact, held = True, 0
    for turn in range(rounds):
        with tempfile.TemporaryDirectory(dir=film.parent) as folder:
            taken, expected = read(film, None)
            seconds["without"].append(taken)
            for name in ("filling", "filled"):
                cache = FrameCache(Path(folder))
                taken, pixels = read(film, cache)
                seconds[name].append(taken)
                exact &= np.array_equal(pixels, expected)
            exact &= (cache.used.hits, cache.used.misses) == (len(WANTED), 0)
            held = sum(path.stat().st_size for path in Path(folder).rglob("*.npz"))
        said = ", ".join(f"{name} {values[-1]:.2f} s" for name, values in seconds.items())
        print(f"  round {turn + 1}: {said}", flush=True)
    faster = [plain / kept for plain, kept in zip(seconds["without"], seconds["filled"], strict=True)]
    dearer = [first / plain for first, plain in zip(seconds["filling"], seconds["without"], strict=True)]
    print(f"filled, times as fast as without: {spread(faster)} (at least 10)")
    print(f"filling / without: {spread(dearer)}")
    print(f"on disk: {held / 1e6:.1f} MB, {held / expected.nbytes:.4f} of the pixels; frames exact: {exact}")
    passed = bool(exact and statistics.median(faster) >= 10)
    ratios = {"ratio": statistics.median(faster), "filling": statistics.median(dearer)}
    print(json.dumps({"benchmark": "frame_cache", **ratios, "passed": passed, "seconds": seconds}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
