"""What an attention-drift run comes to: summary, tables and figures, made from its files alone.

Nothing here needs the model: a run that was killed and resumed, or measured by several processes, comes
to the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import probes
from diagnostics.data.items import Item
from diagnostics.experiments.context import Context
from diagnostics.experiments.definitions import Definition, definitions, head_mask
from diagnostics.experiments.drift_measures import RoleMass, ShownUnits, measure_definition
from diagnostics.experiments.outcome import Outcome, record_rejected, records_of_run
from diagnostics.experiments.pairs import Pair
from diagnostics.report.drift import save_figure, time_figure, two_panel_figure
from diagnostics.report.from_run import load_drift, measured_attention
from diagnostics.report.item_pictures import draw_item
from diagnostics.store.records import Record
from diagnostics.store.run_folder import RunFolder, tensor_path
from diagnostics.store.summary import Metric, Row, Summary
from diagnostics.store.tensor_parts import PairTensors
from diagnostics.store.tensors import read_tensors

if TYPE_CHECKING:
    from diagnostics.experiments.attention_drift import Config

__all__ = ["finish"]

_VARIANT = "@"
"""Separates a measure's name from the choice it was measured by, where that is not the headline's."""

_HEADLINE = (
    "accuracy",
    "none_rate",
    "choice_accuracy",
    "visual_mass",
    "unit_fraction_50",
    "unit_fraction_90",
    "unit_fraction_90_pooled",
    "unit_fraction_90_position_only",
    "unit_fraction_90_uniform",
    "entropy",
    "head_divergence",
    "evidence_covered",
    "evidence_share",
    "evidence_log_lift",
    "evidence_log_lift_corrected",
    "position_explained",
    "unit_similarity",
    "unit_similarity_centred",
    "unit_similarity_between",
    "patch_similarity",
    "redundancy_preference",
    "redundancy_preference_null",
    "redundancy_preference_stratified",
)

_SWEPT = (
    "unit_fraction_50",
    "unit_fraction_90",
    "entropy",
    "effective_units",
    "gini",
    "visual_mass",
    "evidence_share",
    "evidence_log_lift",
)
"""Measures of the table of definitions; each also on the pooled attention."""


def finish(context: Context, config: Config, pairs: Sequence[Pair]) -> Outcome:
    """Write the summary, the tables and the figures of the run in `context.folder`."""
    folder = context.folder
    record_rejected(context)
    records = records_of_run(context, pairs)
    done = [record for record in records if record.error is None]
    metrics = _metrics(done)
    if between := _between_videos(folder, done):
        metrics["unit_similarity_between"] = between
    rows = [_row(name, metric) for name, metric in metrics.items()]
    for task, group in groupby(sorted(done, key=lambda r: r.task), key=lambda r: r.task):
        rows += [_row(name, metric, task or "(none)") for name, metric in _metrics(list(group)).items()]
    summary = Summary.of(context.config.experiment, records, metrics, rows)
    paths = {"summary": folder.write_summary(summary)}
    paths["table"] = folder.write_table("measures", summary.table())[0]
    if any(measured_attention(record) for record in done):
        swept = _sweep(context, config, done)
        paths["definitions"] = folder.write_table("definitions", swept)[0]
        paths["embeddings"] = folder.write_table("embeddings", _embeddings(done))[0]
        paths |= _draw(context, config, done)
    return Outcome(summary, paths, [name for name in _HEADLINE if name in metrics])


def _metrics(records: Sequence[Record]) -> dict[str, Metric]:
    """Mean and 95% interval of each measure over items, videos resampled."""
    values: dict[str, list[float]] = {}
    names = dict.fromkeys(n for r in records for n in r.measures if _VARIANT not in n)
    for name in names:
        values[name] = [_number(record.measures.get(name)) for record in records]
    scored = [record for record in records if record.correct is not None]
    metrics = {}
    if scored:
        videos = [record.video_id for record in scored]
        metrics["accuracy"] = _metric([float(bool(r.correct)) for r in scored], videos)
        metrics["none_rate"] = _metric([float(r.answer is None) for r in scored], videos)
    videos = [record.video_id for record in records]
    return metrics | {name: _metric(column, videos) for name, column in values.items()}


def _metric(values: Sequence[float], videos: Sequence[str]) -> Metric:
    estimate = probes.clustered_mean(values, videos)
    return Metric(estimate.mean, estimate.ci_low, estimate.ci_high, estimate.n)


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _row(name: str, metric: Metric, task: str = "all") -> Row:
    return Row(
        measure=name,
        value=metric.mean,
        ci_low=metric.ci_low,
        ci_high=metric.ci_high,
        n=metric.n,
        task=task,
    )


def _between_videos(folder: RunFolder, records: Sequence[Record]) -> Metric | None:
    """Mean cosine between units of different videos, over all pairs of videos.

    The mean over units of unit-length embeddings is kept with each item; the dot product of two videos'
    is the mean of all cosines between their units, so no embeddings need to be held.
    """
    directions = {}
    for record in records:
        path = tensor_path(folder.path, record)
        if record.video_id not in directions and path is not None:
            similarity = read_tensors(path).similarity
            if similarity is not None and similarity.mean_direction is not None:
                directions[record.video_id] = similarity.mean_direction
    if len(directions) < 2:
        return None
    stacked = np.stack(list(directions.values())).astype(np.float64)
    cosines = (stacked @ stacked.T)[np.triu_indices(len(stacked), k=1)]
    # An interval over pairs of videos would need them to be independent.
    return Metric(float(cosines.mean()), None, None, len(cosines))


# -- the tables


def _sweep(context: Context, config: Config, records: Sequence[Record]) -> pd.DataFrame:
    """Every definition, measured on every item from its tensor file."""
    weightings = ("attention", "value") if config.value_weighted else ("attention",)
    chosen = list(
        definitions(
            config.all_roles,
            config.layer_sets,
            config.head_sets,
            weightings,
            (config.pooling,),
            config.head_poolings,
        )
    )
    values: dict[tuple[Definition, str], list[float]] = {}
    videos: dict[Definition, list[str]] = {}
    with context.progress("Measuring every definition", total=len(records)) as advance:
        for record in records:
            path = tensor_path(context.folder.path, record)
            if path is not None:
                localised = record.measures.get("evidence_covered") is not None
                for definition, measured in _by_definition(read_tensors(path), chosen, localised):
                    videos.setdefault(definition, []).append(record.video_id)
                    for name in _swept_names():
                        values.setdefault((definition, name), []).append(measured.get(name, float("nan")))
            advance()
    rows = []
    for (definition, name), column in values.items():
        metric = _metric(column, videos[definition])
        numbers = {"value": metric.mean, "ci_low": metric.ci_low, "ci_high": metric.ci_high, "n": metric.n}
        rows.append({**definition.as_columns(), "measure": name, **numbers})
    return pd.DataFrame(rows)


def _swept_names() -> tuple[str, ...]:
    return (*_SWEPT, *(f"{name}_pooled" for name in _SWEPT), "head_divergence")


def _by_definition(
    tensors: PairTensors, chosen: Sequence[Definition], localised: bool
) -> Iterator[tuple[Definition, dict[str, float]]]:
    attention = tensors.attention
    if attention is None:
        return
    units = tensors.units
    shown = ShownUnits(units.frame_index, units.true_seconds, units.shown_seconds, units.evidence)
    counts = np.bincount(tensors.tokens.unit_index, minlength=len(units.frame_index))
    for definition in chosen:
        if definition.role not in tensors.role:
            continue  # an item without options has no option rows
        role = tensors.role.index(definition.role)
        plain = RoleMass(attention.unit_mass[:, :, role], attention.rest_mass[:, :, role])
        mass = plain
        if definition.weighting == "value":
            if attention.value_mass is None or attention.value_rest_mass is None:
                continue
            mass = RoleMass(attention.value_mass[:, :, role], attention.value_rest_mass[:, :, role])
        taken = head_mask(definition, plain.units)
        if not taken.any():
            continue  # a model of two layers has no late third
        yield definition, measure_definition(definition, mass, taken, shown, counts, localised).measures()


def _embeddings(records: Sequence[Record]) -> pd.DataFrame:
    """Similarity and redundancy by embedding, by share of keyframes, and by distance from the keyframe."""
    names = dict.fromkeys(name for r in records for name in r.measures if _VARIANT in name)
    videos = [record.video_id for record in records]
    rows = []
    for name in names:
        measure, _, choice = name.partition(_VARIANT)
        told = dict(part.split("=", 1) for part in choice.split(","))
        metric = _metric([_number(record.measures.get(name)) for record in records], videos)
        rows.append(
            {
                "feature": told["feature"],
                "key_fraction": told.get("key_fraction", ""),
                "stratum": told.get("stratum", ""),
                "measure": measure,
                "value": metric.mean,
                "ci_low": metric.ci_low,
                "ci_high": metric.ci_high,
                "n": metric.n,
            }
        )
    return pd.DataFrame(rows)


# -- the figures


def _draw(context: Context, config: Config, records: Sequence[Record]) -> dict[str, Path]:
    folder, items = context.folder.path, {item.id: item for item in context.items}
    figures = folder / "figures"
    pictured = [r for r in records if measured_attention(r)][: config.item_figures]
    steps: list[tuple[str, Callable[[], list[Path]]]] = [
        ("attention drift", lambda: _draw_run(context, figures)),
        *((record.item_id, _picture(folder, items, record)) for record in pictured),
    ]
    written: list[Path] = []
    with context.progress("Drawing", total=len(steps)) as advance:
        for name, draw in steps:
            advance(name, 0)
            written += draw()
            advance()
    paths = {"figure": written[0]}
    if pictured:
        paths["pictures of items"] = figures / "items"
    return paths


def _draw_run(context: Context, figures: Path) -> list[Path]:
    curves = load_drift(context.folder.path, name=context.config.model.name)
    return [
        *save_figure(two_panel_figure(curves), figures / "attention_drift"),
        *save_figure(time_figure([curves]), figures / "attention_over_time"),
    ]


def _picture(folder: Path, items: Mapping[str, Item], record: Record) -> Callable[[], list[Path]]:
    return lambda: draw_item(folder, items[record.item_id], record)
