"""Does a map of units say what the answer rests on? On a model that looks where no answer comes from.

In `decoy@16` the heads that look at the evidence write nothing, and nobody else looks. Raw attention puts the
evidence first; occlusion asks the answer itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

import hooks
import probes
from diagnostics.experiments.faithfulness import Config, areas_of, curves_of
from diagnostics.experiments.faithfulness_tables import ORACLE, RANDOM
from diagnostics.experiments.inside import look_inside
from diagnostics.experiments.showing import Source
from diagnostics.experiments.unit_maps import Removal
from diagnostics.validation.bench import Asked, Bench
from diagnostics.validation.checks.evidence import measured_items
from diagnostics.validation.rows import Row

__all__ = ["rows"]

_MODEL = "decoy@16"
_BUDGET = 32
_CONFIG = Config(maps=("attention", "occlusion"))


def rows(bench: Bench) -> Iterable[Row]:
    """Raw attention against occlusion, by deletion and by insertion."""
    asked = [Asked(item, bench.uniform(item, _BUDGET)) for item in measured_items(bench, "Hist")]
    areas = _areas(bench, asked)
    videos = [one.item.video_id for one in asked]
    for direction in ("deletion", "insertion"):
        random, oracle, attention, occlusion = (
            areas[f"{direction}_area@map={name}"] for name in (RANDOM, ORACLE, "attention", "occlusion")
        )
        alone = {
            name: probes.pooled_normalised_area(own, random, oracle, videos).mean
            for name, own in (("attention", attention), ("occlusion", occlusion))
        }
        # A difference of areas over one reach is one ratio, so one resampling, as in the table `contrasts`.
        difference = probes.pooled_normalised_area(attention - occlusion + random, random, oracle, videos)
        yield Row.below(
            f"decoy: normalised area of {direction}, raw attention minus occlusion",
            0.0,
            difference,
            planted="below 0: the answer does not rest on what is looked at",
            why="0 is a random ordering, 1 the oracle's; the same questions and random orderings",
            details=bench.details(asked, "uniform", model=_MODEL, steps=_CONFIG.steps, **alone),
        )


def _areas(bench: Bench, asked: list[Asked]) -> dict[str, Float[np.ndarray, " item"]]:
    """Areas under the curves of each item, by name."""
    loaded, found = bench.model(_MODEL), []
    with hooks.reuse_units(loaded.model) as reuse:
        for one in asked:
            bench.say(f"faithfulness: {_MODEL}, {one.item.id}")
            assert one.selection is not None
            frames = bench.frames(one.item, one.selection)
            look = look_inside(bench.context, one.item, frames, loaded)
            source = Source(one.item, frames, frames.pixels.shape[1:3], decode_seconds=0.0)
            removal = Removal.of(bench.context, source, look, reuse, loaded=loaded)
            scores, curves = curves_of(_CONFIG, removal, np.where(look.evidence_units, 0, 1))
            found.append(areas_of(_CONFIG, scores, curves))
    return {name: np.array([one[name] for one in found]) for name in found[0]}
