"""Evidence swap: does the answer follow the evidence, and how much of it, and where in the input?

MedHorizon's oracle (arXiv 2605.06537, section 4.3) shows evidence instead of the video. Here it is a dose, in
whole temporal units at an unchanged number of tokens and an unchanged clock: the evidence is taken out of
uniform frames, then k units of it are put back, in the places nearest in time; or k units of *another*
item's evidence, whose answer is a wrong option here (a foil); or the evidence is moved to each tenth of the
input, for items whose answer does not depend on order. Position bias by Video-LevelGauge (arXiv 2508.19650).

Two ends to hold the doses to: text alone, which evidence taken out should come to, and the oracle, evidence
in every slot, which the largest dose should come near.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field, NonNegativeInt, PositiveInt, field_validator
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.errors import NoFoilError
from diagnostics.experiments.asking import Asking
from diagnostics.experiments.conditions import ALL, Answers, metric_of
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome, with_local_evidence
from diagnostics.experiments.pairs import Pair, measure_pairs
from diagnostics.experiments.showing import Library, Shown, nothing
from diagnostics.experiments.write_up import asked_of, write_up
from diagnostics.report.swap import swap_figure
from diagnostics.scoring import statistics
from diagnostics.store.summary import Metric
from diagnostics.strict import STRICT
from diagnostics.video.order import padded
from diagnostics.video.sampling import oracle
from diagnostics.video.selection import Selection
from diagnostics.video.swap import (
    evidence_units,
    near,
    place_units,
    put_in_place_of,
    short_of,
    stretched,
    without_evidence,
)

__all__ = ["Config", "conditions", "foil_of", "run"]

UNIFORM: Mapping[str, Any] = {"arm": "uniform"}
REMOVED: Mapping[str, Any] = {"arm": "evidence", "units": 0}
TEXT: Mapping[str, Any] = {"arm": "text"}
ORACLE: Mapping[str, Any] = {"arm": "oracle"}
ALONE: Mapping[str, Any] = {"arm": "alone"}
_TENTHS = 10
_MEASURES = ("accuracy", "gold_log_odds", "foil_log_odds", "foil_answered")


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        budget: frames; the last one is repeated where they are no whole number of units.
        units: doses of evidence, ascending, from 0 on, at least two.
        foil_units: doses of the foil, ascending.
        position_units: units that are moved to each tenth of the input.
        guard_seconds: kept away from proxy windows when evidence is removed; exact ones need none.
        margin: within which accuracy with the evidence removed counts as that of text alone.
        seed: of the choice of foils, and of the statistics.
    """

    budget: PositiveInt = 64
    units: tuple[NonNegativeInt, ...] = (0, 1, 2, 4)
    foil_units: tuple[PositiveInt, ...] = (1, 4)
    position_units: PositiveInt = 2
    guard_seconds: Annotated[float, Field(ge=0)] = 2.0
    margin: Annotated[float, Field(gt=0, lt=1)] = 0.1
    seed: NonNegativeInt = 0

    @field_validator("units")
    @classmethod
    def _from_none(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(value) < 2 or value[0] != 0 or list(value) != sorted(set(value)):
            raise ValueError(f"doses ascend from 0, each once, at least two: not {list(value)}")
        return value

    @field_validator("foil_units")
    @classmethod
    def _ascending(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if list(value) != sorted(set(value)):
            raise ValueError(f"doses ascend, each once: not {list(value)}")
        return value


def conditions(config: Config, item: Item, *, foil: bool) -> list[Mapping[str, Any]]:
    """The ends; every dose of evidence, and of the foil where there is one; every place, where order does
    not matter."""
    found = _doses(config, foil=foil)
    if "order_free" in item.flags:
        found += [ALONE, *({"arm": "place", "tenth": tenth} for tenth in range(_TENTHS))]
    return found


def _doses(config: Config, *, foil: bool = True) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = [TEXT, UNIFORM, ORACLE]
    found += [{"arm": "evidence", "units": units} for units in config.units]
    return found + [{"arm": "foil", "units": units} for units in config.foil_units if foil]


def run(context: Context, config: Config) -> Outcome:
    """Ask every item with local evidence under every dose, then write summary, tables and figure.

    An item without a foil is asked under the other conditions, and named in the table of what was left out.
    """
    asked, reasons = with_local_evidence(context.items, scored=True)
    foils: dict[str, Foil] = {}
    for item in asked:
        try:
            foils[item.id] = foil_of(item, asked, config.seed)
        except NoFoilError:
            reasons[item.id] = "no foil: asked under the other conditions"
    pairs = [
        Pair(item, condition)
        for item in asked
        for condition in conditions(config, item, foil=item.id in foils)
    ]
    with Asking(context) as asking:
        measure_pairs(context, pairs, asking, "Asking at every dose", show=_Show(config, foils))
    return _finish(context, config, pairs, reasons)


@plain_dataclass(frozen=True)
class Foil:
    """Another item whose evidence speaks for a wrong option of this one: its letter here."""

    item: Item
    letter: str


def foil_of(item: Item, others: Sequence[Item], seed: int) -> Foil:
    """A foil drawn among the items of the same task and question about other videos.

    Raises:
        NoFoilError: none of them has an answer that is another of this item's options.
    """
    assert item.answer is not None
    gold = item.letters.index(item.answer)
    wrong = {text: place for place, text in enumerate(item.options) if place != gold}
    candidates = []
    for other in others:
        same = (other.task, other.question) == (item.task, item.question) and other.video_id != item.video_id
        if same and other.answer is not None:
            text = other.options[other.letters.index(other.answer)]
            if text in wrong:
                candidates.append((other, item.letters[wrong[text]]))
    if not candidates:
        raise NoFoilError(
            "no other item of its task and question has one of its wrong options as its answer.",
            remedy="It is asked under the other conditions; give more items for a foil.",
            item_id=item.id,
        )
    random = np.random.default_rng([seed, *item.id.encode()])
    other, letter = candidates[int(random.integers(len(candidates)))]
    return Foil(other, letter)


class _Show:
    """What each dose shows."""

    def __init__(self, config: Config, foils: Mapping[str, Foil]) -> None:
        self._config, self._foils = config, foils

    def __call__(self, pair: Pair, library: Library) -> Shown:
        """Slots of one pair, and the number of units that were really put in."""
        item, condition = library.checked(pair.item), pair.condition
        unit = library.frames_per_unit
        uniform = padded(library.uniform(item, self._config.budget), unit)
        if condition["arm"] == "text":
            return Shown(item, nothing(uniform), form="nothing")
        if condition["arm"] == "uniform":
            return Shown(item, uniform)
        if condition["arm"] == "oracle":
            rule = oracle.Config(budget=len(uniform), short="fewer")
            return Shown(item, stretched(library.sample(item, oracle, rule), uniform))
        assert item.evidence is not None
        guard = self._config.guard_seconds if item.evidence.kind == "proxy" else 0.0
        index = library.index(item.video)
        removed = without_evidence(uniform, item, index, guard)
        if condition["arm"] == "foil":
            return self._foil(item, removed, condition["units"], library, unit)
        if condition["arm"] == "evidence":
            return self._dose(item, removed, condition["units"], library, unit)
        return self._place(item, removed, condition, library, unit)

    def _place(
        self, item: Item, removed: Selection, condition: Mapping[str, Any], library: Library, unit: int
    ) -> Shown:
        """The evidence as one run of units: alone, or with its first unit at a tenth of the way."""
        wanted, n_units = self._config.position_units, len(removed) // unit
        units = evidence_units(item, library.index(item.video), min(wanted, n_units), unit)
        told, first = {"units_put_in": float(len(units))}, 0
        if condition["arm"] == "alone":
            removed = replace(removed, slots=removed.slots[: len(units) * unit], requested=len(units) * unit)
            what = "evidence alone"
        else:
            first = round(condition["tenth"] * (n_units - len(units)) / (_TENTHS - 1))
            told, what = {**told, "first_unit": float(first)}, f"evidence at tenth {condition['tenth']}"
        shown = place_units(removed, units, first + np.arange(len(units)), what)
        return Shown(item, shown, measures=told, notices=short_of(wanted, len(units), n_units))

    def _dose(self, item: Item, removed: Selection, dose: int, library: Library, unit: int) -> Shown:
        n_units = len(removed) // unit
        if not dose:
            return Shown(item, removed, measures={"units_put_in": 0.0})
        units = evidence_units(item, library.index(item.video), min(dose, n_units), unit)
        shown = place_units(removed, units, near(removed, units, unit), f"{len(units)} units of evidence")
        return Shown(
            item,
            shown,
            measures={"units_put_in": float(len(units))},
            notices=short_of(dose, len(units), n_units),
        )

    def _foil(self, item: Item, removed: Selection, dose: int, library: Library, unit: int) -> Shown:
        foil = self._foils[item.id]
        other = library.checked(foil.item)
        units = evidence_units(other, library.index(other.video), min(dose, len(removed) // unit), unit)
        own = evidence_units(item, library.index(item.video), len(units), unit)
        shown, put_in = put_in_place_of(removed, units, own, unit, other.id)
        return Shown(
            item,
            shown,
            sources={other.video_id: other.video},
            foil=foil.letter,
            measures={"units_put_in": float(put_in)},
            notices=short_of(dose, put_in, len(removed) // unit),
        )


def _finish(context: Context, config: Config, pairs: Sequence[Pair], reasons: Mapping[str, str]) -> Outcome:
    asked = asked_of(context, pairs)
    doses = dose_table(asked.answers, config)
    places, bias = place_table(asked.answers)
    others: list[Mapping[str, Any]] = [{"arm": "evidence", "units": units} for units in config.units[1:]]
    others += [UNIFORM, ORACLE, *({"arm": "foil", "units": units} for units in config.foil_units)]
    return write_up(
        context,
        asked,
        metrics=_headline(doses, bias),
        tables={
            "doses": doses,
            "places": places,
            "position_bias": bias,
            "trend": trend_table(asked.answers, config),
            "removal": removal_table(asked.answers, config),
            "differences": asked.answers.differences(REMOVED, others, seed=config.seed),
        },
        draw=lambda: swap_figure(doses, places, bias),
        baselines=[TEXT, UNIFORM, REMOVED, ORACLE],
        left_out=reasons,
    )


def dose_table(answers: Answers, config: Config) -> pd.DataFrame:
    """One row an arm and dose: accuracy, log-odds of the right option and the foil, answers to the foil."""
    rows = []
    for condition in _doses(config):
        row: dict[str, Any] = {"arm": condition["arm"], "units": condition.get("units")}
        for measure in (*_MEASURES, "units_put_in"):
            metric = metric_of(answers.column(condition, measure), answers.videos)
            row |= {measure: metric.mean, f"{measure}_low": metric.ci_low, f"{measure}_high": metric.ci_high}
            if measure == "accuracy":
                row["n"] = metric.n
        rows.append(row)
    return pd.DataFrame(rows)


def trend_table(answers: Answers, config: Config) -> pd.DataFrame:
    """Whether accuracy and the right option's log-odds rise with the dose, in all and by task."""
    doses: list[Mapping[str, Any]] = [{"arm": "evidence", "units": units} for units in config.units]
    rows = []
    for task, some in _tasks(answers):
        for measure in ("accuracy", "gold_log_odds"):
            columns = np.column_stack([some.column(dose, measure) for dose in doses])
            found = statistics.monotone_trend(columns, config.units, some.videos, seed=config.seed)
            rows.append(
                {
                    "task": task,
                    "measure": measure,
                    "slope": found.slope,
                    "ci_low": found.ci_low,
                    "ci_high": found.ci_high,
                    "p_rising": found.p_rising,
                    "n": found.n,
                    "videos": found.n_clusters,
                }
            )
    return pd.DataFrame(rows)


def removal_table(answers: Answers, config: Config) -> pd.DataFrame:
    """Accuracy with the evidence removed less that of text alone, and whether the two are equivalent."""
    rows = []
    for task, some in _tasks(answers):
        removed, text = some.column(REMOVED), some.column(TEXT)
        found = statistics.equivalence(removed - text, some.videos, margin=config.margin)
        both = np.isfinite(removed - text)
        rows.append(
            {
                "task": task,
                "text": float(text[both].mean()) if both.any() else float("nan"),
                "removed": float(removed[both].mean()) if both.any() else float("nan"),
                "difference": found.mean,
                "ci_low": found.ci_low,
                "ci_high": found.ci_high,
                "margin": found.margin,
                "p": found.p,
                "verdict": found.verdict,
                "n": found.n,
                "videos": found.n_clusters,
            }
        )
    return pd.DataFrame(rows)


def _tasks(answers: Answers) -> list[tuple[str, Answers]]:
    """All items, then those of each task where there are several."""
    tasks = list(dict.fromkeys(answers.tasks))
    each = [(task or "(none)", answers.of_task(task)) for task in tasks] if len(tasks) > 1 else []
    return [(ALL, answers), *each]


def place_table(answers: Answers) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Accuracy by tenth of the input that holds the evidence, and what position does to it in one row.

    Of the order-free items that have an answer in every place. Range, variance and score as in
    Video-LevelGauge: relative to the accuracy on the evidence alone, in percent.
    """
    tenths = [{"arm": "place", "tenth": tenth} for tenth in range(_TENTHS)]
    outcomes = np.column_stack([answers.column(condition) for condition in [ALONE, *tenths]])
    some = np.isfinite(outcomes).all(axis=1)
    videos = [video for video, kept in zip(answers.videos, some, strict=True) if kept]
    rows = []
    for tenth, column in enumerate(outcomes[some, 1:].T):
        metric = metric_of(column, videos)
        numbers = {"accuracy": metric.mean, "ci_low": metric.ci_low, "ci_high": metric.ci_high}
        rows.append({"tenth": tenth, **numbers, "n": metric.n})
    alone = float(outcomes[some, 0].mean()) if some.any() else float("nan")
    found = statistics.gauge(
        outcomes[some, 1:].mean(axis=0) if some.any() else np.full(_TENTHS, np.nan), alone
    )
    bias = {
        "evidence_alone": alone,
        "range": found.range,
        "variance": found.variance,
        "mean": found.mean,
        "composite": found.composite,
        "shape": found.shape,
        "n": int(some.sum()),
    }
    return pd.DataFrame(rows), pd.DataFrame([bias])


def _headline(doses: pd.DataFrame, bias: pd.DataFrame) -> dict[str, Metric]:
    metrics = {}
    for _, row in doses.iterrows():
        told = f"{row['arm']}_{int(row['units'])}" if row["arm"] in ("evidence", "foil") else row["arm"]
        n = int(row["n"])
        metrics[f"accuracy_{told}"] = Metric(row["accuracy"], row["accuracy_low"], row["accuracy_high"], n)
        if row["arm"] == "foil":
            numbers = (row["foil_answered"], row["foil_answered_low"], row["foil_answered_high"], n)
            metrics[f"foil_answered_{told}"] = Metric(*numbers)
    one = bias.iloc[0]
    metrics["position_range"] = Metric(float(one["range"]) / 100, None, None, int(one["n"]))
    return metrics
