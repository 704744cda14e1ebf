"""Threads and the environment torch must find when it is first imported.

An OpenMP thread that waits by spinning takes the core its neighbour needs: beside one busy
process on two cores, a small forward took 90 times as long. `OMP_WAIT_POLICY=PASSIVE` removes
that, but only when it is set before torch is imported.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cores", "prepare_environment", "set_threads"]


def prepare_environment() -> None:
    """Set the variables that torch and the tokenizers read at import. Call before importing torch.

    A value that the person has set is kept.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # matplotlib and transformers print advice that drowns a progress bar.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")


def cores() -> int:
    """Cores this process may use: its affinity (SLURM, taskset) and its container's quota."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0))
    limit = Path("/sys/fs/cgroup/cpu.max")
    if limit.exists():
        quota, _, period = limit.read_text().partition(" ")
        if quota != "max":
            allowed = min(allowed, max(1, int(quota) // int(period)))
    return allowed


def set_threads(threads: int | None, workers: int) -> int:
    """Give torch `threads` threads, or the cores that `workers` readers leave it; at least one.

    Returns:
        The number that was set.
    """
    import torch

    count = threads if threads is not None else max(1, cores() - workers)
    torch.set_num_threads(count)
    return count
