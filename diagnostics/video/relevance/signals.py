"""Scores, features and changes of a video's candidates, computed in bounded memory and kept.

    with FrameReader(max_side=448) as reader:
        signals = Signals(reader, items=items)
        selection = select_frames(sampler, config, reader.index(item.video), item, signals)

A video is read at most once for all that a sampler needs of it, a few dozen frames at a time. What is
computed once is kept on disk (`cache`): features and changes for every question, scores by question.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

from diagnostics.data.items import Item
from diagnostics.errors import ConfigError, ScoresError
from diagnostics.video.candidates import Candidates
from diagnostics.video.index import VideoIndex
from diagnostics.video.relevance import FeatureScorer, FrameScorer, Scorer, load_scorer
from diagnostics.video.relevance.cache import Key, SignalCache, video_key
from diagnostics.video.relevance.config import ScorerConfig
from diagnostics.video.relevance.file import FileScores

__all__ = ["GREY_SIDE", "PictureReader", "Signals", "grey_pictures", "text_of"]

GREY_SIDE = 64
_CHUNK_FRAMES, _CHUNK_BYTES = 64, 128 << 20


class PictureReader(Protocol):
    """What `FrameReader` has.

    Attributes:
        reader: name of the decoder.
        max_side: longest side of the pictures that come back; None for their native size.
    """

    reader: str
    max_side: int | None

    def read(self, path: Path, indices: Int[np.ndarray, " n"]) -> UInt8[np.ndarray, "n h w 3"]:
        """The frames at `indices`, in that order."""
        ...


def text_of(item: Item, what: str) -> str:
    """What is compared with the pictures: the question, or the question and its options, one a line."""
    return "\n".join([item.question, *item.options]) if what == "question_and_options" else item.question


def grey_pictures(frames: UInt8[np.ndarray, "n h w 3"]) -> Float[np.ndarray, "n 64 64"]:
    """Grey pictures of 64 x 64 in [0, 1], float32: luma (ITU-R 601), then bilinear with antialiasing."""
    small = [
        Image.fromarray(frame).convert("L").resize((GREY_SIDE, GREY_SIDE), Image.Resampling.BILINEAR)
        for frame in frames
    ]
    return np.stack([np.asarray(picture, dtype=np.float32) for picture in small]) / np.float32(255)


class Signals:
    """Fills in what samplers ask for. One serves several threads.

    Args:
        reader: gives the pictures of frames.
        items: all items of the run: a scorer that must see picture and question together scores every
            question of a video in one pass. Without them it reads the video once a question.
        cache: where signals are kept; the machine's cache by default.
        chunk: frames read at a time, at most; fewer where pictures are large (128 MiB).

    Attributes:
        frames_read: how many pictures were read so far.
    """

    def __init__(
        self,
        reader: PictureReader,
        items: Iterable[Item] = (),
        cache: SignalCache | None = None,
        chunk: int = _CHUNK_FRAMES,
    ) -> None:
        if chunk < 1:
            raise ConfigError(f"chunk={chunk} frames at a time.", remedy="Read one or more.")
        self.reader, self.cache, self._chunk = reader, cache or SignalCache(), chunk
        self._asked: dict[str, list[Item]] = defaultdict(list)
        for item in items:
            self._asked[str(item.video)].append(item)
        self._scorers: dict[ScorerConfig, Scorer | FileScores] = {}
        self._guard, self._model = threading.Lock(), threading.Lock()
        self._videos: dict[str, threading.Lock] = {}
        self.frames_read = 0

    def scorer(self, config: ScorerConfig) -> Scorer | FileScores:
        """The scorer of `config`, loaded when first asked for.

        Raises:
            ConfigError, ScorerUnavailableError: see `load_scorer`.
        """
        with self._model:
            if config not in self._scorers:
                self._scorers[config] = load_scorer(config)
            return self._scorers[config]

    def candidates(
        self, needs: frozenset[str], config: Any, index: VideoIndex, frames: Int[np.ndarray, " n"], item: Item
    ) -> Candidates:
        """The candidates `frames` with the signals in `needs`.

        Args:
            config: the sampler's; its `scorer` says which.

        Raises:
            ScoresError: a file of scores does not fit, or has no features where they are needed.
            VideoError: the video cannot be read.
            ConfigError, ScorerUnavailableError: see `load_scorer`; the cache cannot be written.
        """
        with self._guard:
            lock = self._videos.setdefault(index.path, threading.Lock())
        with lock:
            return self._filled(needs, config, index, frames, item)

    def _filled(
        self, needs: frozenset[str], config: Any, index: VideoIndex, frames: Int[np.ndarray, " n"], item: Item
    ) -> Candidates:
        found: dict[str, np.ndarray] = {}
        wanted = set(needs)
        scorer = self.scorer(config.scorer) if wanted & {"scores", "features"} else None
        if isinstance(scorer, FileScores):
            found |= _from_file(scorer, item, frames, wanted)
            wanted -= set(found)
            scorer = None
        work = _Work(self, config, index, frames, item, scorer)
        found |= work.results(wanted)
        return Candidates(index, frames, **found)

    def questions(self, item: Item, what: str) -> list[str]:
        """The texts asked of the item's video, its own first, each once."""
        texts = [text_of(other, what) for other in (item, *self._asked[str(item.video)])]
        return list(dict.fromkeys(texts))

    def chunks(
        self, index: VideoIndex, frames: Int[np.ndarray, " n"]
    ) -> Iterator[UInt8[np.ndarray, "n h w 3"]]:
        """The pictures, some at a time."""
        size = max(1, min(self._chunk, _CHUNK_BYTES // (index.width * index.height * 3)))
        for start in range(0, len(frames), size):
            part = frames[start : start + size]
            with self._guard:
                self.frames_read += len(part)
            yield self.reader.read(Path(index.path), part)


def _from_file(
    scorer: FileScores, item: Item, frames: Int[np.ndarray, " n"], wanted: set[str]
) -> dict[str, np.ndarray]:
    scores, features = scorer.lookup(item, frames)
    if "features" in wanted and features is None:
        raise ScoresError(
            "the sampler compares frames, and the file of scores has no features.",
            remedy="Write an .npz file with '<item id>/features', or take a sampler that needs scores alone.",
            item_id=item.id,
            path=scorer.path,
        )
    given = {"scores": scores, "features": features}
    return {name: values for name, values in given.items() if name in wanted and values is not None}


class _Work:
    """What one call still has to compute, and its single pass over the video."""

    def __init__(
        self,
        signals: Signals,
        config: Any,
        index: VideoIndex,
        frames: Int[np.ndarray, " n"],
        item: Item,
        scorer: Scorer | None,
    ) -> None:
        self.signals, self.index, self.frames, self.scorer = signals, index, frames, scorer
        self.cache = signals.cache
        how = {"reader": signals.reader.reader, "max_side": signals.reader.max_side}
        self.video = {**video_key(index, frames), **how}
        self.texts: list[str] = []
        if scorer is not None:
            self.texts = signals.questions(item, config.scorer.text) if scorer.uses_question else [""]

    def results(self, wanted: set[str]) -> dict[str, np.ndarray]:
        """The signals in `wanted`: kept ones, or computed now and kept."""
        found: dict[str, np.ndarray | None] = {name: self.cache.load(self.key(name)) for name in wanted}
        missing = {name for name, values in found.items() if values is None}
        if "scores" in missing and isinstance(self.scorer, FeatureScorer):
            features = found.get("features")
            features = features if features is not None else self.cache.load(self.key("features"))
            if features is None:
                missing.add("features")
            found["features"] = features
        if missing - ({"scores"} if isinstance(self.scorer, FeatureScorer) else set()):
            found |= self.one_pass(missing)
        if "scores" in missing and isinstance(self.scorer, FeatureScorer):
            features = found["features"]
            assert features is not None
            with self.signals._model:
                scores = self.scorer.scores(features, self.texts[0])
            self.cache.save(self.key("scores"), scores)
            found["scores"] = scores
        return {name: values for name, values in found.items() if name in wanted and values is not None}

    def one_pass(self, missing: set[str]) -> dict[str, np.ndarray]:
        """Read the candidates once and compute all that is missing."""
        together = self.scorer if "scores" in missing and isinstance(self.scorer, FrameScorer) else None
        texts = [
            text for text in self.texts if together and self.cache.load(self.key("scores", text)) is None
        ]
        parts: dict[str, list[np.ndarray]] = defaultdict(list)
        before: np.ndarray | None = None
        for pictures in self.signals.chunks(self.index, self.frames):
            if "change" in missing:
                grey = grey_pictures(pictures)
                parts["change"].append(_change(before, grey))
                before = grey[-1]
            with self.signals._model:
                if together is not None:
                    scores, features = together.score_texts(pictures, texts)
                    parts["scores"].append(scores)
                    parts["features"].append(features)
                elif "features" in missing and self.scorer is not None:
                    parts["features"].append(self.scorer.features(pictures))
        found = {name: np.concatenate(part, -1 if name == "scores" else 0) for name, part in parts.items()}
        return self._kept(found, texts)

    def _kept(self, found: dict[str, np.ndarray], texts: Sequence[str]) -> dict[str, np.ndarray]:
        rows = found.pop("scores", None)
        for name, values in found.items():
            self.cache.save(self.key(name), values)
        if rows is not None:
            for text, row in zip(texts, rows, strict=True):
                self.cache.save(self.key("scores", text), row)
            found["scores"] = rows[texts.index(self.texts[0])]
        return found

    def key(self, name: str, text: str | None = None) -> Key:
        """What the values of a signal depend on."""
        if name == "change":
            return {**self.video, "signal": f"grey{GREY_SIDE}-1"}
        assert self.scorer is not None
        key = {**self.video, "signal": name, "scorer": self.scorer.name, "version": self.scorer.version}
        return key if name == "features" else {**key, "text": self.texts[0] if text is None else text}


def _change(before: np.ndarray | None, grey: Float[np.ndarray, "n 64 64"]) -> Float[np.ndarray, " n"]:
    """Mean absolute difference of each picture to the one before it; infinite without one."""
    row = grey if before is None else np.concatenate([before[None], grey])
    change = np.abs(np.diff(row, axis=0)).mean(axis=(1, 2), dtype=np.float64)
    return change if before is not None else np.concatenate([[np.inf], change])
