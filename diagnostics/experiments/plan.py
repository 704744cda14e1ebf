"""What will a run cost? Asked before it is started, of `+exp=benchmark` or `+exp=attention_drift`.

Counts come from the files' indices, the checkpoint's configuration and its processor: no weights are
read. Frames to decode, visual and prompt tokens and bytes on the disk are meant to be what the run then has;
times are estimates. They rest on a rate of decoding that is measured here, on some seconds of the run's own
videos, and on a share of a GPU's peak rate that is assumed (`exp.utilisation`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PositiveFloat
from pydantic.dataclasses import dataclass

from diagnostics.errors import ConfigError
from diagnostics.experiments import load_experiment
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome
from diagnostics.experiments.planning import (
    PlannedItem,
    PlannedVideo,
    Unplanned,
    calibrate,
    plan_videos,
    prompt_of,
    rate_at,
    source_of,
    stands_in,
)
from diagnostics.experiments.rehearsal import Disk, answer_disk, drift_disk
from diagnostics.models.backends import engine_settings
from diagnostics.models.cost import Memory, Shape, Work, shape_of
from diagnostics.models.gpus import Gpu, gpu_named
from diagnostics.models.loading import LoadedModel, outline_model
from diagnostics.models.outline import without_pixels
from diagnostics.report.plan import (
    COUNT,
    ESTIMATE,
    Line,
    item_table,
    screen_table,
    totals_table,
    unplanned_table,
)
from diagnostics.store.summary import Metric, Occurrences, Row, Summary
from diagnostics.strict import STRICT, from_mapping
from diagnostics.video.reading import FrameReader

__all__ = ["ANY_ENGINE", "Config", "run"]

ANY_ENGINE = True
"""Nothing is asked."""

_REHEARSED = 4
"""Items whose files are written for once, from the shortest prompt to the longest."""
_USABLE = 0.9
"""Share of a GPU's memory that a model may fill."""
_HOUR, _GIB = 3600.0, float(1 << 30)


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        of: the experiment that is planned. parameters: its own.
        gpu: a name in `models/gpus.csv`.
        utilisation: share of the GPU's peak rates that is taken for reached.
        hours_per_shard: of a suggested shard, at most.
        calibrate: time decoding on some frames of the run's own videos; without, there are no core-hours.
        limit_gpu_hours, limit_core_hours, limit_gib: past one of them the plan is refused.
    """

    of: Literal["benchmark", "attention_drift"] = "benchmark"
    parameters: dict[str, Any] = field(default_factory=dict)
    gpu: str = "h100"
    utilisation: Annotated[float, Field(gt=0, le=1)] = 0.4
    hours_per_shard: PositiveFloat = 4.0
    calibrate: bool = True
    limit_gpu_hours: PositiveFloat | None = None
    limit_core_hours: PositiveFloat | None = None
    limit_gib: PositiveFloat | None = None


def run(context: Context, config: Config) -> Outcome:
    """Plan every item, then write tables and summary.

    Raises:
        ConfigError: the planned experiment's parameters are wrong, there is no such GPU, or core-hours are
            limited and not estimated.
        CheckpointError: the checkpoint's configuration or processor cannot be loaded.
    """
    gpu = gpu_named(config.gpu)
    parameters = from_mapping(load_experiment(config.of).Config, config.parameters, "exp.parameters")
    if config.of != "benchmark" and context.config.backend.name != "hf":
        raise ConfigError(f"{config.of} looks inside the model.", remedy="Choose backend=hf.")
    if config.limit_core_hours is not None and not config.calibrate:
        raise ConfigError(
            "exp.limit_core_hours needs a rate of decoding.", remedy="Leave exp.calibrate at true."
        )
    settings = engine_settings(context.config.backend)
    sharing = bool(getattr(settings, "sharing", True)) and config.of == "benchmark"
    with context.waiting(f"reading the configuration of {context.config.model.name}"):
        loaded = without_pixels(outline_model(context.config.model))
        shape = shape_of(loaded)
    reading = context.config.reading
    with (
        FrameReader(reading.reader, reading.timeout_seconds, reading.workers, reading.max_side) as reader,
        context.progress("Planning", total=len(context.items)) as advance,
    ):
        videos = list(plan_videos(context, loaded, reader, getattr(settings, "together", 16), advance))
        rates = calibrate(reader, videos) if config.calibrate and any(video.items for video in videos) else {}
    items = [one for video in videos for one in video.items]
    disks = _disks(context, config, parameters, loaded, videos)
    runs = _runs(config, parameters, videos, sharing=sharing)
    plan = _Plan(context, config, shape, gpu, videos, runs, disks, rates)
    unplanned = [one for video in videos for one in video.unplanned]
    unplanned += [Unplanned(error.item_id or "", str(error.path or ""), error) for error in context.rejected]
    return _finish(context, config, plan, items, unplanned)


@plain_dataclass(frozen=True)
class _Runs:
    """Prefills of a run: as it will be, and were nothing shared between the questions of a video."""

    planned: Sequence[Work]
    alone: Sequence[Work]
    replies: int
    """Groups of questions that are answered together, token by token."""


def _runs(config: Config, parameters: Any, videos: Sequence[PlannedVideo], *, sharing: bool) -> _Runs:
    alone = [one.work for video in videos for one in video.items]
    if config.of == "benchmark":
        planned = [work for video in videos for work in video.groups] if sharing else alone
        return _Runs(planned, alone, len(planned))
    # A prefill for the video, one for its control; pictures that were encoded are kept for the next question.
    passes = 1 if parameters.control == "none" else 2
    planned = [work for video in videos for work in _encoded_once(video)]
    return _Runs(planned * passes, alone * passes, len(alone))


def _encoded_once(video: PlannedVideo) -> list[Work]:
    works: list[Work] = []
    before = None
    for one in video.items:
        works.append(Work([] if one.selection == before else [one.grid], one.n_prompt))
        before = one.selection
    return works


def _disks(
    context: Context, config: Config, parameters: Any, loaded: LoadedModel, videos: Sequence[PlannedVideo]
) -> list[Disk]:
    """Bytes of each item's files: those of a few, and by the number of visual tokens those between."""
    found = [(one, video.index) for video in videos for one in video.items if video.index is not None]
    if not found:
        return []
    order = np.argsort([one.n_visual for one, _ in found], kind="stable")
    places = order[np.unique(np.linspace(0, len(found) - 1, min(_REHEARSED, len(found))).round().astype(int))]
    weighed: dict[int, list[Disk]] = {}
    for place in places:
        one, index = found[place]
        prompt, source = (
            prompt_of(context, loaded, one.item, one.selection, one.frame_size),
            source_of(one, index),
        )
        if config.of == "benchmark":
            disk = answer_disk(context, source, prompt, one.n_visual)
        else:
            disk = drift_disk(context, parameters, source, prompt, loaded)
        weighed.setdefault(one.n_visual, []).append(disk)
    known = sorted(weighed)
    wanted = [one.n_visual for one, _ in found]

    def between(part: str) -> np.ndarray:
        values = [np.mean([getattr(disk, part) for disk in weighed[tokens]]) for tokens in known]
        return np.interp(wanted, known, values)

    columns = (between(part).tolist() for part in ("record", "tensors", "thumbnails"))
    return [Disk(*parts) for parts in zip(*columns, strict=True)]


