"""The environment in which vLLM runs, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from .environment import InstallError, environment


@pytest.fixture(scope="session")
def python() -> Path:
    """The Python of the environment with vLLM; tests are skipped, and say why, where it cannot be made."""
    try:
        return environment()
    except InstallError as error:
        pytest.skip(f"vLLM's packages cannot be installed here: {error}")
