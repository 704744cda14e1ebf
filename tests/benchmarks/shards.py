"""What a second shard is worth: wall time of a run in one process and in two, each on a core of its own.

    python tests/benchmarks/shards.py [--videos N] [--frames N] [--questions N] [--rounds R] [--free]

`+exp=benchmark` on MiniHorizon with the bundled tiny model, one thread a process, whole commands, in turns:
one shard; then both of two, side by side. Work is timed without start-up (imports, loading): from a process's
records, the wall time while items were asked (`busy` and `idle`); of two shards the longer one counts.

What limits the speed-up is printed beside it: the larger shard's share of the work (videos are dealt out by a
hash, so they are not halved), and how much processor time the same work takes in two processes (neighbours
on one memory bus slow each other). Left free (`--free`), one process uses nearly two cores by itself, since
it reads ahead in a process of its own: on a machine of two a second shard then gains nothing. `cores_used` is
processor time over wall time, start-up included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from diagnostics.store.record_log import all_records


@dataclass(frozen=True)
class Timed:
    """One way of running: seconds of work of each process, and over all processes with their start-up."""

    work: tuple[float, ...]
    wall: float
    cpu: float
    items: tuple[int, ...]


def timed(arguments: argparse.Namespace, count: int) -> Timed:
    with tempfile.TemporaryDirectory() as scratch:
        folder, cores = Path(scratch) / "run", sorted(os.sched_getaffinity(0))
        before, began = os.times(), time.perf_counter()
        processes = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "diagnostics", "+exp=benchmark", "threads=1", f"out={folder}"),
                    *(f"data.n_videos={arguments.videos}", f"data.questions={arguments.questions}"),
                    *(f"sampling.budget={arguments.frames}", f"shard.index={shard}", f"shard.count={count}"),
                ],
                stdout=subprocess.DEVNULL,
                preexec_fn=None if arguments.free else partial(os.sched_setaffinity, 0, {cores[shard]}),
            )
            for shard in range(count)
        ]
        codes = [process.wait() for process in processes]  # of all, before one is judged
        if any(codes):
            raise SystemExit("a run failed: its error stands above")
        wall, after = time.perf_counter() - began, os.times()
        records = all_records(folder)
    work = Counter[int]()
    items = Counter[int]()
    for record in records:
        work[record.shard] += (record.seconds["busy"] or 0.0) + (record.seconds["idle"] or 0.0)
        items[record.shard] += 1
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Timed(tuple(work.values()), wall, cpu, tuple(items.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--videos", type=int, default=48)
    parser.add_argument("--frames", type=int, default=256)
    parser.add_argument("--questions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--free", action="store_true", help="any core for any process")
    arguments = parser.parse_args()
    timed(arguments, 1)  # writes the videos
    pairs = [(timed(arguments, 1), timed(arguments, 2)) for _ in range(arguments.rounds)]
    for one, two in pairs:
        print(json.dumps({
            "work_one": round(one.work[0], 2), "work_two": [round(seconds, 2) for seconds in two.work],
            "speed_up": round(one.work[0] / max(two.work), 2),
            "speed_up_with_start": round(one.wall / two.wall, 2),
            "cpu_one": round(one.cpu, 1), "cpu_two": round(two.cpu, 1),
            "cores_used": [round(each.cpu / each.wall, 2) for each in (one, two)],
            "items": two.items,
        }), flush=True)  # fmt: skip
    median = statistics.median(one.work[0] / max(two.work) for one, two in pairs)
    share = max(pairs[0][1].items) / sum(pairs[0][1].items)
    slower = statistics.median(sum(two.work) / one.work[0] for one, two in pairs)
    print(
        f"two shards: {median:.2f} times as fast. The larger holds {share:.0%} of the items, which allows "
        f"{1 / share:.2f}; side by side the same work takes {slower:.2f} times as long in all."
    )


if __name__ == "__main__":
    main()
