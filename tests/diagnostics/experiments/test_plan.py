"""`+exp=plan` against what the planned runs then record, and its refusals."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import av
import numpy as np
import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from rich.console import Console

from diagnostics.catalogue import config_folder, rewrite_overrides
from diagnostics.config import run_config
from diagnostics.errors import DiagnosticsError
from diagnostics.run import execute
from diagnostics.store.record_log import read_records

DATA = ("data.n_videos=3", "data.seconds=40", "data.fps=4", "data.questions=3")
SAMPLING = ("sampling.budget=24",)
MOST = 0.25
"""Counts and bytes of a plan may be off by this share."""


@pytest.fixture(scope="session")
def diagnose(cache: Path, tmp_path_factory: pytest.TempPathFactory):
    """As the command line does, in this process: two dozen plans, and most of each would be start-up."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        out = io.StringIO()
        console = Console(file=out, width=200)
        with initialize_config_dir(str(config_folder()), version_base="1.3"):
            composed = compose("config", rewrite_overrides(arguments))
        values: Any = OmegaConf.to_container(composed, resolve=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DIAGNOSTICS_CACHE", str(cache))
            try:
                outcome = execute(run_config(values), multirun=False, console=console)
            except DiagnosticsError as error:
                return subprocess.CompletedProcess(arguments, 2, out.getvalue(), str(error))
        failure = outcome.failure or ("all failed" if outcome.summary.all_failed else None)
        return subprocess.CompletedProcess(arguments, int(failure is not None), out.getvalue(), failure or "")

    return run


def plan_of(diagnose, folder: Path, *arguments: str):
    return diagnose("+exp=plan", *arguments, f"out={folder}")


def totals(folder: Path) -> dict[str, float]:
    table = pd.read_csv(folder / "tables" / "totals.csv")
    return dict(zip(table["measure"], table["value"], strict=True))


def weight(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(pattern) if path.is_file())


@pytest.fixture(scope="module", params=["benchmark", "attention_drift"])
def planned_and_run(request, diagnose, tmp_path_factory):
    """A plan and the run it is of."""
    folder = tmp_path_factory.mktemp(request.param)
    planned = plan_of(diagnose, folder / "plan", f"exp.of={request.param}", *DATA, *SAMPLING)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    more = ["exp.item_figures=0"] if request.param == "attention_drift" else []
    done = diagnose(f"+exp={request.param}", *DATA, *SAMPLING, *more, f"out={folder / 'run'}")
    assert done.returncode == 0, done.stdout + done.stderr
    return request.param, folder / "plan", folder / "run", planned.stdout


def test_tokens_and_frames_are_those_of_the_run(planned_and_run):
    _, plan, run, _ = planned_and_run
    items = pd.read_csv(plan / "tables" / "plan.csv").set_index("item")
    records = {record.item_id: record for record in read_records(run)}
    assert set(items.index) == set(records)
    for name, record in records.items():
        row = items.loc[name]
        assert row["visual_tokens"] == record.n_visual_tokens
        assert row["prompt_tokens"] == record.n_prompt_tokens
        assert row["frames"] == len(record.slots)
        assert row["units"] == record.n_units
        assert (row["height"], row["width"]) == record.frame_size
    told = totals(plan)
    assert told["visual_tokens"] == sum(record.n_visual_tokens for record in records.values())
    assert told["prompt_tokens"] == sum(record.n_prompt_tokens for record in records.values())
    assert told["items"] == len(records)
    assert told["videos"] == 3


def test_bytes_are_those_of_the_run(planned_and_run):
    name, plan, run, _ = planned_and_run
    told = totals(plan)
    measured = {
        "record_bytes": weight(run, "samples.*.jsonl"),
        "tensor_bytes": weight(run, "tensors/*.h5"),
        "thumbnail_bytes": weight(run, "thumbnails/*/*.jpg"),
    }
    assert (measured["tensor_bytes"] > 0) == (name == "attention_drift")
    for part, value in measured.items():
        assert told[part] == pytest.approx(value, rel=MOST), f"{part} is off by more than a quarter"
    assert told["disk_bytes"] == pytest.approx(sum(measured.values()), rel=MOST)


def test_a_plan_reads_no_weights_and_measures_nothing(planned_and_run):
    _, plan, _, printed = planned_and_run
    assert read_records(plan) == []
    assert "model" not in json.loads((plan / "manifest.json").read_text())["checks"]
    assert "estimate" in printed
    kinds = pd.read_csv(plan / "tables" / "totals.csv").set_index("measure")["kind"]
    assert (kinds[["gpu_hours", "core_hours", "activation_bytes"]] == "estimate").all()
    assert (kinds[["visual_tokens", "prefill_flops", "frames_to_decode"]] == "count").all()
    metrics = json.loads((plan / "summary.json").read_text())["metrics"]
    assert metrics["core_hours"]["mean"] > 0
    assert metrics["gpu_hours"]["mean"] > 0


def test_sharing_saves_operations(planned_and_run):
    name, plan, _, _ = planned_and_run
    told = totals(plan)
    assert told["prefill_flops"] < told["prefill_flops_alone"]
    if name == "benchmark":
        assert told["prefilled_tokens"] < told["prompt_tokens"]
    else:  # every question has a prefill of its own, and one for its control
        assert told["prefilled_tokens"] == 2 * told["prompt_tokens"]


def test_sharing_switched_off_and_parameters_of_the_planned_experiment(diagnose, tmp_path):
    done = plan_of(diagnose, tmp_path / "off", *DATA, *SAMPLING, "backend.sharing=false")
    assert done.returncode == 0, done.stdout + done.stderr
    told = totals(tmp_path / "off")
    assert told["prefill_flops"] == told["prefill_flops_alone"]
    more = ("exp.of=attention_drift", "+exp.parameters.control=none", "exp.calibrate=false")
    done = plan_of(diagnose, tmp_path / "one", *DATA, *SAMPLING, *more)
    assert done.returncode == 0, done.stdout + done.stderr
    told = totals(tmp_path / "one")
    assert told["prefilled_tokens"] == told["prompt_tokens"]
    assert np.isnan(told["core_hours"])
    assert "not timed" in done.stdout


@pytest.mark.parametrize("limit", ["limit_gpu_hours=1e-15", "limit_core_hours=1e-12", "limit_gib=1e-9"])
def test_past_a_limit_the_plan_is_refused_with_its_table(diagnose, tmp_path, limit):
    done = plan_of(diagnose, tmp_path / "run", *DATA, *SAMPLING, f"exp.{limit}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"exp.{limit.partition('=')[0]}" in done.stderr
    assert "visual tokens" in done.stdout
    assert totals(tmp_path / "run")["items"] == 9


def test_within_the_limits_it_passes(diagnose, tmp_path):
    limits = ("exp.limit_gpu_hours=1", "exp.limit_core_hours=1", "exp.limit_gib=1")
    assert plan_of(diagnose, tmp_path / "run", *DATA, *SAMPLING, *limits).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("exp.of=frame_scaling",), "benchmark"),
        (("exp.gpu=h10",), "h100"),
        (("exp.of=attention_drift", "+exp.parameters.contrl=none"), "control"),
        (("exp.calibrate=false", "exp.limit_core_hours=1"), "exp.calibrate"),
    ],
)
def test_what_cannot_be_planned_is_said_at_once(diagnose, tmp_path, arguments, told):
    done = plan_of(diagnose, tmp_path / "run", *DATA, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert told in done.stderr


def film(path: Path, n: int, group: int) -> Path:
    noise = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    options = {"g": str(group), "sc_threshold": "0", "bf": "0"}
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for number in range(n):
            picture = np.roll(noise, number, axis=1)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    return path


def written(folder: Path, *videos: str) -> str:
    rows = [
        {"id": name, "video": name, "question": "What?", "options": ["one", "two"], "answer": "A"}
        for name in videos
    ]
    path = folder / "q.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return f"data.path={path}"


def test_a_video_of_few_key_frames_costs_its_whole_length(diagnose, tmp_path):
    film(tmp_path / "long.mp4", 300, 300)
    film(tmp_path / "short.mp4", 300, 5)
    path = written(tmp_path, "long.mp4", "short.mp4")
    done = plan_of(diagnose, tmp_path / "run", "data=jsonl", path, "sampling.budget=4")
    assert done.returncode == 0, done.stdout + done.stderr
    items = pd.read_csv(tmp_path / "run" / "tables" / "plan.csv").set_index("item")
    assert items.loc["long.mp4", "frames_to_decode"] == 300
    frames = np.linspace(0, 299, 4).round().astype(int)
    assert items.loc["short.mp4", "frames_to_decode"] == (frames % 5 + 1).sum()


def test_what_cannot_be_read_is_listed_and_the_others_planned(diagnose, tmp_path):
    film(tmp_path / "good.mp4", 60, 10)
    whole = film(tmp_path / "cut.mp4", 60, 10).read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    path = written(tmp_path, "gone.mp4", "good.mp4", "cut.mp4")
    done = plan_of(diagnose, tmp_path / "run", "data=jsonl", path, "sampling.budget=4")
    assert done.returncode == 0, done.stdout + done.stderr
    unplanned = pd.read_csv(tmp_path / "run" / "tables" / "unplanned.csv").set_index("item")
    assert unplanned.loc["gone.mp4", "error"] == "MissingVideoError"
    assert unplanned.loc["cut.mp4", "error"] == "TruncatedVideoError"
    assert pd.read_csv(tmp_path / "run" / "tables" / "plan.csv")["item"].tolist() == ["good.mp4"]
    assert totals(tmp_path / "run")["items"] == 1
    assert "2 failed" in done.stdout


def test_nothing_that_can_be_read(diagnose, tmp_path):
    path = written(tmp_path, "gone.mp4")
    done = plan_of(diagnose, tmp_path / "run", "data=jsonl", path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_sampler_that_looks_at_pictures_has_a_stand_in(diagnose, tmp_path):
    done = plan_of(diagnose, tmp_path / "run", *DATA, "sampling=aks", "sampling.budget=8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stand in" in done.stdout
    plain = plan_of(diagnose, tmp_path / "plain", *DATA, "sampling.budget=8")
    assert plain.returncode == 0, plain.stdout + plain.stderr
    looked, not_looked = totals(tmp_path / "run"), totals(tmp_path / "plain")
    assert looked["visual_tokens"] == not_looked["visual_tokens"]
    assert looked["frames_to_decode"] > not_looked["frames_to_decode"]
