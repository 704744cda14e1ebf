"""Noticing that a job is dead on a cluster without accounting.

submitit asks `sacct`. Where accounting is off, that fails, every state is `UNKNOWN`, and a job that died
without leaving a result is waited for for ever. `squeue` asks the controller itself, which knows a job for
some minutes after its end (`MinJobAge`, 300 s by default); one that it has forgotten has ended.
"""

from __future__ import annotations

import subprocess
import time

from submitit.core import logger
from submitit.slurm.slurm import SlurmInfoWatcher, SlurmJob

__all__ = ["QueueWatcher", "watch_by_queue"]

_DELAY_SECONDS = 60
"""Between two questions, at most: well below `MinJobAge`."""
_GONE = "GONE"
_ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "TIMEOUT",
        _GONE,
    }
)
"""States after which nothing comes. submitit takes any state that it does not list for an end, such as
`CONFIGURING`, in which a job waits for its nodes to be switched on."""
_FORGOTTEN = "Invalid job id"
_PATIENCE_SECONDS = 60.0


class QueueWatcher(SlurmInfoWatcher):
    """States of all jobs of this process, from `squeue`."""

    def _make_command(self) -> list[str] | None:
        asked = sorted({job.split("_")[0] for job in self._registered - self._finished}, key=int)
        if not asked:
            return None
        columns = "--format=%i|%T"  # an array's jobs one a line, finished ones too
        return [
            "squeue",
            "--array",
            "--all",
            "--states=all",
            "--noheader",
            columns,
            f"--jobs={','.join(asked)}",
        ]

    def update(self) -> None:
        """Ask once; where nobody answers, what was known stays, and the next question comes in its time."""
        command = self._make_command()
        if command is None:
            return
        self._num_calls += 1
        try:
            asked = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            logger.get_logger().warning(f"squeue does not answer ({error}): the jobs' states are not known.")
            return
        finally:
            self._last_status_check = time.time()
        if asked.returncode == 0 or _FORGOTTEN in asked.stderr:
            states = dict(line.split("|", 1) for line in asked.stdout.split())
            for job in self._registered - self._finished:
                state = states.get(job, _GONE)
                self._info_dict[job] = {"JobID": job, "State": state if state in _ENDED else "RUNNING"}
                if self.is_done(job, mode="cache"):
                    self._finished.add(job)
        else:
            logger.get_logger().warning(f"squeue says: {asked.stderr.strip()}")


def watch_by_queue() -> None:
    """Let submitit watch SLURM's jobs so, in this process."""
    SlurmJob.watcher = QueueWatcher(delay_s=_DELAY_SECONDS)
