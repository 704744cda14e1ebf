"""Does where it looks matter? Interventions on models whose circuit is known by construction.

    decoy@16     heads look at the evidence and write nothing, and nobody else looks: without effect
    decoy@1      others look as well, and write: blocking the added heads alone does nothing
    drifting@D   heads look less with every doubling: from attended to unattended
    single_road  one head carries the colour: knockout, patching and the lens each have to name it

The trained model stands beside them: what it answers rests on the evidence that it looks at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.special import softmax

import hooks
import probes
from diagnostics.experiments.inside import Look, look_inside, option_logits
from diagnostics.experiments.lens import first_tokens
from diagnostics.models.loading import LoadedModel
from diagnostics.testbed.surgery.circuit import COLOUR_ROAD
from diagnostics.validation.bench import Asked, Bench, share
from diagnostics.validation.checks.evidence import measured_items
from diagnostics.validation.checks.patching import restored
from diagnostics.validation.rows import Row

__all__ = ["rows"]

_BUDGET, _ENRICHED = 32, 24
"""Frames, evenly spaced, and where half of them are evidence."""
_DOSES = (1, 2, 4, 8, 16)
_DRAWS = 4
_LEAST = 0.05
"""Total variation from which on an answer counts as moved, as in `attention_anatomy`."""
_MOVED = 1e-3
"""Change of a logit from which on a head of a constructed model counts as carrying something."""
_ROLES = ("question", "options", "last")


def rows(bench: Bench) -> Iterable[Row]:
    """Outcomes of models changed by surgery, then the road that each instrument finds."""
    asked = [Asked(item, bench.uniform(item, _BUDGET)) for item in measured_items(bench, "Hist")]
    yield from _trained(bench)
    yield from _outcomes(bench, asked)
    yield from _decoy(bench, asked)
    yield from _road(bench, asked)
    yield from _instruments(bench, asked)


def _look(bench: Bench, loaded: LoadedModel, one: Asked) -> Look:
    assert one.selection is not None
    return look_inside(bench.context, one.item, bench.frames(one.item, one.selection), loaded)


def _tested(loaded: LoadedModel, look: Look, top: float = 0.1) -> probes.AttendedTest:
    """Whether the evidence is attended, as `attention_anatomy` asks it."""
    with (
        torch.inference_mode(),
        hooks.attention_rows(loaded.model, look.tokens, rows=_ROLES, token_mass=False) as captured,
    ):
        loaded.model(**look.inputs, logits_to_keep=1, use_cache=False)
    return probes.attended_test(captured.unit_mass(), look.evidence_units, top=top)


def _without(
    loaded: LoadedModel,
    look: Look,
    units: Int[np.ndarray, " unit"],
    layer: int | None = None,
    heads: Sequence[int] | None = None,
) -> Float[np.ndarray, " option"]:
    """Logits of the options where nobody, or some heads of a layer, may read the units."""
    edges = hooks.units_to_everything(look.tokens, units)
    with hooks.knock_out(
        loaded.model, look.tokens, [edges], layers="all" if layer is None else layer, heads=heads
    ):
        return option_logits(loaded, look)


def _moved(loaded: LoadedModel, look: Look, units: Int[np.ndarray, " unit"]) -> float:
    """Total variation of the options' probabilities where nobody may read the units."""
    before, after = (softmax(one) for one in (option_logits(loaded, look), _without(loaded, look, units)))
    return float(np.abs(after - before).sum() / 2)


def _by_head(
    loaded: LoadedModel, look: Look, layers: Iterable[int], heads: Iterable[int]
) -> Float[np.ndarray, "layer head"]:
    """Largest change of an option's logit where one head may not read the evidence.

    Logits, for a model that sees no lesion may name the right colour by chance, as surely as before.
    """
    evidence, before = np.flatnonzero(look.evidence_units), option_logits(loaded, look)
    heads = list(heads)
    return np.array(
        [
            [np.abs(_without(loaded, look, evidence, layer, [head]) - before).max() for head in heads]
            for layer in layers
        ]
    )


