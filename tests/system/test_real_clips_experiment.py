"""The experiment on real films: frames, counts, rows and pictures against what is worked out here."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ..resizing import resized
from ..running import Run, attention_drift
from .conftest import CLIPS, Film

pytestmark = pytest.mark.system

LIMITS = (4_096, 25_165_824)
"""The tiny model's limits are those published for Qwen3-VL: pixels over time, height and width."""


@pytest.fixture(scope="module", params=[7, 64, 768])
def budget(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="module")
def run(budget: int, films: dict[str, Film], questions, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All films with 7 and with 64 frames; the longest one with 768."""
    root = tmp_path_factory.mktemp(f"budget{budget}")
    names = CLIPS if budget < 768 else ("world.mp4",)
    started = time.perf_counter()
    done = attention_drift(
        root / "run",
        *questions(*names),
        f"sampling.budget={budget}",
        "backend.max_new_tokens=2",
        "exp.item_figures=1",
        f"exp.top_units={budget}",
        cache=root / "cache",
        timeout=1_200,
    )
    print(f"\n{budget} frames of {len(names)} films: {time.perf_counter() - started:.0f} s")
    for record in done.records:
        print(f"  {record.item_id}: {record.n_visual_tokens} visual tokens, {dict(record.seconds)}")
    return done


def test_every_film_is_measured_and_only_shrinking_and_crowded_times_are_warned_of(
    run: Run, films: dict[str, Film], budget: int
) -> None:
    names = CLIPS if budget < 768 else ("world.mp4",)
    assert {record.item_id for record in run.records} == set(names)
    assert [record.error for record in run.records] == [None] * len(names)
    for record in run.records:
        height, width = films[record.item_id].size
        tall, wide = resized(budget, height, width, factor=32, limits=LIMITS)
        shrunk = tall <= height - 32 or wide <= width - 32
        expected = [f"shrunk_by_pixel_limits: {width}x{height} shown as {wide}x{tall}"] if shrunk else []
        # The prompt tells tenths of a second, the mean of each unit's two frames.
        seconds = [slot.frame_index / record.source_fps for slot in record.slots]
        ends = zip(seconds[::2], [*seconds[1::2], seconds[-1]], strict=False)
        units = [f"{(first + last) / 2:.1f}" for first, last in ends]
        if same := sum(one == other for one, other in pairwise(units)):
            expected.append(
                f"shared_times: {same} of {len(units) - 1} pairs of neighbouring units are told the same "
                "time, though their frames differ in time"
            )
        assert list(record.warnings) == expected, record.item_id


def test_frames_are_uniform_from_the_first_to_the_last(run: Run, films: dict[str, Film], budget: int) -> None:
    for record in run.records:
        film = films[record.item_id]
        numbers = film.shown(budget)
        assert [slot.frame_index for slot in record.slots] == numbers.tolist()
        times = [slot.shown_seconds for slot in record.slots]
        np.testing.assert_allclose(times, numbers / film.fps, atol=1e-3, err_msg=record.item_id)


def test_token_counts_are_those_of_the_published_rule(run: Run, films: dict[str, Film], budget: int) -> None:
    for record in run.records:
        tall, wide = resized(budget, *films[record.item_id].size, factor=32, limits=LIMITS)
        units = -(-budget // 2)
        assert record.n_units == units
        assert record.grid == ((units, tall // 16, wide // 16),), record.item_id
        assert record.tokens_per_unit == (tall // 32) * (wide // 32)
        assert record.n_visual_tokens == units * record.tokens_per_unit
        assert LIMITS[0] <= budget * tall * wide <= LIMITS[1]
        # One start, one end and a time for each unit, one pair around all, and the text.
        assert record.n_prompt_tokens > record.n_visual_tokens + 3 * units + 2


def test_rows_sum_to_one(run: Run) -> None:
    for record in run.records:
        sums = run.row_sums(record)
        assert sums.shape == (4, 4, 4), "layers, heads, roles"
        np.testing.assert_allclose(sums, 1.0, atol=1e-5, err_msg=record.item_id)


def test_tensors_name_the_frames_of_each_unit(run: Run, films: dict[str, Film], budget: int) -> None:
    for record in run.records:
        tensors = run.tensors(record)
        numbers = films[record.item_id].shown(budget).tolist()
        padded = np.array([*numbers, *[-1] * (budget % 2)]).reshape(-1, 2)
        np.testing.assert_array_equal(tensors.units.frame_index, padded)
        first_half_second = (padded >= 0) & (padded / films[record.item_id].fps < 0.5)
        np.testing.assert_array_equal(tensors.units.evidence, first_half_second)
        assert len(tensors.tokens.position) == record.n_visual_tokens


def test_thumbnails_show_the_frames_they_are_named_after(
    run: Run, films: dict[str, Film], budget: int
) -> None:
    """Against a full decode, shrunk alike: within JPEG's error, and no other frame shown is nearer."""
    for record in run.records:
        film, saved = films[record.item_id], run.thumbnails(record)
        assert set(saved) == set(range(budget)), "as many of the most attended as there are"
        numbers = film.shown(budget)
        pictures = film.pictures(set(numbers.tolist()))
        height, width = film.size
        small = (160, round(height * 160 / width)) if width > 160 else (width, height)
        expected = np.stack(
            [
                np.asarray(Image.fromarray(pictures[n]).resize(small, Image.Resampling.BILINEAR), np.float32)
                for n in numbers
            ]
        )
        for slot in range(0, budget, max(1, budget // 16)):
            shown = np.asarray(Image.open(saved[slot]).convert("RGB"), np.float32)
            errors = np.abs(expected - shown).mean(axis=(1, 2, 3))
            assert errors[slot] < 6, f"{record.item_id} slot {slot}: {errors[slot]:.1f} of 255"
            assert errors[slot] <= errors.min() + 0.05, f"{record.item_id} slot {slot}: nearer to another"


def test_pictures_of_the_run_are_drawn(run: Run) -> None:
    for name in ("attention_drift.png", "attention_drift.pdf"):
        assert (run.folder / "figures" / name).stat().st_size > 1_000
    assert list((run.folder / "figures" / "items").glob("*.png"))


def test_another_reader_gives_the_same_records(films: dict[str, Film], questions, tmp_path: Path) -> None:
    """decord, checked against the index, on a film it reads exactly."""
    both = [
        attention_drift(
            tmp_path / reader,
            *questions("carphone.mp4"),
            "sampling.budget=7",
            "backend.max_new_tokens=2",
            "exp.item_figures=0",
            f"reading.reader={reader}",
            cache=tmp_path / "cache",
        ).records[0]
        for reader in ("pyav", "decord")
    ]
    assert both[0].measures == both[1].measures
    assert both[0].prompt_sha256 == both[1].prompt_sha256
