"""What docs/extending.md promises: a sampler and an experiment of one's own, from outside the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from diagnostics.store.record_log import read_records
from diagnostics.store.records import Record

from .conftest import environment

PAGE = Path(__file__).resolve().parents[3] / "docs" / "extending.md"


def the_code_that_has(definition: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (code,) = [block for block in blocks if definition in block]
    return str(code)


def write(folder: Path, module: str, code: str, yaml: str, text: str) -> None:
    """A package beside nothing of ours, and the YAML file of its options."""
    path = folder / f"{module.replace('.', '/')}.py"
    path.parent.mkdir(exist_ok=True)
    (path.parent / "__init__.py").touch()
    path.write_text(code)
    (folder / "conf" / yaml).parent.mkdir(parents=True, exist_ok=True)
    (folder / "conf" / yaml).write_text(text)


def run(folder: Path, cache: Path, *arguments: str) -> list[Record]:
    variables = {
        **environment(cache),
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
    }
    command = [
        sys.executable, "-m", "diagnostics", "--config-dir", str(folder / "conf"), "data.n_videos=2",
        "data.seconds=20", "data.questions=1", f"out={folder / 'run'}", *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return read_records(folder / "run")


def test_the_sampler_of_the_page_runs_by_its_dotted_name(cache: Path, tmp_path: Path) -> None:
    code = the_code_that_has("def choose(")
    write(
        tmp_path,
        "mine.first",
        code,
        "sampling/first.yaml",
        "# The first frames\nrule: mine.first\nbudget: 6\n",
    )
    records = run(tmp_path, cache, "+exp=attention_drift", "sampling=first", "exp.item_figures=0")
    assert len(records) == 2
    for record in records:
        assert [slot.frame_index for slot in record.slots] == [0, 1, 2, 3, 4, 5]
        assert record.selection_rule == "first(budget=6)"


def test_the_experiment_of_the_page_runs_by_its_dotted_name(cache: Path, tmp_path: Path) -> None:
    yaml = "# @package _global_\n# Is half of it enough?\nexp: {name: mine.half}\n"
    write(tmp_path, "mine.half", the_code_that_has("def run("), "exp/half.yaml", yaml)
    records = run(tmp_path, cache, "+exp=half", "sampling.budget=7", "backend.max_new_tokens=1")
    by_pair = {(record.item_id, record.condition["shown"]): record for record in records}
    assert len(by_pair) == 4
    for (item, shown), record in by_pair.items():
        assert record.error is None
        whole = by_pair[item, "whole"].slots
        assert record.slots == (whole if shown == "whole" else whole[:4])
    table = pd.read_csv(tmp_path / "run" / "tables" / "differences.csv")
    (row,) = table[table["task"] == "all"].to_dict("records")
    correct = {
        shown: [record.correct for (_, told), record in by_pair.items() if told == shown]
        for shown in ("whole", "first half")
    }
    assert row["n"] == 2
    assert row["difference"] == pytest.approx((sum(correct["first half"]) - sum(correct["whole"])) / 2)