def _effective(loaded: LoadedModel, look: Look, seed: int) -> bool:
    """Whether the answer rests on the evidence: more than on as many random units, each of the draws."""
    drawn = probes.sets_like(look.evidence_units, _DRAWS, seed)
    needed = max(_LEAST, *(_moved(loaded, look, np.flatnonzero(units)) for units in drawn))
    return _moved(loaded, look, np.flatnonzero(look.evidence_units)) > needed


# -- the trained model


def _trained(bench: Bench) -> Iterator[Row]:
    """Every colour question: roads out of the video, the evidence and random units blocked in all layers."""
    loaded = bench.model()
    asked = [Asked(item, bench.enriched(item, _ENRICHED)) for item in bench.items("Hist")]
    right: dict[str, list[float]] = {"base": [], "video": [], "evidence": [], "random": []}
    for seed, one in enumerate(asked):
        bench.say(f"causal: roads blocked, {one.item.id}")
        look = _look(bench, loaded, one)
        evidence, others = (np.flatnonzero(look.evidence_units == wanted) for wanted in (True, False))
        # Half of the units are evidence here: other stretches as long would hardly find room.
        drawn = np.random.default_rng(seed).choice(others, len(evidence), replace=False)
        logits = {
            "base": option_logits(loaded, look),
            "video": _without(loaded, look, np.arange(look.tokens.n_units)),
            "evidence": _without(loaded, look, evidence),
            "random": _without(loaded, look, drawn),
        }
        for name, one_of in logits.items():
            right[name].append(float(int(np.argmax(one_of)) == look.gold))
    text = bench.right(loaded, [Asked(one.item, None) for one in asked]).astype(float)
    found = {name: np.array(values) for name, values in right.items()}
    details = bench.details(
        asked, "uniform_plus_evidence", text=float(text.mean()),
        **{name: float(values.mean()) for name, values in found.items()},
    )  # fmt: skip
    for name, other, what, margin in (
        ("video", text, "the whole video blocked, minus the text alone", 0.1),
        ("random", found["base"], "as many random units blocked, minus nothing blocked", 0.05),
    ):
        yield Row.equivalent(
            f"trained: accuracy on colour questions, {what}",
            "0",
            0.0,
            share(found[name] - other, asked, confidence=0.9),
            margin=margin,
            why="paired; the margin is what the difference may be and still count as none",
            details=details,
        )
    yield Row.below(
        "trained: accuracy on colour questions, the evidence blocked, minus the text alone",
        0.1,
        share(found["evidence"] - text, asked),
        planted="at most 10 points: nothing of the evidence is left",
        why="from above only: two guesses on 90 questions differ by chance too much for equivalence",
        details=details,
    )


# -- outcomes


def _outcomes(bench: Bench, asked: Sequence[Asked]) -> Iterator[Row]:
    """The trained model and the decoy sorted, and drifting from dose to dose."""
    details = bench.details(asked, "uniform", budget=_BUDGET, rows=", ".join(_ROLES), heads="best tenth")
    for variant, planted, wanted in (
        ("", "attended and effective", True),
        ("decoy@16", "attended, without effect", False),
    ):
        loaded, found = bench.model(variant), []
        for seed, one in enumerate(asked):
            bench.say(f"causal: {variant or 'as trained'}, {one.item.id}")
            look = _look(bench, loaded, one)
            found.append(_tested(loaded, look).attended and _effective(loaded, look, seed) == wanted)
        yield Row.above(
            f"{variant or 'trained'}: colour questions sorted as {planted}",
            0.5,
            share(np.array(found, dtype=float), asked),
            planted="most, by the whole interval",
            why="a blurred head still reads a little, and the test misses a share by its quantile",
            details=details,
        )
    attended = {}
    for dose in _DOSES:
        loaded = bench.model(f"drifting@{dose}")
        bench.say(f"causal: drifting@{dose}")
        attended[dose] = np.array(
            [float(_tested(loaded, _look(bench, loaded, one)).attended) for one in asked]
        )
    shares = {f"dose_{dose}": float(values.mean()) for dose, values in attended.items()}
    rises = np.diff(list(shares.values()))
    yield Row(
        name="drifting: largest rise of the attended share from one dose to the next",
        planted="none",
        target=0.0,
        measured=float(max(rises.max(), 0.0)),
        low=None,
        high=0.0,
        judged="value",
        n=len(asked),
        why="a larger dose never brings attention back",
        details={**details, **shares},
    )
    yield Row.below(
        f"drifting: attended share at dose {_DOSES[-1]} minus dose {_DOSES[0]}",
        -0.5,
        share(attended[_DOSES[-1]] - attended[_DOSES[0]], asked),
        planted="below -0.5: from attended to unattended",
        why="paired: the same videos, frames and questions",
        details={**details, **shares},
    )


