"""Evidence grounding: what of the way from chance to all right is language, video, sampling, length, reading?

MedHorizon (arXiv 2605.06537), section 4.3 and 8 (RQ2): random letter, text alone, uniform frames, oracle
evidence images. Those differ in more than the evidence: the oracle shows fewer pictures, larger ones, and
as images. So the chain in between is made of settings with one difference each, on the same items:

    chance -> text alone -> uniform -> evidence swapped in -> oracle matched -> 1

at one budget and one token count. The oracle is told uniform's times; evidence that is swapped in keeps its
own, as from a sampler that found it. The steps are the language prior, the video, the sampling, distraction
and length, and interpretation; they sum to 1 less chance whatever they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from pydantic import NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.experiments.asking import Asking
from diagnostics.experiments.conditions import ALL, Answers, metric_of
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome, with_local_evidence
from diagnostics.experiments.pairs import Pair, measure_pairs
from diagnostics.experiments.showing import Library, Shown, nothing
from diagnostics.experiments.write_up import asked_of, write_up
from diagnostics.report.grounding import grounding_figure
from diagnostics.scoring import statistics
from diagnostics.store.summary import Metric
from diagnostics.strict import STRICT
from diagnostics.video.perturb import blank
from diagnostics.video.sampling import oracle, uniform_plus_evidence
from diagnostics.video.swap import evidence_frames, stretched

__all__ = ["SETTINGS", "Config", "chain_table", "run"]

SETTINGS = ("text", "blank", "uniform", "swapped", "oracle_matched", "oracle_images")
"""What is shown: nothing; grey pictures; uniform frames; uniform frames, some exchanged for evidence;
evidence frames alone in as many slots and at the same shown times; evidence frames alone as separate
images (the paper's)."""

_SHOWS_EVIDENCE = frozenset({"swapped", "oracle_matched", "oracle_images"})

_LEVELS = {
    "text": "text alone",
    "uniform": "uniform",
    "swapped": "evidence swapped in",
    "oracle_matched": "oracle matched",
}


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        budget: frames of every setting but the text and the paper's oracle.
        swapped: of them, exchanged for evidence frames, where the evidence has so many.
        oracle_images: most evidence images of the paper's oracle.
        seed: of the statistics.
    """

    budget: PositiveInt = 64
    swapped: PositiveInt = 8
    oracle_images: PositiveInt = 32
    seed: NonNegativeInt = 0


def run(context: Context, config: Config) -> Outcome:
    """Ask every item with local evidence in every setting, then write summary, tables and figure."""
    asked, left_out = with_local_evidence(context.items, scored=True)
    pairs = [Pair(item, {"shown": setting}) for item in asked for setting in SETTINGS]
    with Asking(context) as asking:
        measure_pairs(context, pairs, asking, "Asking in every setting", show=_Show(config))
    return _finish(context, config, pairs, left_out)


class _Show:
    """What each setting shows."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def __call__(self, pair: Pair, library: Library) -> Shown:
        """Slots and form of one pair."""
        item, config = library.checked(pair.item), self._config
        setting = pair.condition["shown"]
        uniform = library.uniform(item, config.budget)
        if setting in _SHOWS_EVIDENCE:
            # Evidence between two frames is refused here: swapped in it would be nothing, and no step.
            evidence_frames(item, library.index(item.video))
        if setting == "text":
            return Shown(item, nothing(uniform), form="nothing")
        if setting == "blank":
            return Shown(item, blank(uniform))
        if setting == "uniform":
            return Shown(item, uniform)
        if setting == "swapped":
            frames = min(config.swapped, config.budget)
            swap = uniform_plus_evidence.Config(budget=config.budget, evidence_frames=frames)
            return Shown(item, library.sample(item, uniform_plus_evidence, swap))
        if setting == "oracle_images":
            rule = oracle.Config(budget=config.oracle_images, short="fewer")
            images = library.sample(item, oracle, rule)
            return Shown(item, replace(images, requested=len(images)), form="images")
        rule = oracle.Config(budget=config.budget, short="fewer")
        return Shown(item, stretched(library.sample(item, oracle, rule), uniform))


def _finish(context: Context, config: Config, pairs: Sequence[Pair], left_out: Mapping[str, str]) -> Outcome:
    asked = asked_of(context, pairs)
    steps, levels = chain_table(asked.answers, asked.items, config)
    others = [{"shown": setting} for setting in SETTINGS if setting != "uniform"]
    differences = asked.answers.differences({"shown": "uniform"}, others, seed=config.seed)
    return write_up(
        context,
        asked,
        metrics=_headline(steps, levels),
        tables={"chain": steps, "levels": levels, "differences": differences},
        draw=lambda: grounding_figure(levels, steps),
        baselines=[{"shown": setting} for setting in SETTINGS],
        left_out=left_out,
    )


def chain_table(
    answers: Answers, items: Mapping[str, Item], config: Config
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The steps of the chain, and the accuracy of every setting, in all, by task and by family.

    The steps are of the items that every setting of the chain has; they sum to 1 less chance.
    """
    steps, levels = [], []
    for kind, group, some in _groups(answers, items):
        told = {"of": kind, "group": group}
        chance = np.array([1 / len(items[name].options) for name in some.items])
        outcomes = {"chance": chance} | {
            name: some.column({"shown": setting}) for setting, name in _LEVELS.items()
        }
        found = statistics.chain(outcomes, some.videos, steps=statistics.EVIDENCE_STEPS, seed=config.seed)
        for step in found.steps:
            steps.append(
                {
                    **told,
                    "step": step.name,
                    "from": step.start,
                    "to": step.end,
                    "difference": step.difference,
                    "ci_low": step.ci_low,
                    "ci_high": step.ci_high,
                    "p": step.p,
                    "n": found.n,
                    "videos": found.n_clusters,
                }
            )
        every: dict[str, np.ndarray] = {"chance": chance}
        every |= {setting: some.column({"shown": setting}) for setting in SETTINGS}
        for setting, column in every.items():
            metric = metric_of(column, some.videos)
            numbers = {"accuracy": metric.mean, "ci_low": metric.ci_low, "ci_high": metric.ci_high}
            levels.append({**told, "shown": setting, **numbers, "n": metric.n})
    return pd.DataFrame(steps), pd.DataFrame(levels)


def _groups(answers: Answers, items: Mapping[str, Item]) -> Iterator[tuple[str, str, Answers]]:
    """All items, then those of each task, then of each family."""
    yield ALL, ALL, answers
    for task in dict.fromkeys(answers.tasks):
        yield "task", task or "(none)", answers.of_task(task)
    families = dict.fromkeys(items[name].task_family for name in answers.items)
    for family in families:
        ids = {name for name in answers.items if items[name].task_family == family}
        yield "family", family or "(none)", answers.among(ids)


def _headline(steps: pd.DataFrame, levels: pd.DataFrame) -> dict[str, Metric]:
    metrics = {}
    for _, row in levels[levels["of"] == ALL].iterrows():
        numbers = (row["accuracy"], row["ci_low"], row["ci_high"], int(row["n"]))
        metrics[f"accuracy_{row['shown']}"] = Metric(*numbers)
    for _, row in steps[steps["of"] == ALL].iterrows():
        name = f"step_{row['step'].replace(' ', '_')}"
        metrics[name] = Metric(row["difference"], row["ci_low"], row["ci_high"], int(row["n"]))
    return metrics
