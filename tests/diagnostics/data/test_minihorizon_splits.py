import dataclasses
import itertools
import json
from collections import Counter

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.data import load_items
from diagnostics.data.minihorizon.files import TRACKS, TRUTH
from diagnostics.data.minihorizon.plan import LESION_COLOURS, PLACES, TISSUE_HUES
from diagnostics.data.minihorizon.procedure import INSTRUMENTS, LESION_SIZES, PHASES, STEPS, make_procedures
from diagnostics.data.minihorizon.render import Scene
from diagnostics.data.minihorizon.settings import SPLITS, Config

N_VIDEOS = 12


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    cache = tmp_path_factory.mktemp("splits")
    return load_items("minihorizon", {"split": "test", "n_videos": N_VIDEOS, "cache": str(cache), "seed": 5})


@pytest.fixture(scope="module")
def folder(loaded):
    return loaded.items[0].video.parent


@pytest.fixture(scope="module")
def tracks(folder):
    """The annotation tracks, by video."""
    told = json.loads((folder / TRACKS).read_text())
    return {procedure["video"]: procedure for procedure in told["procedures"]}


def decode(path):
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def test_what_is_told_is_what_the_files_show(loaded, tracks):
    """Lesions, instruments, phases and steps are read from the pixels of the decoded files."""
    for path in sorted({item.video for item in loaded.items}):
        told, pictures = tracks[path.name], decode(path).astype(float)
        rate = told["fps"]
        assert len(pictures) == told["frames"]

        def shown(row, rate=rate):
            return slice(round(row["start"] * rate), round(row["end"] * rate))

        for lesion in told["lesions"]:
            (window,) = lesion["windows"]
            inside = np.zeros(len(pictures), dtype=bool)
            inside[round(window[0] * rate) : round(window[1] * rate)] = True
            near = np.linalg.norm(pictures - LESION_COLOURS[lesion["histology"]], axis=-1) < 70
            count = near.sum(axis=(1, 2))
            area = np.pi / 4 * (LESION_SIZES[lesion["size"]] * 96) ** 2
            assert count[inside].min() > 0.5 * area, (path.name, lesion, count[inside], area)
            if lesion["histology"] != "black":  # dark stripes of steps are near black in the corners
                assert np.median(count[~inside]) < 0.1 * area
            down, across = np.nonzero(near[inside][0])
            vertical = "upper" if np.median(down) < 48 else "lower"
            horizontal = "left" if np.median(across) < 48 else "right"
            assert lesion["site"] == f"{vertical} {horizontal}"
            first = int(np.flatnonzero(inside)[0])
            beside = first - 1 if first else int(np.flatnonzero(inside)[-1]) + 1
            only = near[inside] & ~near[beside]
            width = 2 * np.sqrt(np.median(only.sum(axis=(1, 2))) / np.pi) / 96
            assert lesion["size"] == min(LESION_SIZES, key=lambda s: abs(np.log(LESION_SIZES[s] / width)))
        for row in told["instruments"]:
            shaft = pictures[shown(row), 60:92, 46:51].mean(axis=(1, 2))
            nearest = [
                min(INSTRUMENTS, key=lambda name: np.linalg.norm(pixel - INSTRUMENTS[name]))
                for pixel in shaft
            ]
            assert Counter(nearest).most_common(1)[0][0] == row["label"]
        for row in told["phases"]:
            frames = pictures[shown(row)][2:-2]
            chroma = np.median(frames.reshape(-1, 3), axis=0)
            hues = {name: np.array(TISSUE_HUES[PHASES[name]], dtype=float) for name in PHASES}
            nearest = min(
                hues, key=lambda name: np.linalg.norm(hues[name] / hues[name].sum() - chroma / chroma.sum())
            )
            assert nearest == row["label"]


def test_steps_leave_their_own_pattern():
    """With and without its step a frame differs by that step's pattern and no other one."""
    config = Config(split="test", n_videos=20, seed=5)
    patterns = {}
    for procedure in make_procedures(config):
        without = dataclasses.replace(procedure, steps=())
        for step in procedure.steps:
            block, frame = divmod(step.start_frame, 64)
            one = config.of_video(procedure.index)
            seen, bare = (Scene(one, p).block(block)[frame].astype(float) for p in (procedure, without))
            ratio = (seen[:34] / np.maximum(bare[:34], 1)).mean(axis=-1) > 1
            patterns.setdefault(step.name, []).append(ratio)
    assert set(patterns) == set(STEPS)
    for name, seen in patterns.items():
        for other, theirs in patterns.items():
            agree = np.mean(seen[0] == theirs[-1])
            assert (agree > 0.95) == (name == other), f"{name} and {other} agree in {agree:.0%} of the pixels"


