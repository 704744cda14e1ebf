"""Check a downloaded benchmark before a long run: no model is loaded and torch is not imported.

Every video is opened, indexed and decoded in a few places, several at a time, each in a process that can be
killed. Its length is compared with the stated one, its items' evidence and clips with its length, their
answers with their options. What the loader refused is a problem too. A problem makes the command fail, once
the tables are written.

One record a video. Run again, the command goes on with the videos that are left, and checks those again that
had a problem, or whose file or questions are not what they were.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from typing import Any

import numpy as np
import pandas as pd
from pydantic import NonNegativeFloat, PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.data.verify import Problem, Tolerances, problems_of_items, stated_seconds
from diagnostics.data.written import STATED_FRAMES
from diagnostics.errors import VideoError
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome, record_rejected
from diagnostics.report.problems import (
    Found,
    counted,
    counts_table,
    evidence_table,
    problems_table,
    screen_table,
)
from diagnostics.store.canonical import condition_id, plain
from diagnostics.store.records import Record
from diagnostics.store.summary import Metric, Row, Summary
from diagnostics.strict import STRICT
from diagnostics.video.reading import FrameReader

__all__ = ["USES", "Config", "run"]

USES = ("exp", "data", "reading")
"""Groups of the configuration that this experiment reads."""

_VIDEO = condition_id({})


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        frames: how many are decoded of each video, spread evenly from the first to the last.
        tolerance_seconds: by which a video may differ from its stated duration, or
        tolerance_share: by this share of it, where that is more.
        evidence_seconds: by which evidence, or a clip, may end after its video.
    """

    frames: PositiveInt = 4
    tolerance_seconds: NonNegativeFloat = 2.0
    tolerance_share: NonNegativeFloat = 0.01
    evidence_seconds: NonNegativeFloat = 0.5

    @property
    def tolerances(self) -> Tolerances:
        """How much may differ."""
        return Tolerances(self.tolerance_seconds, self.tolerance_share, self.evidence_seconds)


def run(context: Context, config: Config) -> Outcome:
    """Check the videos that are left, then write the tables."""
    videos = _by_video(context.items)
    _check_videos(context, config, videos)
    record_rejected(context)
    known = {record.item_id: record for record in context.folder.records() if record.condition_id == _VIDEO}
    records = [known[name] for name in videos]
    found = [Found(record.item_id, problem) for record in records for problem in _problems(record)]
    found += [Found(str(error.path or ""), Problem.of(error)) for error in context.rejected]
    summary = _summary(context, videos, found)
    folder = context.folder
    paths = {
        "summary": folder.write_summary(summary),
        "problems": folder.write_table("problems", problems_table(found))[0],
        "counts": folder.write_table("problem_counts", counts_table(found))[0],
        "videos": folder.write_table("videos", _videos_table(videos, records))[0],
    }
    kinds = evidence_table(context.items)
    if kinds is not None:
        paths["evidence"] = folder.write_table("evidence_kinds", kinds)[0]
        totals = kinds.drop(columns="task").sum()
        told = ", ".join(f"{count} {kind}" for kind, count in totals.items())
        context.console.print(f"Evidence of {len(context.items)} items: {told}.", soft_wrap=True)
    if not found:
        context.say(f"{len(videos)} videos and {len(context.items)} items, nothing wrong.")
        return Outcome(summary, paths, tuple(summary.metrics))
    context.console.print(screen_table(found))
    files = len({entry.file for entry in found})
    failure = f"{counted(len(found), 'problem')} in {counted(files, 'file')}: see {paths['problems']}."
    return Outcome(summary, paths, tuple(summary.metrics), failure)


def _by_video(items: Sequence[Item]) -> dict[str, list[Item]]:
    videos: dict[str, list[Item]] = {}
    for item in items:
        videos.setdefault(item.video_id, []).append(item)
    return videos


# -- one video


def _check_videos(context: Context, config: Config, videos: dict[str, list[Item]]) -> None:
    folder, reading = context.folder, context.config.reading
    folder.expect(len(videos) + len(context.rejected))
    known = {record.pair: record for record in folder.records()}
    again = 0
    for name, items in videos.items():
        pair = (name, _VIDEO)
        if pair in folder.finished and (known[pair].warnings or known[pair].item_sha256 != _stamp(items)):
            folder.reopen(pair, "it had a problem, or is not what it was")
            again += 1
    if again:
        context.say(f"{again} videos had a problem or are not what they were: checked again.")
    left = {name: items for name, items in videos.items() if (name, _VIDEO) not in folder.finished}
    with (
        # Left in reverse order: the readers first, so that nobody waits for a decode that hangs.
        closing(_Pool(reading.workers)) as pool,
        FrameReader(
            reader=reading.reader,
            timeout_seconds=reading.timeout_seconds,
            workers=reading.workers,
            max_side=reading.max_side,
        ) as reader,
        context.progress("Checking", total=len(videos), done=len(videos) - len(left)) as advance,
    ):
        futures = [pool.threads.submit(_check, reader, config, name, items) for name, items in left.items()]
        for future in as_completed(futures):
            record = future.result()
            folder.append(record)
            advance(record.item_id[-40:])


