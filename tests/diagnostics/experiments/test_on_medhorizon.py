"""Every research question at the paper's settings on a small MedHorizon in the released layout."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from ...made_medhorizon import LEFT_OUT, write_medhorizon
from .conftest import Diagnose
from .told import lines_of, table

ON_EVIDENCE = ("evidence_grounding", "evidence_swap", "redundancy_dose")

SETTINGS = {
    "frame_scaling": {"budgets": [4, 8, 16, 32, 64, 128, 256, 512]},
    "evidence_grounding": {"budget": 64, "oracle_images": 32},
    "evidence_swap": {"budget": 64},
    "redundancy_dose": {"budget": 64},
    "temporal_order": {"blocks": 8, "window": 16},
    "sampling": {"budgets": [32, 64]},
    "mcq_robustness": {"shuffles": 3},
}
"""What MedHorizon states of each (section 8), or we set for it; asked of the run's own manifest."""

ITEMS = {"temporal_order": ("us_study-000/4",), "evidence_swap": ("real_colon-000/2", "us_study-000/2")}
FRAMES = {"temporal_order": 256, "mcq_robustness": 64}
FEW = ("real_colon-000/0", "us_study-000/4")


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_medhorizon(tmp_path_factory.mktemp("medhorizon"))


@pytest.mark.parametrize("experiment", list(SETTINGS))
def test_a_research_question_at_the_papers_settings(
    experiment: str, benchmark: list[str], diagnose: Diagnose, tmp_path: Path
) -> None:
    asked = ITEMS.get(experiment, FEW)
    ids = [*asked, *LEFT_OUT, "gone-000/0"]
    arguments = [f"+exp={experiment}", "model=tiny", *benchmark, f"data.ids=[{','.join(ids)}]"]
    finished = diagnose(*arguments, f"out={tmp_path}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    lines = lines_of(tmp_path)
    config = json.loads((tmp_path / "manifest.json").read_text())["config"]
    for name, value in SETTINGS[experiment].items():
        assert config["exp"][name] == value
    if experiment in FRAMES:
        assert config["sampling"]["budget"] == FRAMES[experiment]
    failed = {line["item_id"]: line["error"]["type"] for line in lines if line["error"]}
    assert failed == {"gone-000/0": "MissingVideoError"}
    measured = {line["item_id"] for line in lines if not line["error"]}
    if experiment in ON_EVIDENCE:
        assert measured == set(asked)
        left_out = table(tmp_path, "left_out")
        named = left_out.loc[left_out["reason"] == "no local evidence", "item"]
        assert sorted(named) == sorted(LEFT_OUT)
        assert f"{len(LEFT_OUT)} (no local evidence)" in finished.stdout
    else:
        assert measured == {*asked, *LEFT_OUT}, "they need no evidence"
    if experiment == "evidence_swap":
        foils = {line["item_id"] for line in lines if line["condition"].get("arm") == "foil"}
        assert foils == set(asked), "each is the other's foil"
    for stem in ("baselines", "measures"):
        for suffix in ("csv", "md", "tex"):
            assert (tmp_path / "tables" / f"{stem}.{suffix}").stat().st_size
    baselines = pd.read_csv(tmp_path / "tables" / "baselines.csv")
    assert {"chance", "best constant letter", "commonest option text", "text-only classifier"} < set(
        baselines["of"]
    )
    assert baselines["p_against_chance"].notna().any()
    assert (tmp_path / "figures" / f"{experiment}.png").exists()


@pytest.mark.parametrize("experiment", ON_EVIDENCE)
def test_without_evidence_it_says_what_is_missing(
    experiment: str, benchmark: list[str], diagnose: Diagnose, tmp_path: Path
) -> None:
    bare = [argument for argument in benchmark if not argument.startswith("data.evidence")]
    finished = diagnose(f"+exp={experiment}", "model=tiny_random", *bare, f"out={tmp_path}")
    assert finished.returncode == 1, finished.stdout + finished.stderr
    assert "None of the items could be asked: 17 were left out" in finished.stderr
    assert "data.evidence=FILE" in finished.stderr
    assert set(table(tmp_path, "left_out")["reason"]) == {"no local evidence"}
