"""`+exp=validate`: the table, the verdicts, the exit code, resuming; on the checks that need little."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from diagnostics.data.minihorizon.procedure import make_procedures
from diagnostics.data.minihorizon.settings import Config as MiniHorizon
from diagnostics.store.record_log import read_records
from diagnostics.validation.checks import check_names

SMALL = ("+exp=validate", "data.n_videos=14", "exp.checks=[concentration,evidence]")


@pytest.fixture(scope="module")
def run(diagnose, tmp_path_factory):
    folder = tmp_path_factory.mktemp("validate") / "run"
    done = diagnose(*SMALL, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_every_row_is_in_the_table_on_the_screen_and_in_the_figure(run):
    folder, printed = run
    table = pd.read_csv(folder / "tables" / "validation.csv")
    assert set(table["check"]) == {"concentration", "evidence"}
    assert (table["verdict"] == "ok").all()
    assert table["why"].notna().all()
    assert f"{len(table)} rows, all within tolerance" in printed
    assert "evidence_log_lift, U = 16, lesion painted out" in set(table["measurement"])
    for name in ("validation.md", "validation.tex"):
        assert (folder / "tables" / name).stat().st_size > 0
    for suffix in ("png", "pdf"):
        assert (folder / "figures" / f"validation.{suffix}").stat().st_size > 1000


def test_statistical_rows_say_what_they_stand_on(run):
    table = pd.read_csv(run[0] / "tables" / "validation.csv").set_index("measurement")
    row = table.loc["evidence_log_lift, U = 16, evidence heads"]
    details = json.loads(row["details"])
    assert {"split", "budget", "evidence_ratio", "heads", "rows", "pooling", "videos"} <= set(details)
    assert details["budget"] == 32
    assert details["units"] == 16
    assert details["split"] == "test"
    assert row["ci_low"] < row["measured"] < row["ci_high"]
    assert row["n"] == details["videos"]


def test_the_heads_are_named_on_other_videos_than_those_measured(run):
    table = pd.read_csv(run[0] / "tables" / "validation.csv").set_index("measurement")
    details = json.loads(table.loc["evidence_log_lift, U = 16, evidence heads", "details"])
    procedures = make_procedures(MiniHorizon(split="test", n_videos=14))
    single = sum(len(procedure.lesions) == 1 for procedure in procedures)
    found_on = int(details["heads_found_on"].split()[0])
    assert 0 < found_on < single
    assert found_on + details["videos"] <= single


def test_a_second_run_checks_nothing_again_and_changed_files_are(run, diagnose):
    folder, _ = run
    before = {record.item_id: record for record in read_records(folder)}
    again = diagnose(*SMALL, f"out={folder}")
    assert again.returncode == 0
    assert {record.item_id: record for record in read_records(folder)} == before
    (folder / "checks" / "concentration.json").unlink()
    third = diagnose(*SMALL, f"out={folder}")
    assert third.returncode == 0
    assert "concentration" in third.stdout
    attempts = {record.item_id: record.attempt for record in read_records(folder)}
    assert attempts["evidence"] == before["evidence"].attempt
    assert attempts["concentration"] > before["concentration"].attempt


def test_an_unknown_check_is_refused_with_its_near_match(diagnose, tmp_path):
    done = diagnose("+exp=validate", "exp.checks=[concentraton]", f"out={tmp_path / 'run'}")
    assert done.returncode == 2
    assert "Did you mean 'concentration'?" in done.stderr
    assert not (tmp_path / "run").exists()


def test_another_data_set_is_refused(diagnose, tmp_path):
    """Pictures of another size than the tiny model knows: no check says anything about those."""
    done = diagnose(
        "+exp=validate",
        "data.height=64",
        "data.width=64",
        "data.n_videos=1",
        "exp.checks=[evidence]",
        f"out={tmp_path / 'run'}",
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "its truth is known" in done.stderr


BROKEN = """
import sys
import numpy as np
from diagnostics.threads import prepare_environment
prepare_environment()
import probes
real = probes.concentration
def wrong(*arguments, **options):
    found = real(*arguments, **options)
    for fraction, value in found.unit_fraction.items():
        found.unit_fraction[fraction] = np.asarray(value) + 0.01
    return found
probes.concentration = wrong
if "crash" in sys.argv:
    sys.argv.remove("crash")
    def crash(*arguments, **options):
        raise ZeroDivisionError("planted")
    probes.pair_similarity = crash
from diagnostics.__main__ import main
main()
"""


def broken(folder: Path, *arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """The command, with a probe that measures wrongly."""
    environment = {**os.environ, "DIAGNOSTICS_CACHE": str(cache), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    command = [sys.executable, "-c", BROKEN, *arguments, "+exp=validate", "data.n_videos=14", f"out={folder}"]
    return subprocess.run(
        command, cwd=folder.parent, env=environment, capture_output=True, text=True, timeout=600
    )


def test_a_wrong_measurement_fails_its_row_and_the_command_after_all_is_written(tmp_path, cache):
    done = broken(tmp_path / "run", "exp.checks=[concentration]", cache=cache)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "out of tolerance" in done.stderr
    assert "concentration: unit_fraction_90, uniform over 8 units" in done.stderr
    table = pd.read_csv(tmp_path / "run" / "tables" / "validation.csv").set_index("measurement")
    assert table.loc["unit_fraction_90, uniform over 8 units", "verdict"] == "failed"
    assert table.loc["entropy, uniform over 16 units", "verdict"] == "ok"
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["metrics"]["rows_failed"]["mean"] > 0
    assert (tmp_path / "run" / "figures" / "validation.pdf").exists()


def test_under_multirun_the_failure_is_raised(tmp_path, cache):
    done = broken(tmp_path / "runs", "exp.checks=[concentration]", "-m", cache=cache)
    assert done.returncode != 0
    assert "out of tolerance" in done.stdout + done.stderr
    assert list((tmp_path / "runs").glob("tiny-minihorizon-*/tables/validation.csv"))


def test_a_check_that_crashes_is_told_and_the_others_go_on(tmp_path, cache):
    done = broken(tmp_path / "run", "crash", "exp.checks=[redundancy,concentration]", cache=cache)
    assert done.returncode == 1
    assert "checks could not be run: redundancy" in done.stderr
    records = {record.item_id: record for record in read_records(tmp_path / "run")}
    assert records["redundancy"].error is not None
    assert records["redundancy"].error.type == "ZeroDivisionError"
    assert records["concentration"].error is None


def test_every_group_of_the_issue_has_a_check():
    named = {"accuracy", "concentration", "evidence", "language", "order", "redundancy", "surgery"}
    named |= {"swap", "sampling", "causal", "patching", "heads", "faithfulness"}
    assert named <= set(check_names())
