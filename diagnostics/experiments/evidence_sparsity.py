"""Evidence sparsity: what share of a video's frames holds the answer, and the benchmark card.

MedHorizon (arXiv 2605.06537), sections 3.3 and 6.4: r = |E| / N, the frames of a question's evidence windows
over the frames of its video, reported for localisable questions (`diagnostics.data.build.counting`: the
paper counts 1,035 of 1,253). Videos are indexed, not decoded, and no model is loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass

import probes
from diagnostics.data.build.counting import counted_as, source_of, task_of
from diagnostics.data.items import Item
from diagnostics.data.validation import check_evidence
from diagnostics.errors import DiagnosticsError, RunError
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome, record_rejected, records_of_run
from diagnostics.experiments.pairs import Pair, item_sha256, reopen_changed
from diagnostics.experiments.sparsity_paper import PAPER, beside_paper, nearest
from diagnostics.report.sparsity import sparsity_figure
from diagnostics.report.style import save_figure
from diagnostics.store.records import Failure, Record
from diagnostics.store.summary import Metric, Row, Summary
from diagnostics.strict import STRICT
from diagnostics.video.index import VideoIndex
from diagnostics.video.reading import FrameReader

__all__ = ["USES", "Config", "evidence_frames", "run"]

USES = ("exp", "data", "reading")
"""Groups of the configuration that this experiment reads."""

_HEADLINE = (
    "evidence_ratio",
    "evidence_ratio_median",
    "evidence_seconds",
    "video_hours",
    "items",
    "localisable",
    "exact",
    "proxy",
    "excluded",
)


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        bins: of the figure, equally wide on its logarithmic axis.
    """

    bins: Annotated[int, Field(ge=2, le=1000)] = 30


def run(context: Context, config: Config) -> Outcome:
    """Measure every item from its video's index, then write summary, tables and the figure."""
    pairs = [Pair(item) for item in context.items]
    _measure_items(context, pairs)
    record_rejected(context)
    records = records_of_run(context, pairs)
    done = [record for record in records if record.error is None]
    items = {item.id: item for item in context.items}
    card = _card(done, items)
    metrics, rows = _metrics(done, items)
    summary = Summary.of(context.config.experiment, records, metrics | _totals(done, items), rows)
    folder = context.folder
    paths = {"summary": folder.write_summary(summary)}
    paths["table"] = folder.write_table("evidence_ratio", summary.table())[0]
    paths["benchmark card"] = folder.write_table("benchmark_card", card)[0]
    paths["answer letters"] = folder.write_table("answer_letters", _letters(context.items))[0]
    found_by_answer = any(item.evidence and item.evidence_kind == "label-run" for item in context.items)
    if context.config.data.loader == "medhorizon" and not found_by_answer:
        paths["beside the paper"] = _beside_paper(context, done, items)
    if any(record.measures.get("evidence_ratio") for record in done):
        paths["figure"] = _draw(folder.path, done, items, config)
    return Outcome(summary, paths, _HEADLINE)


def _beside_paper(context: Context, records: Sequence[Record], items: Mapping[str, Item]) -> Path:
    """MedHorizon's own figures: in a table, and the nearest way of taking its lesions on the screen."""
    table = beside_paper(records, items)
    near = nearest(table)
    if near is not None:
        mean = float(table.loc[table["nearest"], "ours"].iloc[0])
        context.console.print(
            f"Lesions taken by {near!r} come nearest to the paper's mean of {PAPER['mean ratio']:.3%}, at "
            f"{mean:.3%}. The paper does not say how it took them: near is not equal.",
            soft_wrap=True,
        )
    return context.folder.write_table("beside_the_paper", table)[0]


def evidence_frames(item: Item, index: VideoIndex) -> int:
    """How many frames of the video lie in the item's evidence windows (which do not overlap).

    Windows that know their frames are counted by them, the others by the times of the video's frames.
    """
    total = 0
    for window in item.evidence.windows if item.evidence else ():
        if window.start_frame is not None and window.end_frame is not None:
            total += window.end_frame - window.start_frame
        else:
            first, last = np.searchsorted(
                index.seconds, (window.start_seconds, window.end_seconds), side="left"
            )
            total += int(last - first)
    return total


def _measure_items(context: Context, pairs: Sequence[Pair]) -> None:
    """A record for each item that has none yet: from its video's index, or what is wrong with it."""
    folder, reading = context.folder, context.config.reading
    folder.expect(len(pairs) + len(context.rejected))
    reopen_changed(context, pairs)
    pending = [pair.item for pair in pairs if pair.key not in folder.finished]
    with (
        FrameReader(timeout_seconds=reading.timeout_seconds, workers=reading.workers) as reader,
        context.progress("Opening videos", len(context.items), len(context.items) - len(pending)) as advance,
    ):
        for item in pending:
            folder.append(_record(item, reader))
            advance()


