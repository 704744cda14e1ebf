"""Faithfulness through the command: curves and areas by another road, the bound on forwards, bad input."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.special import logit
from sklearn.metrics import auc

from diagnostics.errors import ConfigError
from diagnostics.experiments.faithfulness import _refuse_followed, _refuse_pictures

from ...family_bench import make_bench
from .conftest import Diagnose
from .told import lines_of, table

SMALL = ("+exp=faithfulness", "data.n_videos=3", "data.questions=1", "sampling.budget=10", "exp.steps=3",
         "exp.maps=[attention,relevancy,occlusion]", "exp.random_orders=2")  # fmt: skip
ORDERS = ("attention", "relevancy", "occlusion", "random:0", "random:1", "oracle")
UNITS, STEPS = 5, 3


@pytest.fixture(scope="module")
def run(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("faithful") / "run"
    done = diagnose(*SMALL, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def curves(folder: Path, line) -> tuple[np.ndarray, dict[str, dict[str, np.ndarray]]]:
    with h5py.File(folder / line["tensor_file"]) as file:
        assert tuple(file["role"].asstr()) == ORDERS
        removed = file["unit_maps/removed"][...]
        found = {
            direction: dict(zip(ORDERS, file[f"unit_maps/{direction}"][...], strict=True))
            for direction in ("deletion", "insertion")
        }
    return removed / UNITS, found


def test_curves_begin_and_end_with_the_whole_and_the_blank_video(run) -> None:
    folder, _ = run
    for line in lines_of(folder):
        assert line["error"] is None
        fraction, found = curves(folder, line)
        assert fraction.tolist() == [0.0, 0.4, 0.6, 1.0]
        shares = {letter: np.exp(value) for letter, value in line["option_logprobs"].items()}
        whole = logit(shares[line["target"]] / sum(shares.values()))
        for name in ORDERS:
            assert found["deletion"][name][0] == found["insertion"][name][-1]
            assert found["deletion"][name][0] == pytest.approx(whole, abs=1e-3)
            assert found["deletion"][name][-1] == found["insertion"][name][0]


def test_areas_and_the_normalised_ones_follow_from_the_curves(run) -> None:
    folder, _ = run
    lines, shown = lines_of(folder), table(folder, "areas")
    own: dict[tuple[str, str], list[float]] = {}
    for line in lines:
        fraction, found = curves(folder, line)
        for direction, by_name in found.items():
            areas = {name: auc(fraction, curve) for name, curve in by_name.items()}
            areas["random"] = (areas.pop("random:0") + areas.pop("random:1")) / 2
            for name, area in areas.items():
                assert line["measures"][f"{direction}_area@map={name}"] == pytest.approx(area, abs=1e-5)
                own.setdefault((direction, name), []).append(area)
    for row in shown[shown["task"] == "all"].to_dict("records"):
        area, random, oracle = (
            np.mean(own[row["direction"], name]) for name in (row["map"], "random", "oracle")
        )
        assert row["area"] == pytest.approx(area, abs=1e-5)
        assert row["normalised"] == pytest.approx((area - random) / (oracle - random), rel=1e-3, abs=1e-4)
        assert row["n"] == len(lines)
    contrast = table(folder, "contrasts")
    contrast = contrast[contrast["task"] == "all"].set_index(["direction", "map"])["difference"]
    wide = shown[shown["task"] == "all"].set_index(["direction", "map"])["normalised"]
    for direction, name in contrast.index:
        expected = wide[direction, name] - wide[direction, "occlusion"]
        assert contrast[direction, name] == pytest.approx(expected, abs=1e-6)


def test_forwards_are_bounded_and_said(run) -> None:
    folder, told = run
    bound = 1 + 2 * UNITS + 2 + 2 * len(ORDERS) * (STEPS - 1)
    assert f"At most {bound} forwards an item of {UNITS} units" in told
    used = [line["measures"]["forwards"] for line in lines_of(folder)]
    assert all(1 + 2 * UNITS + 2 <= count <= bound for count in used)
    assert (folder / "figures" / "faithfulness.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("exp.maps=[atention,occlusion]", "attention"),
        ("exp.maps=[attention]", "occlusion among them"),
        ("exp.reference=rollout", "none of the maps"),
        ("exp.steps=0", "steps"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(
    diagnose: Diagnose, tmp_path: Path, wrong, told
) -> None:
    done = diagnose(*SMALL, wrong, f"out={tmp_path / 'run'}")
    assert done.returncode == 2, done.stdout
    assert told in done.stdout + done.stderr
    assert not (tmp_path / "run").exists()


def test_maps_that_follow_a_row_back_are_refused_where_some_layers_do_not_attend() -> None:
    hybrid, plain = make_bench("qwen3_5").model, make_bench("qwen3_vl").model
    with pytest.raises(ConfigError, match=r"rollout cannot follow.*exp\.maps=\[attention\]"):
        _refuse_followed(hybrid, ("attention", "rollout"))
    _refuse_followed(hybrid, ("attention", "occlusion"))
    _refuse_followed(plain, ("attention", "rollout", "relevancy"))


def test_pictures_stand_in_only_where_units_are_laid_out_one_by_one() -> None:
    tiles, plain = make_bench("smolvlm").model, make_bench("qwen3_vl").model
    with pytest.raises(ConfigError, match=r"exp\.removal=knockout"):
        _refuse_pictures(tiles, "grey")
    _refuse_pictures(tiles, "knockout")
    _refuse_pictures(plain, "grey")


PATCHES = (*SMALL, "exp.level=patches", "exp.occlusions=9", "data.n_videos=2")


def test_patches_are_removed_in_groups_of_equal_size(diagnose: Diagnose, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = diagnose(*PATCHES, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "forwards an item of 45 patches" in done.stdout
    areas = table(folder, "areas")
    for line in lines_of(folder):
        assert line["error"] is None
        on = line["measures"]["patches_on_evidence"]
        assert 1 <= on < 45
        told = [warning for warning in line["warnings"] if warning.startswith("no_region")]
        assert bool(told) == (line["task"] not in ("Hist", "Size", "Site", "LLS"))
        if not told:
            assert on % 9 != 0, "boxes, and not whole units"
        with h5py.File(folder / line["tensor_file"]) as file:
            assert file["unit_maps/removed"][...].tolist() == [0, 15, 30, 45]
            by_token, by_unit = file["unit_maps/token_score"][...], file["unit_maps/unit_score"][...]
            assert by_token.shape == (len(ORDERS), 45)
            assert np.abs(by_token.reshape(-1, UNITS, 9).sum(-1) - by_unit)[:3].max() <= 1e-5
            for place, name in enumerate(ORDERS):
                deletion = file["unit_maps/deletion"][place]
                if not name.startswith("random"):
                    area = auc([0, 1 / 3, 2 / 3, 1], deletion)
                    assert line["measures"][f"deletion_area@map={name}"] == pytest.approx(area, abs=1e-5)
    whole = areas[(areas["task"] == "all") & (areas["map"] == "oracle")]
    assert whole["normalised"].tolist() == pytest.approx([1.0, 1.0])
    assert (folder / "figures" / "faithfulness.png").stat().st_size > 10_000
