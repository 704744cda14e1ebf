"""Does a map of units say what the answer rests on? On a model that looks where no answer comes from.

In `decoy@16` the heads that look at the evidence write nothing, and nobody else looks. Raw attention ranks
the evidence high; occlusion asks the answer itself. As occlusion is measured by what it is judged by, it is
ahead of attention on the trained model too: beside that stands what attention loses from there to the decoy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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

Areas = Mapping[str, Float[np.ndarray, " item"]]


def rows(bench: Bench) -> Iterable[Row]:
    """Raw attention on the decoy: against occlusion, and against itself on the trained model."""
    asked = [Asked(item, bench.uniform(item, _BUDGET)) for item in measured_items(bench, "Hist")]
    trained, decoy = (_areas(bench, variant, asked) for variant in ("", _MODEL))
    videos = [one.item.video_id for one in asked]
    for direction in ("deletion", "insertion"):
        told = {
            f"{name}_{model}": probes.pooled_normalised_area(*_of(areas, direction, name), videos).mean
            for model, areas in (("trained", trained), ("decoy", decoy))
            for name in _CONFIG.maps
        }
        attention = _of(decoy, direction, "attention")
        for other, against, planted, why in (
            (
                "occlusion",
                _of(decoy, direction, "occlusion"),
                "below 0: the answer does not rest on what is looked at",
                "0 is a random ordering, 1 the oracle's; the same questions and random orderings",
            ),
            (
                "that on the trained model",
                _of(trained, direction, "attention"),
                "below 0: on the trained model the answer does rest on what is looked at",
                "paired: the same videos, frames and questions; each in its own model's reach",
            ),
        ):
            yield Row.below(
                f"{_MODEL}: normalised area of {direction}, raw attention minus {other}",
                0.0,
                probes.normalised_area_change(against, attention, videos),
                planted=planted,
                why=why,
                details=bench.details(asked, "uniform", steps=_CONFIG.steps, **told),
            )


def _of(areas: Areas, direction: str, name: str) -> probes.AreaTriple:
    """Areas of a map, of random orderings and of the oracle, by item."""
    one, random, oracle = (areas[f"{direction}_area@map={own}"] for own in (name, RANDOM, ORACLE))
    return one, random, oracle


def _areas(bench: Bench, variant: str, asked: Sequence[Asked]) -> Areas:
    """Areas under the curves of each item, by name."""
    loaded, found = bench.model(variant), []
    with hooks.reuse_units(loaded.model) as reuse:
        for one in asked:
            bench.say(f"faithfulness: {variant or 'as trained'}, {one.item.id}")
            assert one.selection is not None
            frames = bench.frames(one.item, one.selection)
            look = look_inside(bench.context, one.item, frames, loaded)
            source = Source(one.item, frames, frames.pixels.shape[1:3], decode_seconds=0.0)
            removal = Removal.of(bench.context, source, look, reuse, loaded=loaded)
            scores, curves = curves_of(_CONFIG, removal, np.where(look.evidence_units, 0, 1))
            found.append(areas_of(_CONFIG, scores, curves))
    return {name: np.array([one[name] for one in found]) for name in found[0]}
