"""From the records of `faithfulness` to its tables: areas, contrasts between maps, mean curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

import probes
from diagnostics.experiments.conditions import Answers
from diagnostics.experiments.context import Context
from diagnostics.store.records import Record
from diagnostics.store.run_folder import tensor_path
from diagnostics.store.tensors import read_tensors

__all__ = ["ORACLE", "RANDOM", "area_table", "contrast_table", "mean_curves"]

RANDOM, ORACLE = "random", "oracle"
_DIRECTIONS = ("deletion", "insertion")


def area_table(answers: Answers, maps: Sequence[str], seed: int) -> pd.DataFrame:
    """One row a task, direction and map: mean area, the normalised area with its interval, agreement.

    `normalised` is 0 for random orderings and 1 for the oracle, of the mean curves (the mean over items is
    taken before the division); `agreement` is the mean Kendall tau-b with the reference map.
    """
    rows: list[dict[str, Any]] = []
    for task, some in answers.by_task():
        for direction in _DIRECTIONS:
            areas = {name: _areas(some, direction, name) for name in (*maps, RANDOM, ORACLE)}
            for name, own in areas.items():
                found = probes.pooled_normalised_area(
                    own, areas[RANDOM], areas[ORACLE], some.videos, seed=seed
                )
                agreement = some.column({}, f"map_agreement@map={name}")
                defined = np.isfinite(agreement)
                rows.append(
                    {
                        "task": task,
                        "direction": direction,
                        "map": name,
                        "area": float(np.nanmean(own)) if np.isfinite(own).any() else float("nan"),
                        "normalised": found.mean,
                        "ci_low": found.ci_low,
                        "ci_high": found.ci_high,
                        "agreement": float(agreement[defined].mean()) if defined.any() else float("nan"),
                        "n": found.n,
                        "videos": found.n_groups,
                    }
                )
    return pd.DataFrame(rows)


def contrast_table(answers: Answers, maps: Sequence[str], reference: str, seed: int) -> pd.DataFrame:
    """Each map's normalised area less the reference's, on the same items and resamples; negative is worse."""
    rows: list[dict[str, Any]] = []
    for task, some in answers.by_task():
        for direction in _DIRECTIONS:
            random, oracle, base = (_areas(some, direction, name) for name in (RANDOM, ORACLE, reference))
            for name in maps:
                if name == reference:
                    continue
                found = probes.normalised_area_change(
                    (base, random, oracle),
                    (_areas(some, direction, name), random, oracle),
                    some.videos,
                    seed=seed,
                )
                rows.append(
                    {
                        "task": task,
                        "direction": direction,
                        "map": name,
                        "less": reference,
                        "difference": found.mean,
                        "ci_low": found.ci_low,
                        "ci_high": found.ci_high,
                        "n": found.n,
                        "videos": found.n_groups,
                    }
                )
    return pd.DataFrame(rows)


def _areas(answers: Answers, direction: str, name: str) -> Float[np.ndarray, " item"]:
    return answers.column({}, f"{direction}_area@map={name}")


def mean_curves(context: Context, records: Sequence[Record], steps: int) -> pd.DataFrame:
    """Mean curve of every ordering over all items, random ones together, on a grid of `steps` stretches.

    One row an ordering, direction and fraction removed (or left), with the interval over videos. Items of
    another number of units are read off between their points.
    """
    grid = np.linspace(0.0, 1.0, steps + 1)
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    videos: list[str] = []
    for record in records:
        path = tensor_path(context.folder.path, record)
        if path is None:
            continue
        tensors = read_tensors(path, only=("units", "tokens", "unit_maps"))
        maps = tensors.unit_maps
        if maps is None:
            continue
        videos.append(record.video_id)
        fraction = maps.removed / maps.removed[-1]
        for direction in _DIRECTIONS:
            own = dict(zip(tensors.role, getattr(maps, direction), strict=True))
            drawn = [own.pop(name) for name in list(own) if name.startswith(f"{RANDOM}:")]
            own[RANDOM] = np.mean(drawn, axis=0)
            for name, curve in own.items():
                found.setdefault((name, direction), []).append(np.interp(grid, fraction, curve))
    rows: list[dict[str, Any]] = []
    for (name, direction), curves in found.items():
        mean = probes.clustered_curve(np.stack(curves), videos)
        rows += [
            {
                "map": name,
                "direction": direction,
                "fraction": float(grid[place]),
                "outcome": float(mean.mean[place]),
                "ci_low": float(mean.ci_low[place]),
                "ci_high": float(mean.ci_high[place]),
                "n": mean.n,
            }
            for place in range(len(grid))
        ]
    return pd.DataFrame(rows)
