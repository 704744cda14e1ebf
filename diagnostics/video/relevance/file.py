"""Scores that were computed elsewhere, from a file.

Three formats, told apart by the file's ending (docs/sampling.md):

- `.json`: `{"<item id>": [score, ...]}`, one score a candidate; or, to name the frames,
  `{"<item id>": {"frame_index": [...], "scores": [...]}}`. null is a missing score (NaN).
- `.csv`: columns `item_id,frame_index,score`.
- `.npz`, without pickled objects: an array called `<item id>`, and optionally `<item id>/frame_index` and
  `<item id>/features` [n, dim], for samplers that compare frames.

Where frames are named, every candidate must be among them; more may be. Where they are not, the number
of scores must be that of the candidates.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from diagnostics.data.items import Item
from diagnostics.errors import ConfigError, ScorerUnavailableError, ScoresError
from diagnostics.video.relevance.config import ScorerConfig

__all__ = ["FileScores", "ItemScores", "load"]

_FORMATS = (".json", ".csv", ".npz")


@dataclass(frozen=True, eq=False, slots=True)
class ItemScores:
    """What the file says of one item.

    Attributes:
        frame_index: the source frames that the scores are for; None where the file does not say.
        features: an embedding of each; None where there is none.
    """

    scores: Float[np.ndarray, " n"]
    frame_index: Int[np.ndarray, " n"] | None = None
    features: Float[np.ndarray, "n dim"] | None = None


class FileScores:
    """Scores by item.

    Attributes:
        name, version, uses_question: as of a `Scorer`; the version is the file's hash.
    """

    name = "file"
    uses_question = True

    def __init__(self, path: Path, version: str, items: dict[str, ItemScores]) -> None:
        self.path, self.version, self.items = path, version, items

    def lookup(
        self, item: Item, frames: Int[np.ndarray, " n"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"] | None]:
        """Score, and feature where the file has them, of each of the candidates `frames`.

        Raises:
            ScoresError: the item is not in the file, a candidate has no score, or the lengths differ.
        """
        said = self.items.get(item.id)
        if said is None:
            raise self._error(item, f"the file holds scores of {len(self.items)} items, not of this one.")
        if said.frame_index is None:
            if len(said.scores) != len(frames):
                raise self._error(
                    item, f"there are {len(said.scores)} scores for {len(frames)} candidate frames."
                )
            return said.scores, said.features
        order = np.argsort(said.frame_index, kind="stable")
        places = np.searchsorted(said.frame_index, frames, sorter=order)
        found = order[np.minimum(places, len(order) - 1)] if len(order) else np.empty(0, dtype=np.int64)
        missing = frames[said.frame_index[found] != frames] if len(order) else frames
        if len(missing):
            raise self._error(item, f"{len(missing)} candidate frames have no score, {missing[0]} first.")
        return said.scores[found], None if said.features is None else said.features[found]

    def _error(self, item: Item, problem: str) -> ScoresError:
        return ScoresError(
            problem,
            remedy=(
                "Score the frames at the sampler's candidate_fps, and name them by frame_index where you can."
            ),
            item_id=item.id,
            path=self.path,
        )


def load(config: ScorerConfig) -> FileScores:
    """Read the file of scores.

    Raises:
        ConfigError: no file is named, or its ending is none of the three.
        ScorerUnavailableError: it cannot be read, or is not written as the format says.
    """
    if config.path is None:
        raise ConfigError(
            "sampling.scorer.name=file names no file.", remedy="Set sampling.scorer.path to the scores."
        )
    path = Path(config.path).expanduser()
    if path.suffix.lower() not in _FORMATS:
        raise ConfigError(f"{path.name!r} is no file of scores.", remedy=f"Known: {', '.join(_FORMATS)}.")
    try:
        content = path.read_bytes()
        read = {".json": _from_json, ".csv": _from_csv, ".npz": _from_npz}[path.suffix.lower()]
        items = read(path)
        for item, said in items.items():
            _check(item, said)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise ScorerUnavailableError(
            f"the file of scores cannot be read: {error}.",
            remedy="See docs/sampling.md for its formats.",
            path=path,
        ) from error
    return FileScores(path, hashlib.sha256(content).hexdigest(), items)


def _check(item: str, said: ItemScores) -> None:
    if said.scores.ndim != 1:
        raise ValueError(f"the scores of {item!r} have shape {said.scores.shape}")
    if said.features is not None and (said.features.ndim != 2 or len(said.features) != len(said.scores)):
        raise ValueError(f"{item!r} has features of shape {said.features.shape}, {len(said.scores)} scores")
    named = said.frame_index
    if named is not None and (named.shape != said.scores.shape or len(np.unique(named)) != len(named)):
        raise ValueError(f"{item!r} names {named.size} frames for {len(said.scores)} scores, each once")


def _from_json(path: Path) -> dict[str, ItemScores]:
    written = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(written, dict):
        raise ValueError("it holds no object from item ids to scores")
    return {str(item): _entry(value) for item, value in written.items()}


def _entry(value: Any) -> ItemScores:
    if isinstance(value, dict):
        return ItemScores(_floats(value["scores"]), np.array(value["frame_index"], dtype=np.int64))
    return ItemScores(_floats(value))


def _from_csv(path: Path) -> dict[str, ItemScores]:
    columns: dict[Hashable, Any] = {"item_id": str, "frame_index": "int64", "score": "float64"}
    table = pd.read_csv(path, dtype=columns)
    return {
        str(item): ItemScores(rows["score"].to_numpy(), rows["frame_index"].to_numpy())
        for item, rows in table.groupby("item_id", sort=False)
    }


def _from_npz(path: Path) -> dict[str, ItemScores]:
    with np.load(path, allow_pickle=False) as written:
        arrays = {name: written[name] for name in written.files}
    parts = ("/frame_index", "/features")
    return {
        name: ItemScores(
            _floats(array),
            None if f"{name}{parts[0]}" not in arrays else arrays[f"{name}{parts[0]}"].astype(np.int64),
            arrays.get(f"{name}{parts[1]}"),
        )
        for name, array in arrays.items()
        if not name.endswith(parts)
    }


def _floats(values: Any) -> Float[np.ndarray, " n"]:
    return np.array(values, dtype=np.float64)  # null becomes NaN
