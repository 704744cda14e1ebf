"""Does a map of units say what the answer rests on? On a model that looks where no answer comes from.

In `decoy@16` the heads that look at the evidence write nothing, and nobody else looks. Raw attention ranks
the evidence high; occlusion asks the answer itself. As occlusion is measured by what it is judged by, it is
ahead of attention on the trained model too: beside that stands what attention loses from there to the decoy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import bootstrap

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

__all__ = ["rows", "shift"]

_MODEL = "decoy@16"
_BUDGET = 32
_CONFIG = Config(maps=("attention", "occlusion"))

Areas = Mapping[str, Float[np.ndarray, " item"]]
Triple = tuple[Float[np.ndarray, " item"], Float[np.ndarray, " item"], Float[np.ndarray, " item"]]
"""Areas of a map, of random orderings and of the oracle, by item."""


def rows(bench: Bench) -> Iterable[Row]:
    """Raw attention on the decoy: against occlusion, and against itself on the trained model."""
    asked = [Asked(item, bench.uniform(item, _BUDGET)) for item in measured_items(bench, "Hist")]
    trained, decoy = (_areas(bench, variant, asked) for variant in ("", _MODEL))
    videos = [one.item.video_id for one in asked]
    for direction in ("deletion", "insertion"):
        details = bench.details(
            asked,
            "uniform",
            steps=_CONFIG.steps,
            **{
                f"{name}_{model}": probes.pooled_normalised_area(
                    *_of(areas, direction, name), videos
                ).mean
                for model, areas in (("trained", trained), ("decoy", decoy))
                for name in _CONFIG.maps
            },
        )  # fmt: skip
        attention, random, oracle = _of(decoy, direction, "attention")
        occlusion = _of(decoy, direction, "occlusion")[0]
        yield Row.below(
            f"{_MODEL}: normalised area of {direction}, raw attention minus occlusion",
            0.0,
            # A difference of areas over one reach is one ratio, so one resampling: as in `contrast_table`.
            probes.pooled_normalised_area(attention - occlusion + random, random, oracle, videos),
            planted="below 0: the answer does not rest on what is looked at",
            why="0 is a random ordering, 1 the oracle's; the same questions and random orderings",
            details=details,
        )
        yield Row.below(
            f"{_MODEL}: normalised area of {direction}, raw attention minus that on the trained model",
            0.0,
            shift(_of(trained, direction, "attention"), _of(decoy, direction, "attention"), videos),
            planted="below 0: on the trained model the answer does rest on what is looked at",
            why="paired: the same videos, frames and questions; each in its own model's reach",
            details=details,
        )


def shift(before: Triple, after: Triple, videos: Sequence[str]) -> probes.Estimate:
    """How far a normalised area of the mean curves moves between two models asked the same.

    The interval resamples videos, for both sides at once.
    """
    summed = pd.DataFrame(np.stack([*before, *after], axis=1)).groupby(list(videos)).sum()

    def moved(*areas: Float[np.ndarray, "*draw video"], axis: int = -1) -> Float[np.ndarray, "*draw"]:
        one, random, oracle, other, own_random, own_oracle = (area.sum(axis=axis) for area in areas)
        after = (other - own_random) / (own_oracle - own_random)
        return np.asarray(after - (one - random) / (oracle - random))

    sides = tuple(summed.to_numpy().T)
    found = bootstrap(
        sides, moved, paired=True, vectorized=True, n_resamples=2000, method="percentile", rng=0
    ).confidence_interval
    return probes.Estimate(float(moved(*sides)), found.low, found.high, len(videos), len(summed), 0)


def _of(areas: Areas, direction: str, name: str) -> Triple:
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
