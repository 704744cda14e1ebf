"""Temporal order: does the answer depend on the order of the frames, and should it?

MedHorizon (arXiv 2605.06537), section 4.4 and 8 (RQ3): the same frames in their order, reversed, in shuffled
blocks, shuffled nearby, shuffled throughout. Ours beside it: whole temporal units are moved as well as
single frames, shown times stay or travel, several seeds are averaged, and items whose answer depends on the
order are told apart from those that name a time and those that do neither. A flip of the answer counts
only beyond the flips of a perturbation that means nothing: the same frames re-encoded as JPEG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.experiments.asking import Asking
from diagnostics.experiments.conditions import Answers, metric_of
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome
from diagnostics.experiments.pairs import Pair, measure_pairs
from diagnostics.experiments.showing import Library, Shown
from diagnostics.experiments.write_up import asked_of, write_up
from diagnostics.report.order import order_figure
from diagnostics.scoring import statistics
from diagnostics.store.summary import Metric, Row
from diagnostics.strict import STRICT
from diagnostics.video.order import ORDERS, Order, reorder, whole_units

__all__ = ["Config", "conditions", "run"]

ORIGINAL: Mapping[str, Any] = {"order": "original"}
REENCODED: Mapping[str, Any] = {"order": "original", "reencoded": "jpeg"}
_NO_FLAG = "unflagged"


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        orders: which, beside the original.
        by: what is moved: temporal units of the model (`unit`), or single frames (`frame`, the paper's).
        timestamps: `slot` leaves the shown times in place, `carry` moves them with the pictures.
        seeds: so many draws of each drawn order, averaged.
        blocks: of the block shuffle.
        window: of the local shuffle, in frames; as many whole units where units are moved (two at least), so
            that both move pictures as far.
        jpeg: quality of the re-encoding that sets the floor of flips.
        seed: of the first draw, and of the statistics.
    """

    orders: tuple[Order, ...] = ORDERS[1:]
    by: tuple[Literal["unit", "frame"], ...] = ("unit", "frame")
    timestamps: tuple[Literal["slot", "carry"], ...] = ("slot", "carry")
    seeds: PositiveInt = 3
    blocks: Annotated[int, Field(ge=2)] = 8
    window: Annotated[int, Field(ge=2)] = 16
    jpeg: Annotated[int, Field(ge=1, le=100)] = 90
    seed: NonNegativeInt = 0


def conditions(config: Config) -> list[Mapping[str, Any]]:
    """The original, its re-encoding, and every order by every piece, clock and seed."""
    found = [ORIGINAL, REENCODED]
    for order in config.orders:
        if order == "original":
            continue
        drawn = [{}] if order == "reversed" else [{"seed": config.seed + n} for n in range(config.seeds)]
        found += [
            {"order": order, "by": by, "timestamps": clock, **seed}
            for by in config.by
            for clock in config.timestamps
            for seed in drawn
        ]
    return found