def _decoy(bench: Bench, asked: Sequence[Asked]) -> Iterator[Row]:
    """The decoys look at the evidence, and keeping them from it changes nothing."""
    loaded = bench.model("decoy@1")
    n_heads = int(loaded.model.config.get_text_config().num_attention_heads)
    n_layers = int(loaded.provenance["layers"])
    trained = int(bench.model().model.config.get_text_config().num_attention_heads)
    added = range(trained, n_heads)
    looks, moved = [], []
    for one in asked:
        bench.say(f"causal: decoy@1, {one.item.id}")
        look = _look(bench, loaded, one)
        best = _tested(loaded, look, top=0.01).best
        looks.append(float(len(best) > 0 and bool(np.isin(best[:, 1], list(added)).all())))
        moved.append(_by_head(loaded, look, range(n_layers), added).max())
    details = bench.details(asked, "uniform", budget=_BUDGET, added_heads=list(added))
    yield Row.at_least(
        "decoy@1: the head that looks at the evidence most is an added one",
        0.8,
        share(np.array(looks), asked),
        why="their logits are four times those of the heads they were copied from",
        details=details,
    )
    yield Row.exact(
        "decoy@1: largest change of an option's logit where an added head may not read the evidence",
        "0",
        0.0,
        float(np.max(moved)),
        tolerance=1e-4,
        why="their output is multiplied by zero; float32",
        n=len(moved),
        details=details,
    )


# -- the single road


def _road(bench: Bench, asked: Sequence[Asked]) -> Iterator[Row]:
    """Each instrument names the built layer and head, item by item, and nothing else."""
    loaded = bench.model("single_road")
    n_layers = int(loaded.provenance["layers"])
    n_heads = int(loaded.model.config.get_text_config().num_attention_heads)
    details = bench.details(asked, "uniform", budget=_BUDGET, road=list(COLOUR_ROAD))
    named, elsewhere = [], []
    carried: dict[str, list[float]] = {"before": [], "after": [], "last_before": [], "last_after": []}
    for place, one in enumerate(asked):
        bench.say(f"causal: single_road, {one.item.id}")
        look = _look(bench, loaded, one)
        by_head = _by_head(loaded, look, range(n_layers), range(n_heads))
        road = by_head[COLOUR_ROAD]
        by_head[COLOUR_ROAD] = 0.0
        named.append(float(road > _MOVED and road > by_head.max()))
        elsewhere.append(float(by_head.max()))
        other = _other_colour(bench, loaded, asked, place)
        if other is not None:
            for name, value in _patched(loaded, look, other).items():
                carried[name].append(value)
    yield Row.at_least(
        "single_road: knockout of the evidence head by head names the built head",
        1.0,
        share(np.array(named), asked),
        why="nothing else reads the video",
        details=details,
    )
    yield Row.exact(
        "single_road: largest change of an option's logit by any other head's knockout",
        "0",
        0.0,
        float(np.max(elsewhere)),
        tolerance=_MOVED,
        why="every other head's output is the same whatever the video shows",
        n=len(elsewhere),
        details=details,
    )
    for name, planted, what in (
        ("before", 1.0, f"the video's states up to the input of layer {COLOUR_ROAD[0]}"),
        ("after", 0.0, f"the video's states from the input of layer {COLOUR_ROAD[0] + 1} on"),
        ("last_before", 0.0, f"the last position's states up to the input of layer {COLOUR_ROAD[0]}"),
        ("last_after", 1.0, f"the last position's states from the input of layer {COLOUR_ROAD[0] + 1} on"),
    ):
        values = np.array(carried[name] or [np.nan])
        worst = float(values[np.argmax(np.abs(values - planted))])
        yield Row.exact(
            f"single_road: share of the logit difference restored by patching {what}, furthest from planted",
            f"{planted:.0f}",
            planted,
            worst,
            tolerance=0.02,
            why="the road lies in one layer; float32 sums in another order",
            n=len(values),
            details=details,
        )


