"""What is read and encoded for an experiment of many conditions, against the most and the least it could be.

    python tests/benchmarks/sharing.py [--videos N] [--questions N] [--rounds R] [experiment ...]

Each experiment runs on a few MiniHorizon videos with the bundled model. Counted outside the engine: frames
asked of the reader, and temporal units that pass the vision tower (the one check that units stand alone is
among them). Beside them, from the run's records: what each pair alone would take, and the smallest numbers
possible, which are the distinct frames and the distinct units (pictures, size, re-encoding) that were shown.
Then the same run with sharing on and off in turns, timed from the first pair to the last; the model is
loaded before. What is timed is not judged here: it depends on the machine.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from rich.console import Console

import hooks
from diagnostics.catalogue import config_folder, rewrite_overrides
from diagnostics.config import RunConfig, run_config
from diagnostics.experiments import read_ahead
from diagnostics.experiments.context import Context
from diagnostics.models import loading
from diagnostics.run import execute
from diagnostics.store.record_log import read_records
from diagnostics.store.records import Record
from diagnostics.video.reading import FrameReader

EXPERIMENTS = {
    "temporal_order": ("exp.seeds=1",),
    "evidence_swap": (),
    "frame_scaling": ("exp.budgets=[4,8,16,32]",),
}


@dataclass
class Counts:
    """What one run did."""

    frames: int = 0
    units: int = 0
    seconds: float = 0.0
    records: list[Record] = field(default_factory=list)


def configured(experiment: str, videos: int, questions: int, out: Path) -> RunConfig:
    arguments = [
        f"+exp={experiment}", f"data.n_videos={videos}", f"data.questions={questions}", "data.seconds=30",
        "backend.max_new_tokens=1", f"out={out}", *EXPERIMENTS[experiment],
    ]  # fmt: skip
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        values: Any = OmegaConf.to_container(compose("config", rewrite_overrides(arguments)), resolve=True)
    return run_config(values)


@contextmanager
def counted(counts: Counts, loaded: loading.LoadedModel) -> Iterator[None]:
    """Count frames that are read and units that are encoded, and time the loop over the pairs."""
    plain_read, plain_progress = FrameReader.read, Context.progress

    def read(self: FrameReader, path: Path, indices: Any, *, keep: bool = True) -> Any:
        counts.frames += len(indices)
        return plain_read(self, path, indices)

    def encode(module: Any, given: tuple, options: dict[str, Any]) -> None:
        grid = options["grid_thw"] if "grid_thw" in options else given[1]
        counts.units += int(grid[:, 0].sum())

    @contextmanager
    def progress(self: Context, *arguments: Any, **options: Any) -> Iterator[Any]:
        with plain_progress(self, *arguments, **options) as advance:
            started = time.perf_counter()
            yield advance
            counts.seconds = time.perf_counter() - started

    handle = loaded.model.model.visual.register_forward_pre_hook(encode, with_kwargs=True)
    try:
        with mock.patch.object(FrameReader, "read", read), mock.patch.object(Context, "progress", progress):
            yield
    finally:
        handle.remove()


@contextmanager
def each_alone() -> Iterator[None]:
    """Without sharing: every pair read by itself, every unit encoded each time."""

    class Nothing:
        units = staticmethod(nullcontext)

    with (
        mock.patch.object(read_ahead, "groupby", lambda pairs, key: ((key(pair), [pair]) for pair in pairs)),
        mock.patch.object(hooks, "reuse_units", return_value=nullcontext(Nothing())),
    ):
        yield


def run(experiment: str, arguments: argparse.Namespace, loaded: Any, *, share: bool) -> Counts:
    counts = Counts()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        config = configured(experiment, arguments.videos, arguments.questions, out)
        with counted(counts, loaded), nullcontext() if share else each_alone():
            execute(config, multirun=False, console=Console(quiet=True))
        counts.records = [record for record in read_records(out) if record.error is None]
    return counts


def frames_of(record: Record) -> set[tuple[str, int]]:
    return {(slot.source, slot.frame_index) for slot in record.slots if slot.frame_index >= 0}


def units_of(record: Record) -> list[tuple[Any, ...]]:
    """Each unit's pictures, the size they are shown at, whether they were re-encoded; two slots a unit."""
    slots = [(slot.source, slot.frame_index) for slot in record.slots]
    if not slots:
        return []  # text alone
    ((_, rows, cols),) = record.grid
    changed = (rows, cols, record.condition.get("reencoded"))
    return [(*changed, *slots[start : start + 2]) for start in range(0, len(slots), 2)]


def report(experiment: str, arguments: argparse.Namespace, loaded: Any) -> None:
    shared = run(experiment, arguments, loaded, share=True)
    items = len({record.item_id for record in shared.records})
    units = [unit for record in shared.records for unit in units_of(record)]
    rows = {
        "frames read": (
            shared.frames,
            sum(len(frames_of(record)) for record in shared.records),
            len(set().union(*map(frames_of, shared.records))),
        ),
        "units encoded": (shared.units, len(units), len(set(units))),
    }
    for what, (found, alone, least) in rows.items():
        print(json.dumps({
            "experiment": experiment, "what": what, "items": items, "pairs": len(shared.records),
            "an_item": round(found / items, 1), "each_pair_alone": round(alone / items, 1),
            "least_possible": round(least / items, 1), "of_alone": round(found / alone, 3),
            "over_least": round(found / least, 3),
        }), flush=True)  # fmt: skip
    rates: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(arguments.rounds):
        for share in (True, False):
            counts = run(experiment, arguments, loaded, share=share)
            rates[share].append(len(counts.records) / counts.seconds)
    ratios = [on / off for on, off in zip(rates[True], rates[False], strict=True)]
    print(json.dumps({
        "experiment": experiment, "what": "pairs a second", "shared": [round(r, 2) for r in rates[True]],
        "each_alone": [round(r, 2) for r in rates[False]],
        "median_ratio": round(statistics.median(ratios), 2),
    }), flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="*", default=list(EXPERIMENTS), metavar="experiment")
    parser.add_argument("--videos", type=int, default=2)
    parser.add_argument("--questions", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    print(json.dumps({"python": platform.python_version(), "cores": len(os.sched_getaffinity(0))}))
    with tempfile.TemporaryDirectory() as folder:
        config = configured("temporal_order", arguments.videos, arguments.questions, Path(folder))
    loaded = loading.load_model(config.model)
    with mock.patch.object(loading, "load_model", return_value=loaded):
        for experiment in arguments.experiments:
            report(experiment, arguments, loaded)


if __name__ == "__main__":
    main()
