"""The passive wait policy is set before torch is imported; what it does: tests/benchmarks/threads.py."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from diagnostics.threads import cores, set_threads

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


def test_threads_are_set_for_the_readers_beside() -> None:
    import torch

    before = torch.get_num_threads()
    try:
        assert 1 <= set_threads(None, workers=1) <= cores()
        assert set_threads(3, workers=1) == torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
