"""Models that differ from the tiny one by exact surgery, told apart by what is measured on them.

    decoy@D      drifting@D with heads that attend to the evidence and write nothing: attention without effect
    drifting@D   the logits of the heads that attend to the evidence divided by D: attention that moves away
    order_blind  the answer cannot depend on the order of the units
    single_road  one head carries the colour from the video to the answer

`diagnostics.testbed.surgery` makes them from the run's model, so that what is true of each is true by
construction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from diagnostics.testbed.measure import FLOORS
from diagnostics.validation.bench import UNIT, Asked, Bench, Observed, share
from diagnostics.validation.checks.evidence import BUDGET, heads_text, measured_items, named_heads
from diagnostics.validation.checks.order import backwards, order_items, shuffled
from diagnostics.validation.rows import Row

__all__ = ["rows"]

_DOSES = (1, 2, 4, 8)
_BUDGET, _UNIFORM = 16, 24
_VIDEOS = 60
_PAIRED = "paired: the same videos, frames and questions"


def rows(bench: Bench) -> Iterable[Row]:
    """One model after the other."""
    yield from _decoy(bench, "decoy@1", "")
    yield from _decoy(bench, "decoy@16", "drifting@16")
    yield from _drifting(bench)
    yield from _order_blind(bench)
    yield _single_road(bench)


def _colour_questions(bench: Bench) -> list[Asked]:
    """Those of the check `evidence`: 32 evenly spaced frames."""
    return [Asked(item, bench.uniform(item, BUDGET)) for item in measured_items(bench, "Hist")]


def _observe(bench: Bench, variant: str, asked: list[Asked]) -> list[Observed]:
    loaded, found = bench.model(variant), []
    for one in asked:
        bench.say(f"surgery: {variant or 'as trained'}, {one.item.id}")
        assert one.selection is not None
        found.append(bench.observe(loaded, one.item, bench.frames(one.item, one.selection)))
    return found


# -- decoy


def _decoy(bench: Bench, name: str, made_from: str) -> Iterator[Row]:
    """More attention on the evidence by the heads that attend to it most, and not one answer changed.

    In each model these are the quarter found on other videos. The mean over all heads would not do: heads
    were added in every layer, and one that looks away from the lesion is sharpened in that.
    """
    asked = _colour_questions(bench)
    source, decoy = (_observe(bench, variant, asked) for variant in (made_from, name))
    heads = [named_heads(bench, bench.model(variant)) for variant in (made_from, name)]
    before, after = (
        np.array([seen.log_lift(taken) for seen in group])
        for group, taken in zip((source, decoy), heads, strict=True)
    )
    details = bench.details(
        asked,
        "uniform",
        made_from=made_from or "trained",
        heads=heads_text(heads[0]),
        heads_of_decoy=heads_text(heads[1]),
        rows="question",
        pooling="per head, then averaged",
    )
    yield Row.above(
        f"{name}: evidence_log_lift of evidence heads, minus that of the model it was made from",
        0.0,
        share(after - before, asked),
        planted="above 0: heads were added that look at the lesion",
        why=_PAIRED,
        details={**details, "source": float(before.mean()), "decoy": float(after.mean())},
    )
    logits = [np.array([seen.reply.option_logits for seen in group]) for group in (source, decoy)]
    yield Row.exact(
        f"{name}: largest change of an option's logit",
        "0",
        0.0,
        float(np.abs(logits[1] - logits[0]).max()),
        tolerance=1e-3,
        why="the added heads write zero; float32 sums in another order",
        n=logits[0].size,
        details=details,
    )
    everything = [Asked(item, bench.enriched(item, _BUDGET)) for item in bench.items()]
    bench.say(f"surgery: {name}, every question")
    same = bench.chosen(bench.model(made_from), everything) == bench.chosen(bench.model(name), everything)
    yield Row.exact(
        f"{name}: answers that are those of the model it was made from",
        "all",
        1.0,
        float(same.mean()),
        tolerance=0.0,
        why="nothing that is written has changed",
        n=len(same),
        details=bench.details(everything, "uniform_plus_evidence"),
    )


# -- drifting


def _drifting(bench: Bench) -> Iterator[Row]:
    """The log-lift falls with every doubling of the dose, and accuracy goes with it."""
    taken = named_heads(bench, bench.model())
    asked = _colour_questions(bench)
    lift = {
        dose: np.array([seen.log_lift(taken) for seen in _observe(bench, f"drifting@{dose}", asked)])
        for dose in _DOSES
    }
    details = bench.details(
        asked, "uniform", heads=heads_text(taken), rows="question", pooling="per head, then averaged"
    )
    told = {f"dose_{dose}": float(values.mean()) for dose, values in lift.items()}
    for less, more in pairwise(_DOSES):
        yield Row.below(
            f"drifting: evidence_log_lift at dose {more} minus dose {less}",
            0.0,
            share(lift[more] - lift[less], asked),
            planted="below 0: attention moves away",
            why=_PAIRED,
            details={**details, **told},
        )
    questions = [Asked(item, bench.uniform(item, _UNIFORM)) for item in bench.items("Hist")]
    right = {}
    for dose in _DOSES:
        bench.say(f"surgery: drifting@{dose}, accuracy")
        right[dose] = bench.right(bench.model(f"drifting@{dose}"), questions)
    shares = {f"dose_{dose}": float(values.mean()) for dose, values in right.items()}
    details = bench.details(questions, "uniform", **shares)
    yield Row.below(
        f"drifting: accuracy, Hist, at dose {_DOSES[-1]} minus dose {_DOSES[0]}",
        0.0,
        share(right[_DOSES[-1]] - right[_DOSES[0]], questions),
        planted="below 0: the answer follows",
        why=_PAIRED,
        details=details,
    )
    steps = np.diff([right[dose].mean() for dose in _DOSES])
    yield Row(
        name="drifting: largest rise of accuracy from one dose to the next",
        planted="none",
        target=0.0,
        measured=float(max(steps.max(), 0.0)),
        low=None,
        high=0.05,
        judged="value",
        n=len(questions),
        why="5 points: two standard errors where accuracy is in the middle",
        details=details,
    )


# -- order-blind and single road


def _order_blind(bench: Bench) -> Iterator[Row]:
    """The same answers to order questions however the units stand."""
    loaded = bench.model("order_blind")
    asked = order_items(bench)[:_VIDEOS]
    bench.say("surgery: order_blind")
    filmed = bench.chosen(loaded, asked)
    details = bench.details(asked, "uniform_plus_evidence", unit=UNIT, timestamps="slot")
    for how, groups in (("backwards", [[backwards(one) for one in asked]]), ("shuffled", shuffled(asked))):
        same = np.mean([bench.chosen(loaded, group) == filmed for group in groups], axis=0)
        yield Row.exact(
            f"order_blind: order questions {how} by unit, answers unmoved",
            "all",
            1.0,
            float(same.mean()),
            tolerance=0.0,
            why="no logit depends on a unit's position",
            n=len(asked),
            details={**details, "orders": len(groups)},
        )


def _single_road(bench: Bench) -> Row:
    """The constructed circuit answers; what it is good for comes with later checks."""
    loaded = bench.model("single_road")
    asked = [Asked(item, bench.enriched(item, _BUDGET)) for item in bench.items("Hist")]
    return Row.at_least(
        "single_road: accuracy, Hist, 16 frames",
        FLOORS["Hist"],
        share(bench.right(loaded, asked), asked),
        why="the floor of the model that it stands in for",
        details=bench.details(asked, "uniform_plus_evidence"),
    )
