"""Patching through the command: the built road is found where it is, tables by another road, bad input."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest

from diagnostics.errors import ConfigError
from diagnostics.experiments.patching import Config, _Measurement
from diagnostics.experiments.patching_tables import effects
from diagnostics.models.miniatures import miniature
from diagnostics.strict import from_mapping
from diagnostics.testbed.surgery import surgical_checkpoint

from .conftest import Diagnose
from .told import lines_of, table

ROAD = ("+exp=patching", "model=single_road", "data.n_videos=10", "data.tasks=[Hist]")
SMALL = (
    "+exp=patching",
    "data.n_videos=2",
    "data.questions=2",
    "sampling.budget=8",
    "sampling.evidence_frames=2",
)
LAYERS = 4


@pytest.fixture(scope="module")
def road(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("patched") / "run"
    done = diagnose(*ROAD, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_built_road_is_where_the_evidence_leaves_its_tokens(road: Path) -> None:
    """Up to the road's layer the evidence's tokens have it all, then the last token, and nobody else ever."""
    layer, _ = json.loads((surgical_checkpoint("single_road") / "surgery.json").read_text())["roads"][
        "colour"
    ]
    course = table(road, "course")
    course = course[(course["of"] == "right") & (course["task"] == "all")].set_index(["set", "layer"])[
        "effect"
    ]
    for patched in range(LAYERS):
        before = patched <= layer
        assert course["evidence", patched] == pytest.approx(float(before), abs=0.01), patched
        assert course["last", patched] == pytest.approx(float(not before), abs=0.01), patched
        for other in ("others", "question", "options"):
            assert course[other, patched] == pytest.approx(0, abs=0.01), (other, patched)
    metrics = json.loads((road / "summary.json").read_text())["metrics"]
    assert metrics["evidence_holds_to_layer"]["mean"] == layer
    assert metrics["evidence_gone_from_layer"]["mean"] == layer + 1
    grid = table(road, "grid").set_index(["layer", "place"])["effect"]
    others = grid[grid.index.get_level_values("place") != 0]
    assert others.abs().max() <= 0.01
    assert grid[layer, 0] > 0.2


def test_tables_are_means_of_the_files(road: Path) -> None:
    """Effects again from the logits in the tensor files, by plain arithmetic."""
    found: dict[tuple[str, int], list[float]] = {}
    for line in lines_of(road):
        assert line["error"] is None
        with h5py.File(road / line["tensor_file"]) as file:
            roles = list(file["role"].asstr()[...])
            options = list(file["option"].asstr()[...])
            logits, clean, corrupt = (
                file[f"patching/{name}"][...] for name in ("logits", "clean", "corrupt")
            )
            evidence = file["units/evidence"][...].any(axis=1)
            answered = file["answer/logits"][...]
        assert np.abs(clean - answered).max() <= 1e-3 * np.abs(answered).max(), "clean is what is asked"
        assert roles[: len(evidence)] == [f"unit:{unit}" for unit in range(len(evidence))]
        gold = options.index(line["target"])

        def difference(values: np.ndarray, gold: int = gold) -> np.ndarray:
            return values[..., gold] - np.delete(values, gold, axis=-1).max(axis=-1)

        gap = difference(clean) - difference(corrupt)
        assert line["measures"]["clean_difference"] == pytest.approx(float(difference(clean)), rel=1e-5)
        for place, name in enumerate(roles):
            for layer in range(LAYERS):
                effect = (difference(logits[layer, place]) - difference(corrupt)) / gap
                told = line["measures"].get(f"effect@set={name},layer={layer}")
                if name.startswith("unit:") or abs(gap) < 0.5:
                    assert told is None
                else:
                    assert told == pytest.approx(effect, rel=1e-4, abs=1e-5)
                    if difference(clean) > 0 >= difference(corrupt):
                        found.setdefault((name, layer), []).append(float(effect))
    course = table(road, "course")
    rows = course[(course["of"] == "right") & (course["task"] == "all")]
    assert len(rows) == len(found)
    for row in rows.itertuples():
        assert row.n == len(found[row.set, row.layer])
        assert row.effect == pytest.approx(np.mean(found[row.set, row.layer]), rel=1e-4, abs=1e-5)


def test_what_is_recorded_is_the_clean_video(road: Path) -> None:
    for line in lines_of(road):
        assert len(line["slots"]) == 24
        assert [slot["source"] for slot in line["slots"]] == [line["video_id"]] * 24
        assert "corrupt: " in line["selection_rule"]
        assert not [told for told in line["warnings"] if told.startswith("fewer_frames")]


def test_a_finished_run_is_not_measured_again(road: Path, diagnose: Diagnose) -> None:
    before = sorted(path.read_bytes() for path in road.glob("samples.*.jsonl"))
    again = diagnose(*ROAD, f"out={road}")
    assert again.returncode == 0, again.stdout + again.stderr
    assert sorted(path.read_bytes() for path in road.glob("samples.*.jsonl")) == before


@pytest.mark.parametrize("corruption", ["blank", "other_video", "shuffled"])
def test_other_corruptions_screened_and_left_to_leak(
    diagnose: Diagnose, tmp_path: Path, corruption: str
) -> None:
    """Everything but the text differs: the screen runs, a sample of cells is exact, the leak is told."""
    done = diagnose(
        *SMALL, f"exp.corruption={corruption}", "exp.screen=true", "exp.keep=0.1", "exp.sampled=6",
        "exp.deepstack=leak", "exp.direction=noising", f"out={tmp_path}/run",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = lines_of(tmp_path / "run")
    for line in lines:
        assert line["error"] is None, line["error"]
        with h5py.File(tmp_path / "run" / line["tensor_file"]) as file:
            logits, screen = file["patching/logits"][...], file["patching/screen"][...]
            units = file["units/evidence"].shape[0]
        made = np.isfinite(logits).all(axis=-1)
        assert made[:, units:].all(), "groups of positions are always exact"
        assert 6 <= made[:, :units].sum() <= 6 + np.ceil(0.1 * LAYERS * units)
        assert np.isfinite(screen).all()
        leak = [line["measures"].get(f"leak@set=evidence,layer={layer}") for layer in range(LAYERS)]
        if leak[0] is not None:
            assert leak[0] > 0
            assert leak[2:] == [0, 0]
    correlations = [line["measures"]["screen_rank_correlation"] for line in lines]
    assert any(value is not None for value in correlations)


def test_effects_of_both_directions() -> None:
    clean, corrupt = np.array([3.0, 1.0]), np.array([0.0, 2.0])
    patched = np.array([[[1.0, 1.0]], [[3.0, 1.0]]])
    there = effects(patched, clean, corrupt, 0, "denoising", 0.1)
    back = effects(patched, clean, corrupt, 0, "noising", 0.1)
    np.testing.assert_allclose(there, [[0.5], [1.0]])
    np.testing.assert_allclose(back, [[0.5], [0.0]])
    assert np.isnan(effects(patched, clean, clean, 0, "denoising", 0.1)).all()


def test_an_unknown_corruption_is_refused() -> None:
    with pytest.raises(ConfigError, match="corruption"):
        from_mapping(Config, {"corruption": "noise"}, where="exp")


def test_a_model_whose_layers_know_more_than_the_stream_is_refused_before_the_first_item() -> None:
    """Not once an item: nothing of the item has been looked at yet."""
    model, _ = miniature("gemma4").make()
    context: Any = SimpleNamespace(model=SimpleNamespace(model=model))
    nothing: Any = None
    with pytest.raises(ConfigError, match=r"gemma4 cannot be patched: .* keys and values that layers share"):
        _Measurement(context, Config(), ExitStack())(nothing, nothing)
