"""An installation that fails or was killed leaves nothing that passes for an environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import environment
from .environment import InstallError

pytestmark = pytest.mark.system


@pytest.fixture
def requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Requirements of our own, and a root of our own to install them under."""
    path = tmp_path / "requirements.txt"
    monkeypatch.setattr(environment, "REQUIREMENTS", path)
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    return path


def test_a_failed_installation_is_told_by_its_last_lines_and_removed(requirements: Path) -> None:
    requirements.write_text("--no-index\nno-such-package==1.0\n")
    with pytest.raises(InstallError, match=r"status 1:\n(.*\n)*.*No matching distribution.*no-such-package"):
        environment.environment()
    assert not environment.folder().exists()


def test_a_half_made_one_is_made_again_and_a_complete_one_is_kept(requirements: Path) -> None:
    requirements.write_text("# nothing\n")
    left = environment.folder() / "bin" / "python"
    left.parent.mkdir(parents=True)
    left.write_text("left by a killed installation")
    assert environment.environment() == left
    assert left.resolve() != left, "the Python of a virtual environment is a link"

    kept = environment.folder() / "kept"
    kept.touch()
    environment.environment()
    assert kept.exists()

    requirements.write_text("# other requirements\n")
    assert environment.folder() != left.parent.parent
