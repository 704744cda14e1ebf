"""Read the curves of a finished run back from its folder, so that runs can be compared.

Everything is computed from the tensor files by the same probes as in the run; the numbers printed
beside the curves are those of the run's `summary.json`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

import probes
from diagnostics.errors import IncompleteRunError, RunError
from diagnostics.experiments.definitions import Definition, head_mask
from diagnostics.experiments.definitions import pooled_share as pool_heads
from diagnostics.report.curves import REDUNDANCY_POINTS, DriftCurves, ItemDrift, Pooling, gather
from diagnostics.store import (
    Metric,
    PairTensors,
    Record,
    load_summary,
    read_records,
    read_tensors,
    tensor_path,
)

__all__ = [
    "drawable_records",
    "headline_definition",
    "item_drift",
    "load_drift",
    "measured_attention",
    "patch_attention",
    "pooled_share",
    "record_tensors",
    "unit_mass",
]


def load_drift(
    run_dir: str | Path,
    *,
    name: str | None = None,
    pooling: Pooling = "per_head",
    definition: Definition | None = None,
    condition: str | None = None,
) -> DriftCurves:
    """The curves of a finished attention-drift run.

    Args:
        run_dir: the run's folder.
        name: how to call it in legends; the folder's name where None.
        pooling: whether units are ranked in each head, or by the attention pooled over heads.
        definition: which rows, layers and heads; the run's headline where None. With another one the
            curves change, and the numbers of the summary, which are the headline's, are left out.
        condition: the condition id to draw; needed where the run has several.

    Raises:
        ForeignFolderError: the folder is no run.
        IncompleteRunError: the run has no summary, or no finished item with tensors.
        DamagedRunError: a file of it cannot be read.
        RunError: several conditions and none chosen, or a definition that its files do not hold.
    """
    folder = Path(run_dir)
    summary = load_summary(folder)
    items: list[ItemDrift] = []
    kinds: set[str] = set()
    features: set[str] = set()
    for record in drawable_records(folder, condition):
        tensors = record_tensors(folder, record)
        chosen = headline_definition(tensors) if definition is None else definition
        measured = item_drift(tensors, record.video_id, chosen, pooling)
        items.append(replace(measured, duration=record.source_seconds or float("nan")))
        if tensors.control is not None:
            kinds.add(tensors.control.kind)
        if told := tensors.definitions.get("feature"):
            features.add(str(told))
    metrics: Mapping[str, Metric] = summary.metrics if definition is None else {}
    return gather(
        name or folder.resolve().name,
        items,
        metrics,
        control_kind=" or ".join(sorted(kinds)) or "blank",
        pooling=pooling,
        feature=" or ".join(sorted(features)),
    )


def measured_attention(record: Record) -> bool:
    """Whether a record has attention to draw: finished, with rows of the headline's role."""
    no_rows = any(warning.startswith("no_rows:") for warning in record.warnings)
    return record.error is None and record.tensor_file is not None and not no_rows


def drawable_records(run_dir: Path, condition: str | None = None) -> list[Record]:
    """Finished records with attention of the headline's rows, of one condition.

    Raises:
        IncompleteRunError: there are none.
        RunError: there are several conditions and none was chosen.
        DamagedRunError: see `diagnostics.store.read_records`.
    """
    finished = [record for record in read_records(run_dir) if measured_attention(record)]
    chosen = [record for record in finished if condition in (None, record.condition_id)]
    if not chosen:
        told = "" if condition is None else f" under the condition {condition!r}"
        raise IncompleteRunError(
            f"The run has no finished item with tensors{told}.",
            remedy="See the errors in its samples.*.jsonl.",
            path=run_dir,
        )
    conditions = sorted({record.condition_id for record in chosen})
    if len(conditions) > 1:
        raise RunError(
            f"The run has several conditions: {', '.join(conditions)}.",
            remedy="Choose one of them (exp.condition).",
            path=run_dir,
        )
    return chosen


def record_tensors(run_dir: Path, record: Record, only: Collection[str] | None = None) -> PairTensors:
    """The tensor file of a record that has one; of its parts some `only` (`diagnostics.store.read_tensors`).

    Raises:
        DamagedRunError: it cannot be read.
        IncompleteRunError: it is not there.
        PathLeavesRootError: see `diagnostics.store.tensor_path`.
    """
    path = tensor_path(run_dir, record)
    if path is None or not path.exists():
        raise IncompleteRunError(
            "The record's tensor file is missing.",
            remedy="Run the same command again: the pair is then measured again.",
            item_id=record.item_id,
            path=path,
        )
    return read_tensors(path, only)


def headline_definition(tensors: PairTensors) -> Definition:
    """The definition behind the run's headline numbers, as its tensor file says.

    Raises:
        RunError: the file does not say.
    """
    told = {key: tensors.definitions.get(key) for key in Definition.__dataclass_fields__}
    missing = [key for key, value in told.items() if not isinstance(value, str)]
    if missing:
        raise RunError(
            f"The tensor file does not say by which {', '.join(missing)} it was measured.",
            remedy="Give the definition, or measure the run again with this version.",
            item_id=tensors.item_id,
        )
    return Definition(**{key: str(value) for key, value in told.items()})