class _Pool:
    """Threads whose waiting work is dropped when the block is left early."""

    def __init__(self, workers: int) -> None:
        self.threads = ThreadPoolExecutor(workers, thread_name_prefix="check")

    def close(self) -> None:
        """Drop what waits, and wait for what is begun."""
        self.threads.shutdown(cancel_futures=True)


def _check(reader: FrameReader, config: Config, name: str, items: Sequence[Item]) -> Record:
    """Open one video, decode some of it, and compare its items with it."""
    started = time.perf_counter()
    path = items[0].video
    fields: dict[str, Any] = {"item_id": name, "video_id": name, "item_sha256": _stamp(items)}
    fields |= {"task": "check", "reader": reader.reader}
    problems: list[Problem] = []
    decoded = 0
    try:
        index = reader.index(path)
    except VideoError as error:
        problems.append(Problem.of(error))
    else:
        fields |= {"source_fps": index.fps, "source_seconds": index.duration}
        fields["frame_size"] = (index.height, index.width)
        fields["measures"] = {"frames": float(index.n_frames)}
        problems += problems_of_items(items, index.duration, index.n_frames, config.tolerances)
        wanted = np.unique(np.linspace(0, index.n_frames - 1, config.frames).round().astype(np.int64))
        try:
            decoded = len(reader.read(path, wanted))
        except VideoError as error:
            problems.append(Problem.of(error))
    fields["measures"] = {**fields.get("measures", {}), "decoded": float(decoded)}
    warnings = tuple(
        f"{problem.kind}: {json.dumps({'item': problem.item, 'message': problem.message})}"
        for problem in problems
    )
    return Record(**fields, warnings=warnings, seconds={"check": time.perf_counter() - started})


def _problems(record: Record) -> list[Problem]:
    """The problems that a video's record tells of."""
    told = [warning.partition(": ") for warning in record.warnings]
    return [Problem(kind, **json.loads(details)) for kind, _, details in told]


def _stamp(items: Sequence[Item]) -> str:
    """Hash of what a verdict is about: the file as it is now, and what its items say."""
    path = items[0].video
    facts = path.stat() if path.exists() else None
    told = [
        [item.id, item.options, item.answer, item.evidence, item.clip, stated_seconds(item)]
        + [item.metadata[key] for key in (STATED_FRAMES,) if key in item.metadata]
        for item in items
    ]
    digest = hashlib.sha256(json.dumps(plain(told)).encode())
    digest.update(str(facts and (facts.st_size, facts.st_mtime_ns)).encode())
    return digest.hexdigest()


# -- all of them


def _summary(context: Context, videos: dict[str, list[Item]], found: Sequence[Found]) -> Summary:
    """Counts; the problems themselves are in the tables, not among the run's warnings and errors."""
    numbers = {
        "videos": len(videos),
        "items": len(context.items) + len(context.rejected),
        "problems": len(found),
        "files_with_problems": len({entry.file for entry in found}),
    }
    metrics = {name: Metric(float(value), None, None, len(videos)) for name, value in numbers.items()}
    rows = [
        Row(measure="problems", value=float(count), n=int(files), condition={"problem": kind})
        for kind, count, files, _ in counts_table(found).itertuples(index=False)
    ]
    return Summary(
        experiment=context.config.experiment,
        n_items=numbers["items"],
        n_pairs=len(videos) + len(context.rejected),
        n_failed=0,
        metrics=metrics,
        rows=rows,
    )


def _videos_table(videos: dict[str, list[Item]], records: Sequence[Record]) -> pd.DataFrame:
    """One row a video: how long, how many frames, of what size, how many problems."""
    rows = []
    for record in records:
        height, width = record.frame_size or (None, None)
        stated = next((s for item in videos[record.item_id] if (s := stated_seconds(item)) is not None), None)
        rows.append(
            {
                "video": record.item_id,
                "items": len(videos[record.item_id]),
                "seconds": record.source_seconds,
                "stated_seconds": stated,
                "fps": record.source_fps,
                "frames": record.measures.get("frames"),
                "width": width,
                "height": height,
                "decoded": record.measures["decoded"],
                "problems": len(record.warnings),
                "check_seconds": record.seconds["check"],
            }
        )
    return pd.DataFrame(rows)
