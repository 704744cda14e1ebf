"""Tables of the patching experiment: effects by group of positions, and by place relative to the evidence."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

import probes
from diagnostics.experiments.conditions import ALL, Answers, metric_of
from diagnostics.experiments.write_up import Asked
from diagnostics.store.run_folder import tensor_path
from diagnostics.store.summary import Metric
from diagnostics.store.tensors import read_tensors

__all__ = ["GROUPS", "REACH", "course_table", "effects", "grid_table", "metrics_of", "turning_table"]

GROUPS = ("evidence", "others", "question", "options", "last")
"""Sets of positions that every item has, where it has such tokens: measures of the record."""

REACH = 6
"""The heat map goes so many units to either side of the evidence; further ones count as the outermost."""

_HIGH, _LOW = 0.8, 0.1
"""Share restored from which on the evidence's tokens hold the answer, and under which it is elsewhere."""

_SUBSETS = ("right", "all")
"""Items that the clean run answers right while the corrupt one does not, or all items."""


def effects(
    logits: Float[np.ndarray, "layer set option"],
    clean: Float[np.ndarray, " option"],
    corrupt: Float[np.ndarray, " option"],
    gold: int,
    direction: str,
    least: float,
) -> Float[np.ndarray, "layer set"]:
    """Share of the difference between the runs that a patch moves: restored or, with `noising`, destroyed."""
    patched, whole, broken = (probes.logit_difference(one, gold) for one in (logits, clean, corrupt))
    if direction == "noising":
        whole, broken = broken, whole
    return probes.indirect_effect(patched, whole, broken, least=least)


def _of(answers: Answers, subset: str) -> Answers:
    if subset == "all":
        return answers
    turned = (answers.column({}, "clean_right") > 0) & (answers.column({}, "corrupt_right") == 0)
    kept = {item for item, good in zip(answers.items, turned, strict=True) if good}
    return answers.where(lambda item, _task: item in kept)


def course_table(answers: Answers, n_layers: int) -> pd.DataFrame:
    """Effect of each group of positions by layer: of items right in the clean run alone, and of all."""
    rows: list[dict[str, Any]] = []
    for subset in _SUBSETS:
        for task, some in _of(answers, subset).by_task():
            for name in GROUPS:
                for layer in range(n_layers):
                    metric = metric_of(some.column({}, f"effect@set={name},layer={layer}"), some.videos)
                    if metric.n:
                        row = {"of": subset, "task": task, "set": name, "layer": layer}
                        rows.append(row | _told(metric))
    return pd.DataFrame(rows, columns=["of", "task", "set", "layer", "effect", "ci_low", "ci_high", "n"])


def _told(metric: Metric) -> dict[str, Any]:
    return {"effect": metric.mean, "ci_low": metric.ci_low, "ci_high": metric.ci_high, "n": metric.n}


def grid_table(run_dir: Path, asked: Asked, direction: str, least: float) -> pd.DataFrame:
    """Effect of single units by layer and place: 0 is a unit of evidence, -2 the second one before it.

    A unit between two stretches of evidence counts by the nearer one. Items as in `course_table`'s `right`.
    An item's units at one place are averaged first. A cell that was not made exactly counts nowhere.
    """
    turned = set(_of(asked.answers, "right").items)
    found: dict[tuple[int, int], list[float]] = defaultdict(list)
    videos: dict[tuple[int, int], list[str]] = defaultdict(list)
    for record in asked.done:
        path = tensor_path(run_dir, record)
        if record.item_id not in turned or path is None:
            continue
        kept = read_tensors(path, ("units", "tokens", "patching"))
        if kept.patching is None or record.target is None:
            continue
        gold = kept.option.index(record.target)
        part = kept.patching
        effect = effects(part.logits, part.clean, part.corrupt, gold, direction, least)
        places = _places(np.asarray(kept.units.evidence.any(axis=1)))
        columns = [kept.role.index(f"unit:{unit}") for unit in range(len(places))]
        for place in np.unique(places[np.isfinite(places)]).astype(int):
            here = effect[:, [column for column, at in zip(columns, places, strict=True) if at == place]]
            for row, layer in enumerate(kept.layer.tolist()):
                values = here[row][np.isfinite(here[row])]
                if len(values):
                    found[layer, place].append(float(values.mean()))
                    videos[layer, place].append(record.video_id)
    rows = [
        {"layer": layer, "place": place} | _told(metric_of(values, videos[layer, place]))
        for (layer, place), values in sorted(found.items())
    ]
    return pd.DataFrame(rows, columns=["layer", "place", "effect", "ci_low", "ci_high", "n"])


