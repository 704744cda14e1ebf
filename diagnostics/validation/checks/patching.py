"""Up to which layer the evidence's tokens hold the answer: activation patching on the trained weights.

The trained model reads the evidence in layer 1, before its second DeepStack stream has entered. Without that
stream (`first_stream`) it answers colour questions as before, and layer 1 is the first after the injections.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Float, Int

import hooks
import probes
from diagnostics.experiments.inside import Look, look_inside
from diagnostics.models.loading import LoadedModel
from diagnostics.validation.bench import Asked, Bench, share
from diagnostics.validation.checks.evidence import measured_items
from diagnostics.validation.rows import Row
from diagnostics.video.swap import without_evidence

__all__ = ["restored", "rows"]

_BUDGET = 32
_MARGIN = 0.05


def rows(bench: Bench) -> Iterable[Row]:
    """That the two models answer alike, then what is restored after the injections and a layer later."""
    loaded = bench.model("first_stream")
    after = len(loaded.family.deepstack_layers(loaded.model))
    questions = [Asked(item, bench.uniform(item, _BUDGET)) for item in bench.items("Hist")]
    bench.say("patching: every colour question")
    first, trained = (bench.right(one, questions) for one in (loaded, bench.model()))
    yield Row.equivalent(
        "first_stream: accuracy on colour questions, minus that of the trained model",
        "0",
        0.0,
        share(first - trained, questions, confidence=0.9),
        margin=_MARGIN,
        why="paired; what is shown of one is said of the other",
        details=bench.details(
            questions, "uniform", first_stream=float(first.mean()), trained=float(trained.mean())
        ),
    )
    effects = {}
    for item in measured_items(bench, "Hist"):
        bench.say(f"patching: first_stream, {item.id}")
        one = Asked(item, bench.uniform(item, _BUDGET))
        effect = _by_layer(bench, loaded, one)
        if effect is not None:
            effects[one] = effect
    kept, course = list(effects), np.array(list(effects.values()))
    details = bench.details(
        kept,
        "uniform",
        corruption="neighbours",
        **{f"layer_{layer}": float(effect) for layer, effect in enumerate(course.mean(axis=0))},
    )
    what = (
        "first_stream: share of the logit difference that the evidence's units restore at the input of layer"
    )
    yield Row.above(
        f"{what} {after}, the first after the injections",
        0.8,
        share(course[:, after], kept),
        why="what is patched has not been read yet",
        details=details,
    )
    yield Row.below(
        f"{what} {after + 1}",
        0.1,
        share(course[:, after + 1], kept),
        planted="below 0.1: read by now",
        why="the rows of the options have read it in the layer before",
        details=details,
    )


def _by_layer(bench: Bench, loaded: LoadedModel, one: Asked) -> Float[np.ndarray, " layer"] | None:
    """Clean states of the evidence's units put where the nearest other frames stand in its place."""
    assert one.selection is not None
    swapped = without_evidence(one.selection, one.item, bench.reader.index(one.item.video))
    clean, corrupt = (
        look_inside(bench.context, one.item, bench.frames(one.item, shown), loaded)
        for shown in (one.selection, swapped)
    )
    sets = hooks.position_sets(clean.tokens)
    evidence = np.concatenate([sets[f"unit:{unit}"] for unit in np.flatnonzero(clean.evidence_units)])
    found = restored(loaded, clean, corrupt, {"evidence": evidence})
    return None if found is None else found[:, 0]


def restored(
    loaded: LoadedModel, clean: Look, corrupt: Look, sets: Mapping[str, Int[np.ndarray, " position"]]
) -> Float[np.ndarray, "layer set"] | None:
    """Shares of the logit difference that each set's clean states restore at the input of each layer.

    None where the answer is not right with the clean video and wrong with the corrupt one.
    """
    grid = hooks.patch_grid(
        loaded.model, clean.inputs, corrupt.inputs, clean.tokens, token_ids=list(clean.letters), sets=sets
    )
    with_clean, with_corrupt = (
        float(probes.logit_difference(one, clean.gold)) for one in (grid.clean, grid.corrupt)
    )
    if not with_clean > 0 > with_corrupt:
        return None
    return probes.indirect_effect(probes.logit_difference(grid.logits, clean.gold), with_clean, with_corrupt)
