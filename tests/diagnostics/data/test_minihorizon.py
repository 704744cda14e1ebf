import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import av
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from diagnostics.data import load_items
from diagnostics.data.minihorizon.files import TRUTH, ensure_files, write_video
from diagnostics.data.minihorizon.plan import LESION_COLOURS, PLACES, SIZES, TISSUE_HUES, make_plans
from diagnostics.data.minihorizon.questions import KINDS, make_items
from diagnostics.data.minihorizon.render import BLOCK, Scene
from diagnostics.data.minihorizon.settings import Config
from diagnostics.errors import ConfigError

SMALL = Config(n_videos=6, seconds=20.0, fps=8.0, evidence_ratio=0.05, questions=5, seed=3)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def loaded(cache):
    return load_items("minihorizon", {**dataclasses.asdict(SMALL), "cache": str(cache)})


def decode(path):
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        return np.stack(frames), stream.average_rate, stream.codec_context.name, stream.codec_context.pix_fmt


def near(pictures, colour, distance=45):
    """Which pixels are within a Euclidean distance of an RGB colour."""
    return np.linalg.norm(pictures.astype(float) - colour, axis=-1) < distance


def test_the_lesion_is_in_its_window_and_nowhere_else(loaded):
    """By pixels of the decoded file: nothing of the generator but the item's own claims is used."""
    for item in loaded.items:
        if item.task != "lesion_colour":
            continue
        pictures, rate, codec, layout = decode(item.video)
        assert (codec, layout, rate) == ("h264", "yuv420p", Fraction(8))
        assert pictures.shape == (160, 96, 96, 3)
        truth = item.metadata["lesion"]
        colour = LESION_COLOURS[item.options["ABCD".index(item.answer)]]
        count = near(pictures, colour).sum(axis=(1, 2))
        (window,) = item.evidence.windows
        inside = np.zeros(160, dtype=bool)
        inside[window.start_frame : window.end_frame] = True
        area = np.pi / 4 * (SIZES[truth["size"]] * 96) ** 2
        assert inside.sum() == 8
        assert count[inside].min() > 0.5 * area, f"{item.id}: {count[inside]} of {area:.0f} pixels"
        assert count[~inside].max() < 0.1 * area, f"{item.id}: {count[~inside].max()} of {area:.0f} pixels"
        assert (window.start_seconds, window.end_seconds) == (window.start_frame / 8, window.end_frame / 8)


def test_size_place_and_hue_can_be_read_from_the_pixels(loaded):
    by_task = {(item.video_id, item.task): item for item in loaded.items}
    for (video, task), item in by_task.items():
        if task != "lesion_size":
            continue
        colours = by_task[video, "lesion_colour"]
        colour = LESION_COLOURS[colours.options["ABCD".index(colours.answer)]]
        (window,) = item.evidence.windows
        frame = (window.start_frame + window.end_frame) // 2
        picture = decode(item.video)[0][frame]
        down, across = np.nonzero(near(picture, colour))

        width = 2 * np.sqrt(len(down) / np.pi) / 96
        nearest = min(SIZES, key=lambda size: abs(np.log(SIZES[size] / width)))
        assert item.options["ABCD".index(item.answer)] == nearest, f"measured width {width:.3f}"

        place = by_task[video, "lesion_place"]
        vertical = "upper" if np.median(down) < 48 else "lower"
        horizontal = "left" if np.median(across) < 48 else "right"
        assert place.options["ABCD".index(place.answer)] == f"{vertical} {horizontal}"

        phase = by_task[video, "lesion_phase"]
        before = decode(item.video)[0][window.start_frame - 1].mean(axis=(0, 1))
        chroma = before / before.sum()
        hue = min(
            TISSUE_HUES,
            key=lambda name: np.linalg.norm(np.divide(TISSUE_HUES[name], sum(TISSUE_HUES[name])) - chroma),
        )
        assert phase.options["ABCD".index(phase.answer)] == hue

        quarter = by_task[video, "lesion_quarter"]
        names = ["first quarter", "second quarter", "third quarter", "last quarter"]
        said = names.index(quarter.options["ABCD".index(quarter.answer)])
        assert 40 * said <= window.start_frame < window.end_frame <= 40 * (said + 1)


def test_the_truth_file_is_the_same_items(loaded):
    folder = loaded.items[0].video.parent
    again = load_items("jsonl", {"path": str(folder / TRUTH)})
    assert again.rejected == []
    assert again.items == loaded.items
    assert len(again.items) == 30


def test_pictures_are_the_same_bit_for_bit():
    first, second = (Scene(SMALL, make_plans(SMALL)[1]) for _ in range(2))
    whole = np.concatenate(list(first.blocks()))
    assert len(whole) == SMALL.n_frames
    assert np.array_equal(second.block(2), whole[2 * BLOCK : 3 * BLOCK]), "a block can be rendered alone"
    other = dataclasses.replace(SMALL, seed=4)
    assert not np.array_equal(Scene(other, make_plans(other)[1]).block(0), first.block(0))


def test_files_are_the_same_byte_for_byte(tmp_path):
    plan = make_plans(SMALL)[0]
    for name in ("a.mp4", "b.mp4"):
        write_video(SMALL, plan, tmp_path / name)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


