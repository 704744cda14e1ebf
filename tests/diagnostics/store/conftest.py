"""Measurements of any shape, made up but consistent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from diagnostics.store import (
    Answer,
    Attention,
    Control,
    PairTensors,
    Record,
    Rows,
    Similarity,
    Tokens,
    Units,
)
from diagnostics.store.tensor_parts import PARTS, schema_of
from diagnostics.video.selection import Slot

_FEATURES = 7


def _shares(rng: np.random.Generator, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Random mass over the last axis and the rest, together 1."""
    mass = rng.dirichlet(np.ones(shape[-1] + 1), size=shape[:-1])
    return mass[..., :-1].astype(np.float32), mass[..., -1].astype(np.float32)


def _interventions(rng: np.random.Generator, lengths: dict[str, int]) -> dict[str, object]:
    """Every part of the experiments inside the model, each array as long as its axes say."""
    return {
        name: PARTS[name](
            **{
                variable.name: (9 * rng.random([lengths[axis] for axis in variable.axes])).astype(
                    variable.dtype
                )
                for variable in schema_of(PARTS[name])
            }
        )
        for name in ("decode", "states", "unit_maps", "lens", "knockout", "patching")
    }


def _tensors(
    item_id: str = "item",
    condition: dict | None = None,
    *,
    full: bool = True,
    layers: int = 2,
    heads: int = 3,
    units: int = 4,
    slots: int = 2,
    options: int = 4,
    queries: int = 5,
    text: str = "B",
    seed: int = 0,
) -> PairTensors:
    rng = np.random.default_rng(seed)
    roles = ("question", "options", "last", "generated")
    tokens = units * 6
    unit_mass, rest_mass = _shares(rng, layers, heads, len(roles), units)
    unit_mass[:, :, 3], rest_mass[:, :, 3] = np.nan, np.nan  # nothing was generated
    frames = np.arange(units * slots).reshape(units, slots)
    row_mass, row_rest = _shares(rng, layers, heads, queries, units)
    control_mass, control_rest = _shares(rng, layers, heads, len(roles), units)
    lengths = {"layer": layers, "head": heads, "role": len(roles), "query": queries, "unit": units}
    lengths |= {"option": options, "feature": _FEATURES, "token": tokens}
    unit_of_token, place = np.divmod(np.arange(tokens, dtype=np.int32), 6)
    return PairTensors(
        item_id=item_id,
        condition=condition or {},
        layer=np.arange(layers, dtype=np.int32) * 2,
        role=roles,
        option=tuple("ABCDEFGH"[:options]),
        units=Units(frames, frames / 25.0, frames / 25.0, frames == 3),
        tokens=Tokens(np.arange(tokens, dtype=np.int32) + 10, unit_of_token, place // 3, place % 3),
        attention=Attention(
            unit_mass,
            rest_mass,
            rng.random((layers, len(roles), tokens), dtype=np.float32),
            value_mass=unit_mass * np.float32(0.5) if full else None,
            value_rest_mass=rest_mass * np.float32(2.0) if full else None,
            sink_score=rng.random((layers, tokens), dtype=np.float32) if full else None,
            sink_unit_mass=unit_mass * np.float32(0.5) if full else None,
        ),
        rows=Rows(np.arange(queries, dtype=np.int32), row_mass, row_rest, row_mass * np.float32(0.5))
        if full
        else None,
        similarity=Similarity(
            rng.random((units, units), dtype=np.float32),
            np.arange(units) == 1,
            np.where(np.arange(units) > 1, 1, -1).astype(np.int32),
            np.where(unit_of_token > 1, 0.5, np.nan).astype(np.float32),
            mean_direction=rng.random(_FEATURES, dtype=np.float32),
        )
        if full
        else None,
        control=Control(control_mass, control_rest, "blank", control_mass * np.float32(2.0))
        if full
        else None,
        answer=Answer(rng.random(options, dtype=np.float32), text),
        **_interventions(rng, lengths) if full else {},
        definitions={"key_fraction": 0.25, "feature": "merger"},
        versions={"torch": "2.14.1"},
    )


def _record(item_id: str = "item", condition: dict | None = None, **values: object) -> Record:
    slots = (Slot("v.mp4", 3, 0.1, 0.1), Slot("blank", -1, float("nan"), 0.5))
    known = {"video_id": "v.mp4", "slots": slots, "measures": {"gini": 0.25, "entropy": float("nan")}}
    return Record(item_id=item_id, condition=condition or {}, **(known | values))


@pytest.fixture(scope="session")
def make_tensors() -> Callable[..., PairTensors]:
    """Builds a `PairTensors`: `full=False` leaves the optional parts out."""
    return _tensors


@pytest.fixture(scope="session")
def make_record() -> Callable[..., Record]:
    """Builds a `Record` with the given fields."""
    return _record
