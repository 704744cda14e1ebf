"""One measurement as the page shows it: question, answer, frames, attention, effects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from diagnostics.data.items import Item, option_letter
from diagnostics.experiments.definitions import Definition
from diagnostics.experiments.definitions import pooled_share as pool_heads
from diagnostics.report.from_run import (
    headline_definition,
    patch_attention,
    pooled_share,
    record_tensors,
    unit_mass,
)
from diagnostics.report.page.beside import OtherRun
from diagnostics.report.page.frames import finite, pictures_of, units_of, windows_of
from diagnostics.report.page.panels import panels_of
from diagnostics.report.page.quantised import quantised
from diagnostics.store import PairTensors, Record

__all__ = ["HEADS_AT_MOST", "LAYER_PATCHES_AT_MOST", "PARTS_READ", "detail_of", "patch_grids"]

PARTS_READ = (
    "units",
    "tokens",
    "attention",
    "similarity",
    "control",
    "unit_maps",
    "lens",
    "knockout",
    "patching",
)
"""Parts of a tensor file that the page has a use for."""

HEADS_AT_MOST = 128 * 1024
"""Numbers of one item's attention by layer, head and unit up to which the page carries it."""

LAYER_PATCHES_AT_MOST = 64 * 1024
"""Numbers of one item's attention by layer and patch up to which the page carries it."""

_LONGEST_REPLY = 20_000


def detail_of(
    run_dir: Path,
    record: Record,
    item: Item | None,
    settings: Mapping[str, Any] | None = None,
    beside: Sequence[OtherRun] = (),
) -> dict[str, Any]:
    """JSON values of one measurement; arrays as `quantised` tells them.

    Args:
        item: as it was asked under the record's condition; None where the run kept no words.
        settings: the experiment's own configuration.
        beside: runs that may have measured something else of the same frames.

    Raises:
        DamagedRunError: a file cannot be read, or record and tensor file disagree.
        IncompleteRunError: the tensor file is missing.
    """
    tensors = _tensors(run_dir, record)
    others = [
        (other, found, _tensors(other.folder, found))
        for other in beside
        if record.error is None
        for found in other.of(record)
    ]
    # What a unit is, another run says as well; what it measured stands under its own name.
    layout = others[0][2] if tensors is None and others else tensors
    detail = {
        **_words(record, item),
        "windows": windows_of(item),
        "duration": finite(record.source_seconds),
        "units": units_of(record, layout, item),
        "pictures": pictures_of(run_dir, record, layout, item),
    }
    if layout is not None:
        detail["panels"] = []
    if tensors is not None:
        detail |= _attention(tensors)
        detail["panels"] = panels_of(record, tensors, settings or {})
    for other, found, theirs in others:
        assert theirs is not None
        assert layout is not None
        if len(theirs.units.frame_index) == len(layout.units.frame_index):
            detail = _with_other(detail, other, found, theirs)
    return detail


def _with_other(
    detail: dict[str, Any], other: OtherRun, record: Record, tensors: PairTensors
) -> dict[str, Any]:
    """What another run measured, under its name; its attention where the page's own run has none."""
    condition = ", ".join(f"{key} {value}" for key, value in record.condition.items())
    words = f"{other.words}{', ' if condition else ''}{condition}"
    panels = [
        {**panel, "title": f"{panel['title']} ({words})"}
        for panel in panels_of(record, tensors, other.settings)
    ]
    found = {**detail, "panels": [*detail["panels"], *panels]}
    if "attention" not in detail and (attention := _attention(tensors)):
        found |= {**attention, "attention": {**attention["attention"], "of": words}}
    return found


def _tensors(run_dir: Path, record: Record) -> PairTensors | None:
    if record.error is not None or record.tensor_file is None:
        return None
    return record_tensors(run_dir, record, PARTS_READ)


# -- words


def _words(record: Record, item: Item | None) -> dict[str, Any]:
    return {
        "item": record.item_id,
        "video": record.video_id,
        "question": None if item is None else item.question,
        "turns": [] if item is None else [[turn.role, turn.text] for turn in item.turns],
        "options": _options(record, item),
        "raw": None if record.raw is None else record.raw[:_LONGEST_REPLY],
        "rule": record.rule,
        "error": None if record.error is None else [record.error.type, record.error.message],
        "warnings": list(record.warnings),
        "selection": record.selection_rule,
        "seconds": {name: finite(value) for name, value in record.seconds.items()},
        "variants": {name: finite(value) for name, value in record.measures.items() if "@" in name},
    }


