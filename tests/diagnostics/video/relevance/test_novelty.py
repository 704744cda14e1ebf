"""The offline scorer: its colours, its definition, and what it finds on MiniHorizon."""

from __future__ import annotations

import numpy as np
import pytest

from diagnostics.data.minihorizon.files import content, ensure_files
from diagnostics.data.minihorizon.settings import Config
from diagnostics.video.reading import FrameReader
from diagnostics.video.relevance import load_scorer
from diagnostics.video.relevance.cache import SignalCache
from diagnostics.video.relevance.config import ScorerConfig
from diagnostics.video.relevance.novelty import Novelty, cielab
from diagnostics.video.relevance.signals import Signals
from diagnostics.video.sampling import load_sampler, select_frames


@pytest.mark.parametrize(
    ("rgb", "lab"),
    [
        ((255, 255, 255), (100, 0, 0)),
        ((0, 0, 0), (0, 0, 0)),
        ((255, 0, 0), (53.24, 80.09, 67.20)),
        ((0, 255, 0), (87.74, -86.18, 83.18)),
        ((0, 0, 255), (32.30, 79.19, -107.86)),
        ((119, 119, 119), (50.03, 0, 0)),
    ],
)
def test_colours_of_the_textbook(rgb, lab):
    np.testing.assert_allclose(cielab(np.array(rgb, np.uint8)), lab, atol=0.05)


def test_the_module_s_text_in_loops(film):
    scorer = Novelty()
    features = scorer.features(film.pixels)
    cells = film.pixels.reshape(30, 8, 4, 8, 6, 3).mean(axis=(2, 4))
    scores = scorer.scores(features, "anything")
    lab = cielab(np.rint(cells).astype(np.uint8)).reshape(30, 64, 3)
    apart = lab - np.median(lab, axis=1, keepdims=True)
    np.testing.assert_allclose(
        features.reshape(30, 64, 3), apart, atol=1.5
    )  # the box filter rounds its own way
    own = features.reshape(30, 64, 3)
    for frame in range(30):
        around = own[[min(max(frame + k, 0), 29) for k in range(-4, 5)]]
        expected = np.linalg.norm(own[frame] - np.median(around, axis=0), axis=1).max()
        assert scores[frame] == pytest.approx(expected, rel=1e-5)


def test_it_ignores_the_question_and_says_so(film):
    scorer = load_scorer(ScorerConfig())
    assert not scorer.uses_question
    features = scorer.features(film.pixels)
    assert (scorer.scores(features, "left") == scorer.scores(features, "right")).all()
    assert (scorer.scores(features[:1], "") == 0).all(), "one frame has nothing to differ from"


def test_what_comes_and_goes_stands_out_and_what_stays_does_not():
    frames = np.full((40, 32, 32, 3), (214, 152, 152), np.uint8)
    frames[10:13, 4:8, 4:8] = (48, 82, 196)
    frames[20:, 24:28, 24:28] = (48, 82, 196)
    frames[30:] = np.rint(frames[30:] * 0.8).astype(np.uint8)
    scores = Novelty().scores(Novelty().features(frames), "")
    assert set(np.flatnonzero(scores > 20)) == {10, 11, 12}


def test_it_finds_lesions_that_uniform_frames_miss(tmp_path):
    """Procedures of 150 s, one lesion of three seconds each, 16 frames."""
    config = Config(split="needle", n_videos=2, seconds=150, evidence_ratio=0.02, cache=str(tmp_path))
    items = [
        item for item in content(config, ensure_files(config))[1] if item.task in ("Hist", "Site", "Size")
    ]
    assert len(items) >= 4
    recall = {}
    with FrameReader() as reader:
        signals = Signals(reader, cache=SignalCache(tmp_path / "signals"))
        for name, parameters in (("uniform", {}), ("aks", {"strategy": "top"})):
            module = load_sampler(name)
            hits = [
                select_frames(
                    module, module.Config(budget=16, **parameters), reader.index(item.video), item, signals
                ).holds(item.evidence).any()
                for item in items
            ]  # fmt: skip
            recall[name] = np.mean(hits)
        assert signals.frames_read == 2 * 150, "each video is read once for all its questions"
    assert recall["aks"] == 1.0
    assert recall["uniform"] <= 0.5
