import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction

import av
import numpy as np
import pandas as pd
import pytest

from diagnostics.data import load_items
from diagnostics.data.minihorizon.files import TRACKS, TRUTH, ensure_files, write_video
from diagnostics.data.minihorizon.plan import LESION_COLOURS, TISSUE_HUES
from diagnostics.data.minihorizon.procedure import LESION_SIZES, PHASES, make_procedures
from diagnostics.data.minihorizon.render import BLOCK, Scene
from diagnostics.data.minihorizon.settings import Config
from diagnostics.errors import ConfigError

from .retold import truth

SMALL = Config(n_videos=6, seconds=20.0, fps=8.0, evidence_ratio=0.05, seed=3)
"""One lesion in each, 8 of 160 frames."""


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


def test_the_lesion_is_in_its_window_and_nowhere_else(loaded, tmp_path):
    """By pixels of the decoded file, against a file of the same scene without it: colour, size and place."""
    plans = {procedure.video: procedure for procedure in make_procedures(SMALL)}
    by_task = {(item.video_id, item.task): item for item in loaded.items}
    for video, plan in plans.items():
        colours, sizes, places = (by_task[video, task] for task in ("Hist", "Size", "Site"))
        pictures, rate, codec, layout = decode(colours.video)
        assert (codec, layout, rate) == ("h264", "yuv420p", Fraction(8))
        assert pictures.shape == (160, 96, 96, 3)
        write_video(SMALL, dataclasses.replace(plan, lesions=()), tmp_path / video)
        change = np.abs(pictures.astype(int) - decode(tmp_path / video)[0]).max(axis=-1) > 48
        count = change.sum(axis=(1, 2))
        (window,) = colours.evidence.windows
        assert colours.evidence == sizes.evidence == places.evidence
        inside = np.zeros(160, dtype=bool)
        inside[window.start_frame : window.end_frame] = True
        area = np.pi / 4 * (LESION_SIZES[truth(sizes)] * 96) ** 2
        assert inside.sum() == 8
        assert count[inside].min() > 0.6 * area, f"{video}: {count[inside]} of {area:.0f} pixels"
        assert count[~inside].max() < 0.05 * area, f"{video}: {count[~inside].max()} of {area:.0f} pixels"
        assert (window.start_seconds, window.end_seconds) == (window.start_frame / 8, window.end_frame / 8)

        middle = (window.start_frame + window.end_frame) // 2
        colour = np.median(pictures[middle][change[middle]], axis=0)
        assert truth(colours) == min(
            LESION_COLOURS, key=lambda name: np.linalg.norm(LESION_COLOURS[name] - colour)
        )
        down, across = np.nonzero(change[middle])
        width = 2 * np.sqrt(len(down) / np.pi) / 96
        nearest = min(LESION_SIZES, key=lambda size: abs(np.log(LESION_SIZES[size] / width)))
        assert truth(sizes) == nearest, f"measured width {width:.3f}"
        vertical = "upper" if np.median(down) < 48 else "lower"
        horizontal = "left" if np.median(across) < 48 else "right"
        assert truth(places) == f"{vertical} {horizontal}"


def test_the_phase_asked_about_has_its_hue_in_every_frame_of_the_window(loaded):
    """Steps and instruments leave the upper corners of the picture their tissue's hue, lesions do not."""
    asked = [item for item in loaded.items if item.task == "PR"]
    assert len(asked) >= 4
    for item in asked:
        (window,) = item.evidence.windows
        pictures = decode(item.video)[0][window.start_frame : window.end_frame]
        for number, picture in enumerate(pictures, start=window.start_frame):
            (lesion,) = item.metadata["lesions"]
            if lesion["start_frame"] <= number < lesion["end_frame"]:
                continue
            seen = np.median(picture[:32].reshape(-1, 3).astype(float), axis=0)
            hues = {name: np.array(TISSUE_HUES[hue], dtype=float) for name, hue in PHASES.items()}
            nearest = min(
                hues, key=lambda name: np.linalg.norm(hues[name] / hues[name].sum() - seen / seen.sum())
            )
            assert truth(item) == nearest, (item.id, number)


def test_the_truth_file_is_the_same_items(loaded):
    folder = loaded.items[0].video.parent
    again = load_items("jsonl", {"path": str(folder / TRUTH)})
    assert again.rejected == []
    assert again.items == loaded.items
    assert len(again.items) >= 36


def test_what_became_of_every_candidate_is_beside_the_videos(loaded):
    folder = loaded.items[0].video.parent
    lines = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    assert all(line["reason"].endswith("Error") and line["candidate"]["id"] for line in lines)
    funnel = pd.read_csv(folder / "funnel.csv", keep_default_na=False)
    totals = funnel[funnel["reason"] == ""].groupby("stage")["entered"].sum()
    assert totals["candidates"] == len(loaded.items) + len(lines)
    assert totals["letters"] == len(loaded.items)
    assert json.loads((folder / TRACKS).read_text())["source"] == "minihorizon-needle"


