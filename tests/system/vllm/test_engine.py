"""`backend=vllm` with real vLLM on the CPU: each kind of request as transformers answers it, and as commands.

Both engines run inside vLLM's environment, in one process: the same transformers writes the prompts of one
and loads the weights of the other.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from diagnostics.store.manifest import read_manifests
from diagnostics.store.record_log import read_records
from diagnostics.testbed import WEIGHTS

from .environment import ROOT
from .inside import run_inside

pytestmark = pytest.mark.system

TOLERANCE = 1e-3
"""In nats, on log-probabilities: float32 through different kernels."""
REFUSED = {"a control token": "ControlTokenError", "too long": "PromptTooLongError", "images": "ModelError"}
SMALL = (
    "backend=vllm",
    "model=tiny",
    "data.split=test",
    "data.n_videos=4",
    "data.limit=24",
    "sampling.budget=15",
    "backend.max_new_tokens=8",
    "backend.eager=true",
    "backend.kv_cache_gib=0.25",
)
"""24 items; an odd number of frames, which each engine fills up by itself."""


def run(command: list[str], log: Path, cache: Path) -> tuple[int, str]:
    """Status and output of a command that imports this project."""
    status = run_inside(
        command, log, PYTHONPATH=str(ROOT), HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", COLUMNS="200",
        DIAGNOSTICS_CACHE=str(cache),
    )  # fmt: skip
    return status, log.read_text()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("films")


@pytest.fixture(scope="module")
def told(python: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What both engines say to the cases of `engines.py`, with a checkpoint whose pictures and videos are
    normalised otherwise: vLLM takes the pictures' numbers for both, if it is let."""
    folder = tmp_path_factory.mktemp("engines")
    checkpoint = shutil.copytree(WEIGHTS, folder / "weights")
    saved = json.loads((checkpoint / "processor_config.json").read_text())
    saved["image_processor"] |= {"image_mean": [0.48, 0.46, 0.41], "image_std": [0.27, 0.26, 0.28]}
    (checkpoint / "processor_config.json").write_text(json.dumps(saved))
    script = Path(__file__).with_name("engines.py")
    command = [str(python), str(script), str(checkpoint), str(folder / "told.json")]
    status, said = run(command, folder / "log.txt", cache)
    assert status == 0, said[-6000:]
    return json.loads((folder / "told.json").read_text())


def test_every_kind_of_request_is_answered_as_by_transformers(told: dict[str, Any]) -> None:
    cases = set(told["hf"]) - {*REFUSED, "notes"}
    assert len(cases) == 11
    for case in sorted(cases):
        ours, theirs = told["hf"][case], told["vllm"][case]
        assert "error" not in theirs, theirs
        for name in ("prompt_ids", "prompt_sha256", "grid", "n_prompt_tokens", "n_visual_tokens", "notices"):
            assert theirs[name] == ours[name], f"{case}: {name}"
        for name in ("text", "n_new_tokens", "cut"):
            assert theirs[name] == ours[name], f"{case}: {name}"
        assert len(theirs["option_logprobs"]) == len(ours["option_logprobs"]), case
        np.testing.assert_allclose(
            theirs["option_logprobs"], ours["option_logprobs"], rtol=0, atol=TOLERANCE, err_msg=case
        )
    assert len({told["vllm"][case]["text"] for case in cases}) > 2, "it does not say one thing to everything"


def test_the_cases_are_what_they_are_called(told: dict[str, Any]) -> None:
    answers = told["vllm"]
    assert answers["shrunk by the pixel limit"]["notices"] == ["shrunk_by_pixel_limits: 96x96 shown as 32x32"]
    assert answers["not shrunk"]["notices"] == []
    assert answers["frames of few pixels"]["grid"] != answers["not shrunk"]["grid"]
    assert answers["another clock"]["prompt_ids"] != answers["not shrunk"]["prompt_ids"]
    assert answers["text alone"]["n_visual_tokens"] == 0
    assert answers["one frame"]["grid"][0][0] == 1
    assert answers["open-ended"]["option_logprobs"] == []


def test_what_is_wrong_with_one_question_is_told_of_it(told: dict[str, Any]) -> None:
    for case, error in REFUSED.items():
        assert told["vllm"][case]["error"] == error, told["vllm"][case]
        assert repr(case) in told["vllm"][case]["message"]


def test_the_engine_says_what_it_was_started_with(told: dict[str, Any]) -> None:
    model = told["vllm"]["notes"]["model"]
    assert model["options"]["mm_device_do_normalize"] is False
    assert (model["dtype"], model["max_model_len"], model["options"]["seed"]) == ("float32", 2048, 0)
    assert set(model["versions"]) == {"vllm", "torch", "transformers"}


def test_a_whole_benchmark_is_one_command(python: Path, cache: Path, tmp_path: Path) -> None:
    command = [str(python), "-m", "diagnostics", "+exp=benchmark", *SMALL, f"out={tmp_path / 'run'}"]
    status, said = run(command, tmp_path / "log.txt", cache)
    assert status == 0, said[-6000:]
    records = read_records(tmp_path / "run")
    assert [record.error for record in records] == [None] * 24
    assert all(record.prompt_sha256 and record.grid and record.option_logprobs for record in records)
    assert not any(record.prompt_ids for record in records), "kept by +exp=parity only"
    assert {record.answer for record in records} > {"A"}
    table = pd.read_csv(tmp_path / "run" / "tables" / "tasks.csv").set_index("task")
    assert table.loc["all", "accuracy"] == pytest.approx(np.mean([record.correct for record in records]))
    (manifest,) = read_manifests(tmp_path / "run")
    assert manifest.checks["model"]["engine"] == "vllm"
    # Nothing is left to ask: vLLM is not started again, other keys that cannot change answers or not.
    status, said = run([*command, "backend.in_flight=1"], tmp_path / "again.txt", cache)
    assert status == 0, said[-6000:]
    assert "safetensors" not in said
    assert read_records(tmp_path / "run") == records


def test_parity_with_transformers(python: Path, cache: Path, tmp_path: Path) -> None:
    command = [str(python), "-m", "diagnostics", "+exp=parity", *SMALL, f"out={tmp_path / 'run'}"]
    status, said = run(command, tmp_path / "log.txt", cache)
    assert status == 0, said[-6000:]
    assert "vllm and hf: 24 items, no difference." in said
    table = pd.read_csv(tmp_path / "run" / "tables" / "parity.csv")
    assert len(table) == 24
    assert table[["equal", "same_frames", "same_ids", "same_answer"]].all(axis=None)
    assert 0 < table["largest_difference"].max() < TOLERANCE
    assert {len(record.slots) for record in read_records(tmp_path / "run")} == {15}
