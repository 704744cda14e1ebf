"""Activation patching: at which layer does what a unit shows leave its tokens, and where does it go?

A clean video and a corrupt one under the same question, tokens and clock; states of one are put into the run
of the other, layer by layer and unit by unit, and the logit difference between the right option and the best
other one says how much of the answer came with them (ROME, arXiv 2202.05262, section 2; for images NOTICE,
arXiv 2406.16320). The corrupt video is a real one in place of noise: evidence replaced by its neighbours'
frames, another video, the same units shuffled, or grey pictures.

In a model that reads its video the units of evidence restore the answer in the early layers, the last token
in the late ones. Where the first ends is where the video is read; what comes between is where it went.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Bool, Int
from pydantic import Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass
from scipy.stats import spearmanr

import hooks
import probes
from diagnostics.data.items import Item
from diagnostics.errors import ConfigError, ItemError
from diagnostics.experiments.context import Context
from diagnostics.experiments.inside import (
    Look,
    answered,
    look_inside,
    record_fields,
    reported,
    tensor_fields,
)
from diagnostics.experiments.outcome import Outcome, with_local_evidence
from diagnostics.experiments.pairs import Measured, Pair, Source, measure_pairs
from diagnostics.experiments.patching_tables import (
    GROUPS,
    course_table,
    effects,
    grid_table,
    metrics_of,
    turning_table,
)
from diagnostics.experiments.showing import Library, Shown
from diagnostics.experiments.write_up import asked_of, write_up
from diagnostics.models.backends.requests import Reply
from diagnostics.report.patching import patching_figure
from diagnostics.store import tensor_parts as parts
from diagnostics.strict import STRICT
from diagnostics.video.order import reorder, whole_units
from diagnostics.video.perturb import blank
from diagnostics.video.selection import Frames, Selection
from diagnostics.video.swap import stretched, without_evidence

__all__ = ["Config", "run"]

Corruption = Literal["neighbours", "blank", "other_video", "shuffled"]


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        corruption: `neighbours`: each frame of evidence is replaced by the nearest that is none; `blank`:
            every picture is grey; `other_video`: frames of another item's video, evenly spaced; `shuffled`:
            the same units in another order.
        direction: `denoising` puts clean states into the corrupt run, `noising` the other way round.
        deepstack: `with`: DeepStack's features of the patched tokens that are still to enter are patched too;
            `leak`: they are not, and what they leak is measured.
        every: patch at one layer of so many.
        beside: times and delimiters beside a unit are patched with it.
        screen: estimate every cell to first order (`hooks.attribute`), make the most promising ones exactly,
            and a sample of all to say how far the estimate is to be trusted.
        keep: with `screen`, the share of cells of single units that are made exactly.
        sampled: with `screen`, so many cells of single units are drawn for the rank correlation.
        least: an item whose two logit differences are nearer than this has nothing to restore.
        guard_seconds: kept away from proxy windows when evidence is replaced; exact ones need none.
        seed: of the shuffled order, of the choice of other videos, and of the sample.
    """

    corruption: Corruption = "neighbours"
    direction: hooks.Direction = "denoising"
    deepstack: hooks.DeepStack = "with"
    every: PositiveInt = 1
    beside: bool = True
    screen: bool = False
    keep: Annotated[float, Field(gt=0, le=1)] = 0.25
    sampled: PositiveInt = 24
    least: Annotated[float, Field(gt=0)] = 0.5
    guard_seconds: Annotated[float, Field(ge=0)] = 2.0
    seed: NonNegativeInt = 0


def run(context: Context, config: Config) -> Outcome:
    """Patch every item with local evidence, options and a right one, then write tables and figure."""
    asked, reasons = with_local_evidence(context.items, scored=True)
    if config.corruption == "other_video":
        alone = {item.id for item in asked if not _others(item, asked)}
        reasons |= dict.fromkeys(alone, "no other video to corrupt it with")
        asked = [item for item in asked if item.id not in alone]
    pairs = [Pair(item) for item in asked]
    with ExitStack() as stack:
        measure = _Measurement(context, config, stack)
        measure_pairs(context, pairs, measure, "Patching", show=_Show(config, asked))
    found = asked_of(context, pairs)
    n_layers = int(context.model.provenance["layers"])
    full = len(hooks.family_of(context.model.model).deepstack_layers(context.model.model))
    course = course_table(found.answers, n_layers)
    grid = grid_table(context.folder.path, found, config.direction, config.least)
    return write_up(
        context,
        found,
        metrics=metrics_of(found.answers, n_layers, full),
        tables={"course": course, "turning_points": turning_table(found.answers, n_layers), "grid": grid},
        draw=lambda: patching_figure(grid, course, config.corruption, config.direction, full),
        baselines=[{}],
        left_out=reasons,
    )


