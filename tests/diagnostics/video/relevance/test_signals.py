"""Signals of candidates: the right values, read once, in bounded memory, kept and kept apart."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest
from PIL import Image

from diagnostics.errors import ConfigError, MissingVideoError
from diagnostics.video.relevance import score
from diagnostics.video.relevance.cache import SignalCache, video_key
from diagnostics.video.relevance.config import ScorerConfig
from diagnostics.video.relevance.novelty import Novelty
from diagnostics.video.relevance.signals import Signals, text_of
from diagnostics.video.sampling import load_sampler, select_frames

ALL = frozenset({"scores", "features", "change"})
FRAMES = np.arange(0, 30, 2)


OFFLINE = ScorerConfig()


@dataclass(frozen=True)
class Asked:
    """A sampler's configuration, as far as signals look at it."""

    scorer: ScorerConfig = OFFLINE


def novelty(film, cache, needs=ALL, frames=FRAMES, chunk=4, **more):
    signals = Signals(film, cache=cache, chunk=chunk, **more)
    return signals.candidates(needs, Asked(), film.index, frames, film.item()), signals


def test_values(film, cache):
    found, signals = novelty(film, cache)
    grey = (
        np.stack(
            [
                np.asarray(Image.fromarray(f).convert("L").resize((64, 64), Image.Resampling.BILINEAR))
                for f in film.pixels
            ]
        )[FRAMES]
        / 255.0
    )
    assert found.change[0] == np.inf
    np.testing.assert_allclose(found.change[1:], np.abs(grey[1:] - grey[:-1]).mean(axis=(1, 2)), rtol=1e-5)
    scores, features = score(Novelty(), film.pixels[FRAMES], "")
    np.testing.assert_array_equal(found.scores, scores)
    np.testing.assert_array_equal(found.features, features)
    assert film.reads == [4, 4, 4, 3], "one pass for all three, four frames at a time"
    assert signals.frames_read == 15


@pytest.mark.parametrize("chunk", [1, 2, 7, 15, 64])
def test_the_size_of_the_parts_changes_nothing(film, tmp_path, chunk):
    first, _ = novelty(film, SignalCache(tmp_path / "a"))
    other, _ = novelty(film, SignalCache(tmp_path / "b"), chunk=chunk)
    for name in ALL:
        np.testing.assert_array_equal(getattr(first, name), getattr(other, name))


def test_large_pictures_are_read_in_smaller_parts(film, cache):
    big = replace(film.index, width=8000, height=4000)  # 96 MB a picture
    Signals(film, cache=cache).candidates(frozenset({"change"}), Asked(), big, FRAMES, film.item())
    assert film.reads == [1] * 15


def test_kept_between_runs_and_questions(film, cache):
    first, _ = novelty(film, cache)
    film.reads.clear()
    again, _ = novelty(film, cache)
    other, _ = novelty(film, cache, needs=frozenset({"features"}))
    assert film.reads == []
    for name in ALL:
        np.testing.assert_array_equal(getattr(again, name), getattr(first, name))
    assert other.scores is None
    assert other.change is None
    novelty(film, cache, frames=FRAMES[:-1])
    assert sum(film.reads) == 14, "other candidates are other signals"
    film.max_side = 40
    novelty(film, cache)
    assert sum(film.reads) == 14 + 15, "and so are pictures of another size"


def test_a_changed_film_is_looked_at_again(film, cache):
    novelty(film, cache)
    film.reads.clear()
    os.utime(film.path, ns=(1, 1))
    novelty(film, cache)
    assert sum(film.reads) == 15
    film.path.unlink()
    with pytest.raises(MissingVideoError):
        novelty(film, cache)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 torn", None])
def test_a_damaged_file_is_made_again_and_said(film, tmp_path, damage, caplog):
    cache = SignalCache(tmp_path / "cache")
    first, _ = novelty(film, cache)
    files = sorted((tmp_path / "cache").rglob("*.npz"))
    assert len(files) == 3
    for file in files:
        file.write_bytes(file.read_bytes()[:-40] if damage is None else damage)
    again, _ = novelty(film, cache)
    np.testing.assert_array_equal(again.scores, first.scores)
    assert "made again" in caplog.text
    film.reads.clear()
    novelty(film, cache)
    assert film.reads == [], "mended"


