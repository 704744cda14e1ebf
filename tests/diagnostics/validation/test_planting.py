"""What the checks plant is what they say: videos without lesions, steps in order, options moved, nulls."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.data.items import Item
from diagnostics.data.minihorizon import load
from diagnostics.data.minihorizon.files import content
from diagnostics.data.minihorizon.procedure import make_procedures
from diagnostics.data.minihorizon.render import Scene
from diagnostics.data.minihorizon.settings import Config
from diagnostics.errors import ConfigError
from diagnostics.testbed.footage import as_patches
from diagnostics.validation.bench import Asked, Bench
from diagnostics.validation.checks.accuracy import shown_whole
from diagnostics.validation.checks.evidence import null_interval, painted_out
from diagnostics.validation.checks.heads import choosing
from diagnostics.validation.checks.language import reordered, standard_error
from diagnostics.validation.checks.order import apart, backwards, shuffled
from diagnostics.validation.checks.redundancy import videos_of
from diagnostics.validation.checks.sampling import hits
from diagnostics.validation.checks.swap import dosed
from diagnostics.validation.figure import validation_figure
from diagnostics.validation.rows import Row
from diagnostics.video.index import open_index
from diagnostics.video.selection import Selection, Slot
from probes import Estimate, video_halves

CONFIG = Config(split="test", n_videos=12)


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[Item]:
    """The questions; none of their videos is written."""
    return content(CONFIG, tmp_path_factory.mktemp("nowhere"))[1]


@pytest.fixture(scope="module")
def bench() -> Any:
    procedures = {procedure.name: procedure for procedure in make_procedures(CONFIG)}
    return SimpleNamespace(data=CONFIG, procedure=lambda item: procedures[item.video.stem])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A real bench over written videos."""
    cache = str(tmp_path_factory.mktemp("written"))
    data = SimpleNamespace(loader="minihorizon", parameters={"split": "test", "n_videos": 6, "cache": cache})
    reading = SimpleNamespace(reader="pyav", timeout_seconds=60.0, workers=1)
    config = SimpleNamespace(data=data, reading=reading)
    loaded = load(Config(split="test", n_videos=6, cache=cache))
    with Bench(SimpleNamespace(config=config, items=loaded.items), lambda text: None) as bench:  # type: ignore[arg-type]
        yield bench


def selection_of(item: Item, frames: list[int]) -> Selection:
    slots = tuple(Slot(item.video_id, frame, frame / 4, frame / 4) for frame in frames)
    return Selection(slots, "by hand", 4.0, 96, 24.0, len(slots))


def test_only_the_lesion_is_gone(bench: Any, items: list[Item]) -> None:
    """Raw pictures: equal, bit for bit, wherever no lesion is; the file holds the same many frames."""
    item = next(item for item in items if item.task == "Hist")
    procedure = bench.procedure(item)
    config = CONFIG.of_video(procedure.index)
    scenes = Scene(config, procedure), Scene(config, replace(procedure, lesions=()))
    whole, without = (np.concatenate(list(scene.blocks())) for scene in scenes)
    masks = np.stack([scenes[0].lesion_mask(frame) for frame in range(len(whole))])
    differs = (whole != without).any(axis=-1)
    (lesion,) = procedure.lesions
    shown = np.arange(len(whole))[differs.any(axis=(1, 2))]
    assert set(shown) == set(range(lesion.start_frame, lesion.end_frame))
    assert (differs & masks).sum() > 0.95 * masks.sum()
    # The soft edge of a lesion reaches one pixel beyond its mask.
    assert (differs & ~masks).sum() < 0.5 * masks.sum()


def test_the_painted_video_is_as_long(bench: Any, items: list[Item], tmp_path: Path) -> None:
    item = next(item for item in items if item.task == "Hist")
    path = painted_out(bench, item, tmp_path)
    assert open_index(path).n_frames == bench.procedure(item).n_frames


def test_apart_is_the_plan_s_order(bench: Any, items: list[Item]) -> None:
    item = next(item for item in items if item.task == "RSR")
    steps = {step.name: step for step in reversed(bench.procedure(item).steps)}  # the first of each name
    first = steps[item.options[Asked(item, None).right]]
    second = steps[item.options[1 - Asked(item, None).right]]
    assert first.start_frame < second.start_frame, "the right answer is the step that begins first"
    a, b = first.start_frame, second.start_frame
    assert apart(bench, item, selection_of(item, [a, a + 1, b, b + 1]))
    assert not apart(bench, item, selection_of(item, [b, b + 1, a, a + 1])), "mirrored"
    assert not apart(bench, item, selection_of(item, [a, a + 1, a, b])), "one unit shows both"
    assert not apart(bench, item, selection_of(item, [a, a + 1])), "one of them is not shown"


