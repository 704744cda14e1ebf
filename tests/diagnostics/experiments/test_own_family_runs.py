"""The command of docs/families.md: a checkpoint with code of its own, and a family from outside."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from diagnostics.store.record_log import read_records

from ...peek import code_of_the_page, peek_checkpoint
from .conftest import environment


def test_the_command_of_the_page_runs(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "peek_family.py").write_text(code_of_the_page(), encoding="utf-8")
    checkpoint = peek_checkpoint(tmp_path / "peek")
    variables = {
        **environment(cache),
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "code"), os.environ.get("PYTHONPATH", "")]),
    }

    def run(trusted: Path) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable, "-m", "diagnostics", "+exp=attention_drift", "model=miniature", "model.name=peek",
            f"model.path={checkpoint}", "model.family=peek_family.PeekFamily",
            f"model.trust_remote_code={trusted}", "exp.features=[projector]", "exp.item_figures=0",
            "data.n_videos=2", "data.seconds=20", "data.questions=1", "sampling.budget=6",
            "backend.max_new_tokens=2", f"out={tmp_path / 'run'}",
        ]  # fmt: skip
        return subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=600
        )

    refused = run(tmp_path / "another")
    assert refused.returncode != 0
    assert "trust_remote_code names" in " ".join((refused.stdout + refused.stderr).split())
    done = run(checkpoint)
    assert done.returncode == 0, done.stdout + done.stderr
    records = read_records(tmp_path / "run")
    assert len(records) == 2
    for record in records:
        assert record.error is None
        assert record.n_units == 3
        assert 0 < record.measures["visual_mass"] < 1
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    model = manifest["checks"]["model"]
    assert model["class"] == "PeekForVideo"
    assert model["remote_code"] is True
    source = tmp_path / "code" / "peek_family.py"
    told = manifest["config"]["model"]["family_sha256"]
    assert told == hashlib.sha256(source.read_bytes()).hexdigest()
    source.write_text(code_of_the_page() + "# another map, as far as anybody knows", encoding="utf-8")
    again = run(checkpoint)
    assert again.returncode != 0
    said = "".join((again.stdout + again.stderr).split())
    assert "anotherconfiguration:model.family_sha256" in said
    assert told in said
