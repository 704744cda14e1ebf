"""Interventions and readings of one measurement as maps: rows by units of the video, or by layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

import probes
from diagnostics.report.page.quantised import quantised
from diagnostics.store import PairTensors, Record

__all__ = ["panels_of"]

_UNIT_SET = "unit:"


def panels_of(record: Record, tensors: PairTensors, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each map: `title`, `note`, `axis` (`unit`, or `layer` with the `columns`' names), `rows`, `values`.

    Maps over units have a column a unit in the order shown, as the film strip has.

    Args:
        settings: the experiment's own configuration (`exp`).
    """
    gold = tensors.option.index(record.target) if record.target in tensors.option else None
    found = [*_unit_maps(tensors), *_words(tensors)]
    if gold is not None and len(tensors.option) > 1:
        found += _patching(tensors, gold, settings)
        found += _knockout(tensors, gold)
        found += _letters(tensors, gold)
    return found


def _unit_maps(tensors: PairTensors) -> list[dict[str, Any]]:
    """What each map or ordering says of each unit, each to its own largest; those without are left out."""
    if tensors.unit_maps is None:
        return []
    scores = np.asarray(tensors.unit_maps.unit_score, np.float64)
    known = np.atleast_1d(np.isfinite(scores).any(axis=1))
    if not known.any():
        return []
    largest = np.nanmax(np.abs(scores[known]), axis=1, keepdims=True)
    return [
        _map(
            "Importance of each unit, by map",
            "Each row is divided by its largest magnitude. Occlusion is the effect of knocking the unit out.",
            [name for name, there in zip(tensors.role, known, strict=True) if there],
            np.divide(scores[known], largest, out=np.zeros_like(scores[known]), where=largest > 0),
        )
    ]


def _words(tensors: PairTensors) -> list[dict[str, Any]]:
    if tensors.lens is None or tensors.lens.word_share is None:
        return []
    return [
        _map(
            "The right option's word at each unit, by layer",
            "Logit lens: its probability among the options' words.",
            _layers(tensors),
            np.asarray(tensors.lens.word_share, np.float64),
        )
    ]


def _patching(tensors: PairTensors, gold: int, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Share of the logit difference between the two runs that a patch moves."""
    part = tensors.patching
    if part is None:
        return []
    patched, whole, broken = (
        probes.logit_difference(one, gold) for one in (part.logits, part.clean, part.corrupt)
    )
    noising = tensors.definitions.get("direction") == "noising"
    if noising:
        whole, broken = broken, whole
    least = {"least": float(settings["least"])} if "least" in settings else {}
    effect = probes.indirect_effect(patched, whole, broken, **least)
    if not np.isfinite(effect).any():
        return []
    verb = "destroys" if noising else "restores"
    note = f"Share of the logit difference that a patch {verb}: 0 nothing, 1 all."
    n_units = len(tensors.units.frame_index)
    by_unit = np.full((len(tensors.layer), n_units), np.nan)
    others = []
    for column, name in enumerate(tensors.role):
        if name.startswith(_UNIT_SET):
            by_unit[:, int(name.removeprefix(_UNIT_SET))] = effect[:, column]
        else:
            others.append(column)
    maps = [_map("Patching: effect of each unit's states, by layer", note, _layers(tensors), by_unit)]
    if others:
        names = [tensors.role[column] for column in others]
        maps.append(
            _by_layer("Patching: effect of sets of positions", note, tensors, names, effect[:, others].T)
        )
    return maps


def _knockout(tensors: PairTensors, gold: int) -> list[dict[str, Any]]:
    part = tensors.knockout
    roads = [str(name) for name in tensors.definitions.get("roads", ())]
    if part is None or "base" not in roads:
        return []
    base = probes.option_probability(part.road_logits[roads.index("base")], gold)
    change = probes.option_probability(part.window_logits, gold) - base
    note = (
        "Change of the right option's probability among the options "
        f"({base:.3f} with nothing blocked), the path blocked in a window of layers round each."
    )
    maps = [_by_layer("Knockout of paths", note, tensors, list(tensors.role), change.T)]
    blocked = [name for name in roads if name != "base"]
    if blocked:
        rows = [roads.index(name) for name in blocked]
        whole = probes.option_probability(part.road_logits[rows], gold) - base
        told = "The same, with a whole road out of the video blocked in every layer."
        maps.append(
            {
                **_map("Knockout of roads", told, blocked, whole[:, None]),
                "axis": "layer",
                "columns": ["all layers"],
            }
        )
    return maps


def _letters(tensors: PairTensors, gold: int) -> list[dict[str, Any]]:
    """The options' letters at the prompt's last position, by layer."""
    if tensors.lens is None:
        return []
    logits = np.asarray(tensors.lens.letter_logits, np.float64)
    shares = np.stack([probes.option_probability(logits, place) for place in range(logits.shape[1])])
    names = [f"{letter} (right)" if place == gold else letter for place, letter in enumerate(tensors.option)]
    note = "Logit lens at the prompt's last position: probability among the options' letters."
    return [_by_layer("The options' letters, by layer", note, tensors, names, shares)]


def _layers(tensors: PairTensors) -> list[str]:
    return [f"layer {layer}" for layer in tensors.layer]


def _by_layer(
    title: str,
    note: str,
    tensors: PairTensors,
    rows: Sequence[str],
    values: Float[np.ndarray, "row layer"],
) -> dict[str, Any]:
    columns = _layers(tensors)
    return {**_map(title, note, rows, values), "axis": "layer", "columns": columns}


def _map(
    title: str, note: str, rows: Sequence[str], values: Float[np.ndarray, "row column"]
) -> dict[str, Any]:
    names = [name.replace("_", " ").replace(":", ", ") for name in rows]
    return {"title": title, "note": note, "axis": "unit", "rows": names, "values": quantised(values)}