def _others(item: Item, items: Sequence[Item]) -> list[Item]:
    return [other for other in items if other.video_id != item.video_id]


def _refuse_beside(model: Any) -> None:
    """Layers that read more than the stream would go on with the other run's: no item can be patched."""
    family = hooks.family_of(model)
    if beside := family.beside_stream(model):
        raise ConfigError(
            f"States of {family.name} cannot be patched: what enters a layer is not all that it knows, there"
            f" are {beside} too.",
            remedy="Block edges or heads instead (+exp=knockout, +exp=heads), or patch another model.",
        )


class _Show:
    """The clean slots and, behind them, as many corrupt ones: both are read together and shown apart."""

    def __init__(self, config: Config, items: Sequence[Item]) -> None:
        self._config, self._items = config, items

    def __call__(self, pair: Pair, library: Library) -> Shown:
        item = library.checked(pair.item)
        clean, notices = whole_units(library.select(item), library.frames_per_unit)
        corrupt, sources = self._corrupt(item, clean, library)
        both = replace(
            clean,
            slots=(*clean.slots, *corrupt.slots),
            rule=f"{clean.rule}; corrupt: {corrupt.rule}",
            requested=2 * clean.requested,
        )
        return Shown(item, both, sources=sources, notices=notices)

    def _corrupt(self, item: Item, clean: Selection, library: Library) -> tuple[Selection, Mapping[str, Any]]:
        kind = self._config.corruption
        if kind == "blank":
            return blank(clean), {}
        if kind == "shuffled":
            unit = library.frames_per_unit
            return reorder(clean, "full", seed=self._config.seed, unit=unit), {}
        if kind == "neighbours":
            assert item.evidence is not None
            guard = self._config.guard_seconds if item.evidence.kind == "proxy" else 0.0
            return without_evidence(clean, item, library.index(item.video), guard), {}
        others = _others(item, self._items)
        random = np.random.default_rng([self._config.seed, *item.id.encode()])
        other = library.checked(others[int(random.integers(len(others)))])
        shown = stretched(library.uniform(other, len(clean)), clean)
        return shown, {other.video_id: other.video}


class _Measurement:
    """All patches of one item."""

    def __init__(self, context: Context, config: Config, stack: ExitStack) -> None:
        self._context, self._config, self._stack = context, config, stack
        self._checked = self._reusing = False

    def __call__(self, pair: Pair, source: Source) -> Measured:
        """Record fields and tensors; raises `ObservationError`, or `ItemError` without letters.

        The first item raises `ConfigError` where no state of the model could be patched.
        """
        model, config = self._context.model.model, self._config
        _refuse_beside(model)
        clean, corrupt = (look_inside(self._context, source.item, frames) for frames in _apart(source.frames))
        gold = clean.gold
        if len(clean.letters) < 2:
            raise ItemError(
                "The item has a single option, so that there is no difference to follow.",
                remedy="Leave it out.",
                item_id=source.item.id,
            )
        if not self._reusing:
            self._stack.enter_context(hooks.reuse_vision(model, entries=2))
            self._reusing = True
        sets = _sets(clean, beside=config.beside)
        layers = range(0, int(self._context.model.provenance["layers"]), config.every)
        inputs = clean.inputs, corrupt.inputs, clean.tokens
        how: dict[str, Any] = {
            "layers": tuple(layers),
            "sets": sets,
            "direction": config.direction,
            "deepstack": config.deepstack,
        }
        with reported(source.item):
            reply = answered(self._context, clean)
            screen = None
            if config.screen:
                others = [letter for place, letter in enumerate(clean.letters) if place != gold]
                screen = hooks.attribute(model, *inputs, right=clean.letters[gold], others=others, **how)
            chosen, sample = _cells(config, screen, sets, source.item, len(layers))
            grid = hooks.patch_grid(
                model, *inputs, token_ids=clean.letters, cells=chosen, check=not self._checked, **how
            )
        self._checked = True
        fields = record_fields(self._context, clean, reply)
        clean_selection = _apart(source.frames)[0].selection
        fields |= {"slots": clean_selection.slots}
        fields["measures"] |= _measures(grid, gold, config, screen, sample)
        if not clean.evidence_units.any():
            fields["warnings"].append("no_evidence_shown: nothing of the evidence is among the frames")
        return Measured(fields, self._tensors(pair, clean, reply, grid, screen))

    def _tensors(
        self, pair: Pair, look: Look, reply: Reply, grid: hooks.PatchGrid, screen: hooks.Attribution | None
    ) -> parts.PairTensors:
        config = self._config
        return parts.PairTensors(
            **tensor_fields(pair, look, reply),
            layer=np.array(grid.layers, np.int32),
            role=grid.sets,
            patching=parts.Patching(
                logits=grid.logits.astype(np.float32),
                clean=grid.clean,
                corrupt=grid.corrupt,
                leak=grid.leak,
                screen=None if screen is None else screen.effect,
            ),
            definitions={
                name: getattr(config, name) for name in ("corruption", "direction", "deepstack", "beside")
            },
        )


