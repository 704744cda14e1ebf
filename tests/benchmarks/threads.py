"""Two-threaded work beside busy neighbours: threads that wait by spinning against threads that sleep.

    python tests/benchmarks/threads.py

Prints the time of both in turn, and their ratio. No test of the suite does this: beside processes that spin,
whoever started them may get no processor for minutes (seen on Linux 6.18 with two cores).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

from diagnostics.threads import cores

ROUNDS = 3
LIMIT_SECONDS = 60
"""After which the neighbours end by themselves."""

WORK = """
import sys, time
if sys.argv[1] == "PASSIVE":
    from diagnostics.threads import prepare_environment
    prepare_environment()
import torch
torch.set_num_threads(2)
layer = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(12)])
x = torch.randn(400, 256)
started = time.perf_counter()
with torch.inference_mode():
    for _ in range(30):
        layer(x)
print(time.perf_counter() - started)
"""
BUSY = f"import time; end = time.monotonic() + {LIMIT_SECONDS}\nwhile time.monotonic() < end: pass"


def main() -> None:
    """Print seconds of both policies, and the ratio of their medians."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    seconds: dict[str, list[float]] = {"PASSIVE": [], "unset": []}
    for _ in range(ROUNDS):
        for policy, taken in seconds.items():
            busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(cores())]
            try:
                run = subprocess.run(
                    [sys.executable, "-c", WORK, policy],
                    env=environment, capture_output=True, text=True, check=True,
                )  # fmt: skip
            finally:
                for process in busy:
                    process.kill()
                    process.wait()
            taken.append(float(run.stdout))
            print(f"OMP_WAIT_POLICY {policy:8}{taken[-1]:8.2f} s", flush=True)
    passive, unset = (statistics.median(taken) for taken in seconds.values())
    print(f"unset against PASSIVE, medians of {ROUNDS}: {unset / passive:.1f} times as long")


if __name__ == "__main__":
    main()
