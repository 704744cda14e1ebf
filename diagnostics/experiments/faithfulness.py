"""Faithfulness of maps: do the units that a map calls important carry the answer?

Attention, rollout, gradient relevancy, token activation and occlusion each order the temporal units of a
video. Units are removed in that order (deletion), or all are removed and come back in it (insertion), and the
right option's log-odds are followed (RISE, arXiv 1806.07421, section 4.2). Areas are placed between random
orderings, 0, and an oracle's, 1 (`probes.faithfulness`): a map that looks sensible and is not used
by the model comes out near 0, whatever it looks like.

The oracle is the truth of the data: evidence first, among equals what occlusion ranks first. It is an
ordering and not a bound. A removed unit keeps its place, its tokens and its written time; by default
nothing may read it. Grey pictures, the usual way, ask something else of a model that never saw any: the tiny
model loses its answer to three grey units out of twelve, whichever they are.

With `level: patches` the same is done with visual tokens, in groups of equal size. They are knocked out in
the language model: a grey patch would make the vision tower read all patches of the unit anew beside an
edge that was not there. What the tower has mixed into a patch's neighbours stays with them either way. The
oracle begins with patches on the boxes that hold the evidence, where the data set tells any
(`diagnostics.data.regions`), and else with all patches of units with evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Literal, Self

import numpy as np
from jaxtyping import Float, Int
from pydantic import NonNegativeInt, PositiveInt, field_validator, model_validator
from pydantic.dataclasses import dataclass

import hooks
import probes
from diagnostics.data.regions import evidence_regions, patches_on
from diagnostics.errors import ConfigError
from diagnostics.experiments.context import Context
from diagnostics.experiments.faithfulness_tables import (
    ORACLE,
    RANDOM,
    area_table,
    contrast_table,
    mean_curves,
)
from diagnostics.experiments.inside import (
    Look,
    answered,
    knockout_notices,
    look_inside,
    record_fields,
    reported,
    tensor_fields,
)
from diagnostics.experiments.outcome import Outcome, with_local_evidence
from diagnostics.experiments.pairs import Measured, Pair, measure_pairs
from diagnostics.experiments.showing import Library, Shown, Source
from diagnostics.experiments.unit_maps import (
    FOLLOWED,
    MAPS,
    Ends,
    How,
    Level,
    MeasureOf,
    Removal,
    maps_of,
)
from diagnostics.experiments.write_up import asked_of, write_up
from diagnostics.models.backends.requests import Reply
from diagnostics.report.faithfulness import faithfulness_figure
from diagnostics.store import tensor_parts as parts
from diagnostics.store.summary import Metric
from diagnostics.strict import STRICT, near_match
from diagnostics.video.order import whole_units

__all__ = ["Config", "areas_of", "curves_of", "forwards_bound", "run"]


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        level: what is scored and removed: `units`, or `patches`, each a visual token.
        maps: which are compared; `diagnostics.experiments.unit_maps.MAPS` says what each is.
        role: whose attention the attention maps are: `question`, `options` or `last`.
        outcome: what is followed: the right option's log-odds against the others, or its probability.
        reference: the map that others are compared with in the table of contrasts.
        steps: points of each curve after its first: with the number of maps this bounds the forwards.
        random_orders: random orderings of each item, whose mean area is 0.
        removal: what removing a unit is: `knockout`, nothing may read it; `median`, its picture is the median
            of those shown; `grey`, a picture that a model may never have seen.
        occlusion: a unit `removed` from the whole video, left `alone` in an empty one, or the mean of `both`.
        occlusions: forwards of each of the two, at most; where the video has more units, or patches,
            neighbours are taken together and share a score.
        oracle: `evidence` first (of patches, its boxes first); or `occlusion`, which then scores 1 by
            definition.
        seed: of random orderings and of equal scores.
    """

    level: Level = "units"
    maps: tuple[str, ...] = tuple(MAPS)
    role: Literal["question", "options", "last"] = "question"
    outcome: MeasureOf = "log_odds"
    removal: How = "knockout"
    reference: str = "occlusion"
    steps: PositiveInt = 6
    random_orders: PositiveInt = 3
    occlusion: Ends = "both"
    occlusions: PositiveInt = 64
    oracle: Literal["evidence", "occlusion"] = "evidence"
    seed: NonNegativeInt = 0

    @field_validator("maps")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name not in MAPS:
                raise ValueError(f"{name!r} is no map. {near_match(name, list(MAPS))}")
        if "occlusion" not in value or len(set(value)) < len(value):
            raise ValueError("name each map once, occlusion among them: the oracle's ties are its")
        return value

    @model_validator(mode="after")
    def _measured(self) -> Self:
        if self.reference not in self.maps:
            raise ValueError(f"reference {self.reference!r} is none of the maps: {', '.join(self.maps)}")
        return self

    @property
    def orders(self) -> tuple[str, ...]:
        """Names of all orderings: the maps, the random ones, the oracle."""
        return (*self.maps, *(f"{RANDOM}:{draw}" for draw in range(self.random_orders)), ORACLE)