def item_drift(tensors: PairTensors, video_id: str, definition: Definition, pooling: Pooling) -> ItemDrift:
    """One item's arrays under a definition; its duration is not in the tensor file and stays NaN.

    Raises:
        RunError: the file holds no attention, or not the definition's role or weighting.
    """
    counts = _tokens_per_unit(tensors, definition)
    mass, taken = unit_mass(tensors, definition)
    control = None
    if tensors.control is not None:
        blank = _of_role(tensors, tensors.control.unit_mass, definition)
        control = _cumulative(blank[taken], counts, pooling)
    redundancy, null = _redundancy(tensors, definition)
    return ItemDrift(
        item_id=tensors.item_id,
        video_id=video_id,
        unit_share=pooled_share(tensors, definition),
        cumulative=_cumulative(mass[taken], counts, pooling),
        slot_seconds=tensors.units.true_seconds,
        slot_evidence=tensors.units.evidence,
        duration=float("nan"),
        redundancy=redundancy,
        null=null,
        control_cumulative=control,
    )


def pooled_share(tensors: PairTensors, definition: Definition) -> Float[np.ndarray, " unit"]:
    """Share of the video's attention on each unit, pooled over the definition's heads.

    Raises:
        RunError: see `item_drift`.
    """
    mass, taken = unit_mass(tensors, definition)
    counts = np.bincount(tensors.tokens.unit_index, minlength=len(tensors.units.frame_index))
    return pool_heads(definition, mass[taken], counts)


def patch_attention(tensors: PairTensors, definition: Definition) -> Float[np.ndarray, " token"]:
    """Attention on each visual token: the mean over the definition's layers, and over all their heads.

    (Tensor files keep attention by token as a mean over heads.)

    Raises:
        RunError: see `item_drift`.
    """
    _, taken = unit_mass(tensors, definition)
    assert tensors.attention is not None  # unit_mass has refused it
    mass = tensors.attention.token_mass[:, tensors.role.index(definition.role)]
    return np.asarray(mass[taken.any(axis=1)], np.float64).mean(axis=0)


def unit_mass(
    tensors: PairTensors, definition: Definition
) -> tuple[Float[np.ndarray, "layer head unit"], Bool[np.ndarray, "layer head"]]:
    """Mass of the definition's rows on units, and which heads the definition takes.

    Raises:
        RunError: see `item_drift`.
    """
    if tensors.attention is None:
        raise RunError(
            "The tensor file holds no attention.",
            remedy="Draw a run that captured it.",
            item_id=tensors.item_id,
        )
    plain = _of_role(tensors, tensors.attention.unit_mass, definition)
    taken = head_mask(definition, plain)
    if not taken.any():
        raise RunError(
            f"The definition takes no heads: of {len(plain)} captured layers none is {definition.layers}.",
            remedy="Choose another set of layers.",
            item_id=tensors.item_id,
        )
    if definition.weighting == "attention":
        return plain, taken
    if tensors.attention.value_mass is None:
        raise RunError(
            "The run did not measure value-weighted attention.",
            remedy="Choose weighting attention.",
            item_id=tensors.item_id,
        )
    return _of_role(tensors, tensors.attention.value_mass, definition), taken


def _of_role(
    tensors: PairTensors, mass: Float[np.ndarray, "layer head role unit"], definition: Definition
) -> Float[np.ndarray, "layer head unit"]:
    if definition.role not in tensors.role:
        raise RunError(
            f"The run has no rows of the role {definition.role!r}.",
            remedy=f"Choose one of {', '.join(tensors.role)}.",
            item_id=tensors.item_id,
        )
    return np.asarray(mass[:, :, tensors.role.index(definition.role)], np.float64)


def _tokens_per_unit(tensors: PairTensors, definition: Definition) -> Int[np.ndarray, " unit"] | None:
    """By what a unit's attention is divided; None where its tokens are summed."""
    if definition.pooling == "sum":
        return None
    return np.bincount(tensors.tokens.unit_index, minlength=len(tensors.units.frame_index))


def _cumulative(
    heads: Float[np.ndarray, "head unit"], counts: Int[np.ndarray, " unit"] | None, pooling: Pooling
) -> Float[np.ndarray, " unit"]:
    """C(k) of the pooled attention, or its mean over the heads that give the video any attention."""
    if pooling == "pooled":
        return probes.concentration(heads.mean(axis=0), tokens_per_unit=counts).cumulative
    each = probes.concentration(heads, tokens_per_unit=counts)
    if not each.defined.any():
        return np.full(heads.shape[-1], np.nan)
    return each.cumulative[each.defined].mean(axis=0)


def _redundancy(
    tensors: PairTensors, definition: Definition
) -> tuple[Float[np.ndarray, " patch_point"], probes.ShiftNull | None]:
    """The item's redundancy curve and the null of its preference; NaN and None where not measured."""
    if tensors.similarity is None:
        return np.full(REDUNDANCY_POINTS, np.nan), None
    # Why a cosine is missing is not in the file, and nothing below reads the counts of it.
    similarity = probes.KeyframeSimilarity(
        similarity=np.asarray(tensors.similarity.patch_to_keyframe, np.float64),
        keyframe=np.asarray(tensors.similarity.keyframe, np.int64),
        n_no_keyframe=0,
        n_grid_mismatch=0,
        n_no_direction=0,
    )
    found = probes.redundancy_preference(
        similarity,
        patch_attention(tensors, definition),
        tensors.tokens.unit_index,
        tensors.tokens.row,
        tensors.tokens.col,
        tensors.similarity.is_key,
        n_points=REDUNDANCY_POINTS,
    )
    return found.curve_similarity, found.nulls["time"]
