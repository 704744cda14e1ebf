"""The printed batch script. Real SLURM runs one in tests/system/slurm."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from diagnostics.cluster.sbatch import batch_script
from diagnostics.errors import ConfigError

RUN = ("+exp=benchmark", "data.n_videos=2", "shard.count=3")


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def options(script: str) -> dict[str, str]:
    told = (line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH"))
    return {key: value for key, _, value in (line.partition("=") for line in told)}


def test_it_asks_for_what_the_launcher_would(somewhere: Path) -> None:
    given = (
        "hydra.launcher.partition=gpu", "hydra.launcher.timeout_min=90", "hydra.launcher.array_parallelism=2",
        "hydra.launcher.gres=gpu:h100:1", "hydra.launcher.gpus_per_node=null",
        "hydra.launcher.setup=[module load x,y]",
        "+hydra.launcher.additional_parameters.mail_type=END",
    )  # fmt: skip
    script = batch_script([*RUN, "out=some run", *given])
    told = options(script)
    assert told["array"] == "0-2%2"
    assert told["partition"] == "gpu"
    assert told["time"] == "90"
    assert told["gres"] == "gpu:h100:1"
    assert told["mem"] == "64G", "a default of conf/hydra/launcher/slurm.yaml"
    assert told["mail-type"] == "END"
    assert "gpus-per-node" not in told
    assert "requeue" in told
    assert "module load x\ny\n" in script
    assert (somewhere / ".slurm").is_dir(), "SLURM does not make the folder of its logs"
    assert f"{shlex.quote(sys.executable)} -m diagnostics +exp=merge run='some run'" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0


@pytest.mark.parametrize("code", [0, 3])
def test_its_tasks_run_their_shards_and_end_as_the_work_does(code: int, somewhere: Path) -> None:
    """With a Python that only says what it was asked."""
    program = somewhere / "python"
    program.write_text(f'#!/bin/sh\nsleep 0.2\necho "$@" > asked\nexit {code}\n')
    program.chmod(0o755)
    script = batch_script([*RUN, "out=a b", "data.tasks=[Hist,Site]"])
    script = script.replace(
        f"{shlex.quote(sys.executable)} -m diagnostics +exp=benchmark", f"{program} +exp=benchmark"
    )
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_JOB_ID": "9"}
    ended = subprocess.run(["bash"], input=script, text=True, env=environment, timeout=60)
    assert ended.returncode == code
    asked = (somewhere / "asked").read_text().split()
    assert asked == ["+exp=benchmark", *RUN[1:], "out=a", "b", "data.tasks=[Hist,Site]", "shard.index=2"]


def test_at_the_time_limit_a_task_goes_back_into_the_queue(somewhere: Path) -> None:
    for name, lines in {"python": "sleep 30", "scontrol": 'echo "$@" > requeued; kill "$PPID"'}.items():
        (somewhere / name).write_text(f"#!/bin/sh\n{lines}\n")
        (somewhere / name).chmod(0o755)
    script = batch_script([*RUN, "hydra.launcher.max_num_timeout=1"])
    script = script.replace(f"{shlex.quote(sys.executable)} -m diagnostics", str(somewhere / "python"))
    script = script.replace("work=$!", "work=$!; (sleep 0.3; kill -USR1 $$) &")
    for restarts, again in (("0", True), ("1", False)):
        (somewhere / "requeued").unlink(missing_ok=True)
        environment = {
            **os.environ, "SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_JOB_ID": "9",
            "SLURM_RESTART_COUNT": restarts, "PATH": f"{somewhere}{os.pathsep}{os.environ['PATH']}",
        }  # fmt: skip
        if not again:
            script = script.replace("sleep 30", "sleep 1")
            (somewhere / "python").write_text("#!/bin/sh\nsleep 1\n")
        ended = subprocess.run(["bash"], input=script, text=True, env=environment, timeout=60)
        assert (somewhere / "requeued").exists() is again
        assert (ended.returncode == 0) is not again
        if again:
            assert (somewhere / "requeued").read_text().split() == ["requeue", "9_2"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([*RUN, "-m"], "for one run"),
        ([*RUN, "shard.index=1"], "number the shards"),
        ([*RUN, "hydra.launcher.partitoin=gpu"], "Did you mean 'partition'"),
        ([*RUN, "sampling.bugdet=3"], "budget"),
        (["data.n_videos=2"], "No experiment"),
        (["+exp=validate", "shard.count=2"], "not cut into shards"),
    ],
)
def test_what_cannot_run_is_refused_before_it_is_queued(arguments: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        batch_script(arguments)
