"""Going back into the queue when SLURM was faster.

On a signal submitit asks SLURM to requeue the job. Where SLURM preempts by requeueing, it has done so already
and refuses, and submitit's error would come up in the middle of whatever the job is doing. There is nothing
left to do: the job ends, and SLURM starts it again. Were it not requeued after all, it has ended without a
result, which the launcher notices (`watch`).
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

__all__ = ["accept_requeued"]


def accept_requeued() -> None:
    """In a job of submitit's on SLURM: a refusal to requeue it is no error. Elsewhere nothing happens."""
    if os.environ.get("SUBMITIT_EXECUTOR") != "slurm":
        return
    from submitit.core import logger
    from submitit.slurm.slurm import SlurmJobEnvironment

    requeue = SlurmJobEnvironment._requeue

    def accepting(self: Any, countdown: int) -> None:
        try:
            requeue(self, countdown)
        except subprocess.CalledProcessError as error:
            logger.get_logger().warning(f"not requeued, since SLURM has preempted the job itself: {error}")

    SlurmJobEnvironment._requeue = accepting  # type: ignore[method-assign]
