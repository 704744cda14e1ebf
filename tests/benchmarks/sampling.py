"""What choosing costs: 128 of 10,000 candidates from given scores and features.

    python tests/benchmarks/sampling.py [--candidates N] [--budget K] [--dim D] [--rounds R]

Each sampler chooses on one core from arrays that are at hand; no frame is decoded and nothing is scored.
Printed beside its fastest time: what the choice must at least touch (the arithmetic column), the rate that
makes of the time, and how many times longer it takes than one stable sort of the scores, in the same
process and round. Where a rule is greedy over features, each chosen frame is compared once with every
candidate: budget x candidates x dim multiply-adds. Exits with 1 where a sampler takes a second or more.
"""

from __future__ import annotations

import os

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from diagnostics.data.items import Evidence, Item, Window
from diagnostics.video.candidates import Candidates
from diagnostics.video.index import VideoIndex
from diagnostics.video.sampling import load_sampler, needs_of

LIMIT = 1.0
RULES: list[tuple[str, dict[str, Any]]] = [
    ("uniform", {}),
    ("fps_cap", {}),
    ("random", {}),
    ("uniform_plus_evidence", {}),
    ("oracle", {}),
    ("differential", {}),
    ("differential", {"min_gap": 30.0}),
    ("differential", {"metric": "feature"}),
    ("hybrid", {}),
    ("aks", {"strategy": "top"}),
    ("aks", {"strategy": "bin"}),
    ("aks", {"strategy": "ada"}),
    ("aks", {"strategy": "ada_release"}),
    ("dks", {}),
    ("dks", {"similarity": 1.0}),
    ("wfs_sb", {"likeness": "time"}),
    ("wfs_sb", {}),
]


def arithmetic(
    name: str, parameters: dict[str, Any], needs: frozenset[str], n: int, k: int, dim: int
) -> float:
    """Numbers that must be read, or multiply-adds that the rule prescribes, whichever are more."""
    if name in ("dks", "wfs_sb") and "features" in needs:
        return float(k * n * dim)
    if name == "wfs_sb":
        return float(k * n)
    if "features" in needs:
        return float(n * dim)
    return float(n) if needs or name in ("random", "oracle", "uniform_plus_evidence") else float(k)


def candidates(n: int, dim: int) -> Candidates:
    """A smooth curve with spikes, noise, and features that drift."""
    random = np.random.default_rng(0)
    curve = 0.3 + 0.2 * np.sin(np.arange(n) / 170) + 0.05 * random.normal(size=n)
    curve[random.integers(0, n, 40)] += 0.4
    features = np.cumsum(random.normal(size=(n, dim)).astype(np.float32), axis=0)
    change = np.abs(np.diff(curve, prepend=-np.inf))
    seconds = np.arange(n, dtype=np.float64)
    index = VideoIndex(
        path="film.mp4", pts=np.arange(n), time_base=Fraction(1), seconds=seconds, fps=1.0, duration=float(n),
        width=64, height=64, rotation=0, codec="h264", container="mov", reliable=True,
        key_pts=np.array([0]), key_seek=np.array([0]), open_gop=False, header_frames=n,
    )  # fmt: skip
    return Candidates(index, np.arange(n), scores=curve, features=features, change=change)


def fastest(run: Callable[[], object], rounds: int) -> float:
    """CPU seconds of the fastest of `rounds`: other processes can only slow a run down."""
    times = []
    for _ in range(rounds):
        start = time.process_time_ns()
        run()
        times.append(time.process_time_ns() - start)
    return min(times) / 1e9


def main() -> int:
    """Print the table and, as JSON, its numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("candidates", 10_000), ("budget", 128), ("dim", 512), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    n, k, dim = given.candidates, given.budget, given.dim
    everything = candidates(n, dim)
    item = Item("one", Path("film.mp4"), "film", "What?", evidence=Evidence((Window(n / 2, n / 2 + 40),)))
    assert everything.scores is not None
    scores = everything.scores
    sort = fastest(lambda: np.argsort(-scores, kind="stable"), 20 * given.rounds)
    print(f"{k} of {n:,} candidates, features of {dim}; one stable sort: {sort * 1e3:.2f} ms")
    print(f"{'sampler':<42}{'ms':>9}{'arithmetic':>13}{'ns each':>10}{'x sort':>9}{'chosen':>8}")
    rows, slow = [], []
    for name, parameters in RULES:
        module = load_sampler(name)
        config = module.Config(budget=k, **parameters)
        needs = needs_of(module, config)
        chosen = module.choose(config, everything, item)
        seconds = fastest(lambda m=module, c=config: m.choose(c, everything, item), given.rounds)
        work = arithmetic(name, parameters, needs, n, k, dim)
        label = f"{name}({', '.join(f'{key}={value}' for key, value in parameters.items())})"
        print(
            f"{label:<42}{seconds * 1e3:>9.2f}{work:>13,.0f}{seconds / work * 1e9:>10.2f}"
            f"{seconds / sort:>9.1f}{len(chosen):>8}"
        )
        rows.append({"sampler": label, "seconds": seconds, "arithmetic": work, "of_a_sort": seconds / sort})
        if seconds >= LIMIT:
            slow.append(label)
    print(json.dumps({"machine": platform.processor() or platform.machine(), "sort": sort, "rows": rows}))
    if slow:
        print(f"over {LIMIT:g} s: {', '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
