"""`pip install .` somewhere else, then the experiment from an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True, cwd=folder, timeout=600)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_three_packages_and_the_configuration_inside(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert top == {"diagnostics", "hooks", "probes"}
    packaged = {name.removeprefix("diagnostics/conf/") for name in names if name.endswith(".yaml")}
    assert packaged == {
        path.relative_to(ROOT / "conf").as_posix() for path in (ROOT / "conf").rglob("*.yaml")
    }
    modules = {
        path.relative_to(ROOT).as_posix()
        for package in ("diagnostics", "hooks", "probes")
        for path in (ROOT / package).rglob("*.py")
    }
    assert modules <= set(names), "every module is in a package that pyproject.toml names"


def test_the_experiment_runs_from_an_empty_folder_with_the_wheel_installed(
    wheel: Path, tmp_path: Path
) -> None:
    """The libraries are those of this environment; the three packages are the wheel's alone."""
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    python = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True, timeout=600)
    site = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    # A plain path, added after the wheel's own: files of .pth inside it (an editable install) are not read.
    (Path(site) / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    variables["DIAGNOSTICS_CACHE"] = str(tmp_path / "cache")
    command = [
        str(python), "-m", "diagnostics", "+exp=attention_drift", "data.n_videos=2", "data.seconds=20",
        "data.questions=1", "sampling.budget=8",
    ]  # fmt: skip
    run = subprocess.run(command, cwd=empty, env=variables, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    assert [path.name for path in empty.iterdir()] == ["outputs"]
    (folder,) = (empty / "outputs" / "attention_drift").iterdir()
    assert (folder / "figures" / "attention_drift.png").exists()
    where = subprocess.run(
        [str(python), "-c", "import diagnostics, hooks, probes; print(diagnostics.__file__)"],
        cwd=empty,
        env=variables,
        capture_output=True,
        text=True,
    )
    assert where.stdout.startswith(str(environment)), where.stdout + where.stderr
