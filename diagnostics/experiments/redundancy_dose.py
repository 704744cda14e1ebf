"""Redundancy as a dose: does it hurt to be shown the same thing over and over?

MedHorizon (arXiv 2605.06537), section 4.4, sees that models look at redundant frames and concludes that
redundancy limits them; nobody has tried. Here length, budget, evidence and clock are held, and a growing
share of the other temporal units is replaced by near-duplicates of one another; as a control, the same
units by distinct ones. If redundancy itself does harm, the two part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field, NonNegativeInt, PositiveInt, field_validator
from pydantic.dataclasses import dataclass

from diagnostics.experiments.asking import Asking
from diagnostics.experiments.conditions import Answers, metric_of
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome, with_local_evidence
from diagnostics.experiments.pairs import Pair, measure_pairs
from diagnostics.experiments.showing import Library, Shown
from diagnostics.experiments.write_up import asked_of, write_up
from diagnostics.report.redundancy import redundancy_figure
from diagnostics.scoring import statistics
from diagnostics.store.summary import Metric
from diagnostics.strict import STRICT
from diagnostics.video.order import padded
from diagnostics.video.swap import evidence_units, near, place_units, short_of, thinned, without_evidence

__all__ = ["MEASURES", "Config", "conditions", "run"]

MEASURES = ("accuracy", "gold_log_odds", "evidence_log_lift", "unit_similarity")
_OTHERS = ("near_duplicates", "distinct")


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        budget: frames.
        evidence_units: units of evidence, the same under every dose, where the evidence has so many.
        shares: of the other units, replaced; ascending from 0 on, at least two.
        stretch_seconds: how long the stretch is that near-duplicates are taken from, at most.
        seed: of which units are replaced by what, and of the statistics.
    """

    budget: PositiveInt = 64
    evidence_units: PositiveInt = 2
    shares: tuple[Annotated[float, Field(ge=0, le=1)], ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    stretch_seconds: Annotated[float, Field(gt=0)] = 1.0
    seed: NonNegativeInt = 0

    @field_validator("shares")
    @classmethod
    def _from_none(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if len(value) < 2 or value[0] != 0 or list(value) != sorted(set(value)):
            raise ValueError(f"shares ascend from 0, each once, at least two: not {list(value)}")
        return value


def conditions(config: Config) -> list[Mapping[str, Any]]:
    """Every share of units, replaced by near-duplicates and by distinct ones; nothing replaced once."""
    doses = [share for share in config.shares if share > 0]
    return [{"replaced": 0.0}, *({"replaced": share, "by": by} for by in _OTHERS for share in doses)]


def run(context: Context, config: Config) -> Outcome:
    """Ask every item with local evidence under every dose, then write summary, tables and figure."""
    asked, reasons = with_local_evidence(context.items, scored=False)
    pairs = [Pair(item, condition) for item in asked for condition in conditions(config)]

    def show(pair: Pair, library: Library) -> Shown:
        item, unit = library.checked(pair.item), library.frames_per_unit
        index = library.index(item.video)
        uniform = without_evidence(padded(library.uniform(item, config.budget), unit), item, index)
        n_units = len(uniform) // unit
        units = evidence_units(item, index, min(config.evidence_units, n_units), unit)
        places = near(uniform, units, unit)
        keep = np.zeros(n_units, dtype=bool)
        keep[places] = True
        shown = uniform
        if pair.condition["replaced"]:
            alike = pair.condition["by"] == "near_duplicates"
            shown = thinned(
                uniform,
                item,
                index,
                pair.condition["replaced"],
                keep,
                alike=alike,
                unit=unit,
                seed=config.seed,
                stretch_seconds=config.stretch_seconds,
            )
        return Shown(
            item,
            place_units(shown, units, places, f"{len(units)} units of evidence"),
            measures={"units_put_in": float(len(units))},
            notices=short_of(config.evidence_units, len(units), n_units),
        )

    with Asking(context, attention=True) as asking:
        measure_pairs(context, pairs, asking, "Asking at every dose", show=show)
    return _finish(context, config, pairs, reasons)


def _finish(context: Context, config: Config, pairs: Sequence[Pair], reasons: Mapping[str, str]) -> Outcome:
    asked = asked_of(context, pairs)
    doses, contrasts = dose_table(asked.answers, config), contrast_table(asked.answers, config)
    return write_up(
        context,
        asked,
        metrics={
            f"{row['measure']}_near_duplicates_less_distinct": Metric(
                row["difference"], row["ci_low"], row["ci_high"], int(row["n"])
            )
            for _, row in contrasts[contrasts["replaced"] == max(config.shares)].iterrows()
        },
        tables={"doses": doses, "contrasts": contrasts},
        draw=lambda: redundancy_figure(doses, contrasts),
        baselines=conditions(config),
        left_out=reasons,
    )


def dose_table(answers: Answers, config: Config) -> pd.DataFrame:
    """One row a dose and kind of replacement: each measure with its interval."""
    rows = []
    for condition in conditions(config):
        row: dict[str, Any] = {"replaced": condition["replaced"], "by": condition.get("by", "")}
        for measure in MEASURES:
            metric = metric_of(answers.column(condition, measure), answers.videos)
            row |= {measure: metric.mean, f"{measure}_low": metric.ci_low, f"{measure}_high": metric.ci_high}
            if measure == "accuracy":
                row["n"] = metric.n
        rows.append(row)
    return pd.DataFrame(rows)


def contrast_table(answers: Answers, config: Config) -> pd.DataFrame:
    """Near-duplicates less distinct units at the same dose on the same items: what redundancy itself does.

    `p_holm` is adjusted over the doses of a measure.
    """
    rows = []
    doses = [share for share in config.shares if share]
    for measure in MEASURES:
        tests = [
            statistics.paired_difference(
                answers.column({"replaced": share, "by": "distinct"}, measure),
                answers.column({"replaced": share, "by": "near_duplicates"}, measure),
                answers.videos,
                seed=config.seed,
            )
            for share in doses
        ]
        adjusted = statistics.holm([found.p for found in tests]).adjusted
        for share, found, p_holm in zip(doses, tests, adjusted, strict=True):
            rows.append(
                {
                    "replaced": share,
                    "measure": measure,
                    "difference": found.difference,
                    "ci_low": found.ci_low,
                    "ci_high": found.ci_high,
                    "p": found.p,
                    "p_holm": p_holm,
                    "n": found.n,
                    "videos": found.n_clusters,
                }
            )
    return pd.DataFrame(rows)