def test_pictures_are_the_same_bit_for_bit():
    first, second = (Scene(SMALL, make_procedures(SMALL)[1]) for _ in range(2))
    whole = np.concatenate(list(first.blocks()))
    assert len(whole) == SMALL.n_frames
    assert np.array_equal(second.block(2), whole[2 * BLOCK : 3 * BLOCK]), "a block can be rendered alone"
    other = dataclasses.replace(SMALL, seed=4)
    assert not np.array_equal(Scene(other, make_procedures(other)[1]).block(0), first.block(0))


def test_files_are_the_same_byte_for_byte(tmp_path):
    plan = make_procedures(SMALL)[0]
    for name in ("a.mp4", "b.mp4"):
        write_video(SMALL, plan, tmp_path / name)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


def test_the_mask_is_where_the_picture_changes():
    """The scene with and without its lesion differ exactly where the mask says."""
    plan = make_procedures(SMALL)[3]
    absent = dataclasses.replace(plan, lesions=())
    (lesion,) = plan.lesions
    frame = lesion.start_frame
    block = frame // BLOCK
    shown, hidden = (Scene(SMALL, p).block(block).astype(int) for p in (plan, absent))
    changed = np.abs(shown - hidden)[frame - block * BLOCK].max(axis=-1) > 30
    mask = Scene(SMALL, plan).lesion_mask(frame)
    assert (changed & mask).sum() / (changed | mask).sum() > 0.9
    assert not Scene(SMALL, plan).lesion_mask(frame - 1).any()
    spots = np.arange(len(shown)) + block * BLOCK
    outside = (spots < frame) | (spots >= lesion.end_frame)
    assert outside.any()
    assert np.array_equal(shown[outside], hidden[outside]), "outside its window the lesion leaves no trace"


def test_the_default_is_a_needle():
    config = Config()
    assert config.split == "needle"
    last = config.of_video(0)
    assert last.n_evidence_frames / last.n_frames == pytest.approx(0.0005, rel=0.15)
    assert last.n_frames == 7200
    assert config.content_hash == Config(cache="elsewhere", split="needle").content_hash
    assert config.content_hash != Config(seed=1).content_hash


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"evidence_ratio": 0.2}, "evidence_ratio"),
        ({"questions": 10}, "questions"),
        ({"height": 97}, "height"),
        ({"seconds": 3}, "frames"),
        ({"fps": 0}, "fps"),
        ({"n_video": 3}, "n_videos"),
        ({"split": "trian"}, "split"),
        ({"split": None}, "split"),
    ],
)
def test_wrong_parameters_are_refused(wrong, told):
    with pytest.raises(ConfigError, match=told):
        load_items("minihorizon", wrong)


TINY = Config(n_videos=2, seconds=5.0, fps=8.0, questions=1)


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
    video = folder / "needle-000.mp4"
    whole = video.read_bytes()
    for damage in (lambda: video.unlink(), lambda: video.write_bytes(whole[:100])):
        damage()
        ensure_files(config)
        assert video.read_bytes() == whole


def test_the_camera_s_motion_is_a_setting_of_its_own(tmp_path):
    """The split's own value written out is the same content; another is another, and moves more."""
    plain = Config(split="test", n_videos=2, seconds=20.0)
    assert dataclasses.replace(plain, motion=1.0).content_hash == plain.content_hash
    still, fast = (dataclasses.replace(plain, motion=motion) for motion in (0.0, 8.0))
    assert len({config.content_hash for config in (plain, still, fast)}) == 3

    def moved(config):
        procedure = dataclasses.replace(make_procedures(config)[0], lesions=(), steps=())
        pictures = np.concatenate(list(Scene(config, procedure).blocks())).astype(float)
        return np.abs(np.diff(pictures[::4], axis=0)).mean()

    assert moved(still) < moved(plain) < moved(fast)


def test_what_a_killed_process_left_is_no_obstacle(tmp_path):
    config = Config(n_videos=40, seconds=60.0, fps=8.0, questions=1, cache=str(tmp_path))
    code = (
        "from diagnostics.data.minihorizon.files import ensure_files\n"
        "from diagnostics.data.minihorizon.settings import Config\n"
        f"ensure_files(Config(n_videos=40, seconds=60.0, fps=8.0, questions=1, cache={str(tmp_path)!r}))"
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
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        folders = list(pool.map(ensure_files, [config, config]))
    assert folders[0] == folders[1]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [config.content_hash]


def test_a_cache_that_cannot_be_written_says_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="DIAGNOSTICS_CACHE"):
        ensure_files(dataclasses.replace(TINY, cache=str(tmp_path / "file" / "below")))
