import pytest

from diagnostics.data.minihorizon.settings import Config
from diagnostics.testbed.footage import shoot


@pytest.fixture(scope="session")
def footage(tmp_path_factory):
    """A small training split, decoded."""
    return shoot(Config(split="train", n_videos=18, cache=str(tmp_path_factory.mktemp("footage"))))
