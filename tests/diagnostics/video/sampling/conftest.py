"""Candidates without a film behind them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from diagnostics.data.items import Evidence, Item, Window
from diagnostics.strict import from_mapping
from diagnostics.video.candidates import Candidates
from diagnostics.video.index import VideoIndex
from diagnostics.video.sampling import load_sampler


def index_of(count: int, rate: float = 1.0) -> VideoIndex:
    """`count` frames at a constant rate."""
    seconds = np.arange(count, dtype=np.float64) / rate
    return VideoIndex(
        path="film.mp4", pts=np.round(seconds * 90000).astype(np.int64), time_base=Fraction(1, 90000),
        seconds=seconds, fps=rate, duration=count / rate, width=64, height=48, rotation=0, codec="h264",
        container="mov", reliable=True, key_pts=np.array([0]), key_seek=np.array([0]), open_gop=False,
        header_frames=count,
    )  # fmt: skip


def item_of(*windows: Window, kind: Any = "exact", name: str = "one") -> Item:
    evidence = Evidence(tuple(windows), kind) if windows or kind == "global" else None
    return Item(name, Path("film.mp4"), "film", "What?", evidence=evidence)


def candidates_of(count: int, rate: float = 1.0, **signals: Any) -> Candidates:
    arrays = {name: np.asarray(values, dtype=np.float64) for name, values in signals.items()}
    return Candidates(index_of(count, rate), np.arange(count), **arrays)


def chosen(name: str, candidates: Candidates, item: Item | None = None, **parameters: Any) -> list[int]:
    """Places that a sampler names, with `parameters`."""
    module = load_sampler(name)
    config = from_mapping(module.Config, parameters, "sampling")
    return module.choose(config, candidates, item or item_of()).tolist()


def scores_of(kind: str, count: int, seed: int) -> np.ndarray:
    """Curves that break things: constant, all NaN, some NaN, one spike, ties, infinities, noise, waves."""
    random = np.random.default_rng(seed)
    noise = random.random(count)
    if kind == "constant":
        return np.full(count, 0.3)
    if kind == "nan":
        return np.full(count, np.nan)
    if kind == "some_nan":
        return np.where(random.random(count) < 0.4, np.nan, noise)
    if kind == "spike":
        return (np.arange(count) == random.integers(max(1, count))).astype(float)
    if kind == "ties":
        return np.round(noise, 1)
    if kind == "infinite":
        return np.where(random.random(count) < 0.2, np.where(noise < 0.5, -np.inf, np.inf), noise)
    if kind == "waves":
        return 0.5 + 0.4 * np.sin(np.arange(count) / 37 + 6 * noise[:1].sum())
    assert kind == "noise"
    return noise - 0.5


SCORES = ("constant", "nan", "some_nan", "spike", "ties", "infinite", "waves", "noise")
