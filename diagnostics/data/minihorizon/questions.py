"""MiniHorizon's questions: its annotation tracks through the pipeline of `diagnostics.data.build`.

What is asked, how it is worded and what its evidence is worth are settings of that pipeline. Lessons of
the tiny model (`inquiry`) take their texts from the same settings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from diagnostics.data.build.annotations import VideoFacts
from diagnostics.data.build.audit import Audit
from diagnostics.data.build.pipeline import build_in_memory
from diagnostics.data.build.settings import Config as BuildConfig
from diagnostics.data.items import Item
from diagnostics.data.minihorizon.plan import PLACES
from diagnostics.data.minihorizon.procedure import LESION_SIZES, STEPS, Procedure
from diagnostics.data.minihorizon.render import EDGE, SLIP
from diagnostics.data.minihorizon.settings import Config
from diagnostics.data.minihorizon.tracks import as_tracks
from diagnostics.data.regions import EVIDENCE_REGIONS

__all__ = ["TASKS", "ask", "build_config", "question"]

TASKS = ("Hist", "Size", "Site", "RSR", "PR", "IR", "LLS", "CPR", "LA")
"""In the order in which a small model learns them."""

_OF_SEVERAL = ("LLS", "LA")
"""Asked only where procedures differ in their number of lesions."""

_WORDS = BuildConfig(wording={"Hist": "What colour is the {lesion}?"}, aliases={"histology": "colour"})
"""A lesion's colour stands for its histology (`tracks`)."""

_NAMES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        **{task: {"lesion": "lesion"} for task in ("Hist", "Size", "Site")},
        "LLS": {"attribute": _WORDS.shown("histology")},
    }
)
"""What every question of a task names."""


def question(task: str, **names: str) -> str:
    """The text of a question, as the pipeline words it.

    Args:
        task: one of `TASKS`.
        names: what the question is about: `start` and `end` of PR, `phase` of IR, `steps` of RSR, `step` of
            CPR; nothing of the others.
    """
    return _WORDS.question(task, **_NAMES.get(task, {}), **names)


def build_config(config: Config) -> BuildConfig:
    """The settings of the pipeline: one question of each task on a video, evidence exact."""
    tasks = tuple(task for task in TASKS if not (config.preset.single and task in _OF_SEVERAL))
    rate = float(config.rate)
    return replace(
        _WORDS,
        tasks=tasks,
        seed=config.seed,
        kinds=dict.fromkeys(TASKS, "exact"),
        # Four frames at least. Away from the ends of a phase, where one hue turns into the next: that takes
        # one percent of the video on either side, and at least a frame; a phase is a tenth of the video.
        window_seconds=float(math.ceil(max(2.0, 4 / rate))),
        windows_per_run=4,
        border_share=0.15,
        # An instrument enters with its phase and stays for at least a third of it.
        onset_seconds=2 / rate,
        onset_evidence="whole",
        lesion_subjects="only",
        largest_asks="histology",
        draws=len(STEPS),
        named_steps=2,
        per_procedure=1,
        tasks_per_procedure=config.most_questions,
        # Most steps are carried out once, and half of the procedures have one lesion. What the other tasks
        # ask about is dealt from decks or can be chosen evenly.
        even_answers=("CPR", "LA"),
    )


def ask(
    config: Config, procedures: Sequence[Procedure], root: Path, settings: BuildConfig | None = None
) -> tuple[list[Item], Audit]:
    """The questions on all procedures, video by video, and what became of every candidate.

    Args:
        config: the split.
        procedures: from `procedure.make_procedures`.
        root: the folder of the videos; none of them is opened.
        settings: of the pipeline; those of `build_config` by default.
    """
    by_file = {procedure.video: procedure for procedure in procedures}
    rate = float(config.rate)

    def planned(video: Path) -> VideoFacts:
        n_frames = by_file[video.name].n_frames
        return VideoFacts(n_frames / rate, rate, np.arange(n_frames) / rate)

    settings = settings or build_config(config)
    items, audit = build_in_memory(as_tracks(config, procedures), root, planned, settings)
    lesions = {name: [asdict(lesion) for lesion in one.lesions] for name, one in by_file.items()}
    items = [
        _with_truth(item, lesions[item.video_id], by_file[item.video_id].n_frames, config) for item in items
    ]
    items.sort(key=lambda item: (by_file[item.video_id].index, TASKS.index(item.task)))
    return items, audit


def _with_truth(item: Item, lesions: list[dict[str, Any]], n_frames: int, config: Config) -> Item:
    """The item with what the plan knows beside the annotations."""
    windows = item.evidence.windows if item.evidence is not None else ()
    shows = {(window.start_frame, window.end_frame) for window in windows}
    regions = [
        {"frames": [lesion["start_frame"], lesion["end_frame"]], "box": _lesion_box(lesion, config)}
        for lesion in lesions
        if (lesion["start_frame"], lesion["end_frame"]) in shows
    ]
    shown = sum((window.end_frame or 0) - (window.start_frame or 0) for window in windows)
    return replace(
        item,
        metadata={
            **item.metadata,
            "lesions": lesions,
            EVIDENCE_REGIONS: regions,
            "evidence_ratio": shown / n_frames,
            "fps": float(config.rate),
            "seed": config.seed,
        },
    )


def _lesion_box(lesion: Mapping[str, Any], config: Config) -> list[float]:
    """Where a lesion can be in any frame that shows it: top, left, bottom, right, in parts of the picture."""
    sides = np.array((config.height, config.width))
    reach = sides.min() * (LESION_SIZES[lesion["size"]] / 2 * EDGE + SLIP) + 1  # a soft edge
    centre = np.array(PLACES[lesion["place"]])
    corners = np.clip([centre - reach / sides, centre + reach / sides], 0.0, 1.0)
    return [round(float(value), 4) for value in corners.ravel()]