def _places(evidence: np.ndarray) -> Float[np.ndarray, " unit"]:
    """Units from the nearest unit of evidence, negative before it, within the reach; NaN without evidence."""
    if not evidence.any():
        return np.full(len(evidence), np.nan)
    away = np.arange(len(evidence))[:, None] - np.flatnonzero(evidence)[None]
    nearest = np.abs(away).argmin(axis=1)
    return np.clip(away[np.arange(len(evidence)), nearest], -REACH, REACH).astype(float)


def metrics_of(answers: Answers, n_layers: int, full: int) -> dict[str, Metric]:
    """The headline: up to which layer the evidence's tokens hold the answer, and from which on they do not.

    Args:
        full: the first layer whose input holds everything that DeepStack adds.
    """
    some = _of(answers, "right")
    layers = [layer for layer in range(full, n_layers) if _any(some, layer)]
    found = {
        "clean_accuracy": metric_of(answers.column({}, "clean_right"), answers.videos),
        "corrupt_accuracy": metric_of(answers.column({}, "corrupt_right"), answers.videos),
        "patching_forwards": metric_of(answers.column({}, "patching_forwards"), answers.videos),
    }
    turning = turning_table(answers, n_layers)
    for row in turning[(turning["of"] == "right") & (turning["task"] == ALL)].to_dict("records"):
        for name in ("holds_to_layer", "gone_from_layer"):
            value = None if pd.isna(row[name]) else float(row[name])
            found[f"evidence_{name}"] = Metric(value, None, None, int(row["n"]))
    if layers:
        for name, layer in (("after_injections", layers[0]), ("in_last_layer", layers[-1])):
            for group in ("evidence", "last"):
                column = some.column({}, f"effect@set={group},layer={layer}")
                found[f"{group}_effect_{name}"] = metric_of(column, some.videos)
    screened = metric_of(answers.column({}, "screen_rank_correlation"), answers.videos)
    if screened.n:
        found["screen_rank_correlation"] = screened
    return found


def turning_table(answers: Answers, n_layers: int) -> pd.DataFrame:
    """By task, the last layer up to which the evidence restores most, and the first with little restored."""
    rows = []
    for subset in _SUBSETS:
        for task, some in _of(answers, subset).by_task():
            measured = [layer for layer in range(n_layers) if _any(some, layer)]
            told = [
                metric_of(some.column({}, f"effect@set=evidence,layer={layer}"), some.videos)
                for layer in measured
            ]
            means = [metric.mean if metric.mean is not None else float("nan") for metric in told]
            high = [layer for place, layer in enumerate(measured) if min(means[: place + 1]) >= _HIGH]
            low = [layer for place, layer in enumerate(measured) if max(means[place:]) < _LOW]
            turned = {
                "holds_to_layer": high[-1] if high else None,
                "gone_from_layer": low[0] if low else None,
            }
            rows.append({"of": subset, "task": task} | turned | {"n": told[0].n if told else 0})
    return pd.DataFrame(rows, columns=["of", "task", "holds_to_layer", "gone_from_layer", "n"])


def _any(answers: Answers, layer: int) -> bool:
    return bool(np.isfinite(answers.column({}, f"effect@set=evidence,layer={layer}")).any())
