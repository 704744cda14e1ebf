"""A run that is killed with SIGKILL again and again ends as an undisturbed one does."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diagnostics.store import all_records, comparable, merge_check, read_manifests, read_records, read_tensors

ROOT = Path(__file__).parents[3]
KILLS = 10
ITEMS = 70
PATIENCE_SECONDS = 30.0

WRITER = """
import sys
import numpy as np
from diagnostics.store import (
    Attention, Failure, PairTensors, Record, RunFolder, Tokens, Units, condition_id, config_hash,
)

def tensors(item, condition, seed):
    rng = np.random.default_rng(seed)
    mass = rng.dirichlet(np.ones(9), size=(3, 2, 1)).astype(np.float32)
    frames = np.arange(8)[:, None]
    units = Units(frames, frames / 25, frames / 25, frames == 3)
    tokens = Tokens(*(np.arange(8, dtype=np.int32) for _ in range(4)))
    attention = Attention(mass[..., :-1], mass[..., -1], mass[:, 0, :, :-1])
    return PairTensors(
        item_id=item, condition=condition, units=units, tokens=tokens,
        layer=np.arange(3), role=("last",), attention=attention,
    )

config = {"experiment": "kill"}
with RunFolder.open(sys.argv[1], config, config_hash(config), experiment="kill") as run:
    for number in range(int(sys.argv[2])):
        for condition in ({}, {"order": "reversed"}):
            item = f"video/{number // 4}/question ü {number}"
            if (item, condition_id(condition)) in run.finished:
                continue
            record = Record(
                item_id=item, condition=condition, video_id=f"video/{number // 4}", raw="x" * 3000,
                measures={"entropy": number / 7}, seconds={"generate": np.random.default_rng().random()},
            )
            if number % 10 == 7:
                run.append(Record(item_id=item, condition=condition, video_id=record.video_id,
                                  error=Failure.of(ValueError(f"item {number} is bad"))))
                continue
            frames = np.full((2, 90, 160, 3), number, dtype=np.uint8)
            run.save_thumbnails(item, condition_id(condition), frames, [0, 1])
            run.save(record, tensors(item, condition, [number, len(condition)]))
"""


def start(folder):
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(ITEMS)], cwd=ROOT)


def lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def files(folder, below):
    return {p.relative_to(folder).as_posix() for p in (folder / below).rglob("*") if p.is_file()}


def kill_after_new_records(process, path, wanted, jitter):
    """Kill the process some moment after it appended `wanted` records; says whether it was still alive."""
    target, deadline = lines(path) + wanted, time.monotonic() + PATIENCE_SECONDS
    while lines(path) < target and process.poll() is None:
        assert time.monotonic() < deadline, "the writer does not get on"
        time.sleep(0.001)
    time.sleep(jitter)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_at_random_moments_the_run_ends_as_an_undisturbed_one(tmp_path):
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    assert start(calm).wait() == 0
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    kills = 0
    for _ in range(KILLS):
        process = start(rough)
        kills += kill_after_new_records(
            process, rough / "samples.0.jsonl", chance.randint(1, 6), chance.uniform(0, 0.02)
        )
    assert kills == KILLS, f"the run ended before the kills did (seed {seed})"
    assert len(read_records(rough)) < ITEMS * 2, "nothing was left to do"
    assert start(rough).wait() == 0

    expected = {record.pair for record in read_records(calm)}
    assert len(expected) == ITEMS * 2
    check = merge_check(all_records(rough), expected)
    check.require_whole()
    assert len(check.failed) == ITEMS * 2 // 10
    assert [comparable(r) for r in read_records(rough)] == [comparable(r) for r in read_records(calm)], seed
    finished = [record.pair for record in all_records(rough) if record.error is None]
    assert len(finished) == len(set(finished)), f"a pair was measured twice (seed {seed})"
    for below in ("tensors", "thumbnails"):
        assert files(rough, below) == files(calm, below), f"{below} differ (seed {seed})"
        for name in files(calm, below):
            assert (rough / name).read_bytes() == (calm / name).read_bytes(), f"{name} differs (seed {seed})"
    sample = next(record for record in read_records(rough) if record.tensor_file)
    assert read_tensors(rough / sample.tensor_file).pair == sample.pair
    assert not list(rough.rglob("*.partial"))

    (manifest,) = read_manifests(rough)
    assert [attempt.attempt for attempt in manifest.attempts] == list(range(1, KILLS + 2))
    assert [attempt.outcome for attempt in manifest.attempts] == [None] * KILLS + ["done"]
    assert manifest.counts == read_manifests(calm)[0].counts
