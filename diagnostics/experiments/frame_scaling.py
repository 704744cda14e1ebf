"""Frame scaling: does accuracy grow with the number of frames, and is it frames or resolution that tells?

MedHorizon (arXiv 2605.06537), section 4.2 and 8 (RQ1): 4 to 512 uniform frames over the full video. Three
things change along that ladder beside the number: the frames themselves (uniform budgets share 2 to 8 of
them), their resolution (a checkpoint's pixel budget is spread over more frames: at 720p Qwen3-VL gives a
unit 880 tokens at 28 frames and 48 at 512), and whether the evidence is among them. So beside the paper's
ladder stand a nested one, whose smaller budgets are subsets of the larger, and one that holds the tokens of
a unit; and the share of the evidence that was shown is reported with the accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from pydantic import NonNegativeInt, PositiveInt, field_validator
from pydantic.dataclasses import dataclass

from diagnostics.errors import ConfigError
from diagnostics.experiments.asking import Asking
from diagnostics.experiments.conditions import ALL, Answers, metric_of
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome
from diagnostics.experiments.pairs import Pair, measure_pairs
from diagnostics.experiments.showing import Library, Shown
from diagnostics.experiments.write_up import asked_of, write_up
from diagnostics.report.scaling import scaling_figure
from diagnostics.scoring import statistics
from diagnostics.store.summary import Metric
from diagnostics.strict import STRICT
from diagnostics.video.order import whole_units
from diagnostics.video.selection import Selection

__all__ = ["Config", "conditions", "nested", "run"]

_COVERAGE = "any_window_hit"


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        budgets: frames, ascending.
        frames: `uniform` over the video at each budget (the paper's), `nested`: subsets of the largest one's.
        resolutions: `budget`: the checkpoint's own pixel budget (the paper's); `fixed`: each frame has at
            most the pixels that the most frames of its video leave it, so that its units have equally many
            tokens at every budget.
        seed: of the statistics.
    """

    budgets: tuple[PositiveInt, ...] = (4, 8, 16, 32, 64, 128, 256, 512)
    frames: tuple[Literal["uniform", "nested"], ...] = ("uniform", "nested")
    resolutions: tuple[Literal["budget", "fixed"], ...] = ("budget", "fixed")
    seed: NonNegativeInt = 0

    @field_validator("budgets")
    @classmethod
    def _ascending(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(value) < 2 or list(value) != sorted(set(value)):
            raise ValueError(f"budgets are two or more numbers, ascending, each once: not {list(value)}")
        return value


def conditions(config: Config) -> list[Mapping[str, Any]]:
    """Every ladder's rungs."""
    return [
        {"budget": budget, "frames": frames, "resolution": resolution}
        for frames in config.frames
        for resolution in config.resolutions
        for budget in config.budgets
    ]


def nested(budgets: Sequence[int], available: int) -> dict[int, Int[np.ndarray, " slot"]]:
    """Places among `available` frames for each budget, every rung a subset of the next larger one.

    The largest rung is evenly spaced over them, each smaller one evenly spaced over the larger.
    """
    rungs: dict[int, Int[np.ndarray, " slot"]] = {}
    larger = np.arange(available)
    for budget in sorted(budgets, reverse=True):
        if budget < len(larger):
            larger = larger[np.rint(np.linspace(0, len(larger) - 1, budget)).astype(int)]
        rungs[budget] = larger
    return rungs


def run(context: Context, config: Config) -> Outcome:
    """Ask every item at every rung of every ladder, then write summary, tables and figure."""
    if context.config.sampling.rule != "uniform":
        raise ConfigError(
            f"exp=frame_scaling chooses its own frames; sampling={context.config.sampling.rule} is not used.",
            remedy="Leave sampling at uniform; set exp.budgets.",
        )
    pairs = [Pair(item, condition) for item in context.items for condition in conditions(config)]
    largest = config.budgets[-1]

    def show(pair: Pair, library: Library) -> Shown:
        item, budget = library.checked(pair.item), pair.condition["budget"]
        whole = library.uniform(item, largest)
        if pair.condition["frames"] == "uniform":
            selection = library.uniform(item, budget)
        else:
            selection = _rung(whole, config.budgets, budget)
        # A video may have fewer frames than the largest budget: what those leave each other is held then.
        pixels = library.frame_pixels(len(whole)) if pair.condition["resolution"] == "fixed" else None
        if pixels is None:
            return Shown(item, selection)
        # Processors round an odd number of frames before they spread their pixels, and some of them down.
        even, notices = whole_units(selection, library.frames_per_unit)
        return Shown(item, even, frame_pixels=pixels, notices=notices)

    with Asking(context) as asking:
        measure_pairs(context, pairs, asking, "Asking at every budget", show=show)
    return _finish(context, config, pairs)


def _rung(whole: Selection, budgets: Sequence[int], budget: int) -> Selection:
    places = nested(budgets, len(whole))[budget]
    slots = tuple(whole.slots[place] for place in places.tolist())
    return Selection(
        slots=slots,
        rule=f"{whole.rule}; nested(budget={budget})",
        source_fps=whole.source_fps,
        source_frames=whole.source_frames,
        source_seconds=whole.source_seconds,
        requested=budget,
    )


def _finish(context: Context, config: Config, pairs: Sequence[Pair]) -> Outcome:
    asked = asked_of(context, pairs)
    ladders, trends = ladder_table(asked.answers, config), trend_table(asked.answers, config)
    return write_up(
        context,
        asked,
        metrics=_headline(asked.answers, config, trends),
        tables={"ladders": ladders, "trends": trends},
        draw=lambda: scaling_figure(ladders, trends),
        baselines=conditions(config),
    )


def ladder_table(answers: Answers, config: Config) -> pd.DataFrame:
    """One row a task and rung: accuracy and evidence shown with intervals, frames shown, tokens of a unit.

    `evidence_shown` is the share of the items with evidence windows of which one or more are hit
    (`evidence_n` of them); `frames_shown` the mean number of frames, which is below the budget where videos
    have no more; `tokens_per_unit` a mean over items.
    """
    rows = []
    for task, some in answers.by_task():
        for condition in conditions(config):
            accuracy = metric_of(some.column(condition), some.videos)
            shown = metric_of(some.column(condition, _COVERAGE), some.videos)
            records = [record for record in some.under(condition) if record is not None]
            # The slots of a record say what was shown; a repeated frame that fills the last unit counts once.
            frames = [len({slot.frame_index for slot in record.slots}) for record in records]
            tokens = [record.tokens_per_unit for record in records if record.tokens_per_unit]
            rows.append(
                {
                    "task": task,
                    **condition,
                    "accuracy": accuracy.mean,
                    "ci_low": accuracy.ci_low,
                    "ci_high": accuracy.ci_high,
                    "evidence_shown": shown.mean,
                    "shown_low": shown.ci_low,
                    "shown_high": shown.ci_high,
                    "evidence_n": shown.n,
                    "frames_shown": float(np.mean(frames)) if frames else float("nan"),
                    "tokens_per_unit": float(np.mean(tokens)) if tokens else float("nan"),
                    "n": accuracy.n,
                }
            )
    return pd.DataFrame(rows)


def trend_table(answers: Answers, config: Config) -> pd.DataFrame:
    """One row a task and ladder: slope per rung and its test, the best budget and its interval, conversion.

    `conversion` is the gain in accuracy from the first to the last rung over the gain in the share of
    items whose evidence is shown, of the items with evidence windows (`conversion_n`): 1 where as many more
    are right as have newly shown evidence; undefined where no more have. `gain_newly_shown` is the change in
    accuracy of those whose evidence the first rung missed and the last one shows (`newly_shown`), and
    `gain_others` that of the rest: what more frames did without bringing evidence. `p_holm` is the p of a
    rise, adjusted over the ladders of a task.
    """
    rows = []
    for task, some in answers.by_task():
        found = []
        for ladder, rungs in _ladders(config).items():
            correct = np.column_stack([some.column(condition) for condition in rungs])
            first, last = (some.column(condition, _COVERAGE) for condition in (rungs[0], rungs[-1]))
            told = dict(zip(("frames", "resolution"), ladder, strict=True))
            trend = _trend(correct, config, some.videos)
            found.append(
                {"task": task, **told, **trend, **_conversion(correct, first, last, config, some.videos)}
            )
        adjusted = statistics.holm([row["p_rising"] for row in found]).adjusted
        rows += [{**row, "p_holm": p} for row, p in zip(found, adjusted, strict=True)]
    return pd.DataFrame(rows)


def _ladders(config: Config) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """The rungs of each ladder, by frames and resolution."""
    ladders: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for condition in conditions(config):
        ladders.setdefault((condition["frames"], condition["resolution"]), []).append(condition)
    return ladders


def _trend(correct: Float[np.ndarray, "item rung"], config: Config, videos: Sequence[str]) -> dict[str, Any]:
    trend = statistics.monotone_trend(correct, config.budgets, videos, seed=config.seed)
    best = statistics.best_level(correct, config.budgets, videos, seed=config.seed)
    return {
        "slope": trend.slope,
        "slope_low": trend.ci_low,
        "slope_high": trend.ci_high,
        "p_rising": trend.p_rising,
        "p_falling": trend.p_falling,
        "best_budget": best.level,
        "best_low": best.ci_low,
        "best_high": best.ci_high,
        "n": trend.n,
        "videos": trend.n_clusters,
    }


def _conversion(
    correct: Float[np.ndarray, "item rung"],
    before: Float[np.ndarray, " item"],
    after: Float[np.ndarray, " item"],
    config: Config,
    videos: Sequence[str],
) -> dict[str, Any]:
    """What the evidence that the last rung shows and the first does not was worth."""
    gain, coverage = correct[:, -1] - correct[:, 0], after - before

    def ratio(weights: np.ndarray, accuracy: np.ndarray, more: np.ndarray) -> np.ndarray:
        shown = weights @ more
        return np.where(shown > 0, weights @ accuracy / np.where(shown > 0, shown, 1), np.nan)

    conversion = statistics.cluster_bootstrap(
        ratio, gain, coverage, clusters=videos, seed=config.seed, vectorized=True
    )
    newly = metric_of(np.where(coverage > 0, gain, np.nan), videos)
    others = metric_of(np.where(coverage <= 0, gain, np.nan), videos)
    return {
        "conversion": float(conversion.estimate),
        "conversion_low": float(conversion.ci_low),
        "conversion_high": float(conversion.ci_high),
        "conversion_n": conversion.n,
        "newly_shown": newly.n,
        "gain_newly_shown": newly.mean,
        "newly_low": newly.ci_low,
        "newly_high": newly.ci_high,
        "gain_others": others.mean,
        "others_low": others.ci_low,
        "others_high": others.ci_high,
    }


def _headline(answers: Answers, config: Config, trends: pd.DataFrame) -> dict[str, Metric]:
    """Accuracy of the first ladder's rungs, its slope and its best budget."""
    first = (config.frames[0], config.resolutions[0])
    metrics = {
        f"accuracy_{condition['budget']}": metric_of(answers.column(condition), answers.videos)
        for condition in conditions(config)
        if (condition["frames"], condition["resolution"]) == first
    }
    row = trends[
        (trends["task"] == ALL) & (trends["frames"] == first[0]) & (trends["resolution"] == first[1])
    ]
    if len(row):
        told = row.iloc[0]
        n = int(told["n"])
        metrics["slope_per_rung"] = Metric(told["slope"], told["slope_low"], told["slope_high"], n)
        metrics["best_budget"] = Metric(told["best_budget"], told["best_low"], told["best_high"], n)
    return metrics
