"""Linear probes: what can be read from the video's states, layer by layer, and what only seems so.

The residual stream is averaged over each temporal unit's tokens as it enters every layer (Alain & Bengio,
arXiv 1610.01644; for video LLMs: Tracing the Arrow of Time, arXiv 2605.07568). Each video is shown forward
and backward with an unchanged clock, so that the true time of a unit, the order of two and the direction of
the whole cannot be told from a place in the prompt, which rotary positions and written times give away.

A ridge or logistic regression is fitted on some videos and scored on others. Beside each score stand the
same probe on exchanged labels (selectivity: Hewitt & Liang, arXiv 1909.03368) and one that sees the place
alone. A coin tossed for each video is a target too: what is read there is the noise of this measurement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt, field_validator
from pydantic.dataclasses import dataclass

import hooks
from diagnostics.errors import ConfigError
from diagnostics.experiments.context import Context
from diagnostics.experiments.inside import answered, look_inside, record_fields, reported, tensor_fields
from diagnostics.experiments.outcome import Outcome
from diagnostics.experiments.pairs import Measured, Pair, measure_pairs
from diagnostics.experiments.probe_fits import PLACELESS, TARGETS, Fits, fit_all
from diagnostics.experiments.showing import Library, Shown, Source
from diagnostics.experiments.write_up import asked_of, write_up
from diagnostics.report.probing import probing_figure
from diagnostics.store import tensor_parts as parts
from diagnostics.store.summary import Metric, Row
from diagnostics.strict import STRICT, near_match
from diagnostics.video.order import reorder, whole_units

__all__ = ["FORWARD", "REVERSED", "Config", "conditions", "run"]

FORWARD: Mapping[str, Any] = {"order": "original"}
REVERSED: Mapping[str, Any] = {"order": "reversed"}


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        targets: what is read; `diagnostics.experiments.probe_fits.TARGETS` says what each is.
        layers: whose inputs are kept, the number of layers for what enters the final norm; `all`. A file
            holds layers x units x width x 4 bytes: 39 MB for all of an 8B model's at 128 frames.
        headline_layer: of the headline numbers; null: the middle one. Not the best one, which would be
            chosen for its score.
        evidence_tasks: tasks of the target `evidence`, null for all. Questions of several kinds on one video
            call each other's evidence none, and blur the label.
        phase_tasks: tasks whose right option says what phase their evidence is in, for the target `phase`.
        samples: units (or pairs of units) a target is fitted on, at most, drawn with the seed.
        pairs_per_video: pairs of units of each item, for the target `order`.
        folds, shuffles, penalty: see `probes.fit_probe`.
        seed: of samples, pairs, folds, exchanges, coins and intervals.
    """

    targets: tuple[str, ...] = tuple(TARGETS)
    layers: Literal["all"] | tuple[NonNegativeInt, ...] = "all"
    headline_layer: NonNegativeInt | None = None
    evidence_tasks: tuple[str, ...] | None = None
    phase_tasks: tuple[str, ...] = ("PR",)
    samples: PositiveInt = 2000
    pairs_per_video: PositiveInt = 16
    folds: Annotated[int, Field(ge=2)] = 5
    shuffles: PositiveInt = 3
    penalty: Annotated[float, Field(gt=0)] = 0.1
    seed: NonNegativeInt = 0

    @field_validator("targets")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name not in TARGETS:
                raise ValueError(f"{name!r} is no target. {near_match(name, list(TARGETS))}")
        if not value or len(set(value)) < len(value):
            raise ValueError("name at least one target, each once")
        return value


def conditions(config: Config) -> list[Mapping[str, Any]]:
    """Forward; and backward where a target needs both."""
    return [FORWARD, REVERSED] if set(config.targets) & PLACELESS else [FORWARD]