class _Plan:
    """The sums."""

    def __init__(
        self,
        context: Context,
        config: Config,
        shape: Shape,
        gpu: Gpu,
        videos: Sequence[PlannedVideo],
        runs: _Runs,
        disks: Sequence[Disk],
        rates: dict[tuple[int, int], float],
    ) -> None:
        self.context, self.config, self.shape, self.gpu = context, config, shape, gpu
        self.videos, self.runs, self.disks, self.rates = videos, runs, disks, rates
        self.new_tokens = context.config.backend.max_new_tokens
        self.flops = sum(shape.flops(work) for work in runs.planned)
        self.flops_alone = sum(shape.flops(work) for work in runs.alone)

    @property
    def peak(self) -> Memory:
        """Of the prompt, or the group of prompts, that needs most."""
        every = [self.shape.memory(work, self.new_tokens) for work in self.runs.planned]
        return max(every, key=lambda memory: memory.total, default=Memory(self.shape.weight_bytes, 0, 0))

    @property
    def gpus(self) -> int:
        """GPUs that the weights need."""
        return max(1, math.ceil(self.shape.weight_bytes / (_USABLE * self.gpu.memory)))

    @property
    def gpu_hours(self) -> float:
        """Prefills by operations, replies by reading all weights for each token of as long a reply as may be.

        Layers that are spread over GPUs take turns: each GPU counts for all of the time.
        """
        reached = self.config.utilisation
        prefill = self.flops / (self.gpu.flops * reached)
        reply = self.runs.replies * self.new_tokens * self.shape.weight_bytes / (self.gpu.bandwidth * reached)
        return self.gpus * (prefill + reply) / _HOUR

    @property
    def core_hours(self) -> float | None:
        """Of decoding; None without a measured rate."""
        if not self.rates:
            return None
        seconds = sum(
            video.pictures / rate_at(self.rates, (video.index.height, video.index.width))
            for video in self.videos
            if video.index is not None
        )
        return seconds / _HOUR

    @property
    def shards(self) -> int:
        """So many that each ends within `hours_per_shard`, decoding beside the GPU; videos at most."""
        decode = (self.core_hours or 0.0) / self.context.config.reading.workers
        hours = max(self.gpu_hours / self.gpus, decode)
        videos = sum(1 for video in self.videos if video.items)
        return max(1, min(videos, math.ceil(hours / self.config.hours_per_shard)))

    def bytes_of(self, part: str) -> float:
        """Bytes on the disk of `record`, `tensors` or `thumbnails`."""
        return float(sum(getattr(disk, part) for disk in self.disks))

    @property
    def disk(self) -> float:
        """Bytes on the disk."""
        return sum(self.bytes_of(part) for part in ("record", "tensors", "thumbnails"))

    def lines(self, items: Sequence[PlannedItem]) -> list[Line]:
        """The totals, in the order of the screen."""
        gpu, peak = self.gpu.title, self.peak
        shown = {(one.item.video, frame) for one in items for frame in one.selection.frame_indices.tolist()}
        fits = peak.total <= _USABLE * self.gpu.memory * self.gpus
        return [
            Line("videos", sum(1 for video in self.videos if video.items), COUNT),
            Line("items", len(items), COUNT),
            Line("frames_shown", len(shown), COUNT, "each frame of a video once"),
            Line("frames_to_decode", sum(v.pictures for v in self.videos), COUNT, "from key frames on"),
            Line("visual_tokens", sum(one.n_visual for one in items), COUNT, "of the prompts, one by one"),
            Line("prompt_tokens", sum(one.n_prompt for one in items), COUNT, "of the prompts, one by one"),
            Line("prefilled_tokens", sum(work.tokens for work in self.runs.planned), COUNT, "as run"),
            Line("prefill_flops", self.flops, COUNT, "as run"),
            Line("prefill_flops_alone", self.flops_alone, COUNT, "were nothing shared within a video"),
            Line("weight_bytes", peak.weights, COUNT),
            Line("cache_bytes", peak.cache, COUNT, "of the largest prompt, or group of prompts"),
            Line("activation_bytes", peak.activations, ESTIMATE, "of the same"),
            Line(
                "fits",
                int(fits),
                ESTIMATE,
                f"into {self.gpus} x {gpu}" if fits else f"not into {self.gpus} x {gpu}",
            ),
            Line("gpus", self.gpus, COUNT, f"{gpu}, for the weights"),
            Line(
                "gpu_hours",
                self.gpu_hours,
                ESTIMATE,
                f"{gpu} at {self.config.utilisation:g} of its bf16 peak",
            ),
            Line("core_hours", self.core_hours, ESTIMATE, self._told_rates()),
            Line("record_bytes", self.bytes_of("record"), COUNT),
            Line("tensor_bytes", self.bytes_of("tensors"), COUNT),
            Line("thumbnail_bytes", self.bytes_of("thumbnails"), ESTIMATE),
            Line("disk_bytes", self.disk, COUNT, "tables and figures come on top"),
            Line("shards", self.shards, ESTIMATE, f"of at most {self.config.hours_per_shard:g} hours"),
        ]

    def _told_rates(self) -> str:
        if not self.rates:
            return "not timed"
        told = [f"{rate:.0f} pictures/s at {width}x{height}" for (height, width), rate in self.rates.items()]
        return f"decoding, timed here: {', '.join(told)}"

    def passed(self) -> list[str]:
        """Limits that the run would pass."""
        config = self.config
        compared = (
            ("exp.limit_gpu_hours", config.limit_gpu_hours, self.gpu_hours, "GPU-hours"),
            ("exp.limit_core_hours", config.limit_core_hours, self.core_hours, "core-hours"),
            ("exp.limit_gib", config.limit_gib, self.disk / _GIB, "GiB"),
        )
        return [
            f"{value:.3g} {unit} are past {name}={limit:g}"
            for name, limit, value, unit in compared
            if limit is not None and value is not None and value > limit
        ]