def _apart(frames: Frames) -> tuple[Frames, Frames]:
    """The clean and the corrupt half of what was read."""
    half, selection = len(frames.selection) // 2, frames.selection
    rules = selection.rule.split("; corrupt: ")
    halves = (slice(0, half), slice(half, None))
    clean, corrupt = (
        Frames(
            frames.pixels[part],
            replace(selection, slots=selection.slots[part], rule=rule, requested=selection.requested // 2),
        )
        for part, rule in zip(halves, (rules[0], rules[-1]), strict=True)
    )
    return clean, corrupt


def _sets(look: Look, *, beside: bool) -> dict[str, Int[np.ndarray, " position"]]:
    """Every unit, what has a role, and the units with and without evidence together."""
    found = hooks.position_sets(look.tokens, beside=beside)
    evidence = look.evidence_units
    for name, which in (("evidence", evidence), ("others", ~evidence)):
        if which.any():  # a set of nothing restores nothing, which is no measurement
            found[name] = np.concatenate([found[f"unit:{unit}"] for unit in np.flatnonzero(which)])
    return found


def _cells(
    config: Config,
    screen: hooks.Attribution | None,
    sets: Mapping[str, Any],
    item: Item,
    n_layers: int,
) -> tuple[Bool[np.ndarray, "layer set"] | None, Bool[np.ndarray, "layer set"] | None]:
    """Cells made exactly, and those among them that were drawn; (None, None) for all."""
    if screen is None:
        return None, None
    single = np.tile([name.startswith("unit:") for name in sets], (n_layers, 1))
    places = np.flatnonzero(single)
    best = places[np.argsort(-np.abs(screen.effect.ravel()[places]), kind="stable")]
    random = np.random.default_rng([config.seed, *item.id.encode()])
    drawn = random.choice(places, size=min(config.sampled, len(places)), replace=False)
    sample = np.zeros(single.shape, dtype=bool)
    sample.ravel()[drawn] = True
    chosen = ~single | sample
    chosen.ravel()[best[: int(np.ceil(config.keep * len(best)))]] = True
    return chosen, sample


def _measures(
    grid: hooks.PatchGrid,
    gold: int,
    config: Config,
    screen: hooks.Attribution | None,
    sample: Bool[np.ndarray, "layer set"] | None,
) -> dict[str, float]:
    clean, corrupt = (float(probes.logit_difference(one, gold)) for one in (grid.clean, grid.corrupt))
    effect = effects(grid.logits, grid.clean, grid.corrupt, gold, config.direction, config.least)
    found = {
        "clean_difference": clean,
        "corrupt_difference": corrupt,
        "clean_right": float(clean > 0),
        "corrupt_right": float(corrupt > 0),
        "patching_forwards": grid.forwards,
    }
    for name in GROUPS:
        if name not in grid.sets:
            continue
        column = grid.sets.index(name)
        for row, layer in enumerate(grid.layers):
            found[f"effect@set={name},layer={layer}"] = float(effect[row, column])
            if config.deepstack == "leak" and name == "evidence":
                found[f"leak@set={name},layer={layer}"] = float(grid.leak[row, column])
    if screen is not None and sample is not None:
        target = corrupt if config.direction == "denoising" else clean
        exact = probes.logit_difference(grid.logits[sample], gold) - target
        estimated = screen.effect[sample]
        varies = np.ptp(exact) > 0 and np.ptp(estimated) > 0
        found["screen_rank_correlation"] = (
            float(spearmanr(exact, estimated).statistic) if varies else float("nan")
        )
    return found