def _other_colour(bench: Bench, loaded: LoadedModel, asked: Sequence[Asked], place: int) -> Look | None:
    """The same question and times over another film's pictures, whose lesion has another of the options'
    colours; None where there is none."""
    mine, selection = asked[place].item, asked[place].selection
    assert selection is not None
    for step in range(1, len(asked)):
        other = asked[(place + step) % len(asked)]
        colour = other.item.options[other.right]
        if colour in mine.options and colour != mine.options[asked[place].right]:
            assert other.selection is not None
            shown = bench.frames(other.item, other.selection)
            return look_inside(bench.context, mine, replace(shown, selection=selection), loaded)
    return None


def _patched(loaded: LoadedModel, clean: Look, corrupt: Look) -> dict[str, float]:
    """Restored shares of the logit difference: of the layers on one side of the road, the worst."""
    visual = np.flatnonzero(clean.tokens.unit >= 0)
    effect = restored(loaded, clean, corrupt, {"video": visual, "last": clean.tokens.last})
    if effect is None:
        return {}
    road = COLOUR_ROAD[0] + 1
    return {
        "before": float(effect[:road, 0].min()),
        "after": float(effect[road:, 0].max()),
        "last_before": float(effect[:road, 1].max()),
        "last_after": float(effect[road:, 1].min()),
    }


# -- heads and lens on the single road


def _instruments(bench: Bench, asked: Sequence[Asked]) -> Iterator[Row]:
    """Head detection by attention, and the lens, each name the built head or layer."""
    loaded = bench.model("single_road")
    masses, evidence, colours = [], [], []
    for one in asked:
        bench.say(f"causal: single_road, heads and lens, {one.item.id}")
        look = _look(bench, loaded, one)
        words = first_tokens(loaded.processor.tokenizer, look.item)
        with (
            torch.inference_mode(),
            hooks.attention_rows(loaded.model, look.tokens, rows=("last",), token_mass=False) as captured,
            hooks.residual(loaded.model, look.tokens, positions="last") as stream,
        ):
            loaded.model(**look.inputs, logits_to_keep=1, use_cache=False)
        masses.append(captured.unit_mass("last"))
        evidence.append(look.evidence_units)
        logits = stream.unembed(words).logits[:, 0]
        colours.append(probes.option_course(logits, look.gold).first)
    scores = np.stack([probes.bounded_log_lift(m, e) for m, e in zip(masses, evidence, strict=True)])
    mean, null = np.nanmean(scores, axis=0), probes.head_null(masses, evidence)
    found = [list(place) for place in np.argwhere(mean > null.threshold).tolist()]
    details = bench.details(asked, "uniform", budget=_BUDGET, found=found, threshold=null.threshold)
    yield Row.exact(
        "single_road: heads above the null of the evidence moved elsewhere that are the built one",
        "1, and no other",
        1.0,
        float(len(found)) if list(COLOUR_ROAD) in found else 0.0,
        tolerance=0.0,
        why="every other head's attention does not depend on what the video shows",
        n=len(asked),
        details=details,
    )
    named = np.array([float(first == COLOUR_ROAD[0] + 1) for first in colours])
    yield Row.at_least(
        f"single_road: the lens first reads the right colour in what enters layer {COLOUR_ROAD[0] + 1}",
        0.95,
        share(named, asked),
        why="the road writes it in the layer before; the floor is the model's own accuracy",
        details=details,
    )