def forwards_bound(config: Config, n_parts: int) -> int:
    """How many forwards an item of so many units, or patches, takes at most, the reply's own apart."""
    singles = min(n_parts, config.occlusions) * (2 if config.occlusion == "both" else 1)
    return 1 + singles + probes.forwards_needed(len(config.orders), n_parts, config.steps)


def _refuse_followed(model: Any, maps: Sequence[str]) -> None:
    """Maps that follow a row back through all layers need layers that all attend."""
    family, followed = hooks.family_of(model), [name for name in maps if name in FOLLOWED]
    attending, n_layers = len(family.attention_layers(model)), len(family.layers(model))
    if followed and attending < n_layers:
        kept = [name for name in maps if name not in FOLLOWED]
        raise ConfigError(
            f"{attending} of {n_layers} layers of this model attend: {' and '.join(followed)} cannot follow a"
            " row through the others.",
            remedy=f"Set exp.maps=[{','.join(kept)}].",
        )


def _refuse_pictures(model: Any, removal: How) -> None:
    """Pictures stand in for a unit's where its rows of pixels stand together."""
    family = hooks.family_of(model)
    if removal != "knockout" and not family.units_alone:
        raise ConfigError(
            f"The pictures of {family.name} are not laid out unit by unit: {removal} ones cannot stand in.",
            remedy="Set exp.removal=knockout.",
        )


def run(context: Context, config: Config) -> Outcome:
    """Measure every item with local evidence, then write summary, tables and figure."""
    asked, reasons = with_local_evidence(context.items, scored=True)
    pairs = [Pair(item) for item in asked]

    def show(pair: Pair, library: Library) -> Shown:
        item = library.checked(pair.item)
        selection, notices = whole_units(library.select(item), library.frames_per_unit)
        return Shown(item, selection, notices=notices)

    with ExitStack() as stack:
        told = f"Removing {config.level}"
        measure_pairs(context, pairs, Measurement(context, config, stack), told, show=show)
    return _finish(context, config, pairs, reasons)


class Measurement:
    """What is done to one item; keeps the encodings of pictures, and the model's sinks."""

    def __init__(self, context: Context, config: Config, stack: ExitStack) -> None:
        self._context, self._config, self._stack = context, config, stack
        self._reuse: hooks.UnitReuse | None = None
        self._sinks: hooks.Sinks | None = None
        self._said = False

    def __call__(self, pair: Pair, source: Source) -> Measured:
        """Record fields and tensors of one item; raises `ObservationError`."""
        look = look_inside(self._context, source.item, source.frames)
        with reported(pair.item):
            return self._measure(pair, source, look)

    def _measure(self, pair: Pair, source: Source, look: Look) -> Measured:
        config = self._config
        first, boxed = _evidence_first(look, config.level)  # refuses bad boxes before any forward
        reuse = self._attached(look)
        removal = Removal.of(
            self._context,
            source,
            look,
            reuse,
            outcome=config.outcome,
            how=config.removal,
            level=config.level,
        )
        self._say_once(removal)
        with reuse.units(removal.names):
            reply = answered(self._context, look)
        scores, curves = curves_of(config, removal, first, self._sinks)
        fields = record_fields(self._context, look, reply)
        fields["measures"] |= areas_of(config, scores, curves) | {"forwards": float(removal.forwards)}
        if config.removal == "knockout":
            fields["warnings"] += knockout_notices(self._context.model)
        if config.level == "patches":
            fields["measures"]["patches_on_evidence"] = float((first == 0).sum())
            if not boxed and config.oracle == "evidence":
                fields["warnings"].append("no_region: the oracle begins with whole units of evidence")
        return Measured(fields, self._tensors(pair, look, reply, scores, curves))

    def _attached(self, look: Look) -> hooks.UnitReuse:
        if self._reuse is None:
            model = self._context.model.model
            _refuse_followed(model, self._config.maps)
            _refuse_pictures(model, self._config.removal)
            self._reuse = self._stack.enter_context(hooks.reuse_units(model))
            if "sink_filtered" in self._config.maps:
                self._sinks = hooks.find_sinks(model, int(look.tokens.input_ids[0]))
        return self._reuse

    def _say_once(self, removal: Removal) -> None:
        """How many forwards an item of the first one's size takes at most."""
        if self._said:
            return
        self._said, config = True, self._config
        bound = forwards_bound(config, removal.n_parts)
        self._context.say(
            f"At most {bound} forwards an item of {removal.n_parts} {config.level} (exp.steps="
            f"{config.steps}, {len(config.orders)} orderings), and the reply."
        )

    def _tensors(
        self,
        pair: Pair,
        look: Look,
        reply: Reply,
        scores: dict[str, Float[np.ndarray, " part"]],
        curves: dict[str, probes.Curves],
    ) -> parts.PairTensors:
        names = self._config.orders
        n_parts = len(scores["occlusion"])
        nothing = np.full(n_parts, np.nan)
        by_part = np.stack([scores.get(name, nothing) for name in names]).astype(np.float32)
        patches = self._config.level == "patches"
        return parts.PairTensors(
            **tensor_fields(pair, look, reply),
            role=names,
            unit_maps=parts.UnitMaps(
                look.tokens.unit_sum(by_part) if patches else by_part,
                probes.removal_steps(n_parts, self._config.steps).astype(np.int32),
                np.stack([curves[name].deletion for name in names]).astype(np.float32),
                np.stack([curves[name].insertion for name in names]).astype(np.float32),
                by_part if patches else None,
            ),
            definitions={
                "level": self._config.level,
                "outcome": self._config.outcome,
                "oracle": self._config.oracle,
                "removal": self._config.removal,
            },
        )


