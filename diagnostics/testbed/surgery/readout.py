"""Linear read-outs of the trained vision tower: does this token show a lesion, a step, and which.

Fitted on the last hidden layer of the tower's three mergers (the final one and DeepStack's two), which
their last linear map turns into what the language model is given. Writing the read-outs into those maps
leaves the tower as it was trained and gives the language model the read-outs and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from einops import reduce
from jaxtyping import Float, Int
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import Qwen3VLForConditionalGeneration

from diagnostics.data.minihorizon.plan import LESION_COLOURS
from diagnostics.data.minihorizon.procedure import STEPS, Procedure
from diagnostics.data.minihorizon.render import Scene
from diagnostics.data.minihorizon.settings import Config
from diagnostics.models.made import made_once
from diagnostics.testbed.footage import GRID, Footage, shoot, unit_pixels
from diagnostics.testbed.speed import units_at_once
from diagnostics.testbed.surgery.source import code_digest, digest_of, open_source

__all__ = ["VIDEOS", "Readout", "mergers", "readout_of"]

VIDEOS = Config(split="train", n_videos=80, seconds=12.0, evidence_ratio=0.1)
"""Short procedures, so that many frames show something: what the read-outs are fitted on."""

_SIDE = GRID // 2
_SHOWS = 0.05
"""Share of a token's pixels, over the unit's two frames, from which on it shows a lesion."""
_FRAMES = (("lesions", 8), ("steps", 4), (None, 4))
"""Frames taken of each video: from lesions, from steps, from anywhere."""


@dataclass(frozen=True, eq=False)
class Readout:
    """Weights on the hidden layers of the mergers, the final one first, and an offset.

    Rows: lesion (log-odds); each colour (about 1 where it is this, about 0 where another); step
    (log-odds); each step, likewise.
    """

    weights: Float[np.ndarray, "merger row hidden"]
    offset: Float[np.ndarray, " row"]


def mergers(model: Qwen3VLForConditionalGeneration) -> list[Any]:
    """The final merger, then DeepStack's, in the order of the layers that they go to."""
    visual = model.model.visual
    return [visual.merger, *visual.deepstack_merger_list]


def readout_of(source: Path) -> Readout:
    """The read-outs of the vision tower of `source`, fitted once: they are kept in the cache."""
    recipe = {"source": digest_of(source), "videos": VIDEOS.content_hash, "code": code_digest()}
    folder = made_once("tiny-readout", recipe, lambda into: _write(source, into / "readout.npz"))
    with np.load(folder / "readout.npz") as kept:
        return Readout(kept["weights"], kept["offset"])


def _write(source: Path, file: Path) -> None:
    fitted = _fit(open_source(source))
    np.savez(file, weights=fitted.weights, offset=fitted.offset)


def _fit(model: Qwen3VLForConditionalGeneration) -> Readout:
    """On `VIDEOS`, whose truth is known to the pixel. Deterministic."""
    footage = shoot(VIDEOS)
    parts = [_tokens(model, footage, procedure) for procedure in footage.procedures]
    hidden, colours, steps = (np.concatenate(part) for part in zip(*parts, strict=True))
    rows = [row for shown in (colours, steps) for row in _detect_and_name(hidden, shown)]
    weights = np.concatenate([row[0] for row in rows])
    offset = np.concatenate([row[1] for row in rows])
    return Readout(np.stack(np.split(weights, len(mergers(model)), axis=1)), offset)


def _tokens(
    model: Qwen3VLForConditionalGeneration, footage: Footage, procedure: Procedure
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of 72 tokens: hidden features [token, hidden], and shares of colours and of steps [token, label]."""
    random = np.random.default_rng(procedure.index)
    frames = np.sort(np.concatenate([_choose(procedure, kind, count, random) for kind, count in _FRAMES]))
    scene = Scene(footage.config.of_video(procedure.index), procedure)
    colours = np.zeros((len(frames), _SIDE**2, len(LESION_COLOURS)))
    steps = np.zeros((len(frames), _SIDE**2, len(STEPS)))
    for row, frame in enumerate(frames):
        for lesion in procedure.lesions:
            if lesion.start_frame <= frame < lesion.end_frame:
                mask = scene.lesion_mask(int(frame)).astype(float)
                shares = reduce(
                    mask, "(down high) (across wide) -> (down across)", "mean", down=_SIDE, across=_SIDE
                )
                colours[row, :, tuple(LESION_COLOURS).index(lesion.colour)] += shares
        for step in procedure.steps:
            if step.start_frame <= frame < step.end_frame:
                steps[row, :, STEPS.index(step.name)] = 1
    pixels = unit_pixels(footage.patches[footage.first[procedure.index] + frames])
    grid = torch.tensor([[len(frames) // 2, GRID, GRID]])
    with _hidden_of(model) as hidden, torch.inference_mode(), units_at_once(model):
        model.model.visual(pixels, grid)
    over_units = "(unit pair) token label -> (unit token) label"
    return (
        np.concatenate([hidden[place] for place in range(len(hidden))], axis=1).astype(np.float64),
        reduce(colours, over_units, "mean", pair=2),
        reduce(steps, over_units, "mean", pair=2),
    )


def _choose(
    procedure: Procedure, kind: str | None, count: int, random: np.random.Generator
) -> Int[np.ndarray, " frame"]:
    pool = np.arange(procedure.n_frames)
    if kind is not None:
        spans = [(one.start_frame, one.end_frame) for one in getattr(procedure, kind)]
        pool = np.concatenate([np.arange(*span) for span in spans])
    return random.choice(pool, count, replace=len(pool) < count)


@contextmanager
def _hidden_of(model: Qwen3VLForConditionalGeneration) -> Iterator[dict[int, np.ndarray]]:
    """What goes into each merger's last linear map, by its place in `mergers`."""
    seen: dict[int, np.ndarray] = {}

    def keep(place: int, _: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
        seen[place] = inputs[0].numpy()

    handles = [
        merger.linear_fc2.register_forward_pre_hook(partial(keep, place))
        for place, merger in enumerate(mergers(model))
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _detect_and_name(
    hidden: Float[np.ndarray, "token hidden"], shown: Float[np.ndarray, "token label"]
) -> Iterator[tuple[Float[np.ndarray, "row hidden"], Float[np.ndarray, " row"]]]:
    """Weights and offsets of "any of the labels", then of each; tokens that show a trace are left out."""
    amount = shown.sum(axis=1)
    clear, present = (amount == 0) | (amount > _SHOWS), amount > _SHOWS
    detector = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, tol=1e-3, max_iter=200))
    yield _unscaled(detector.fit(hidden[clear], present[clear]))
    names = np.eye(shown.shape[1])[shown[present].argmax(axis=1)]
    yield _unscaled(make_pipeline(StandardScaler(), Ridge(alpha=10.0)).fit(hidden[present], names))


def _unscaled(fitted: Any) -> tuple[Float[np.ndarray, "row hidden"], Float[np.ndarray, " row"]]:
    """The pipeline as one linear map of the features as they are."""
    scaler, linear = fitted[0], fitted[1]
    weights = np.atleast_2d(linear.coef_) / scaler.scale_
    return weights, np.atleast_1d(linear.intercept_) - weights @ scaler.mean_
