"""A real SLURM of one node on loopback: two partitions, the second preempts the first; no accounting.

Everything lies in a folder of its own (sockets, keys, state), on free ports, so that it disturbs no other.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from getpass import getuser
from pathlib import Path

__all__ = ["cluster", "missing_programs"]

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "sinfo")
_PATIENCE_SECONDS = 60.0
_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=5
JobRequeue=1
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def missing_programs() -> list[str]:
    """Programs of SLURM and munge that are not installed (Debian: slurm-wlm, munge)."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return [program for program in _PROGRAMS if shutil.which(program, path=path) is None]


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Start it; yields the environment in which SLURM's commands talk to it.

    Raises:
        RuntimeError: it does not come up; with the end of the controller's log.
    """
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    environment["PATH"] += f"{os.pathsep}/usr/sbin{os.pathsep}/sbin"
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    controller, daemon = _free_ports(2)
    (folder / "slurm.conf").write_text(
        _CONFIGURATION.format(
            host=socket.gethostname().split(".")[0],
            user=getuser(),
            folder=folder,
            controller=controller,
            daemon=daemon,
            cpus=os.cpu_count(),
        )
    )
    munge = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munge += [f"--{name}-file={folder}/munge.{name}" for name in ("log", "pid", "seed")]
    with ExitStack() as daemons:
        for command in (munge, ["slurmctld", "-D"], ["slurmd", "-D"]):
            daemons.enter_context(_running(command, environment, folder / f"{command[0]}.out"))
            time.sleep(1.0)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while _state(environment) != "idle":
            if time.monotonic() > deadline:
                log = folder / "slurmctld.log"
                raise RuntimeError(log.read_text()[-2000:] if log.exists() else "slurmctld wrote no log")
            time.sleep(0.5)
        yield environment
        subprocess.run(["scancel", f"--user={getuser()}"], env=environment, check=False)


@contextmanager
def _running(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _state(environment: dict[str, str]) -> str:
    asked = subprocess.run(
        ["sinfo", "--noheader", "--partition=main", "--format=%T"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
    )
    return asked.stdout.strip()


def _free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in taken]
    for server in taken:
        server.close()
    return ports
