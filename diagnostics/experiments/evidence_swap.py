"""Evidence swap: does the answer follow the evidence, and how much of it, and where in the input?

MedHorizon's oracle (arXiv 2605.06537, section 4.3) shows evidence instead of the video. Here it is a dose, in
whole temporal units at an unchanged number of tokens and an unchanged clock: the evidence is taken out of
uniform frames, then k units of it are put back, in the places nearest in time; or k units of *another*
item's evidence, whose answer is a wrong option here (a foil); or the evidence is moved to each tenth of the
input, for items whose answer does not depend on order. Position bias by Video-LevelGauge (arXiv 2508.19650).
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
from diagnostics.experiments.conditions import Answers, baseline_table, measure_rows, metric_of
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome, leave_out, record_rejected, records_of_run
from diagnostics.experiments.pairs import Pair, measure_pairs
from diagnostics.experiments.showing import Library, Shown
from diagnostics.report.style import save_figure
from diagnostics.report.swap import swap_figure
from diagnostics.scoring import statistics
from diagnostics.store.summary import Metric, Summary
from diagnostics.strict import STRICT
from diagnostics.video.order import padded
from diagnostics.video.selection import Selection
from diagnostics.video.swap import evidence_units, near, place_units, without_evidence

__all__ = ["Config", "conditions", "foil_of", "run"]

UNIFORM: Mapping[str, Any] = {"arm": "uniform"}
REMOVED: Mapping[str, Any] = {"arm": "evidence", "units": 0}
ALONE: Mapping[str, Any] = {"arm": "alone"}
_TENTHS = 10
_MEASURES = ("accuracy", "gold_log_odds", "foil_log_odds", "foil_answered")


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        budget: frames; the last one is repeated where they are no whole number of units.
        units: doses of evidence, ascending, from 0 on.
        foil_units: doses of the foil.
        position_units: units that are moved to each tenth of the input.
        guard_seconds: kept away from proxy windows when evidence is removed; exact ones need none.
        seed: of the choice of foils, and of the statistics.
    """

    budget: PositiveInt = 64
    units: tuple[NonNegativeInt, ...] = (0, 1, 2, 4, 8)
    foil_units: tuple[PositiveInt, ...] = (1, 4)
    position_units: PositiveInt = 2
    guard_seconds: Annotated[float, Field(ge=0)] = 2.0
    seed: NonNegativeInt = 0

    @field_validator("units")
    @classmethod
    def _from_none(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or value[0] != 0 or list(value) != sorted(set(value)):
            raise ValueError(f"doses ascend from 0, each once: not {list(value)}")
        return value


def conditions(config: Config, item: Item) -> list[Mapping[str, Any]]:
    """Uniform frames; every dose of evidence and of the foil; every place, where order does not matter."""
    found = [UNIFORM, *({"arm": "evidence", "units": units} for units in config.units)]
    found += [{"arm": "foil", "units": units} for units in config.foil_units]
    if "order_free" in item.flags:
        found += [ALONE, *({"arm": "place", "tenth": tenth} for tenth in range(_TENTHS))]
    return found


def run(context: Context, config: Config) -> Outcome:
    """Ask every item with local evidence under every dose, then write summary, tables and figure."""
    asked: list[Item] = []
    reasons: dict[str, str] = {}
    for item in context.items:
        if item.evidence is None or item.evidence.kind == "global" or not item.evidence.windows:
            reasons[item.id] = "no local evidence"
        elif not item.options or item.answer is None:
            reasons[item.id] = "no options or no answer"
        else:
            asked.append(item)
    pairs = [Pair(item, condition) for item in asked for condition in conditions(config, item)]
    with Asking(context) as asking:
        measure_pairs(context, pairs, asking, "Asking at every dose", show=_Show(config, asked))
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

    def __init__(self, config: Config, items: Sequence[Item]) -> None:
        self._config, self._items = config, items

    def __call__(self, pair: Pair, library: Library) -> Shown:
        """Slots of one pair, and the number of units that the evidence really has."""
        item, condition = library.checked(pair.item), pair.condition
        unit = library.frames_per_unit
        uniform = padded(library.uniform(item, self._config.budget), unit)
        if condition["arm"] == "uniform":
            return Shown(item, uniform)
        assert item.evidence is not None
        guard = self._config.guard_seconds if item.evidence.kind == "proxy" else 0.0
        index = library.index(item.video)
        removed = without_evidence(uniform, item, index, guard)
        if condition["arm"] == "foil":
            return self._foil(item, removed, condition["units"], library, unit)
        if condition["arm"] == "evidence":
            return self._dose(item, removed, condition["units"], library, unit)
        units = evidence_units(item, index, self._config.position_units, unit)
        if condition["arm"] == "alone":
            alone = replace(removed, slots=removed.slots[: len(units) * unit], requested=len(units) * unit)
            return Shown(item, place_units(alone, units, np.arange(len(units)), "evidence alone"))
        n_units = len(removed) // unit
        first = round(condition["tenth"] * (n_units - len(units)) / (_TENTHS - 1))
        places = first + np.arange(len(units))
        return Shown(item, place_units(removed, units, places, f"evidence at tenth {condition['tenth']}"))

    def _dose(self, item: Item, removed: Selection, dose: int, library: Library, unit: int) -> Shown:
        if not dose:
            return Shown(item, removed, measures={"units_put_in": 0.0})
        units = evidence_units(item, library.index(item.video), min(dose, len(removed) // unit), unit)
        shown = place_units(removed, units, near(removed, units, unit), f"{len(units)} units of evidence")
        return Shown(item, shown, measures={"units_put_in": float(len(units))}, notices=_clipped(dose, units))

    def _foil(self, item: Item, removed: Selection, dose: int, library: Library, unit: int) -> Shown:
        foil = foil_of(item, self._items, self._config.seed)
        other = library.checked(foil.item)
        units = evidence_units(other, library.index(other.video), min(dose, len(removed) // unit), unit)
        # The foil stands where the item's own evidence would: the places tell nothing.
        own = evidence_units(item, library.index(item.video), len(units), unit)
        places = near(removed, own, unit)[: len(units)]
        units = units[: len(places)]
        shown = place_units(removed, units, places, f"{len(units)} units of {other.id}'s evidence")
        return Shown(
            item,
            shown,
            sources={other.video_id: other.video},
            foil=foil.letter,
            measures={"units_put_in": float(len(units))},
            notices=_clipped(dose, units),
        )


def _clipped(dose: int, units: Sequence[object]) -> tuple[str, ...]:
    return (
        () if len(units) == dose else (f"short_evidence: {dose} units were asked for, it has {len(units)}",)
    )


def _finish(context: Context, config: Config, pairs: Sequence[Pair], reasons: Mapping[str, str]) -> Outcome:
    folder = context.folder
    record_rejected(context)
    records = records_of_run(context, pairs)
    done = [record for record in records if record.error is None]
    answers = Answers.of(done)
    doses = dose_table(answers, config)
    places, bias = place_table(answers)
    metrics = _headline(doses, bias)
    summary = Summary.of(context.config.experiment, records, metrics, measure_rows(done))
    paths = {"summary": folder.write_summary(summary)} | leave_out(context, reasons)
    items = {item.id: item for item in context.items}
    others: list[Mapping[str, Any]] = [{"arm": "evidence", "units": units} for units in config.units[1:]]
    others += [UNIFORM, *({"arm": "foil", "units": units} for units in config.foil_units)]
    for name, table in (
        ("doses", doses),
        ("places", places),
        ("position_bias", bias),
        ("differences", answers.differences(REMOVED, others, seed=config.seed)),
        ("measures", summary.table()),
        ("baselines", baseline_table([items[i] for i in answers.items], answers, [UNIFORM, REMOVED])),
    ):
        paths[name] = folder.write_table(name, table)[0]
    if len(answers.items):
        figure = swap_figure(doses, places, bias)
        paths["figure"] = save_figure(figure, folder.path / "figures" / "evidence_swap")[0]
    return Outcome(summary, paths, list(metrics))


def dose_table(answers: Answers, config: Config) -> pd.DataFrame:
    """One row an arm and dose: accuracy, log-odds of the right option and the foil, answers to the foil."""
    rows = []
    every: list[Mapping[str, Any]] = [
        UNIFORM,
        *({"arm": "evidence", "units": units} for units in config.units),
    ]
    every += [{"arm": "foil", "units": units} for units in config.foil_units]
    for condition in every:
        row: dict[str, Any] = {"arm": condition["arm"], "units": condition.get("units")}
        for measure in (*_MEASURES, "units_put_in"):
            metric = metric_of(answers.column(condition, measure), answers.videos)
            row |= {measure: metric.mean, f"{measure}_low": metric.ci_low, f"{measure}_high": metric.ci_high}
            if measure == "accuracy":
                row["n"] = metric.n
        rows.append(row)
    return pd.DataFrame(rows)


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
        told = row["arm"] if row["arm"] == "uniform" else f"{row['arm']}_{int(row['units'])}"
        n = int(row["n"])
        metrics[f"accuracy_{told}"] = Metric(row["accuracy"], row["accuracy_low"], row["accuracy_high"], n)
        if row["arm"] == "foil":
            numbers = (row["foil_answered"], row["foil_answered_low"], row["foil_answered_high"], n)
            metrics[f"foil_answered_{told}"] = Metric(*numbers)
    one = bias.iloc[0]
    metrics["position_range"] = Metric(float(one["range"]) / 100, None, None, int(one["n"]))
    return metrics
