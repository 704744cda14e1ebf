"""Heads through the command: the built road is found, silencing it hurts, and halves are kept apart."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from diagnostics.experiments.head_tables import score_table
from diagnostics.experiments.heads import Config, Scored, _ranked
from diagnostics.testbed.surgery import surgical_checkpoint

from .conftest import Diagnose
from .told import lines_of, table

ROAD = ("+exp=heads", "model=single_road", "data.n_videos=24", "data.tasks=[Hist]", "exp.null_draws=200",
        "exp.draws=2", "exp.shares=[0.05,0.25]")  # fmt: skip


@pytest.fixture(scope="module")
def run(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads") / "run"
    done = diagnose(*ROAD, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def road() -> list[int]:
    built = json.loads((surgical_checkpoint("single_road") / "surgery.json").read_text())
    return built["roads"]["colour"]


def test_the_built_head_is_found_and_no_other(run, road):
    heads = table(run, "heads")
    found = heads[(heads["task"] == "all") & heads["above_null"]]
    assert found[["layer", "head"]].to_numpy().tolist() == [road]
    assert (heads.loc[heads["rank"] == 1, ["layer", "head"]].to_numpy() == road).all()


def test_each_half_is_silenced_by_what_the_other_half_chose(run, road):
    lines = lines_of(run)
    score = [line for line in lines if line["condition"]["phase"] == "score"]
    mask = [line for line in lines if line["condition"]["phase"] == "mask"]
    assert [line["item_id"] for line in score] == [line["item_id"] for line in mask]
    chosen = table(run, "chosen")
    first = chosen[(chosen["share"] == 0.05) & (chosen["place"] == 1)]
    assert set(first["silenced_in_half"]) == {0, 1}
    assert (first[["layer", "head"]].to_numpy() == road).all()
    noted = json.loads((run / "manifest.json").read_text())["checks"]["chosen_heads"]
    for choice in noted:
        for like in choice["like"]:
            assert sorted(layer for layer, _ in like) == sorted(layer for layer, _ in choice["top"])
            assert not {tuple(head) for head in like} & {tuple(head) for head in choice["top"]}
    for before, after in zip(score, mask, strict=True):
        plain, measures = before["measures"]["gold_log_odds"], after["measures"]
        assert measures["gold_log_odds@heads=none"] == pytest.approx(plain, abs=1e-3)


def test_silencing_the_road_hurts_and_its_neighbours_do_not(run):
    masking = table(run, "masking").set_index(["measure", "contrast", "share"])
    lost = masking.loc[("gold_log_odds", "top less random", 0.05)]
    assert lost["ci_high"] < 0
    assert masking.loc[("choice_accuracy", "top less none", 0.05), "ci_high"] < 0
    assert abs(masking.loc[("choice_accuracy", "random less none", 0.05), "difference"]) == 0
    assert (run / "figures" / "heads.png").stat().st_size > 0


def test_the_summary_has_every_share_as_the_table_has_it(run):
    metrics = json.loads((run / "summary.json").read_text())["metrics"]
    masking = table(run, "masking")
    rows = masking[(masking["task"] == "all") & (masking["contrast"] == "top less random")]
    for row in rows.to_dict("records"):
        metric = metrics[f"{row['measure']}_top_less_random_at_{row['share']:g}"]
        assert metric["mean"] == pytest.approx(row["difference"])
        assert metric["n"] == row["n"]
    assert sum("top_less_random" in name for name in metrics) == len(rows) == 4


def test_resuming_measures_nothing_twice(run, diagnose):
    before = (run / "samples.0.jsonl").read_bytes()
    done = diagnose(*ROAD, f"out={run}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (run / "samples.0.jsonl").read_bytes() == before


def test_two_shards_score_first_and_silence_after(run, diagnose, tmp_path):
    """The same commands twice, then merged: the numbers of the run in one piece."""
    folder = tmp_path / "cut"
    for _ in range(2):
        for index in range(2):
            done = diagnose(*ROAD, f"out={folder}", f"shard.index={index}", "shard.count=2")
            assert done.returncode == 0, done.stdout + done.stderr
    done = diagnose("+exp=merge", f"exp.run={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("heads", "chosen", "masking"):
        whole, merged = table(run, name), table(folder, name)
        numbers = whole.select_dtypes("number").columns
        assert np.allclose(whole[numbers], merged[numbers], atol=1e-6, equal_nan=True), name


def test_heads_of_a_hybrid_model_are_named_by_their_layer():
    """Layers 1 and 3 of four attend: the rows captured are theirs, and so are the heads that are silenced."""
    rng = np.random.default_rng(0)
    masses = [rng.dirichlet(np.ones(6), (2, 4)) for _ in range(8)]
    score = np.zeros((8, 2, 4))
    score[:, 1, 2] = 1.0
    scored = Scored(
        items=tuple(f"item-{number}" for number in range(8)),
        videos=tuple(f"video-{number}" for number in range(8)),
        tasks=("Hist",) * 8,
        half=np.arange(8) % 2 == 0,
        score=score,
        raw=score,
        blank=np.zeros_like(score),
        masses=tuple(masses),
        blanks=tuple(masses),
        evidence=(np.arange(6) < 2,) * 8,
        layers=(1, 3),
        image_centric=None,
    )
    config = Config(shares=(0.1,), draws=1, null_draws=20)
    pairs = [SimpleNamespace(item=SimpleNamespace(task="Hist"))]
    top, like = _ranked(config, pairs, scored)
    assert set(top) == {(False, "all", 0.1), (True, "all", 0.1)}
    assert all(heads == [(3, 2)] for heads in top.values())
    assert all(layer == 3 and head != 2 for draws in like.values() for ((layer, head),) in draws)
    rows = score_table(scored, config)
    assert rows.loc[rows["value"] == 1.0, ["layer", "head"]].to_numpy().tolist() == [[3, 2]]
    assert sorted(set(rows["layer"])) == [1, 3]
