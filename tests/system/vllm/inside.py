"""Running something in the environment of `environment.py`, or in ours beside it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["LIMIT_SECONDS", "run_inside"]

LIMIT_SECONDS = 900


def run_inside(command: Sequence[str], log: Path, **variables: str) -> int:
    """The status of a command, whose output goes to `log`; PYTHONPATH is what `variables` say, or unset.

    At the limit the whole process group is ended, since vLLM may have children.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=kept | variables,
            cwd=log.parent,
            start_new_session=True,
        )
    try:
        return process.wait(timeout=LIMIT_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
