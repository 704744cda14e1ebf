"""Finished attention-drift runs with known content, written through the store: no model takes part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import probes
from diagnostics.store import (
    Attention,
    Control,
    Metric,
    PairTensors,
    Record,
    RunFolder,
    Similarity,
    Summary,
    Tokens,
    Units,
    config_hash,
)
from diagnostics.video.selection import Slot

__all__ = ["attention_tensors", "finished_record", "write_run"]

DEFINITION = {
    "role": "question",
    "layers": "all",
    "heads": "all",
    "weighting": "attention",
    "head_pooling": "mass",
    "pooling": "sum",
    "feature": "projector",
}
ROLES = ("question", "last")
ROWS, COLS = 2, 3


def attention_tensors(
    item_id: str,
    seed: int,
    units: int = 6,
    *,
    layers: int = 2,
    heads: int = 3,
    condition: Mapping[str, Any] | None = None,
) -> PairTensors:
    """Attention, control and similarity of one item, at random, rows summing to 1."""
    rng = np.random.default_rng(seed)
    tokens = units * ROWS * COLS
    mass = rng.dirichlet(np.full(tokens + 1, 0.5), size=(layers, heads, len(ROLES)))
    unit_mass = mass[..., :-1].reshape(layers, heads, len(ROLES), units, -1).sum(axis=-1)
    blank = rng.dirichlet(np.ones(units + 1), size=(layers, heads, len(ROLES)))
    frames = np.arange(2 * units).reshape(units, 2)
    frames[-1, 1] = -1  # an odd number of frames leaves the last unit half empty
    seconds = np.where(frames < 0, np.nan, frames * 1.5)
    unit, place = np.divmod(np.arange(tokens, dtype=np.int32), ROWS * COLS)
    keys = np.isin(np.arange(units), (1, 3))
    keyframe = np.where(np.arange(units) > 1, np.where(np.arange(units) > 3, 3, 1), -1).astype(np.int32)
    keyframe[keys] = -1
    return PairTensors(
        item_id=item_id,
        condition=dict(condition or {}),
        layer=np.arange(layers, dtype=np.int32),
        role=ROLES,
        units=Units(frames, seconds, seconds, frames == 4),
        tokens=Tokens(np.arange(tokens, dtype=np.int32), unit, place // COLS, place % COLS),
        attention=Attention(
            unit_mass.astype(np.float32),
            mass[..., -1].astype(np.float32),
            mass[..., :-1].mean(axis=1).astype(np.float32),
        ),
        similarity=Similarity(
            rng.random((units, units), dtype=np.float32),
            keys,
            keyframe,
            np.where(keyframe[unit] >= 0, rng.random(tokens), np.nan).astype(np.float32),
        ),
        control=Control(blank[..., :-1].astype(np.float32), blank[..., -1].astype(np.float32), "blank"),
        definitions=DEFINITION,
    )


def finished_record(item_id: str, video_id: str, tensors: PairTensors, **fields: Any) -> Record:
    """A record of what `tensors` show; wrong by default."""
    shown = tensors.units.frame_index >= 0
    pairs = zip(tensors.units.frame_index[shown], tensors.units.true_seconds[shown], strict=True)
    slots = tuple(Slot(video_id, int(frame), float(time), float(time)) for frame, time in pairs)
    told = {"answer": "B", "target": "C", "correct": False, **fields}
    return Record(item_id=item_id, video_id=video_id, slots=slots, axes=tensors.axes, **told)


CONFIG: dict[str, Any] = {
    "exp": {"name": "attention_drift", "key_fraction": 0.25},
    "model": {"name": "tiny", "path": "tiny"},
    "data": {"name": "minihorizon", "split": "needle", "n_videos": 4},
    "sampling": {"rule": "uniform", "budget": 12},
    "out": "outputs",
}


def write_run(
    folder: Path,
    values: Sequence[Mapping[str, float | bool]],
    *,
    prefix: str = "",
    per_video: int = 2,
    experiment: str = "attention_drift",
    expected: int | None = None,
    conditions: Sequence[Mapping[str, Any]] = ({},),
    **settings: Any,
) -> Path:
    """A finished run: one item for each of `values` (its measures; `correct` is the record's own field).

    Args:
        folder: where.
        values: of the items, `per_video` of each video.
        prefix: of items and videos: runs with one prefix share them.
        experiment, expected: for the manifest.
        conditions: under each of which every item is measured.
        settings: changes of the configuration, dots as two underscores (`data__split="redundant"`).
    """
    config: dict[str, Any] = {**CONFIG}
    for key, value in settings.items():
        group, _, name = key.partition("__")
        config[group] = {**config[group], name: value} if name else value
    with RunFolder.open(folder, config, config_hash(config), experiment=experiment) as run:
        run.expect(len(values) * len(conditions) if expected is None else expected)
        for number, measures in enumerate(values):
            item, video = f"{prefix}item-{number}", f"{prefix}video-{number // per_video}"
            for condition in conditions:
                tensors = attention_tensors(item, number, condition=condition)
                told = {name: value for name, value in measures.items() if name != "correct"}
                record = finished_record(
                    item,
                    video,
                    tensors,
                    condition=condition,
                    item_sha256=f"sha of {item}",
                    measures=told,
                    correct=measures.get("correct"),
                )
                run.save(record, tensors)
        run.write_summary(Summary.of(experiment, run.records(), _means(run.records())))
    return folder


def _means(records: Sequence[Record]) -> dict[str, Metric]:
    names = dict.fromkeys(name for record in records for name in record.measures)
    metrics = {}
    for name in names:
        column = [record.measures.get(name) for record in records]
        found = probes.clustered_mean(
            [float("nan") if value is None else value for value in column], [r.video_id for r in records]
        )
        metrics[name] = Metric(found.mean, found.ci_low, found.ci_high, found.n)
    scored = [record for record in records if record.correct is not None]
    if scored:
        found = probes.clustered_mean([float(r.correct) for r in scored], [r.video_id for r in scored])
        metrics["accuracy"] = Metric(found.mean, found.ci_low, found.ci_high, found.n)
    return metrics