def _options(record: Record, item: Item | None) -> list[dict[str, Any]]:
    """Each option: letter, text or null, probability of the letter as the reply's first token or null."""
    texts = {} if item is None else {option_letter(place): text for place, text in enumerate(item.options)}
    letters = list(dict.fromkeys([*texts, *record.option_logprobs]))
    return [
        {"letter": letter, "text": texts.get(letter), "p": _probability(record.option_logprobs.get(letter))}
        for letter in letters
    ]


def _probability(logprob: float | None) -> float | None:
    return None if logprob is None else float(f"{math.exp(logprob):.4g}")


# -- attention


def _attention(tensors: PairTensors) -> dict[str, Any]:
    """Attention by unit, by layer and head, and by patch; nothing where it was not captured."""
    if tensors.attention is None or not tensors.role:
        return {}
    definition = _definition(tensors)
    mass = np.asarray(tensors.attention.unit_mass, np.float64)
    role = tensors.role.index(definition.role)
    heads = mass[:, :, role]
    share = patch_attention(tensors, definition)
    grids, patches = patch_grids(tensors, share / share.sum() if share.sum() > 0 else share)
    return {
        "share": quantised(pooled_share(tensors, definition)),
        "control": _control(tensors, definition),
        "attention": {
            "layers": [int(layer) for layer in tensors.layer],
            "roles": list(tensors.role),
            "role": definition.role,
            "definition": definition.as_columns(),
            "n_heads": int(mass.shape[1]),
            "mass": quantised(mass.mean(axis=1).swapaxes(0, 1)),
            "heads": quantised(heads) if heads.size <= HEADS_AT_MOST else None,
        },
        "patches": {
            "grids": grids,
            "heat": quantised(patches),
            "layers": _layer_patches(tensors, role),
        },
    }


def _definition(tensors: PairTensors) -> Definition:
    """The run's headline definition; of a file that names none, all layers and heads of the role it names. Of
    an item that has no rows of that role (an open-ended one has no options), its first."""
    if set(Definition.__dataclass_fields__) <= set(tensors.definitions):
        headline = headline_definition(tensors)
        return headline if headline.role in tensors.role else replace(headline, role=tensors.role[0])
    role = tensors.definitions.get("role")
    return Definition(str(role) if role in tensors.role else tensors.role[0])


def _control(tensors: PairTensors, definition: Definition) -> dict[str, Any] | None:
    """Attention by unit under the control of what is shown, pooled as the headline's."""
    if tensors.control is None:
        return None
    _, taken = unit_mass(tensors, definition)
    blank = np.asarray(tensors.control.unit_mass[:, :, tensors.role.index(definition.role)], np.float64)
    counts = np.bincount(tensors.tokens.unit_index, minlength=len(tensors.units.frame_index))
    return {"kind": tensors.control.kind, "share": quantised(pool_heads(definition, blank[taken], counts))}


def _layer_patches(tensors: PairTensors, role: int) -> dict[str, Any] | None:
    """Each layer's attention by patch, of what it gives the video; None where that is too much to carry."""
    assert tensors.attention is not None
    mass = np.asarray(tensors.attention.token_mass[:, role], np.float64)
    if mass.size > LAYER_PATCHES_AT_MOST:
        return None
    total = mass.sum(axis=1, keepdims=True)
    shares = np.divide(mass, total, out=np.full(mass.shape, np.nan), where=total > 0)
    return quantised(np.stack([patch_grids(tensors, layer)[1] for layer in shares]))


def patch_grids(
    tensors: PairTensors, values: Float[np.ndarray, " token"]
) -> tuple[list[list[int]], Float[np.ndarray, " patch"]]:
    """A number of each visual token, in its place.

    Returns:
        Rows and columns of each unit's grid, and the grids one after the other, row by row; NaN where a grid
        has no token.
    """
    unit, row, col = (
        np.asarray(part, np.int64)
        for part in (tensors.tokens.unit_index, tensors.tokens.row, tensors.tokens.col)
    )
    sizes = np.zeros((len(tensors.units.frame_index), 2), np.int64)
    np.maximum.at(sizes, unit, np.stack([row, col], axis=1) + 1)
    starts = np.concatenate([[0], np.cumsum(sizes.prod(axis=1))])
    placed = np.full(int(starts[-1]), np.nan)
    placed[starts[unit] + row * sizes[unit, 1] + col] = values
    return sizes.tolist(), placed
