"""Probing through the command: samples and a score by another road, what cannot be fitted, bad input."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold

from .conftest import Diagnose
from .told import frames, lines_of, table, under

SMALL = ("+exp=probing", "data.n_videos=4", "data.questions=2", "sampling.budget=12", "exp.folds=2",
         "exp.shuffles=1", "exp.layers=[0,2,4]", "exp.pairs_per_video=4")  # fmt: skip
UNITS, LAYERS = 6, [0, 2, 4]


@pytest.fixture(scope="module")
def run(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probed") / "run"
    done = diagnose(*SMALL, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def states(folder: Path, line) -> np.ndarray:
    with h5py.File(folder / line["tensor_file"]) as file:
        assert file["layer"][...].tolist() == LAYERS
        return file["states/unit_state"][...]


def test_each_video_is_shown_forward_and_backward_by_units_with_one_clock(run: Path) -> None:
    lines = lines_of(run)
    forward, backward = under(lines, order="original"), under(lines, order="reversed")
    assert forward.keys() == backward.keys()
    assert len(lines) == 2 * len(forward)
    for name, line in forward.items():
        assert line["error"] is None
        units = np.reshape(frames(line), (UNITS, 2))
        assert np.array_equal(np.reshape(frames(backward[name]), (UNITS, 2)), units[::-1])
        shown = [[slot["shown_seconds"] for slot in one["slots"]] for one in (line, backward[name])]
        assert shown[0] == shown[1]


def test_every_target_at_every_layer_or_a_reason(run: Path) -> None:
    probed, unfit = table(run, "probes"), table(run, "unfit")
    targets = ["evidence", "time", "order", "direction", "phase", "place", "coin"]
    assert set(probed["target"]) | set(unfit["target"]) == set(targets)
    assert not set(probed["target"]) & set(unfit["target"])
    assert all(unfit["reason"])
    for _, rows in probed.groupby("target"):
        assert rows["layer"].tolist() == LAYERS
        assert rows["n"].nunique() == 1
    items = len(under(lines_of(run), order="original"))
    counts = probed.groupby("target")["n"].first()
    assert counts["place"] == counts["coin"] == items * UNITS
    assert counts["time"] == counts["direction"] == 2 * items * UNITS
    assert counts["order"] == 2 * items * 4
    wide = probed.set_index(["target", "layer"])
    difference = (wide["score"] - wide["shuffled"] - wide["selectivity"]).abs().max()
    assert difference <= 1e-9


def test_a_score_from_the_files_alone(run: Path) -> None:
    """Ridge on the place of each unit, layer 2, from the states as they lie in the files."""
    lines = list(under(lines_of(run), order="original").values())
    x = np.concatenate([states(run, line)[1] for line in lines]).astype(np.float64)
    y = np.tile(np.arange(UNITS) / (UNITS - 1), len(lines))
    videos = pd.factorize(np.repeat([line["video_id"] for line in lines], UNITS))[0]
    error = spread = 0.0
    for train, test in GroupKFold(2, shuffle=True, random_state=0).split(x, y, videos):
        mean, std = x[train].mean(0), x[train].std(0)
        scale = np.where(std > 10 * np.finfo(float).eps * np.abs(mean), std, 1.0)
        model = Ridge(alpha=0.1 * len(train)).fit((x[train] - mean) / scale, y[train])
        error += ((y[test] - model.predict((x[test] - mean) / scale)) ** 2).sum()
        spread += ((y[test] - y[train].mean()) ** 2).sum()
    found = table(run, "probes").set_index(["target", "layer"])["score"]["place", 2]
    assert found == pytest.approx(1 - error / spread, abs=1e-6)


def test_the_place_alone_tells_the_place_and_neither_time_nor_order(run: Path) -> None:
    alone = table(run, "probes").groupby("target")["position_only"].first()
    assert alone["place"] > 0.99
    assert alone["time"] < 0.1
    assert abs(alone["direction"] - 0.5) < 0.1


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("data.n_videos=1", "on videos they were not fitted on"),
        ("exp.targets=[evidense]", "evidence"),
        ("exp.folds=1", "folds"),
    ],
)
def test_what_cannot_be_probed_is_refused_before_anything_is_measured(
    diagnose: Diagnose, tmp_path: Path, wrong, told
) -> None:
    done = diagnose(*SMALL, wrong, f"out={tmp_path / 'run'}")
    assert done.returncode != 0
    assert told in " ".join((done.stdout + done.stderr).split())
    assert not any(line.strip() for path in tmp_path.glob("run/samples*") for line in path.open())


@pytest.mark.parametrize("wrong", ["exp.layers=[0,9]", "exp.headline_layer=3"])
def test_a_layer_that_is_not_kept_ends_the_run_at_once(diagnose: Diagnose, tmp_path: Path, wrong) -> None:
    done = diagnose(*SMALL, wrong, f"out={tmp_path / 'run'}")
    assert done.returncode != 0
    assert (
        f"States of layer {wrong[-2 if wrong.endswith(']') else -1]} are not kept"
        in done.stdout + done.stderr
    )
    assert not any(line.strip() for path in tmp_path.glob("run/samples*") for line in path.open())