def run(context: Context, config: Config) -> Outcome:
    """Keep every item's states, fit the probes, then write summary, tables and figure."""
    videos = {item.video_id for item in context.items}
    if len(videos) < 2:
        raise ConfigError(
            f"Probes are scored on videos they were not fitted on: the items have {len(videos)} video.",
            remedy="Choose items of at least two videos (data.limit, data.pilot, data.ids).",
        )
    pairs = [Pair(item, condition) for item in context.items for condition in conditions(config)]
    layers = config.layers if config.layers == "all" else list(config.layers)

    def show(pair: Pair, library: Library) -> Shown:
        item = library.checked(pair.item)
        selection, notices = whole_units(library.select(item), library.frames_per_unit)
        unit = library.frames_per_unit  # whole units are moved: each is encoded as it was
        return Shown(item, reorder(selection, pair.condition["order"], unit=unit), notices=notices)

    def measure(pair: Pair, source: Source) -> Measured:
        _refuse_layers(context, config)
        look = look_inside(context, source.item, source.frames)
        with (
            reported(pair.item),
            hooks.residual(context.model.model, look.tokens, layers, pool="unit") as stream,
        ):
            reply = answered(context, look)
        tensors = parts.PairTensors(
            **tensor_fields(pair, look, reply),
            layer=np.array(stream.layers, np.int32),
            states=parts.States(stream.states),
            definitions={"pool": "mean over a unit's tokens", "deepstack_after": list(stream.deepstack)},
        )
        return Measured(record_fields(context, look, reply), tensors)

    measure_pairs(context, pairs, measure, "Capturing states", show=show)
    return _finish(context, config, pairs)


def _refuse_layers(context: Context, config: Config) -> None:
    """Whether the model has the layers asked for: raises `ConfigError` at the first item."""
    n_layers = int(context.model.provenance["layers"])
    asked = [] if config.layers == "all" else list(config.layers)
    kept = asked or range(n_layers + 1)
    headline = [] if config.headline_layer is None else [config.headline_layer]
    if missing := [layer for layer in (*asked, *headline) if layer > n_layers or layer not in kept]:
        raise ConfigError(
            f"States of layer {missing[0]} are not kept: {context.config.model.name} has inputs of layers 0 "
            f"to {n_layers}, the last one the final norm's.",
            remedy="Choose others for exp.layers, and one of them for exp.headline_layer.",
        )


def _finish(context: Context, config: Config, pairs: Sequence[Pair]) -> Outcome:
    asked = asked_of(context, pairs)
    fits = fit_all(context, asked, config)
    for target, reason in fits.unfit.items():
        context.say(f"No probe for {target}: {reason}.")
    return write_up(
        context,
        asked,
        metrics=_headline(fits, config),
        tables={"probes": fits.table, "unfit": fits.unfit_table},
        draw=lambda: probing_figure(fits.table),
        baselines=conditions(config),
        rows=_rows(fits),
    )


def _headline(fits: Fits, config: Config) -> dict[str, Metric]:
    """Score and selectivity of each target at the headline's layer."""
    if fits.table.empty:
        return {}
    layers = np.unique(fits.table["layer"])
    wanted = layers[len(layers) // 2] if config.headline_layer is None else config.headline_layer
    found: dict[str, Metric] = {}
    for row in fits.table[fits.table["layer"] == wanted].to_dict("records"):
        for name in ("score", "selectivity"):
            metric = Metric(row[name], row[f"{name}_low"], row[f"{name}_high"], row["n"])
            found[f"probe_{name}_{row['target']}"] = metric
    return found


def _rows(fits: Fits) -> list[Row]:
    """The table's numbers as rows of the summary."""
    return [
        Row(
            measure=f"probe_{name}",
            value=row[name],
            ci_low=row[f"{name}_low"],
            ci_high=row[f"{name}_high"],
            n=row["n"],
            condition={"target": row["target"], "layer": row["layer"]},
        )
        for row in fits.table.to_dict("records")
        for name in ("score", "shuffled", "position_only", "selectivity", "beyond_position")
        if np.isfinite(row[name])
    ]