def test_perturbed_questions_keep_their_clock_and_their_units(items: list[Item]) -> None:
    asked = Asked(items[0], selection_of(items[0], list(range(0, 32, 2))))
    assert asked.selection is not None
    units = asked.selection.frame_indices.reshape(-1, 2).tolist()
    turned = backwards(asked).selection
    assert turned is not None
    assert turned.frame_indices.reshape(-1, 2).tolist() == units[::-1]
    np.testing.assert_array_equal(turned.shown_seconds, asked.selection.shown_seconds)
    orders = [group[0].selection for group in shuffled([asked])]
    assert len({order.frame_indices.tobytes() for order in orders if order}) == len(orders)
    for order in orders:
        assert order is not None
        assert sorted(order.frame_indices.reshape(-1, 2).tolist()) == units


@settings(deadline=None, max_examples=20)
@given(st.permutations(range(4)))
def test_options_move_with_their_letter(order: list[int]) -> None:
    item = Item("x", Path("x.mp4"), "x.mp4", "?", ("a", "b", "c", "d"), "C")
    moved = reordered(item, order)
    assert moved.options[moved.letters.index(moved.answer or "")] == "c"
    assert sorted(moved.options) == sorted(item.options)


def test_a_window_without_a_frame_is_seen(items: list[Item]) -> None:
    item = next(item for item in items if item.task == "RSR")
    assert item.evidence is not None
    starts = [window.start_frame or 0 for window in item.evidence.windows]
    assert shown_whole(selection_of(item, starts), item)
    assert not shown_whole(selection_of(item, starts[:1]), item)


def test_silenced_heads_are_found_on_other_videos_and_where_asked_on_the_same_task(
    items: list[Item],
) -> None:
    asked = [Asked(item, None) for item in items]
    videos = {one.item.video_id for one in asked}
    halves = video_halves([one.item.video_id for one in asked])
    tasks = np.array([one.item.task for one in asked])
    sides = []
    for place, one in enumerate(asked):
        everything, own = (choosing(halves, tasks, place, within) for within in ("all", "task"))
        there = {other.item.video_id for other, taken in zip(asked, everything, strict=True) if taken}
        assert one.item.video_id not in there
        assert len(there) == len(videos) / 2
        assert everything.sum() == sum(other.item.video_id in there for other in asked)
        assert own.tolist() == [
            taken and other.item.task == one.item.task for other, taken in zip(asked, everything, strict=True)
        ]
        sides.append(frozenset(there))
    assert len(set(sides)) == 2


def test_the_null_interval_is_that_of_the_mean() -> None:
    """Items whose nulls are fair coins of ±1: the mean of 100 has a standard deviation of a tenth."""
    low, high = null_interval([np.array([-1.0, 1.0])] * 100)
    assert (low, high) == pytest.approx((-0.196, 0.196), abs=0.03)
    assert null_interval([np.array([0.3])] * 5) == pytest.approx((0.3, 0.3))


def test_the_standard_error_is_that_of_an_ordinary_fit_clustered_by_video(items: list[Item]) -> None:
    asked = [Asked(item, None) for item in items[:40]]
    values = np.random.default_rng(3).normal(size=40)
    films = np.unique([item.video_id for item in items[:40]], return_inverse=True)[1]
    fit = sm.OLS(values, np.ones(40)).fit(
        cov_type="cluster", cov_kwds={"groups": films, "use_correction": False}
    )
    assert standard_error(values.tolist(), asked) == pytest.approx(fit.bse[0], rel=1e-9)
    assert standard_error([], []) == math.inf


def test_half_static_videos_are_made_of_the_independent_one_s_films(items: list[Item]) -> None:
    def read(path: Path, numbers: list[int]) -> np.ndarray:
        return np.zeros((len(numbers), 2, 2, 3), np.uint8)

    index = SimpleNamespace(fps=4.0, n_frames=96, duration=24.0)
    bench: Any = SimpleNamespace(
        uniform=lambda item, budget: selection_of(item, [10, 20, 30]),
        reader=SimpleNamespace(read=read, index=lambda path: index),
    )
    films = [replace(items[0], video_id=f"film {number}") for number in range(16)]
    shown = {
        kind: [
            [slot.source for slot in frames.selection.slots[::2]] for frames in videos_of(bench, kind, films)
        ]
        for kind in ("static", "half static", "independent")
    }
    names = [film.video_id for film in films]
    assert shown["independent"] == [names]
    assert shown["half static"] == [names[:8] + [names[still]] * 8 for still in (8, 10, 12, 14)]
    assert shown["static"] == [[names[still]] * 16 for still in (8, 10, 12, 14)]