def test_a_file_of_another_key_is_not_believed(film, tmp_path):
    cache = SignalCache(tmp_path / "cache")
    key = video_key(film.index, FRAMES)
    cache.save({**key, "signal": "a"}, np.arange(3.0))
    (file,) = (tmp_path / "cache").rglob("*.npz")
    cache.save({**key, "signal": "b"}, np.arange(4.0))
    (other,) = set((tmp_path / "cache").rglob("*.npz")) - {file}
    other.write_bytes(file.read_bytes())
    assert cache.load({**key, "signal": "b"}) is None
    assert cache.load({**key, "signal": "a"}).tolist() == [0, 1, 2]


def test_a_cache_that_cannot_be_written_is_named(film, tmp_path):
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(ConfigError, match="DIAGNOSTICS_CACHE"):
        novelty(film, SignalCache(tmp_path / "cache"))


def test_clip_reads_the_film_once_for_all_questions(film, cache, checkpoints):
    config = Asked(ScorerConfig(name="clip", path=str(checkpoints["clip"]), device="cpu"))
    signals, needs = Signals(film, cache=cache), frozenset({"scores"})
    questions = [film.item("a", "left"), film.item("b", "what colour is the lesion ?")]
    found = [signals.candidates(needs, config, film.index, FRAMES, item) for item in questions]
    assert signals.frames_read == 15
    for item, candidates in zip(questions, found, strict=True):
        expected = score(signals.scorer(config.scorer), film.pixels[FRAMES], item.question)[0]
        np.testing.assert_allclose(candidates.scores, expected, atol=1e-6)
    assert not np.allclose(found[0].scores, found[1].scores)


def test_blip_scores_all_questions_of_a_film_in_one_pass(film, cache, checkpoints):
    config = Asked(ScorerConfig(name="blip_itm", path=str(checkpoints["blip_itm"]), device="cpu"))
    items = [film.item("a", "left"), film.item("b", "red"), film.item("c", "left")]
    signals = Signals(film, items=items, cache=cache, chunk=4)
    for item in items:
        found = signals.candidates(frozenset({"scores"}), config, film.index, FRAMES, item)
        expected = score(signals.scorer(config.scorer), film.pixels[FRAMES], item.question)[0]
        np.testing.assert_allclose(found.scores, expected, atol=1e-6)
    assert signals.frames_read == 15
    unknown = film.item("d", "blue")
    signals.candidates(frozenset({"scores", "features"}), config, film.index, FRAMES, unknown)
    assert signals.frames_read == 30, "a question nobody announced costs a pass"


def test_the_text_may_hold_the_options(film, cache, checkpoints):
    item = film.item()
    assert text_of(item, "question") == "what colour is the lesion ?"
    assert text_of(item, "question_and_options") == "what colour is the lesion ?\nred\nblue"
    both = [
        Signals(film, cache=cache).candidates(
            frozenset({"scores"}),
            Asked(ScorerConfig(name="clip", path=str(checkpoints["clip"]), device="cpu", text=text)),
            film.index, FRAMES, item,
        ).scores
        for text in ("question", "question_and_options")
    ]  # fmt: skip
    assert not np.allclose(*both)


def test_several_threads_share_one_pass(film, cache):
    signals = Signals(film, cache=cache)
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(signals.candidates, ALL, Asked(), film.index, FRAMES, film.item(str(k)))
            for k in range(8)
        ]
        found = [job.result() for job in jobs]
    assert signals.frames_read == 15
    assert all((candidates.scores == found[0].scores).all() for candidates in found)


@pytest.mark.parametrize("name", ["aks", "dks", "wfs_sb", "differential", "hybrid"])
def test_samplers_run_on_a_film(name, film, cache):
    module = load_sampler(name)
    signals = Signals(film, cache=cache)
    selection = select_frames(module, module.Config(budget=6), film.index, film.item(), signals)
    assert len(selection) == 6


def test_a_chunk_of_nothing_is_refused(film):
    with pytest.raises(ConfigError, match="chunk=0"):
        Signals(film, chunk=0)
