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
from pydantic import Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.experiments.asking import Asking
from diagnostics.experiments.conditions import Answers, baseline_table, measure_rows, metric_of
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome, record_rejected, records_of_run
from diagnostics.experiments.pairs import Pair, measure_pairs
from diagnostics.experiments.showing import Library, Shown
from diagnostics.report.order import order_figure
from diagnostics.report.style import save_figure
from diagnostics.scoring import statistics
from diagnostics.store.summary import Metric, Row, Summary
from diagnostics.strict import STRICT
from diagnostics.video.order import ORDERS, Order, padded, reorder

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
        window: of the local shuffle, in pieces.
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
        item = library.checked(pair.item)
        unit = library.frames_per_unit
        sampled = library.select(item)
        whole = padded(sampled, unit)
        notices = () if whole is sampled else ("repeated_frame: the last frame fills the last unit",)
        condition = pair.condition
        if condition["order"] == "original":
            return Shown(item, whole, jpeg=config.jpeg if "reencoded" in condition else None, notices=notices)
        ordered = reorder(
            whole,
            condition["order"],
            seed=condition.get("seed", 0),
            timestamps=condition["timestamps"],
            unit=unit if condition["by"] == "unit" else 1,
            blocks=config.blocks,
            window=config.window,
        )
        return Shown(item, ordered, notices=notices)

    with Asking(context) as asking:
        measure_pairs(context, pairs, asking, "Asking in every order", show=show)
    return _finish(context, config, pairs)


def _finish(context: Context, config: Config, pairs: Sequence[Pair]) -> Outcome:
    folder = context.folder
    record_rejected(context)
    records = records_of_run(context, pairs)
    done = [record for record in records if record.error is None]
    answers = Answers.of(done)
    items = {item.id: item for item in context.items}
    orders = order_table(answers, items, config)
    rows = [_as_row(dict(entry)) for _, entry in orders.iterrows()]
    metrics = _headline(orders)
    summary = Summary.of(context.config.experiment, records, metrics, [*rows, *measure_rows(done)])
    paths = {"summary": folder.write_summary(summary)}
    paths["orders"] = folder.write_table("orders", orders)[0]
    paths["measures"] = folder.write_table("measures", pd.DataFrame(summary.table()))[0]
    others = [condition for condition in conditions(config) if condition != ORIGINAL]
    paths["differences"] = folder.write_table(
        "differences", answers.differences(ORIGINAL, others, seed=config.seed)
    )[0]
    paths["baselines"] = folder.write_table(
        "baselines", baseline_table(list(items.values()), answers, [ORIGINAL])
    )[0]
    if len(answers.items):
        figures = folder.path / "figures"
        paths["figure"] = save_figure(order_figure(orders), figures / "temporal_order")[0]
    return Outcome(summary, paths, list(metrics))


