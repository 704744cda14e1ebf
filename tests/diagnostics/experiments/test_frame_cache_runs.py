"""Whole runs that share a frame cache: the second decodes nothing and finds the same."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from diagnostics.config import NOT_RESULTS
from diagnostics.store.manifest import read_manifests
from diagnostics.store.record_log import read_records
from diagnostics.store.records import comparable

from .conftest import Diagnose

READER = """
    from pathlib import Path
    from diagnostics.video.readers import pyav

    def read(index, indices, out, threads):
        with Path(__file__).with_suffix(".log").open("a") as log:
            log.write(f"{Path(index.path).stem} {indices.tolist()}\\n")
        pyav.read(index, indices, out, threads)
"""

BENCHMARK = (
    "+exp=benchmark",
    "data.n_videos=2",
    "data.seconds=30",
    "data.fps=8",
    "data.evidence_ratio=0.0167",
    "data.questions=2",
    "backend.max_new_tokens=4",
    "reading.reader=counted_frames.reader",
)


def decoded(log: Path) -> dict[str, list[int]]:
    """Frames by video, as the reading processes were asked for them; forgotten after that."""
    found: dict[str, list[int]] = {}
    if log.exists():
        for line in log.read_text().splitlines():
            video, _, numbers = line.partition(" ")
            found.setdefault(video, []).extend(json.loads(numbers))
        log.unlink()
    return found


def test_a_second_run_decodes_nothing_and_finds_the_same(
    diagnose: Diagnose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "counted_frames"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "reader.py").write_text(textwrap.dedent(READER))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).resolve().parents[3]}")
    log, shared = package / "reader.log", f"reading.cache={tmp_path / 'kept frames'}"

    def run(name: str, *more: str) -> tuple[list[dict], dict, str]:
        finished = diagnose(*BENCHMARK, f"out={tmp_path / name}", *more)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        (manifest,) = read_manifests(tmp_path / name)
        records = [comparable(record) for record in read_records(tmp_path / name)]
        return records, manifest.checks.get("frame_cache", {}), finished.stdout

    plain, told, said = run("plain", "sampling.budget=8")
    assert not told
    assert "frame cache" not in said
    frames = decoded(log)
    assert [len(numbers) for numbers in frames.values()] == [8, 8]

    first, told, said = run("first", "sampling.budget=8", shared)
    assert first == plain, "the configuration's hash included"
    assert decoded(log) == frames
    assert (told["hits"], told["misses"], told["stopped"]) == (0, 16, None)
    assert "frame cache: 0 of 16 frames were kept" in said

    second, told, said = run("second", "sampling.budget=8", shared, "reading.cache_gib=1")
    assert second == plain
    assert decoded(log) == {}
    assert (told["hits"], told["misses"], told["bytes_written"]) == (16, 0, 0)
    assert "frame cache: 16 of 16 frames were kept" in said

    _, told, _ = run("longer", "sampling.budget=16", shared)
    asked = decoded(log)
    assert all(not set(asked[video]) & set(frames[video]) for video in frames), "what overlaps is not decoded"
    assert told["hits"] > 0
    assert told["hits"] + told["misses"] == 32


def test_where_frames_are_kept_cannot_change_results() -> None:
    assert {"reading.cache", "reading.cache_gib"} <= NOT_RESULTS