def run(context: Context, config: Config) -> Outcome:
    """Ask every item under every order, then write summary, tables and figure."""
    pairs = [Pair(item, condition) for item in context.items for condition in conditions(config)]

    def show(pair: Pair, library: Library) -> Shown:
        item, condition = library.checked(pair.item), pair.condition
        whole, notices = whole_units(library.select(item), library.frames_per_unit)
        if condition["order"] == "original":
            return Shown(item, whole, jpeg=config.jpeg if "reencoded" in condition else None, notices=notices)
        unit = library.frames_per_unit if condition["by"] == "unit" else 1
        ordered = reorder(
            whole,
            condition["order"],
            seed=condition.get("seed", 0),
            timestamps=condition["timestamps"],
            unit=unit,
            blocks=config.blocks,
            window=max(2, config.window // unit),
        )
        if np.array_equal(ordered.frame_indices, whole.frame_indices):
            notices = (*notices, "unmoved: there is one piece, or all are the same picture")
        return Shown(item, ordered, notices=notices)

    with Asking(context) as asking:
        measure_pairs(context, pairs, asking, "Asking in every order", show=show)
    return _finish(context, config, pairs)


def _finish(context: Context, config: Config, pairs: Sequence[Pair]) -> Outcome:
    asked = asked_of(context, pairs)
    orders = order_table(asked.answers, asked.items, config)
    others = [condition for condition in conditions(config) if condition != ORIGINAL]
    differences = asked.answers.differences(ORIGINAL, others, seed=config.seed)
    return write_up(
        context,
        asked,
        metrics=_headline(orders, config),
        tables={"orders": orders, "differences": differences},
        draw=lambda: order_figure(orders),
        baselines=[ORIGINAL],
        rows=[row for _, entry in orders.iterrows() for row in _as_rows(dict(entry))],
    )


def order_table(answers: Answers, items: Mapping[str, Item], config: Config) -> pd.DataFrame:
    """One row a group of items and kind of order, seeds averaged item by item.

    Columns: items (all, or a flag), order, by, timestamps; accuracy with its interval; `change` from the
    original (below zero where accuracy drops) with its interval, the sign-flip p over videos and the same
    adjusted over the orders of a group (Holm); `flip_rate` (answers other than the original's),
    `flip_floor` (those of the re-encoded original), `flips_beyond_floor` with its interval and p, all of
    items with options; `mirrored` (answers that name the other of two events, of items with two options
    whose answer depends on the order) with its interval.
    """
    groups = _groups(items)
    rows = []
    for group, members in groups.items():
        some = answers.among(members)
        if not some.items:
            continue
        found = []
        for kind, same in ({("original", "", ""): [ORIGINAL]} | _kinds(config)).items():
            told = dict(zip(("order", "by", "timestamps"), kind, strict=True))
            found.append({"items": group, **told, **_order_row(some, items, same, config.seed)})
        moved = [row["p"] if row["order"] != "original" else float("nan") for row in found]
        adjusted = statistics.holm(moved).adjusted
        rows += [{**row, "p_holm": p} for row, p in zip(found, adjusted, strict=True)]
    return pd.DataFrame(rows)


def _kinds(config: Config) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Conditions that differ in their seed alone."""
    kinds: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for condition in conditions(config):
        if "by" in condition:
            key = (condition["order"], condition["by"], condition["timestamps"])
            kinds.setdefault(key, []).append(condition)
    return kinds


def _groups(items: Mapping[str, Item]) -> dict[str, set[str]]:
    groups: dict[str, set[str]] = {"all": set(items)}
    for name, item in items.items():
        for flag in sorted(item.flags) or [_NO_FLAG]:
            groups.setdefault(flag, set()).add(name)
    return groups


def _order_row(
    some: Answers, items: Mapping[str, Item], same: Sequence[Mapping[str, Any]], seed: int
) -> dict[str, Any]:
    """The numbers of a row: of conditions that differ in their seed alone, averaged item by item."""
    original, floor = some.column(ORIGINAL), _flips(some, items, [REENCODED])
    correct = np.mean([some.column(condition) for condition in same], axis=0)
    flips = _flips(some, items, same)
    change = statistics.paired_difference(original, correct, some.videos, seed=seed)
    beyond = statistics.paired_difference(floor, flips, some.videos, seed=seed)
    accuracy = metric_of(correct, some.videos)
    mirrored = metric_of(np.mean([_mirrored(some, items, one) for one in same], axis=0), some.videos)
    return {
        "accuracy": accuracy.mean,
        "ci_low": accuracy.ci_low,
        "ci_high": accuracy.ci_high,
        "change": change.difference,
        "change_low": change.ci_low,
        "change_high": change.ci_high,
        "p": change.p,
        "flip_rate": beyond.mean_b,
        "flip_floor": beyond.mean_a,
        "flips_beyond_floor": beyond.difference,
        "beyond_low": beyond.ci_low,
        "beyond_high": beyond.ci_high,
        "p_beyond": beyond.p,
        "mirrored": mirrored.mean,
        "mirrored_low": mirrored.ci_low,
        "mirrored_high": mirrored.ci_high,
        "mirrored_n": mirrored.n,
        "n": accuracy.n,
        "flips_n": beyond.n,
        "videos": len(set(some.videos)),
    }


def _flips(
    some: Answers, items: Mapping[str, Item], same: Sequence[Mapping[str, Any]]
) -> Float[np.ndarray, " item"]:
    """For each item, how often the letter is another than the original's; NaN where either was not measured
    and where there are no options, hence no letters."""
    original = some.letters(ORIGINAL)
    found = []
    for condition in same:
        flipped = statistics.flip_rate(original, some.letters(condition)).flipped
        lettered = [
            bool(items[item].options) and None not in pair
            for item, *pair in zip(some.items, some.under(ORIGINAL), some.under(condition), strict=True)
        ]
        found.append(np.where(lettered, flipped, np.nan))
    return np.mean(found, axis=0)


def _mirrored(
    some: Answers, items: Mapping[str, Item], condition: Mapping[str, Any]
) -> Float[np.ndarray, " item"]:
    """1 where the answer names the other of the two events, 0 elsewhere; NaN where there are not two."""
    found = []
    for name, record in zip(some.items, some.under(condition), strict=True):
        item = items[name]
        two = len(item.options) == 2 and "order_dependent" in item.flags and item.answer is not None
        if record is None or not two:
            found.append(np.nan)
        else:
            found.append(float(record.answer is not None and record.answer != record.target))
    return np.array(found)


_TOLD = {
    "accuracy": ("accuracy", "ci_low", "ci_high", "n"),
    "flips_beyond_floor": ("flips_beyond_floor", "beyond_low", "beyond_high", "flips_n"),
    "mirrored": ("mirrored", "mirrored_low", "mirrored_high", "mirrored_n"),
}
"""Columns of each measure in `order_table`."""


def _metric(entry: Mapping[Any, Any], measure: str) -> Metric:
    value, low, high, n = (entry[column] for column in _TOLD[measure])
    return Metric(value, low, high, int(n))


def _as_rows(entry: Mapping[str, Any]) -> list[Row]:
    condition = {key: entry[key] for key in ("items", "order", "by", "timestamps") if entry[key]}
    metrics = {measure: _metric(entry, measure) for measure in _TOLD}
    return [
        Row(measure=name, value=m.mean, ci_low=m.ci_low, ci_high=m.ci_high, n=m.n, condition=condition)
        for name, m in metrics.items()
        if m.n
    ]


def _headline(orders: pd.DataFrame, config: Config) -> dict[str, Metric]:
    """Accuracy and flips of all items, by the first piece and clock: units and a normal clock by default."""
    metrics: dict[str, Metric] = {}
    if orders.empty:
        return metrics
    shown = orders["by"].isin(["", config.by[0]]) & orders["timestamps"].isin(["", config.timestamps[0]])
    for row in orders[(orders["items"] == "all") & shown].to_dict("records"):
        metrics[f"accuracy_{row['order']}"] = _metric(row, "accuracy")
        if row["order"] != "original":
            metrics[f"flips_beyond_floor_{row['order']}"] = _metric(row, "flips_beyond_floor")
    return metrics