def test_the_truth_file_is_the_same_items(loaded, folder):
    again = load_items("jsonl", {"path": str(folder / TRUTH)})
    assert again.rejected == []
    assert again.items == loaded.items


@settings(max_examples=25, deadline=None)
@given(
    split=st.sampled_from(["train", "test", "needle", "redundant"]),
    n_videos=st.integers(1, 40),
    n_frames=st.integers(40, 4000),
    ratio=st.floats(0.0003, 0.1),
    seed=st.integers(0, 10_000),
)
def test_procedures_hold_their_promises(split, n_videos, n_frames, ratio, seed):
    config = Config(
        split=split, n_videos=n_videos, seconds=n_frames / 4, fps=4, evidence_ratio=ratio, seed=seed
    )
    for procedure in make_procedures(config):
        assert procedure.n_frames == n_frames
        edges = [phase.start_frame for phase in procedure.phases]
        assert edges[0] == 0
        assert edges[1:] == [phase.end_frame for phase in procedure.phases[:-1]]
        assert procedure.phases[-1].end_frame == n_frames
        assert len(set(procedure.phase_names)) == (1 if split == "redundant" else len(PHASES))
        assert [entry.start_frame for entry in procedure.instruments] == edges
        spans = sorted((s.start_frame, s.end_frame) for s in (*procedure.steps, *procedure.lesions))
        assert all(0 <= start < end <= n_frames for start, end in spans)
        assert all(before[1] < after[0] for before, after in itertools.pairwise(spans))
        for trait in ("colour", "size", "place"):
            values = [getattr(lesion, trait) for lesion in procedure.lesions]
            assert len(set(values)) == len(values)
        for lesion in procedure.lesions:
            assert lesion.end_frame - lesion.start_frame == max(1, round(ratio * n_frames))


def test_colour_place_and_order_are_balanced_and_independent():
    procedures = make_procedures(Config(split="train", n_videos=720))
    largest = [max(p.lesions, key=lambda lesion: lesion.diameter) for p in procedures]
    for trait, values in (("colour", LESION_COLOURS), ("place", PLACES)):
        counts = Counter(getattr(lesion, trait) for lesion in largest)
        assert set(counts.values()) == {720 // len(values)}
    assert set(Counter(p.asked_phase for p in procedures)) == {0, 1, 2, 3}
    both = Counter((lesion.colour, lesion.place) for lesion in largest)
    expected = 720 / 24
    chi_square = sum(
        (both[colour, place] - expected) ** 2 / expected for colour in LESION_COLOURS for place in PLACES
    )
    assert chi_square < 30, f"{chi_square:.1f} at 15 degrees of freedom"
    firsts = Counter(p.steps[0].name for p in procedures)
    assert min(firsts.values()) > 0.7 * 720 / 6


def test_needles_are_long_and_rare():
    config = Config(split="needle")
    ratios, lengths = [], []
    for procedure in make_procedures(config):
        (lesion,) = procedure.lesions
        lengths.append(procedure.n_frames / float(config.rate))
        ratios.append((lesion.end_frame - lesion.start_frame) / procedure.n_frames)
    assert min(lengths) >= 60
    assert max(lengths) >= 3600
    assert min(ratios) == pytest.approx(0.0005, rel=0.15)


def test_redundant_video_hardly_changes():
    """Beside its steps, instruments and lesions: from one picture to the tenth after it, and in all."""
    changes, spreads = {}, {}
    for split in ("needle", "redundant"):
        config = Config(split=split, n_videos=1, seconds=100, fps=2, evidence_ratio=0.01)
        (procedure,) = make_procedures(config)
        bare = dataclasses.replace(procedure, steps=(), instruments=(), lesions=())
        pictures = np.concatenate(list(Scene(config.of_video(0), bare).blocks())).astype(float)
        changes[split] = np.median(np.abs(np.diff(pictures[::10], axis=0)).mean(axis=(1, 2, 3)))
        spreads[split] = pictures[::10].std(axis=0).mean()
    assert changes["redundant"] < 0.2 * changes["needle"], changes
    assert spreads["redundant"] < 0.2 * spreads["needle"], spreads


def test_splits_share_nothing():
    first = {split: make_procedures(Config(split=split, n_videos=8)) for split in SPLITS}
    plans = [
        tuple((step.name, step.start_frame / p.n_frames) for step in p.steps)
        for ps in first.values()
        for p in ps
    ]
    assert len(set(plans)) == len(plans)
    assert len({Config(split=split).content_hash for split in SPLITS}) == len(SPLITS)
