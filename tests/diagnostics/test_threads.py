"""Two-threaded work beside a busy neighbour, with and without the passive wait policy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from diagnostics.threads import cores

WORK = """
import sys, time
if sys.argv[1] == "prepared":
    from diagnostics.threads import prepare_environment
    prepare_environment()
import os, torch
torch.set_num_threads(2)
print(os.environ.get("OMP_WAIT_POLICY", "unset"))
"""


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}


@pytest.mark.parametrize(("how", "policy"), [("prepared", "PASSIVE"), ("bare", "unset")])
def test_the_policy_is_set_before_torch_is_imported(how: str, policy: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", WORK, how], env=environment(), capture_output=True, text=True, timeout=120
    )
    assert run.stdout.strip() == policy, run.stderr


def test_the_entry_point_prepares_the_environment_before_torch_is_imported() -> None:
    program = """
import sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        import os
        if name == "torch":
            print(os.environ.get("OMP_WAIT_POLICY"))
            sys.exit(0)
sys.meta_path.insert(0, Watch())
sys.argv = ["diagnostics", "+exp=attention_drift", "out=/nonexistent/never"]
from diagnostics.__main__ import main
main()
"""
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=120
    )
    assert run.stdout.strip().splitlines()[-1] == "PASSIVE", run.stderr


BESIDE = """
from diagnostics.threads import prepare_environment
prepare_environment()
import torch
from diagnostics.threads import set_threads
assert set_threads(None, workers=1) >= 1
torch.set_num_threads(2)
layer = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(12)])
x = torch.randn(400, 256)
with torch.inference_mode():
    for _ in range(300):
        y = layer(x)
assert torch.isfinite(y).all()
print("done")
"""


BUSY = "import time; end = time.monotonic() + 150\nwhile time.monotonic() < end: pass"
"""Ends by itself, so that nothing spins on where the test is killed."""


@pytest.mark.skipif(cores() > 16, reason="one neighbour a core would be many processes")
def test_threaded_work_ends_beside_busy_neighbours() -> None:
    """With spinning waits this took minutes; the limit is far above what it takes and far below that."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(cores())]
    try:
        run = subprocess.run(
            [sys.executable, "-c", BESIDE], env=environment(), capture_output=True, text=True, timeout=120
        )
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert run.returncode == 0, run.stderr
    assert "done" in run.stdout
