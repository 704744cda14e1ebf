"""Every choice of definition reaches the numbers, and each number is what its definition says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from diagnostics.experiments.definitions import Definition, head_mask, layer_mask, pooled_share
from diagnostics.store.record_log import read_records
from diagnostics.store.run_folder import tensor_path

from .conftest import SMALL, Diagnose, Run, environment

CHOSEN = (
    "exp.role=options",
    "exp.layers=late",
    "exp.heads=most_visual",
    "exp.pooling=mean",
    "exp.head_pooling=equal",
    "exp.feature=layer:2",
    "exp.control=permuted",
    "exp.keep_rows=true",
    "reading.max_side=64",
    "data.limit=2",
)


@pytest.fixture(scope="module")
def chosen(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "chosen"
    finished = diagnose(*SMALL, *CHOSEN, f"out={folder}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return Run(folder, finished.stdout, finished.stderr)


def test_the_choices_are_written_into_every_tensor_file(chosen: Run) -> None:
    for record in read_records(chosen.folder):
        with xr.open_datatree(tensor_path(chosen.folder, record)) as tensors:
            told = json.loads(tensors.attrs["definitions"])
            assert told["role"] == "options"
            assert told["layers"] == "late"
            assert told["heads"] == "most_visual"
            assert told["head_pooling"] == "equal"
            assert told["feature"] == "layer:2"
            assert told["redundancy_heads"] == "all"
            assert tensors["control"].attrs["kind"] == "permuted"


def test_kept_rows_average_to_the_roles(chosen: Run) -> None:
    for record in read_records(chosen.folder):
        with xr.open_datatree(tensor_path(chosen.folder, record)) as tensors:
            rows = tensors["rows"]["unit_mass"].values
            position = tensors["rows"]["position"].values
            last = rows[:, :, position == record.n_prompt_tokens - 1].mean(axis=2)
            expected = tensors["attention"]["unit_mass"].sel(role="last").values
        np.testing.assert_allclose(last, expected, atol=1e-6)


def test_pooled_measures_are_those_of_heads_counted_equally(chosen: Run) -> None:
    """By hand, from the tensor file: late third of four layers, the quarter of its heads that look most."""
    for record in read_records(chosen.folder):
        with xr.open_datatree(tensor_path(chosen.folder, record)) as tensors:
            mass = tensors["attention"]["unit_mass"].sel(role="options").values.astype(np.float64)
        late = mass[3]
        (head,) = np.argsort(-late.sum(axis=-1))[:1]
        share = late[head] / late[head].sum()
        assert record.measures["effective_units_pooled"] == pytest.approx(
            np.exp(-(share * np.log(share)).sum()), rel=1e-5
        )


def test_smaller_frames_are_said(chosen: Run) -> None:
    for record in read_records(chosen.folder):
        assert record.frame_size == (64, 64)
        assert any(warning.startswith("smaller_frames: 96x96 read as 64x64") for warning in record.warnings)
    assert "smaller_frames" in chosen.stdout


def test_pictures_shrunk_by_pixel_limits_are_said(diagnose: Diagnose, tmp_path: Path) -> None:
    run = diagnose(*SMALL, "data.limit=1", "model.max_pixels=40000", f"out={tmp_path / 'run'}")
    assert run.returncode == 0, run.stderr
    (record,) = read_records(tmp_path / "run")
    assert "shrunk_by_pixel_limits: 96x96 shown as 32x32" in record.warnings
    assert "shrunk_by_pixel_limits" in run.stdout


def test_position_measures_are_computed_per_head_and_on_pooled_attention(small_run: Run) -> None:
    for record in read_records(small_run.folder):
        with xr.open_datatree(tensor_path(small_run.folder, record)) as tensors:
            real = tensors["attention"]["unit_mass"].sel(role="question").values.reshape(16, -1).astype(float)
            blank = tensors["control"]["unit_mass"].sel(role="question").values.reshape(16, -1).astype(float)
            evidence = tensors["units"]["evidence"].values.astype(bool).any(axis=1)

        def explained(p: np.ndarray, q: np.ndarray) -> float:
            p, q = p / p.sum(), q / q.sum()
            return 1 - (p * np.log(p / q)).sum() / (p * np.log(p * len(p))).sum()

        def odds(p: np.ndarray, held: np.ndarray = evidence) -> float:
            return np.log(p[held].sum() / p[~held].sum())

        each = np.mean([explained(p, q) for p, q in zip(real, blank, strict=True)])
        pooled = explained(real.mean(axis=0), blank.mean(axis=0))
        lift = np.mean([odds(p) - odds(q) for p, q in zip(real, blank, strict=True)])
        assert record.measures["position_explained"] == pytest.approx(each, rel=1e-4)
        assert record.measures["position_explained_pooled"] == pytest.approx(pooled, rel=1e-4)
        assert record.measures["evidence_log_lift_corrected"] == pytest.approx(lift, rel=1e-4, abs=1e-6)


def test_rows_that_an_item_has_not_are_no_failure(
    chosen: Run, diagnose: Diagnose, tmp_path: Path, cache: Path
) -> None:
    """On the videos of any run that came before."""
    truth = next(path for path in cache.rglob("truth.jsonl") if len(path.read_text().splitlines()) == 6)
    first, second = (json.loads(line) for line in truth.read_text().splitlines()[:2])
    for key in ("options", "answer"):
        second.pop(key)
    (tmp_path / "questions.jsonl").write_text(f"{json.dumps(first)}\n{json.dumps(second)}\n")
    command = [
        "+exp=attention_drift", "data=jsonl", f"data.path={tmp_path / 'questions.jsonl'}",
        f"data.root={truth.parent}", "exp.role=options", "sampling.budget=8", f"out={tmp_path / 'run'}",
    ]  # fmt: skip
    run = diagnose(*command)
    assert run.returncode == 0, run.stdout + run.stderr
    asked, open_ended = read_records(tmp_path / "run")
    assert asked.measures["entropy"] is not None
    assert open_ended.error is None
    assert "entropy" not in open_ended.measures
    assert any(warning.startswith("no_rows: ") for warning in open_ended.warnings)
    assert open_ended.raw is not None


def test_a_control_that_was_not_run_is_not_shown_as_undefined(diagnose: Diagnose, tmp_path: Path) -> None:
    run = diagnose(
        *SMALL, "data.limit=1", "exp.control=none", "exp.value_weighted=false", f"out={tmp_path / 'r'}"
    )
    assert run.returncode == 0, run.stderr
    assert "position_explained" not in run.stdout
    assert "unit_fraction_90" in run.stdout


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interrupted_run_says_how_to_go_on_and_leaves_no_traceback(cache: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "diagnostics", *SMALL, "data.n_videos=24", f"out={tmp_path / 'run'}"]
    process = subprocess.Popen(
        command, env=environment(cache), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    samples = tmp_path / "run" / "samples.0.jsonl"
    while process.poll() is None and not (samples.exists() and samples.stat().st_size):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "the same command goes on" in told
    assert "Traceback" not in told


def test_layer_sets_partition_the_layers() -> None:
    for n_layers in range(3, 40):
        thirds = [layer_mask(name, n_layers) for name in ("early", "middle", "late")]
        assert (np.sum(thirds, axis=0) == 1).all()
        assert all(third.any() for third in thirds)
        assert layer_mask("last", n_layers).nonzero()[0].tolist() == [n_layers - 1]


def test_most_visual_takes_a_quarter_of_the_heads_of_its_layers() -> None:
    mass = np.random.default_rng(0).random((6, 8, 5))
    taken = head_mask(Definition("question", "early", "most_visual"), mass)
    assert taken.sum() == 4
    assert not taken[2:].any()
    assert mass.sum(-1)[:2][taken[:2]].min() >= mass.sum(-1)[:2][~taken[:2]].max()


def test_heads_pooled_equally_count_the_same_whatever_they_give_to_the_video() -> None:
    heads = np.array([[0.9, 0.0], [0.0, 0.1]])
    one_each = np.ones(2, dtype=int)
    assert pooled_share(Definition("q"), heads, one_each).tolist() == pytest.approx([0.9, 0.1])
    equal = pooled_share(Definition("q", head_pooling="equal"), heads, one_each)
    assert equal.tolist() == pytest.approx([0.5, 0.5])
