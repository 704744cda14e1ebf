"""Interventions on half an hour of a real film and a small Qwen2.5-VL: to the end, in bounded memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import av
import h5py
import numpy as np
import pytest

from diagnostics.store.record_log import read_records

from ..checkpoints import qwen2_5_checkpoint

pytestmark = pytest.mark.system

MINUTES, UNITS, LAYERS = 30, 64, 3
MOST_GIB = 4.0
"""Of any one process: the program, its reader, and pytest before it started them."""


def repeated(source: Path, target: Path, seconds: float) -> Path:
    """The film again and again, its packets copied: real pictures, a real index, nothing encoded anew."""
    with av.open(str(source)) as film, av.open(str(target), "w") as copy:
        given = film.streams.video[0]
        stream = copy.add_stream_from_template(given)
        packets = [packet for packet in film.demux(given) if packet.dts is not None]
        length = round(given.frames / float(given.average_rate) / given.time_base)
        first = packets[0].dts
        rounds = int(seconds / (length * float(given.time_base))) + 1
        for turn in range(rounds):
            film.seek(0)
            for packet in film.demux(given):
                if packet.dts is None:
                    continue
                packet.pts += turn * length - first
                packet.dts += turn * length - first
                packet.stream = stream
                copy.mux(packet)
    return target


@pytest.fixture(scope="module")
def arguments(real_clips: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("half_an_hour")
    film = repeated(real_clips["bikes.mp4"], folder / "long.mp4", MINUTES * 60)
    with av.open(str(film)) as container:
        assert container.duration / 1e6 > MINUTES * 60 - 1
    question = {
        "id": "q", "video": film.name, "question": "What is shown?", "options": ["a street", "a meadow"],
        "answer": "A", "evidence": {"kind": "exact", "seconds": [[600.0, 640.0]]},
    }  # fmt: skip
    (folder / "questions.jsonl").write_text(json.dumps(question) + "\n")
    model = qwen2_5_checkpoint(folder / "model")
    return [
        f"model.path={model}", "model=qwen2_5_vl_7b", "model.device=cpu", "model.dtype=float32",
        "model.max_pixels=50176", "model.min_pixels=3136", "data=jsonl",
        f"data.path={folder / 'questions.jsonl'}", "sampling=uniform", f"sampling.budget={2 * UNITS}",
        "backend.max_new_tokens=2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("experiment", "more"),
    [
        ("patching", ("exp.least=1e-9",)),
        ("knockout", ("exp.control=false",)),
        ("lens", ()),
        ("decode_drift", ("exp.max_new_tokens=6", "exp.min_new_tokens=5")),
        ("attention_anatomy", (f"exp.budgets=[{2 * UNITS}]",)),
    ],
)
def test_it_runs_to_the_end_in_bounded_memory(
    experiment: str, more: tuple[str, ...], arguments: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-m", "diagnostics", f"+exp={experiment}", *arguments, *more, f"out={out}"],
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=1_200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = read_records(out)
    assert record.error is None
    assert record.n_units == UNITS
    assert record.source_seconds is not None
    assert record.source_seconds > MINUTES * 60 - 1
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    assert peak < MOST_GIB, f"{peak:.1f} GiB"
    if experiment == "patching":
        with h5py.File(out / str(record.tensor_file)) as file:
            logits = file["patching/logits"][...]
        print(f"\n{logits.shape} patched logits; {record.n_prompt_tokens} tokens; peak {peak:.2f} GiB")
        assert logits.shape[0] == LAYERS
        assert logits.shape[1] >= UNITS
        assert np.isfinite(logits).all()
