"""What becomes of the evidence, through the command; models whose outcome is known by construction."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest

import probes
from diagnostics.experiments.anatomy_tables import DRIFT, OUTCOMES, anatomy_table, drift_table
from diagnostics.experiments.conditions import Answers
from diagnostics.report.anatomy import anatomy_figure
from diagnostics.store.records import Record

from .conftest import Diagnose
from .told import lines_of, table

SMALL = ("+exp=attention_anatomy", "data.n_videos=6", "data.tasks=[Hist]", "exp.unit_draws=3")


@pytest.fixture(scope="module")
def run(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three colour questions at two budgets."""
    folder = tmp_path_factory.mktemp("anatomy") / "run"
    done = diagnose(*SMALL, "exp.budgets=[2,32]", f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_each_item_has_one_outcome(run: Path) -> None:
    lines = lines_of(run)
    assert {line["condition"]["budget"] for line in lines} == {2, 32}
    for line in lines:
        found = [name for name in OUTCOMES if line["measures"].get(name)]
        assert len(found) == 1 or line["measures"]["undecided"]
        if line["condition"]["budget"] == 2:
            assert found == ["not_sampled"], "the first and the last frame show no lesion"
            assert "effect_evidence" not in line["measures"]


def test_the_trained_model_rests_on_evidence_that_it_looks_at(run: Path) -> None:
    outcomes = table(run, "outcomes").set_index(["budget", "task", "outcome"])
    assert outcomes.loc[(32, "all", "effective"), "share"] == 1.0
    assert outcomes.loc[(32, "all", "effective"), "accuracy"] == 1.0
    drift = table(run, "drift").set_index(["budget", "measure"])["mean"]
    assert drift[32, "effect_evidence"] > 0.5
    assert drift[32, "effect_random"] < 0.05
    assert (run / "figures" / "attention_anatomy.png").stat().st_size > 10_000


def test_the_verdict_on_attention_follows_from_the_tensor_file(run: Path) -> None:
    """The same test on what the file holds: nothing else went into it."""
    for line in lines_of(run):
        if line["condition"]["budget"] != 32:
            continue
        with h5py.File(run / line["tensor_file"]) as file:
            mass, evidence = file["attention/unit_mass"][...], file["units/evidence"][...].any(axis=1)
        again = probes.attended_test(mass, evidence)
        assert line["measures"]["attended_log_lift"] == pytest.approx(again.statistic, rel=1e-5)
        assert again.attended == bool(line["measures"]["effective"] or line["measures"]["without_effect"])


@pytest.mark.parametrize(("model", "outcome"), [("decoy", "without_effect"), ("drifting", "unattended")])
def test_models_whose_outcome_is_known(diagnose: Diagnose, tmp_path: Path, model: str, outcome: str) -> None:
    """Heads that look and write nothing, and heads that look no more."""
    dose = "model.path=tiny/drifting@16" if model == "drifting" else "model.path=tiny/decoy@16"
    folder = tmp_path / "run"
    done = diagnose(*SMALL, "exp.budgets=[32]", f"model={model}", dose, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    shares = json.loads((folder / "summary.json").read_text())["metrics"]
    assert shares[outcome]["mean"] == 1.0, shares


def records() -> list[Record]:
    told = {"not_sampled": (0.0, 1.0), "unattended": (1.0, 0.0), "effective": (0.0, 0.0)}
    found = []
    for place, budget in enumerate((8, 16)):
        for video in "abcd":
            measures = {name: told.get(name, (0.0, 0.0))[place] for name in OUTCOMES}
            measures |= dict.fromkeys(DRIFT, 0.1 + place) | {"undecided": 0.0, "effective_wrong": 0.0}
            found.append(
                Record(
                    item_id=video, video_id=video, task="T", condition={"budget": budget},
                    measures=measures | {"unattended_effective": 0.0},
                )
            )  # fmt: skip
    return found


def test_tables_and_figure_by_hand() -> None:
    answers = Answers.of(records())
    outcomes, drift = anatomy_table(answers, (8, 16)), drift_table(answers, (8, 16))
    shares = outcomes[outcomes["task"] == "all"].pivot(index="budget", columns="outcome", values="share")
    assert shares.loc[8, "unattended"] == 1.0
    assert shares.loc[16, "not_sampled"] == 1.0
    assert pd.isna(outcomes["accuracy"]).all(), "nobody was asked"
    assert drift.set_index(["budget", "measure"]).loc[(16, "effect_random"), "mean"] == pytest.approx(1.1)
    figure = anatomy_figure(outcomes, drift)
    bars = {patch.get_gid() for axes in figure.axes for patch in axes.patches if patch.get_gid()}
    lines = {line.get_gid() for axes in figure.axes for line in axes.lines}
    assert bars == set(OUTCOMES)
    assert set(DRIFT) <= lines
    heights = [patch.get_height() for axes in figure.axes for patch in axes.patches if patch.get_gid()]
    assert np.isfinite(heights).all()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("exp.budgets=[32,16]", "ascending"),
        ("exp.heads=0", "heads"),
        ("exp.level=2", "level"),
        ("exp.blocked=nowhere", "blocked"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(
    diagnose: Diagnose, tmp_path: Path, wrong: str, told: str
) -> None:
    done = diagnose(*SMALL, wrong, f"out={tmp_path / 'run'}")
    assert done.returncode == 2
    assert told in done.stderr
