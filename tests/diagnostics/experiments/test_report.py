"""The page at the end of a run, and made again by `+exp=report`."""

from __future__ import annotations

import json
from pathlib import Path

from diagnostics.store import read_manifests, read_records
from diagnostics.store.asked import read_items

from ...page_runs import write_page_run
from .conftest import SMALL, Diagnose


def test_a_run_ends_in_its_page(diagnose: Diagnose, tmp_path: Path) -> None:
    run = tmp_path / "run"
    finished = diagnose(*SMALL, "data.n_videos=1", f"out={run}")
    assert finished.returncode == 0, finished.stderr
    page = (run / "report.html").read_text(encoding="utf-8")
    assert str(run / "report.html") in finished.stdout
    items, records = read_items(run), read_records(run)
    assert set(items) == {record.item_id for record in records}
    for item in items.values():
        assert json.dumps(item.question)[1:-1] in page
    assert read_manifests(run)[0].checks["headline"][0] == "accuracy"
    assert "not yet, or it was killed" not in page, "the page is of the closed run"


def test_the_page_of_an_old_run_is_made_again_and_nothing_else_is_touched(
    diagnose: Diagnose, tmp_path: Path
) -> None:
    run = write_page_run(tmp_path / "run", 6)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    finished = diagnose("+exp=report", f"run={run}")
    assert finished.returncode == 0, finished.stderr
    assert str(run / "report.html") in finished.stdout
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert set(after) - set(before) == {run / "report.html"}
    assert {path: after[path] for path in before} == before


def test_a_folder_without_a_run_is_refused(diagnose: Diagnose, tmp_path: Path) -> None:
    refused = diagnose("+exp=report", f"run={tmp_path}")
    assert refused.returncode == 2
    assert "There is no run in it" in refused.stderr
