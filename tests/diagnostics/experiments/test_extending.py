"""What docs/extending.md promises: a sampler of one's own, from outside the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from diagnostics.store.record_log import read_records

from .conftest import environment

PAGE = Path(__file__).resolve().parents[3] / "docs" / "extending.md"


def test_the_sampler_of_the_page_runs_by_its_dotted_name(cache: Path, tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "mine" / "first.py").write_text(code)
    (tmp_path / "conf" / "sampling").mkdir(parents=True)
    (tmp_path / "conf" / "sampling" / "first.yaml").write_text(
        "# The first frames\nrule: mine.first\nbudget: 6\n"
    )
    variables = {
        **environment(cache),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    }
    command = [
        sys.executable, "-m", "diagnostics", "--config-dir", str(tmp_path / "conf"), "+exp=attention_drift",
        "sampling=first", "data.n_videos=2", "data.seconds=20", "data.questions=1", "exp.item_figures=0",
        f"out={tmp_path / 'run'}",
    ]  # fmt: skip
    run = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    for record in read_records(tmp_path / "run"):
        assert [slot.frame_index for slot in record.slots] == [0, 1, 2, 3, 4, 5]
        assert record.selection_rule == "first(budget=6)"
