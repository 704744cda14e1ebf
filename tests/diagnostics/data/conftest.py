import json

import pytest


@pytest.fixture
def write_lines(tmp_path):
    """Write records, or raw lines, as a JSON Lines file and give back its path."""

    def write(*records, name="questions.jsonl", end="\n"):
        path = tmp_path / name
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        path.write_bytes(end.join([*lines, ""]).encode("utf-8"))
        return path

    return write