def test_the_mask_is_where_the_picture_changes():
    """The scene with and without its lesion differ exactly where the mask says."""
    plan = make_plans(SMALL)[3]
    absent = dataclasses.replace(plan, lesion=dataclasses.replace(plan.lesion, start_frame=0, end_frame=1))
    block = plan.lesion.start_frame // BLOCK
    shown, hidden = (Scene(SMALL, p).block(block).astype(int) for p in (plan, absent))
    frame = plan.lesion.start_frame
    changed = np.abs(shown - hidden)[frame - block * BLOCK].max(axis=-1) > 30
    mask = Scene(SMALL, plan).lesion_mask(frame)
    assert (changed & mask).sum() / (changed | mask).sum() > 0.9
    assert not Scene(SMALL, plan).lesion_mask(frame - 1).any()
    if block > 0:
        first = frame - block * BLOCK
        assert np.array_equal(shown[:first], hidden[:first]), "outside its window the lesion leaves no trace"


@settings(max_examples=40, deadline=None)
@given(
    n_videos=st.integers(1, 30),
    questions=st.integers(1, 5),
    n_frames=st.integers(40, 3000),
    ratio=st.floats(0.0003, 0.1),
    seed=st.integers(0, 10_000),
)
@example(n_videos=5, questions=1, n_frames=40, ratio=0.09375, seed=0)  # a phase edge left the lesion no room
def test_plans_and_questions_hold_their_promises(
    tmp_path_factory, n_videos, questions, n_frames, ratio, seed
):
    config = Config(
        n_videos=n_videos, questions=questions, seconds=n_frames / 8, evidence_ratio=ratio, seed=seed
    )
    plans = make_plans(config)
    for plan in plans:
        assert [phase.start_frame for phase in plan.phases[1:]] == [
            phase.end_frame for phase in plan.phases[:-1]
        ]
        assert (plan.phases[0].start_frame, plan.phases[-1].end_frame) == (0, n_frames)
        assert {phase.hue for phase in plan.phases} == set(TISSUE_HUES)
        (around,) = (p for p in plan.phases if p.start_frame <= plan.lesion.start_frame < p.end_frame)
        assert around.hue == plan.lesion.hue
        assert plan.lesion.end_frame <= around.end_frame
        assert plan.lesion.end_frame - plan.lesion.start_frame == config.n_evidence_frames
    for trait, values in (
        ("colour", LESION_COLOURS),
        ("size", SIZES),
        ("place", PLACES),
        ("hue", TISSUE_HUES),
    ):
        counts = Counter(getattr(plan.lesion, trait) for plan in plans)
        assert max(counts.values()) - min(counts.get(value, 0) for value in values) <= 1
    items = make_items(config, plans, tmp_path_factory.getbasetemp())
    assert len({item.id for item in items}) == n_videos * questions
    for item in items:
        assert len(set(item.options)) == 4
        assert item.options["ABCD".index(item.answer)] == KINDS[item.task].truth(
            plans[int(item.video_id[10:-4])].lesion
        )
    for task in [None, *KINDS]:
        letters = Counter(item.answer for item in items if task in (None, item.task))
        assert max(letters.values(), default=0) - min(letters.get(letter, 0) for letter in "ABCD") <= 1
    tasks = Counter(item.task for item in items)
    assert max(tasks.values()) - min(tasks.get(task, 0) for task in KINDS) <= 1


def test_the_default_is_a_needle():
    config = Config()
    assert config.n_evidence_frames / config.n_frames < 0.02
    assert config.n_frames == 2400
    assert config.content_hash == Config(cache="elsewhere").content_hash
    assert config.content_hash != Config(seed=1).content_hash


@pytest.mark.parametrize(
    "wrong",
    [{"evidence_ratio": 0.2}, {"questions": 6}, {"height": 97}, {"seconds": 3}, {"fps": 0}, {"n_video": 3}],
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong)) if "seconds" not in wrong else "frames"):
        load_items("minihorizon", wrong)


TINY = Config(n_videos=2, seconds=5.0, questions=1)


def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("DIAGNOSTICS_CACHE", str(tmp_path / "here"))
    folder = ensure_files(TINY)
    assert folder.is_relative_to(tmp_path / "here")
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert ensure_files(TINY) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before, "written once"


def test_a_cache_that_lost_a_file_is_written_again(tmp_path):
    config = dataclasses.replace(TINY, cache=str(tmp_path))
    folder = ensure_files(config)
    video = folder / "procedure-000.mp4"
    whole = video.read_bytes()
    for damage in (lambda: video.unlink(), lambda: video.write_bytes(whole[:100])):
        damage()
        ensure_files(config)
        assert video.read_bytes() == whole


def test_what_a_killed_process_left_is_no_obstacle(tmp_path):
    config = Config(n_videos=40, seconds=60.0, questions=1, cache=str(tmp_path))
    code = (
        "from diagnostics.data.minihorizon.files import ensure_files\n"
        "from diagnostics.data.minihorizon.settings import Config\n"
        f"ensure_files(Config(n_videos=40, seconds=60.0, questions=1, cache={str(tmp_path)!r}))"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        partial = tmp_path / f"{config.content_hash}.partial"
        while not any(partial.glob("*.mp4")):
            assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
    assert not (tmp_path / config.content_hash).exists()
    assert partial.exists()
    small = dataclasses.replace(TINY, cache=str(tmp_path))
    left = tmp_path / f"{small.content_hash}.partial"
    partial.rename(left)
    folder = ensure_files(small)
    assert not left.exists()
    assert len(list(folder.glob("*.mp4"))) == 2


def test_two_processes_at_once_write_one_set(tmp_path):
    config = dataclasses.replace(TINY, cache=str(tmp_path))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        folders = pool.map(ensure_files, [config, config])
    assert folders[0] == folders[1]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [config.content_hash]


def test_a_cache_that_cannot_be_written_says_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="DIAGNOSTICS_CACHE"):
        ensure_files(dataclasses.replace(TINY, cache=str(tmp_path / "file" / "below")))
