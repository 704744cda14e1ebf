"""Items, curves and finished run folders with known content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from diagnostics.report.curves import DriftCurves, ItemDrift, gather
from diagnostics.store import Metric, PairTensors, Record, RunFolder, Summary, config_hash
from diagnostics.store.summary import write_summary

from ...finished_runs import attention_tensors, finished_record


def ranked(share: np.ndarray) -> np.ndarray:
    return np.cumsum(np.sort(share)[::-1])


def _item(
    seed: int, units: int = 8, *, video: str | None = None, control: bool = True, evidence: bool = True
) -> ItemDrift:
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.ones(units))
    shows = np.zeros((units, 2), bool)
    shows[seed % units, 1] = evidence
    return ItemDrift(
        item_id=f"item {seed}",
        video_id=video or f"video {seed}",
        unit_share=share,
        cumulative=ranked(share),
        slot_seconds=np.arange(2.0 * units).reshape(units, 2) * 3,
        slot_evidence=shows,
        duration=6.0 * units,
        redundancy=0.8 + 0.1 * rng.random(100),
        control_cumulative=ranked(np.full(units, 1 / units)) if control else None,
    )


METRICS = {
    "unit_fraction_50": Metric(0.301, 0.25, 0.35, 5),
    "unit_fraction_80": Metric(0.612, 0.58, 0.65, 5),
    "unit_fraction_90": Metric(0.767, 0.71, 0.82, 5),
    "unit_fraction_90_pooled": Metric(0.85, 0.81, 0.88, 5),
    "patch_similarity": Metric(0.84, 0.82, 0.86, 5),
    "unit_similarity": Metric(0.9, 0.88, 0.92, 5),
    "unit_similarity_between": Metric(0.55, None, None, 10),
    "redundancy_preference": Metric(-0.021, -0.03, -0.01, 5),
}


def _run(name: str = "run", seeds: Sequence[int] = range(5), units: int = 8, **item: object) -> DriftCurves:
    return gather(name, [_item(seed, units, **item) for seed in seeds], METRICS)


@pytest.fixture(scope="session")
def make_item() -> Callable[..., ItemDrift]:
    """One item by seed; `units`, `video`, `control`, `evidence` can be given."""
    return _item


@pytest.fixture(scope="session")
def make_run() -> Callable[..., DriftCurves]:
    """A run of items with `METRICS` as its numbers."""
    return _run


@pytest.fixture(scope="session")
def metrics() -> dict[str, Metric]:
    """The numbers of every run that `make_run` makes."""
    return METRICS


@pytest.fixture
def run_folder(tmp_path: Path) -> tuple[Path, list[PairTensors]]:
    """A finished run of three items of two videos, one failed, written through `diagnostics.store`."""
    path, written = tmp_path / "tiny-minihorizon-1234", []
    with RunFolder.open(path, {"seed": 0}, config_hash({"seed": 0}), experiment="attention_drift") as run:
        for seed, (item_id, units) in enumerate([("a", 6), ("b/ä", 8), ("c", 6)]):
            tensors = attention_tensors(item_id, seed, units)
            run.save(finished_record(item_id, f"v{seed // 2}.mp4", tensors), tensors)
            pixels = np.full((2, 24, 36, 3), 40 * (seed + 1), np.uint8)
            # The most attended unit's first frame, and one more.
            most = int(np.argmax(tensors.attention.unit_mass[:, :, 0].mean(axis=(0, 1))))
            run.save_thumbnails(item_id, "-", pixels, [2 * most, (2 * most + 2) % 10])
            written.append(tensors)
        run.append(
            Record(item_id="d", video_id="v9.mp4", error={"type": "MissingVideoError", "message": "no"})
        )
        write_summary(run.path, Summary.of("attention_drift", run.records(), METRICS))
    return path, written
