"""A run cut into shards by video, in as many processes as one likes, and put together again."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from diagnostics.store.record_log import all_records, read_records
from diagnostics.store.records import comparable
from diagnostics.store.sharding import shard_of

from .conftest import Diagnose

VIDEOS, QUESTIONS = 6, 4
BENCHMARK = (
    "+exp=benchmark", "model=tiny_random", f"data.n_videos={VIDEOS}", "data.seconds=30", "data.fps=8",
    f"data.questions={QUESTIONS}", "sampling.budget=8", "backend.max_new_tokens=2",
)  # fmt: skip
SWAP = ("+exp=evidence_swap", *BENCHMARK[1:6], "exp.budget=8", "exp.units=[0,1]", "exp.foil_units=[1]")
"""Foils are other items' evidence: they must not depend on which items share a shard."""


def measured(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {record.pair: comparable(record) for record in read_records(folder)}


@pytest.fixture(scope="module")
def whole(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    finished = diagnose(*BENCHMARK, f"out={folder}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return folder


@pytest.fixture(scope="module")
def parts(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in three shards, as a multirun: they share one folder, below `out`."""
    root = tmp_path_factory.mktemp("parts") / "root"
    finished = diagnose(*BENCHMARK, "shard.index=0,1,2", "shard.count=3", f"out={root}", "-m")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    (folder,) = (path for path in root.iterdir() if not path.name.startswith("."))
    for shard in range(3):
        assert f"Shard {shard} of 3 is measured" in finished.stdout
    assert f"+exp=merge run={folder}" in finished.stdout
    return folder


def test_shards_measure_what_the_whole_run_does_each_video_in_one(whole: Path, parts: Path) -> None:
    once, cut = measured(whole), measured(parts)
    assert once == cut
    assert len(once) == VIDEOS * QUESTIONS
    for record in read_records(parts):
        assert record.shard == shard_of(record.video_id, 3)
    assert len({record.shard for record in read_records(parts)}) > 1, "the videos of this test are dealt out"
    assert not (parts / "summary.json").exists(), "a shard has no summary of its own"


def test_put_together_they_have_the_summary_of_the_whole_run(
    whole: Path, parts: Path, diagnose: Diagnose
) -> None:
    finished = diagnose("+exp=merge", f"run={parts}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    one, two = (json.loads((folder / "summary.json").read_text()) for folder in (whole, parts))
    timed = ("engine_idle", "seconds")
    for summary in (one, two):
        summary["metrics"] = {k: v for k, v in summary["metrics"].items() if not k.startswith(timed)}
        summary["rows"] = [row for row in summary["rows"] if not row["measure"].startswith(timed)]
    assert one == two
    for name in ("tasks", "measures", "baselines"):
        table = Path("tables") / f"{name}.csv"
        assert (whole / table).exists()
        assert (parts / table).exists()
    assert (whole / "tables" / "tasks.csv").read_bytes() == (parts / "tables" / "tasks.csv").read_bytes()
    manifest = json.loads((parts / "manifest.json").read_text())
    assert manifest["counts"] == {"finished": VIDEOS * QUESTIONS, "failed": 0, "expected": VIDEOS * QUESTIONS}
    again = diagnose("+exp=merge", f"run={parts}")
    assert again.returncode == 0, "put together twice"


def test_what_is_missing_is_refused_and_another_number_of_shards_measures_only_that(
    whole: Path, diagnose: Diagnose, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    first = shard_of(read_records(whole)[0].video_id, 3)
    assert diagnose(*BENCHMARK, f"shard.index={first}", "shard.count=3", f"out={folder}").returncode == 0
    done = measured(folder)
    refused = diagnose("+exp=merge", f"run={folder}")
    assert refused.returncode == 2
    told = f"{VIDEOS * QUESTIONS - len(done)} missing"
    assert told in refused.stderr, refused.stderr
    for shard in (0, 1):
        assert diagnose(*BENCHMARK, f"shard.index={shard}", "shard.count=2", f"out={folder}").returncode == 0
    assert measured(folder) == measured(whole)
    assert set(Counter(record.pair for record in all_records(folder)).values()) == {1}, "nothing twice"
    assert diagnose("+exp=merge", f"run={folder}").returncode == 0


def test_a_pair_of_another_data_set_and_a_changed_item_are_refused(
    whole: Path, diagnose: Diagnose, tmp_path: Path
) -> None:
    lines = (whole / "samples.0.jsonl").read_text().splitlines()
    for number, (name, told) in enumerate((("item_id", "1 unexpected"), ("item_sha256", "1 items are not"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "manifest.json").write_bytes((whole / "manifest.json").read_bytes())
        changed = json.loads(lines[0]) | {name: "another"}
        kept = lines if name == "item_id" else lines[1:]
        (folder / "samples.0.jsonl").write_text("\n".join([json.dumps(changed), *kept]) + "\n")
        refused = diagnose("+exp=merge", f"run={folder}")
        assert refused.returncode == 2
        assert told in refused.stderr, refused.stderr


def test_a_foil_is_the_same_whichever_items_share_a_shard(diagnose: Diagnose, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert diagnose(*SWAP, f"out={whole}").returncode == 0
    for shard in (0, 1):
        assert diagnose(*SWAP, f"shard.index={shard}", "shard.count=2", f"out={cut}").returncode == 0
    once = measured(whole)
    assert any(record["condition"].get("arm") == "foil" for record in once.values())
    assert measured(cut) == once


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("shard.index=3", "shard.count=3"), "the last of 3 is 2"),
        (("shard.indx=0", "shard.count=3"), "Did you mean 'index'?"),
    ],
)
def test_a_shard_that_is_not_there_is_refused(
    arguments: tuple[str, ...], told: str, diagnose: Diagnose, tmp_path: Path
) -> None:
    refused = diagnose(*BENCHMARK, *arguments, f"out={tmp_path / 'run'}")
    assert refused.returncode == 2
    assert told in refused.stderr, refused.stderr


def test_what_is_not_cut_says_so(diagnose: Diagnose, tmp_path: Path) -> None:
    for experiment in ("evidence_sparsity", "check"):
        refused = diagnose(f"+exp={experiment}", "shard.count=2", f"out={tmp_path / experiment}")
        assert refused.returncode == 2
        assert f"{experiment} is not cut into shards" in refused.stderr


def test_a_shard_without_videos_ends_well(diagnose: Diagnose, tmp_path: Path) -> None:
    arguments = [*BENCHMARK, "data.n_videos=1", "shard.count=2", f"out={tmp_path / 'run'}"]
    ended = [diagnose(*arguments, f"shard.index={shard}") for shard in (0, 1)]
    assert [run.returncode for run in ended] == [0, 0], ended[0].stderr + ended[1].stderr
    assert sorted("0 pairs" in run.stdout for run in ended) == [False, True]
    assert diagnose("+exp=merge", f"run={tmp_path / 'run'}").returncode == 0


def test_there_is_one_run_to_put_together(diagnose: Diagnose, tmp_path: Path) -> None:
    refused = diagnose("+exp=merge", f"run={tmp_path}")
    assert refused.returncode == 2
    assert "There is no run in it" in refused.stderr