def test_other_videos_are_others_and_are_asked_of_the_same_models(tmp_path: Path) -> None:
    """Named apart, so that a statistic by video does not take them for the same ones."""
    config = replace(CONFIG, n_videos=2, cache=str(tmp_path))
    data = SimpleNamespace(
        loader="minihorizon", parameters={"split": "test", "n_videos": 2, "cache": str(tmp_path)}
    )
    context: Any = SimpleNamespace(config=SimpleNamespace(data=data), items=content(config, tmp_path)[1])
    with Bench(context, lambda text: None) as bench, bench.beside(seed=1) as other:
        assert other.data == replace(config, seed=1)
        assert not {item.video_id for item in bench.items()} & {item.video_id for item in other.items()}
        assert all(item.video.exists() for item in other.items())
        assert other._models is bench._models
        assert other.procedure(other.items()[0]) != bench.procedure(bench.items()[0])


def test_doses_hold_so_many_units_of_the_evidence_named(written: Any) -> None:
    """Told by the plan's own frames, not by the windows of the items."""
    bench = written
    items = [item for item in bench.items() if item.task == "Hist"]
    own, other = items[0], next(item for item in items if item.video_id != items[0].video_id)

    def lesions(selection: Selection) -> int:
        seen = []
        for slot in selection.slots:
            item = own if slot.source == own.video_id else other
            (lesion,) = bench.procedure(item).lesions
            seen.append(lesion.start_frame <= slot.frame_index < lesion.end_frame)
        units = np.array(seen).reshape(-1, 2)
        assert (units.all(axis=1) == units.any(axis=1)).all(), "a unit is evidence as a whole or not at all"
        return int(units.any(axis=1).sum())

    even, removed = bench.uniform(own, 32), dosed(bench, own, 32, 0)
    for dose in (0, 1, 2):
        shown = dosed(bench, own, 32, dose)
        assert lesions(shown) == dose
        np.testing.assert_array_equal(shown.shown_seconds, even.shown_seconds)
    foil = dosed(bench, own, 32, 2, foil=other)
    assert lesions(foil) == 2
    assert sum(slot.source == other.video_id for slot in foil.slots) == 4
    own_places = [
        place
        for place, pair in enumerate(zip(dosed(bench, own, 32, 2).slots, removed.slots, strict=True))
        if pair[0] != pair[1]
    ]
    foil_places = [place for place, slot in enumerate(foil.slots) if slot.source == other.video_id]
    assert set(foil_places) <= set(own_places), "where the item's own evidence would stand"


def test_a_batch_shows_foreign_frames_from_their_own_video(written: Any) -> None:
    bench = written
    items = [item for item in bench.items() if item.task == "Hist"]
    own, other = items[0], next(item for item in items if item.video_id != items[0].video_id)
    asked = Asked(own, dosed(bench, own, 32, 1, foil=other))
    lesson = bench._lesson(asked)
    assert asked.selection is not None
    assert lesson.frames is not None
    for row, slot in zip(lesson.frames.tolist(), asked.selection.slots, strict=True):
        video = own.video if slot.source == own.video_id else other.video
        (picture,) = bench.reader.read(video, [slot.frame_index])
        np.testing.assert_array_equal(bench.footage.patches[row], as_patches(picture[None])[0])


def test_recall_is_whether_a_shown_frame_shows_the_lesion(written: Any) -> None:
    for item in written.items():
        if item.task == "Hist":
            selection = written.uniform(item, 8)
            (lesion,) = written.procedure(item).lesions
            seen = [lesion.start_frame <= frame < lesion.end_frame for frame in selection.frame_indices]
            assert hits(selection, item) == any(seen)


def test_batches_with_another_tokenizer_are_refused() -> None:
    other = SimpleNamespace(
        processor=SimpleNamespace(tokenizer=SimpleNamespace(get_vocab=lambda: {"a": 0})),
        config=SimpleNamespace(name="other", path="other"),
    )
    with pytest.raises(ConfigError, match="tokenizer of other"):
        Bench.chosen(Bench.__new__(Bench), other, [])  # type: ignore[arg-type]


def test_the_figure_shows_what_failed_and_survives_what_is_undefined() -> None:
    def estimated(mean: float, spread: float) -> Estimate:
        return Estimate(mean, mean - spread, mean + spread, 9, 9, 0)

    rows = [
        *(Row.exact(f"r{n}", "n", n, n, tolerance=1e-9, why="w", group="by hand") for n in range(5)),
        Row.exact("wrong", "1", 1.0, 2.0, tolerance=1e-9, why="w", group="by hand"),
        Row.above("lift", 0.0, estimated(2.0, 0.5), why="w", group="measured"),
        Row.exact("undefined", "1", 1.0, math.nan, tolerance=0.1, why="w", group="measured"),
    ]
    figure = validation_figure(rows)
    axes = [one for part in figure.subfigs for one in part.axes]
    titles = [one.get_title(loc="left") for one in axes if one.get_title(loc="left")]
    assert titles == ["by hand: 6 rows", "measured"]
    scatter = {line.get_gid(): len(line.get_xdata()) for line in axes[0].lines if line.get_gid()}
    assert scatter["by hand passed"] == 5
    assert scatter["by hand failed"] == 1
