"""The environment in which vLLM runs on the CPU: made once, kept in `.cache`. `make vllm-env`.

vLLM pins another torch and another transformers than ours, so it lives in an environment of its own, and
the tests talk to it through files. A folder is complete once it holds `complete.json`; one without it was
left by a killed or failed installation and is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from filelock import FileLock

__all__ = ["InstallError", "environment", "folder"]

ROOT = Path(__file__).resolve().parents[3]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
LIMIT_SECONDS = 1200
"""For the installation; it took 195 to 409 s on two cores with a load of 5 to 11."""


class InstallError(Exception):
    """The packages could not be installed; the message ends with the installer's last lines."""


def folder() -> Path:
    """Where the environment is or will be: named after its requirements and the Python it is made with."""
    digest = hashlib.sha256(REQUIREMENTS.read_bytes())
    digest.update("{}.{}".format(*sys.version_info).encode())
    return ROOT / ".cache" / f"vllm-{digest.hexdigest()[:12]}"


def environment() -> Path:
    """The environment's Python, after making the environment if need be.

    Raises:
        InstallError: pip could not install the requirements; nothing of them is left behind.
    """
    place = folder()
    place.parent.mkdir(exist_ok=True)
    with FileLock(place.with_suffix(".lock")):
        # The second is a link, which dangles once its Python has been removed.
        if not (place / "complete.json").exists() or not _python(place).exists():
            _make(place)
    return _python(place)


def _python(place: Path) -> Path:
    return place / "bin" / "python"


def _make(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    print(f"Making {place.relative_to(ROOT)}: 5 GB, some minutes.", flush=True)
    started = time.monotonic()
    # Not compiled: 0.4 GB of byte code for modules of which a few are ever imported.
    pip = [str(_python(place)), "-m", "pip", "install", "--no-compile", "--no-input"]
    try:
        _call([sys.executable, "-m", "venv", str(place)])
        _call([*pip, "--quiet", "--no-deps", "--requirement", str(REQUIREMENTS)])
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    made = {"seconds": round(time.monotonic() - started), "python": sys.version}
    # Written last and under another name first: its presence says that everything before it is there.
    part = place / "complete.part"
    part.write_text(json.dumps(made))
    part.rename(place / "complete.json")
    print(f"Made in {made['seconds']} s.", flush=True)


def _call(command: list[str]) -> None:
    """Run a step of the installation; its last lines are what a failure is told by."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        run = subprocess.run(
            command,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired as late:
        raise InstallError(f"{' '.join(command)} took more than {LIMIT_SECONDS} s") from late
    if run.returncode != 0:
        last = "\n".join(run.stdout.strip().splitlines()[-8:])
        raise InstallError(f"{' '.join(command)} failed with status {run.returncode}:\n{last}")


if __name__ == "__main__":
    try:
        print(environment())
    except InstallError as error:
        sys.exit(str(error))