def _evidence_first(look: Look, level: Level) -> tuple[Int[np.ndarray, " part"], bool]:
    """0 for the parts that come first in the oracle's ordering, 1 for those that follow, 2 for the last; and
    whether boxes of the evidence told the first ones from the others."""
    tokens, evidence = look.tokens, look.evidence_units
    if level == "units":
        return np.where(evidence, 0, 2), False
    regions = evidence_regions(look.item)
    first = np.full(tokens.n_visual, 2)
    for unit in np.flatnonzero(evidence):
        on = patches_on(regions, look.shown.frame_index[unit], *tokens.unit_grid[unit].tolist())
        first[tokens.unit_tokens(int(unit))] = np.where(on.ravel(), 0, 1)
    if (first == 0).any():
        return first, True
    return np.where(first == 1, 0, first), False


def curves_of(
    config: Config, removal: Removal, first: Int[np.ndarray, " part"], sinks: hooks.Sinks | None = None
) -> tuple[dict[str, Float[np.ndarray, " part"]], dict[str, probes.Curves]]:
    """The maps of one item, and the curves of all orderings.

    Args:
        config: which maps and orderings.
        removal: of the item.
        first: which parts come first in the oracle's ordering: those of the lowest number.
        sinks: for the map `sink_filtered`.
    """
    scores = maps_of(
        removal,
        config.maps,
        config.role,
        sinks,
        ends=config.occlusion,
        most_occlusions=config.occlusions,
    )
    draws = np.random.default_rng([config.seed, *removal.look.item.id.encode()])
    ties = int(draws.integers(2**31))
    orders = {name: probes.ordering(values, ties) for name, values in scores.items()}
    orders |= {f"{RANDOM}:{draw}": draws.permutation(len(first)) for draw in range(config.random_orders)}
    best = orders["occlusion"]
    if config.oracle == "evidence":
        best = best[np.argsort(first[best], kind="stable")]
    return scores, probes.removal_curves(orders | {ORACLE: best}, removal, config.steps)


def areas_of(
    config: Config, scores: dict[str, Float[np.ndarray, " part"]], curves: dict[str, probes.Curves]
) -> dict[str, float]:
    """Areas of maps, of random orderings (their mean) and of the oracle; agreement with the reference."""
    found: dict[str, float] = {}
    for direction in ("deletion", "insertion"):
        areas = {
            name: probes.curve_area(curve.fraction, getattr(curve, direction))
            for name, curve in curves.items()
        }
        drawn = [areas.pop(f"{RANDOM}:{draw}") for draw in range(config.random_orders)]
        areas[RANDOM] = float(np.mean(drawn))
        found |= {f"{direction}_area@map={name}": area for name, area in areas.items()}
    for name, values in scores.items():
        if name != config.reference:
            found[f"map_agreement@map={name}"] = probes.rank_agreement(values, scores[config.reference])
    one = curves[ORACLE]
    return found | {"outcome_whole": float(one.deletion[0]), "outcome_blank": float(one.deletion[-1])}


def _finish(context: Context, config: Config, pairs: Sequence[Pair], reasons: dict[str, str]) -> Outcome:
    asked = asked_of(context, pairs)
    areas = area_table(asked.answers, config.maps, config.seed)
    curves = mean_curves(context, asked.done, config.steps)
    return write_up(
        context,
        asked,
        metrics=_headline(areas),
        tables={
            "areas": areas,
            "contrasts": contrast_table(asked.answers, config.maps, config.reference, config.seed),
            "curves": curves,
        },
        draw=lambda: faithfulness_figure(curves, areas, config.level, config.outcome),
        baselines=[{}],
        left_out=reasons,
    )


def _headline(areas: Any) -> dict[str, Metric]:
    """Both normalised areas of every map, over all tasks."""
    rows = areas[areas["task"] == "all"].to_dict("records") if len(areas) else []
    return {
        f"{row['direction']}_faithfulness_{row['map']}": Metric(
            row["normalised"], row["ci_low"], row["ci_high"], row["n"]
        )
        for row in rows
        if row["map"] not in (RANDOM, ORACLE)
    }