def _finish(
    context: Context,
    config: Config,
    plan: _Plan,
    items: Sequence[PlannedItem],
    unplanned: Sequence[Unplanned],
) -> Outcome:
    lines, folder = plan.lines(items), context.folder
    memories = [plan.shape.memory(one.work, plan.new_tokens) for one in items]
    flops = [plan.shape.flops(one.work) for one in items]
    summary = _summary(context, lines, len(items), unplanned)
    paths = {
        "summary": folder.write_summary(summary),
        "plan": folder.write_table("plan", item_table(items, flops, memories, plan.disks))[0],
        "totals": folder.write_table("totals", totals_table(lines))[0],
        "unplanned": folder.write_table("unplanned", unplanned_table(unplanned))[0],
    }
    context.console.print(screen_table(f"{config.of}: {len(items)} items", lines))
    if stands_in(context):
        context.say(
            f"{context.config.sampling.rule} looks at pictures: as many evenly spaced frames stand in for "
            "those it will choose; decoding its candidates is counted, scoring them is not."
        )
    passed = plan.passed()
    failure = f"Refused: {'; '.join(passed)}." if passed else None
    return Outcome(summary, paths, (), failure)


def _summary(
    context: Context, lines: Sequence[Line], n_items: int, unplanned: Sequence[Unplanned]
) -> Summary:
    kinds: dict[str, list[Unplanned]] = {}
    for one in unplanned:
        kinds.setdefault(type(one.error).__name__, []).append(one)
    return Summary(
        experiment=context.config.experiment,
        n_items=n_items + len(unplanned),
        n_pairs=n_items + len(unplanned),
        n_failed=len(unplanned),
        errors={
            kind: Occurrences(len(found), found[0].item_id, str(found[0].error))
            for kind, found in sorted(kinds.items())
        },
        metrics={
            line.name: Metric(None if line.value is None else float(line.value), None, None, n_items)
            for line in lines
        },
        rows=[
            Row(
                measure=line.name,
                value=None if line.value is None else float(line.value),
                n=n_items,
                condition={"kind": line.kind},
            )
            for line in lines
        ],
    )