def _record(item: Item, reader: FrameReader) -> Record:
    fields: dict[str, Any] = {
        "item_id": item.id,
        "item_sha256": item_sha256(item),
        "video_id": item.video_id,
        "task": item.task,
        "task_family": item.task_family,
        "target": item.answer,
    }
    try:
        index = reader.index(item.video)
        checked = check_evidence(item, index.duration, index.n_frames)
    except RunError:
        raise
    except DiagnosticsError as error:
        return Record(**fields, error=Failure.of(error.about(item.id)))
    ratio = float("nan")
    warnings: tuple[str, ...] = ()
    if checked.evidence is not None and checked.evidence.windows:
        frames = evidence_frames(checked, index)
        ratio = frames / index.n_frames
        if frames == 0:
            warnings = ("no_evidence_frame: the evidence windows lie between two frames",)
    elif counted_as(item) != "excluded":
        warnings = ("no_evidence: the task is localisable, but the item has no evidence window",)
    counted = counted_as(item) != "excluded"
    return Record(
        **fields,
        source_fps=index.fps,
        source_seconds=index.duration,
        measures={
            "evidence_ratio": ratio if counted else float("nan"),
            "evidence_seconds": ratio * index.duration if counted else float("nan"),
            "window_ratio": ratio,
        },
        warnings=warnings,
    )


# -- numbers


def _column(records: Sequence[Record], name: str) -> list[float]:
    values = (record.measures.get(name) for record in records)
    return [float("nan") if value is None else value for value in values]


def _mean_and_median(records: Sequence[Record], name: str) -> dict[str, Metric]:
    """Mean with its interval over videos; median, whose n is the same and which has no interval."""
    values = _column(records, name)
    mean = probes.clustered_mean(values, [record.video_id for record in records])
    defined = [value for value in values if np.isfinite(value)]
    median = float(np.median(defined)) if defined else None
    return {
        name: Metric(mean.mean, mean.ci_low, mean.ci_high, mean.n),
        f"{name}_median": Metric(median, None, None, len(defined)),
    }


def _metrics(records: Sequence[Record], items: Mapping[str, Item]) -> tuple[dict[str, Metric], list[Row]]:
    """The headline over localisable questions, and every number by task: `window_ratio` of all that have
    windows, so also of LLS and LA."""
    groups: dict[str, list[Record]] = {"all": list(records)}
    for record in records:
        groups.setdefault(task_of(items[record.item_id]) or "(none)", []).append(record)
    rows, metrics = [], {}
    for task, group in groups.items():
        told: dict[str, Metric] = {}
        for name in ("evidence_ratio", "evidence_seconds", "window_ratio"):
            told |= _mean_and_median(group, name)
        if task == "all":
            metrics = told
        rows += [
            Row(measure=name, value=m.mean, ci_low=m.ci_low, ci_high=m.ci_high, n=m.n, task=task)
            for name, m in told.items()
        ]
    return metrics, rows


def _totals(records: Sequence[Record], items: Mapping[str, Item]) -> dict[str, Metric]:
    """Counts over the data set; hours are those of the videos that could be opened."""
    counted = Counter(counted_as(item) for item in items.values())
    lengths = {record.video_id: record.source_seconds or 0.0 for record in records}
    totals: dict[str, float] = {
        "items": len(items),
        "videos": len({item.video_id for item in items.values()}),
        "videos_opened": len(lengths),
        "video_hours": sum(lengths.values()) / 3600,
        "localisable": counted["exact"] + counted["proxy"],
        "exact": counted["exact"],
        "proxy": counted["proxy"],
        "excluded": counted["excluded"],
    }
    return {name: Metric(float(value), None, None, len(items)) for name, value in totals.items()}


# -- tables


def _card(records: Sequence[Record], items: Mapping[str, Item]) -> pd.DataFrame:
    """The benchmark card: videos, hours and items of all, and by source, task, evidence and letter."""
    lengths = {record.video_id: record.source_seconds or 0.0 for record in records}
    groups: dict[tuple[str, str], list[Item]] = {}
    for item in items.values():
        for key in (
            ("all", ""),
            ("source", source_of(item) or "(none)"),
            ("task", task_of(item) or "(none)"),
            ("counted as", counted_as(item)),
            ("evidence", item.evidence_kind or "(none)"),
            ("answer", item.answer if item.options and item.answer else "(none)"),
        ):
            groups.setdefault(key, []).append(item)
    order = {"all": 0, "source": 1, "task": 2, "counted as": 3, "evidence": 4, "answer": 5}
    rows = []
    for (group, name), members in sorted(groups.items(), key=lambda entry: (order[entry[0][0]], entry[0][1])):
        videos = {item.video_id for item in members}
        hours = sum(lengths.get(video, 0.0) for video in videos) / 3600
        rows.append((group, name, len(videos), hours, len(members), len(members) / len(items)))
    return pd.DataFrame(rows, columns=["group", "name", "videos", "hours", "items", "share"])


def _letters(items: Sequence[Item]) -> pd.DataFrame:
    """How often each letter is right, by task."""
    answered = [item for item in items if item.options and item.answer]
    counts = pd.crosstab(
        pd.Series([task_of(item) or "(none)" for item in answered], name="task", dtype=object),
        pd.Series([item.answer for item in answered], name="answer", dtype=object),
    )
    return counts.rename_axis(columns=None).reset_index()


def _draw(folder: Path, records: Sequence[Record], items: Mapping[str, Item], config: Config) -> Path:
    ratios: dict[str, list[float]] = {"exact": [], "proxy": []}
    for record in records:
        value = record.measures.get("evidence_ratio")
        if value is not None:
            ratios[counted_as(items[record.item_id])].append(value)
    figure = sparsity_figure(ratios, n_items=len(items), bins=config.bins)
    return save_figure(figure, folder / "figures" / "evidence_sparsity")[0]
