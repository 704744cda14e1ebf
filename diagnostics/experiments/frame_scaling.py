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
from jaxtyping import Int
from pydantic import NonNegativeInt, PositiveInt, field_validator
from pydantic.dataclasses import dataclass

from diagnostics.errors import ConfigError
from diagnostics.experiments.asking import Asking
from diagnostics.experiments.conditions import ALL, Answers, baseline_table, measure_rows, metric_of
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome, record_rejected, records_of_run
from diagnostics.experiments.pairs import Pair, measure_pairs
from diagnostics.experiments.showing import Library, Shown
from diagnostics.report.scaling import scaling_figure
from diagnostics.report.style import save_figure
from diagnostics.scoring import statistics
from diagnostics.store.summary import Metric, Summary
from diagnostics.strict import STRICT
from diagnostics.video.selection import Selection

__all__ = ["Config", "conditions", "nested", "run"]

_COVERAGE = "any_window_hit"


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        budgets: frames, ascending.
        frames: `uniform` over the video at each budget (the paper's), `nested`: subsets of the largest one's.
        resolutions: `budget`: the checkpoint's own pixel budget (the paper's); `fixed`: each frame has the
            pixels that the largest budget leaves it, so that units have equally many tokens throughout.
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
    if "budget" in context.config.sampling.parameters and context.config.sampling.rule != "uniform":
        raise ConfigError(
            f"exp=frame_scaling chooses its own frames; sampling={context.config.sampling.rule} is not used.",
            remedy="Leave sampling at uniform; set exp.budgets.",
        )
    pairs = [Pair(item, condition) for item in context.items for condition in conditions(config)]
    largest = config.budgets[-1]

    def show(pair: Pair, library: Library) -> Shown:
        item, budget = library.checked(pair.item), pair.condition["budget"]
        if pair.condition["frames"] == "uniform":
            selection = library.uniform(item, budget)
        else:
            selection = _rung(library.uniform(item, largest), config.budgets, budget)
        pixels = library.frame_pixels(largest) if pair.condition["resolution"] == "fixed" else None
        return Shown(item, selection, frame_pixels=pixels)

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
    folder = context.folder
    record_rejected(context)
    records = records_of_run(context, pairs)
    done = [record for record in records if record.error is None]
    answers = Answers.of(done)
    ladders = ladder_table(answers, config)
    trends = trend_table(answers, config)
    metrics = _headline(answers, config, trends)
    summary = Summary.of(context.config.experiment, records, metrics, measure_rows(done))
    paths = {"summary": folder.write_summary(summary)}
    for name, table in (
        ("ladders", ladders),
        ("trends", trends),
        ("measures", summary.table()),
        ("baselines", baseline_table(context.items, answers, conditions(config))),
    ):
        paths[name] = folder.write_table(name, table)[0]
    if len(answers.items):
        figure = scaling_figure(ladders, trends)
        paths["figure"] = save_figure(figure, folder.path / "figures" / "frame_scaling")[0]
    return Outcome(summary, paths, list(metrics))


def ladder_table(answers: Answers, config: Config) -> pd.DataFrame:
    """One row a rung: accuracy with interval, share of items with evidence shown, tokens of a unit."""
    rows = []
    for condition in conditions(config):
        accuracy = metric_of(answers.column(condition), answers.videos)
        shown = metric_of(answers.column(condition, _COVERAGE), answers.videos)
        records = [answers.record(item, condition) for item in answers.items]
        tokens = [
            record.tokens_per_unit for record in records if record is not None and record.tokens_per_unit
        ]
        rows.append(
            {
                **condition,
                "accuracy": accuracy.mean,
                "ci_low": accuracy.ci_low,
                "ci_high": accuracy.ci_high,
                "evidence_shown": shown.mean,
                "shown_low": shown.ci_low,
                "shown_high": shown.ci_high,
                "tokens_per_unit": float(np.mean(tokens)) if tokens else float("nan"),
                "n": accuracy.n,
            }
        )
    return pd.DataFrame(rows)


def trend_table(answers: Answers, config: Config) -> pd.DataFrame:
    """One row a ladder and task: slope per rung and its test, the best budget and its interval, conversion.

    `conversion` is the gain in accuracy from the first to the last rung over the gain in the share of
    items whose evidence is shown: 1 where everything newly shown was turned into right answers; undefined
    where coverage did not grow.
    """
    rows = []
    tasks = [ALL, *(dict.fromkeys(answers.tasks) if len(set(answers.tasks)) > 1 else ())]
    for task in tasks:
        some = answers if task == ALL else answers.of_task(task)
        for frames in config.frames:
            for resolution in config.resolutions:
                ladder = [
                    c for c in conditions(config) if (c["frames"], c["resolution"]) == (frames, resolution)
                ]
                correct = np.column_stack([some.column(condition) for condition in ladder])
                shown = np.column_stack([some.column(condition, _COVERAGE) for condition in ladder])
                rows.append(
                    {
                        "task": task or "(none)",
                        "frames": frames,
                        "resolution": resolution,
                        **_trend(correct, shown, config, some.videos),
                    }
                )
    return pd.DataFrame(rows)


def _trend(correct: np.ndarray, shown: np.ndarray, config: Config, videos: Sequence[str]) -> dict[str, Any]:
    trend = statistics.monotone_trend(correct, config.budgets, videos, seed=config.seed)
    best = statistics.best_level(correct, config.budgets, videos, seed=config.seed)
    gains = np.column_stack([correct[:, -1] - correct[:, 0], shown[:, -1] - shown[:, 0]])

    def ratio(accuracy: np.ndarray, coverage: np.ndarray) -> float:
        mean = float(np.mean(coverage))
        return float(np.mean(accuracy)) / mean if mean > 0 else float("nan")

    conversion = statistics.cluster_bootstrap(
        ratio, gains[:, 0], gains[:, 1], clusters=videos, seed=config.seed
    )
    return {
        "slope": trend.slope,
        "slope_low": trend.ci_low,
        "slope_high": trend.ci_high,
        "p_rising": trend.p_rising,
        "p_falling": trend.p_falling,
        "best_budget": best.level,
        "best_low": best.ci_low,
        "best_high": best.ci_high,
        "conversion": float(conversion.estimate),
        "conversion_low": float(conversion.ci_low),
        "conversion_high": float(conversion.ci_high),
        "n": trend.n,
        "videos": trend.n_clusters,
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