def order_table(answers: Answers, items: Mapping[str, Item], config: Config) -> pd.DataFrame:
    """One row a group of items and kind of order, seeds averaged item by item.

    Columns: items (all, or a flag), order, by, timestamps; accuracy and its drop from the original with
    intervals and the sign-flip p over videos; `flip_rate` (answers other than the original's),
    `flip_floor` (those of the re-encoded original), `flips_beyond_floor` with its interval; `mirrored`
    (answers that name the other of two events, of items with two options whose answer depends on the
    order) with its interval.
    """
    groups = _groups(items)
    rows = []
    for group, members in groups.items():
        some = answers.among(members)
        if not some.items:
            continue
        original, floor = some.column(ORIGINAL), _flips(some, [REENCODED])
        rows.append(
            _order_row(some, items, group, {"order": "original"}, [ORIGINAL], original, floor, config.seed)
        )
        for kind, same in _kinds(config).items():
            told = dict(zip(("order", "by", "timestamps"), kind, strict=True))
            rows.append(_order_row(some, items, group, told, same, original, floor, config.seed))
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
    some: Answers,
    items: Mapping[str, Item],
    group: str,
    told: Mapping[str, Any],
    same: Sequence[Mapping[str, Any]],
    original: np.ndarray,
    floor: np.ndarray,
    seed: int,
) -> dict[str, Any]:
    correct = np.mean([some.column(condition) for condition in same], axis=0)
    flips = _flips(some, same)
    drop = statistics.paired_difference(original, correct, some.videos, seed=seed)
    beyond = statistics.paired_difference(floor, flips, some.videos, seed=seed)
    accuracy = metric_of(correct, some.videos)
    mirrored = metric_of(np.mean([_mirrored(some, items, one) for one in same], axis=0), some.videos)
    return {
        "items": group,
        **{"order": "", "by": "", "timestamps": "", **told},
        "accuracy": accuracy.mean,
        "ci_low": accuracy.ci_low,
        "ci_high": accuracy.ci_high,
        "change": drop.difference,
        "change_low": drop.ci_low,
        "change_high": drop.ci_high,
        "p": drop.p,
        "flip_rate": _mean(flips),
        "flip_floor": _mean(floor),
        "flips_beyond_floor": beyond.difference,
        "beyond_low": beyond.ci_low,
        "beyond_high": beyond.ci_high,
        "mirrored": mirrored.mean,
        "mirrored_low": mirrored.ci_low,
        "mirrored_high": mirrored.ci_high,
        "mirrored_n": mirrored.n,
        "n": accuracy.n,
        "videos": len(set(some.videos)),
    }


def _flips(some: Answers, same: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """For each item, how often the answer is another than the original's; NaN where either is missing."""
    original = some.letters(ORIGINAL)
    found = []
    for condition in same:
        flipped = statistics.flip_rate(original, some.letters(condition)).flipped
        measured = np.array(
            [
                some.record(item, ORIGINAL) is not None and some.record(item, condition) is not None
                for item in some.items
            ]
        )
        found.append(np.where(measured, flipped, np.nan))
    return np.mean(found, axis=0)


def _mirrored(some: Answers, items: Mapping[str, Item], condition: Mapping[str, Any]) -> np.ndarray:
    """1 where the answer names the other of the two events, 0 elsewhere; NaN where there are not two."""
    found = []
    for name in some.items:
        record, item = some.record(name, condition), items[name]
        two = len(item.options) == 2 and "order_dependent" in item.flags and item.answer is not None
        if record is None or not two:
            found.append(np.nan)
        else:
            found.append(float(record.answer is not None and record.answer != record.target))
    return np.array(found)


def _mean(values: np.ndarray) -> float:
    defined = values[np.isfinite(values)]
    return float(defined.mean()) if defined.size else float("nan")


def _as_row(entry: Mapping[str, Any]) -> Row:
    condition = {key: entry[key] for key in ("items", "order", "by", "timestamps") if entry[key]}
    return Row(
        measure="accuracy",
        value=entry["accuracy"],
        ci_low=entry["ci_low"],
        ci_high=entry["ci_high"],
        n=entry["n"],
        condition=condition,
    )


def _headline(orders: pd.DataFrame) -> dict[str, Metric]:
    """Accuracy and flips of all items, by unit with a normal clock."""
    metrics: dict[str, Metric] = {}
    whole = orders[(orders["items"] == "all") & orders["by"].isin(["", "unit"])]
    for _, row in whole[whole["timestamps"].isin(["", "slot"])].iterrows():
        numbers = (row["accuracy"], row["ci_low"], row["ci_high"], int(row["n"]))
        metrics[f"accuracy_{row['order']}"] = Metric(*numbers)
        if row["order"] != "original":
            beyond = (row["flips_beyond_floor"], row["beyond_low"], row["beyond_high"], int(row["n"]))
            metrics[f"flips_beyond_floor_{row['order']}"] = Metric(*beyond)
    return metrics
