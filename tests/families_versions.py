"""The suite of all families on several versions of transformers: `make families-versions`.

Each version is laid over the environment in a folder of its own (`pip install --no-deps --target`, 60 MB) and
put in front of it by PYTHONPATH, with those of its requirements that the environment has in another version.
Model types that a version lacks are skipped by name and listed at the end. Versions are given on the command
line, or are the oldest we promise, one between, and the newest of the registry.

    python tests/families_versions.py 5.16.0 5.20.0
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache"
SUITE = "tests/hooks/test_every_family.py"
VERSIONS = ("5.16", "5.20", "5")
"""The newest patch of each."""


@dataclass
class Outcome:
    """What one version of transformers came to."""

    version: str
    status: int
    counts: str
    lacking: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


def newest(series: str) -> str:
    """The newest released version of a series such as `5.16`, or of 5.x."""
    asked = [sys.executable, "-m", "pip", "index", "versions", "transformers"]
    listed = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=300).stdout
    versions = re.search(r"Available versions: (.+)", listed)
    if versions is None:
        raise SystemExit(f"pip names no versions of transformers:\n{listed}")
    wanted = [one for one in versions[1].split(", ") if f"{one}.".startswith(f"{series}.")]
    if not wanted:
        raise SystemExit(f"The registry has no transformers {series}.")
    return max(wanted, key=Version)


def overlay(version: str) -> Path:
    """The folder with that version, and with those of its requirements that the environment does not meet;
    fetched if it is not there."""
    folder = CACHE / f"transformers-{version}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=CACHE) as staging:
            _fetch(Path(staging), f"transformers=={version}")
            (found,) = metadata.distributions(name="transformers", path=[staging])
            _fetch(Path(staging), *_unmet(found.requires or []))
            Path(staging).rename(folder)
            Path(staging).mkdir()
    return folder


def _fetch(folder: Path, *wanted: str) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    if wanted:
        subprocess.run([*pip, "--target", str(folder), *wanted], check=True, timeout=900)


def _unmet(requirements: Sequence[str]) -> list[str]:
    """Requirements without extras that the environment has in another version, as pip takes them."""
    found = []
    for requirement in map(Requirement, requirements):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            installed = metadata.version(requirement.name)
            if not requirement.specifier.contains(installed, prereleases=True):
                found.append(f"{requirement.name}{requirement.specifier}")
    return found


def run(version: str) -> Outcome:
    """The suite on one version; its own output is passed on."""
    found = CACHE / f"families-{version}.json"
    found.unlink(missing_ok=True)
    before = os.environ.get("PYTHONPATH")
    paths = [str(overlay(version)), str(ROOT), *([before] if before else [])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "FAMILIES_JSON": str(found)}
    print(f"=== transformers {version}", flush=True)
    asked = [sys.executable, "-m", "pytest", SUITE, "--tb=line", "-W", "ignore", "-p", "no:cacheprovider"]
    process = subprocess.run(asked, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3600)
    lines = process.stdout.splitlines()
    print("\n".join(lines[-15:]), flush=True)
    outcome = Outcome(version, process.returncode, lines[-1] if lines else process.stderr[-500:])
    outcome.failed = [line.split(" ")[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if found.exists():
        told = json.loads(found.read_text())
        if told["transformers"] != version:
            raise SystemExit(f"The suite ran on transformers {told['transformers']}, not on {version}.")
        outcome.lacking = told["lacking"]
    return outcome


def main() -> int:
    outcomes = [run(version) for version in sys.argv[1:] or dict.fromkeys(newest(one) for one in VERSIONS)]
    print("\n=== In short")
    for one in outcomes:
        print(f"transformers {one.version}: {one.counts.strip('= ')}")
        for name, reason in sorted(one.lacking.items()):
            print(f"    skipped: {name} ({reason})")
        for name in one.failed:
            print(f"    failed: {name}")
    return int(any(one.status for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
