"""Scores from a file: three formats, one meaning, and what is wrong with a wrong one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from diagnostics.errors import ConfigError, ScorerUnavailableError, ScoresError
from diagnostics.video.relevance.config import ScorerConfig
from diagnostics.video.relevance.file import load
from diagnostics.video.relevance.signals import Signals
from diagnostics.video.sampling import load_sampler, select_frames

FRAMES = np.array([0, 2, 4, 6])
SCORES = [0.5, 0.25, 1.0, 0.0]
SHUFFLED = [2, 9, 0, 6, 4]
OF_SHUFFLED = [0.25, 7.0, 0.5, 0.0, 1.0]


def written(folder, kind, named):
    path = folder / f"scores.{kind}"
    frames, scores = (SHUFFLED, OF_SHUFFLED) if named else (None, SCORES)
    if kind == "json":
        path.write_text(json.dumps({"one": {"frame_index": frames, "scores": scores} if named else scores}))
    elif kind == "csv":
        rows = [f"one,{f},{s}" for f, s in zip(frames, scores, strict=True)]
        path.write_text("\n".join(["item_id,frame_index,score", *rows]))
    else:
        arrays = {"one": np.array(scores), "one/features": np.eye(len(scores))}
        np.savez(path, **arrays, **({"one/frame_index": np.array(frames)} if named else {}))
    return path


@pytest.mark.parametrize(
    ("kind", "named"), [("json", False), ("json", True), ("csv", True), ("npz", False), ("npz", True)]
)
def test_formats(tmp_path, film, kind, named):
    scores, features = load(ScorerConfig(name="file", path=str(written(tmp_path, kind, named)))).lookup(
        film.item(), FRAMES
    )
    assert scores.tolist() == SCORES
    if kind == "npz":
        rows = [SHUFFLED.index(f) for f in FRAMES] if named else range(4)
        assert features.argmax(axis=1).tolist() == list(rows)
    else:
        assert features is None


@pytest.mark.parametrize("count", [3, 5])
def test_scores_of_the_wrong_length(tmp_path, film, count):
    scorer = load(ScorerConfig(name="file", path=str(written(tmp_path, "json", False))))
    with pytest.raises(ScoresError, match=f"4 scores for {count} candidate frames") as told:
        scorer.lookup(film.item(), np.arange(count))
    assert told.value.item_id == "one"
    assert "candidate_fps" in str(told.value)


def test_an_unknown_item_and_a_frame_without_a_score(tmp_path, film):
    scorer = load(ScorerConfig(name="file", path=str(written(tmp_path, "csv", True))))
    with pytest.raises(ScoresError, match="not of this one"):
        scorer.lookup(film.item("two"), FRAMES)
    with pytest.raises(ScoresError, match="2 candidate frames have no score, 5 first"):
        scorer.lookup(film.item(), np.array([0, 5, 6, 29]))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", b"{"),
        ("a.json", b"[1, 2]"),
        ("a.json", b'{"one": {"scores": [1]}}'),
        ("a.json", b'{"one": [[1]]}'),
        ("a.json", b'{"one": ["high"]}'),
        ("a.json", b'{"one": {"scores": [1, 2], "frame_index": [3]}}'),
        ("a.json", b'{"one": {"scores": [1, 2], "frame_index": [3, 3]}}'),
        ("a.csv", b"item_id,frame\none,1\n"),
        ("a.csv", b"item_id,frame_index,score\none,x,1\n"),
        ("a.npz", b"not a zip"),
    ],
)
def test_a_file_not_written_as_the_format_says(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ScorerUnavailableError, match=r"cannot be read.*sampling\.md"):
        load(ScorerConfig(name="file", path=str(tmp_path / name)))


def test_no_code_is_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", one=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ScorerUnavailableError):
        load(ScorerConfig(name="file", path=str(tmp_path / "a.npz")))


def test_no_file_and_no_known_ending(tmp_path):
    with pytest.raises(ConfigError, match=r"sampling\.scorer\.path"):
        load(ScorerConfig(name="file"))
    with pytest.raises(ConfigError, match=r"\.csv"):
        load(ScorerConfig(name="file", path="scores.txt"))
    with pytest.raises(ScorerUnavailableError):
        load(ScorerConfig(name="file", path=str(tmp_path / "none.csv")))


def test_samplers_follow_the_file(tmp_path, film, cache):
    (tmp_path / "s.json").write_text(json.dumps({"one": [0.0] * 20 + [1.0] * 5 + [None] * 5}))
    scorer = ScorerConfig(name="file", path=str(tmp_path / "s.json"))
    signals = Signals(film, cache=cache)
    aks = load_sampler("aks")
    selection = select_frames(
        aks, aks.Config(budget=5, strategy="top", scorer=scorer), film.index, film.item(), signals
    )
    assert selection.frame_indices.tolist() == [20, 21, 22, 23, 24]
    assert film.reads == []
    dks = load_sampler("dks")
    with pytest.raises(ScoresError, match="has no features"):
        select_frames(dks, dks.Config(budget=5, scorer=scorer), film.index, film.item(), signals)
