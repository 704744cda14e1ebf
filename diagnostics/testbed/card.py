"""The model card: how the checkpoint was made and what it scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
import transformers

from diagnostics.data.minihorizon.settings import Config
from diagnostics.testbed.curriculum import Stage
from diagnostics.testbed.measure import FLOORS, Score

__all__ = ["write_card"]


def write_card(
    folder: Path,
    curriculum: Sequence[Stage],
    training: Config,
    testing: Config,
    scores: Sequence[Score],
    minutes: float,
) -> None:
    """Write `README.md`, for people, and `scores.json`, for tests, beside the weights."""
    stages = [_stage(stage) for stage in curriculum]
    floors = ", ".join(f"{task} {floor:.0%}" for task, floor in FLOORS.items())
    text = f"""---
license: mit
library_name: transformers
pipeline_tag: video-text-to-text
---

# Tiny Qwen3-VL on MiniHorizon

A real Qwen3-VL of four layers, trained from scratch by `python -m diagnostics.testbed` on simulated
procedures (`data=minihorizon data.split=train`), decoded from their mp4 files. It is a testbed for
measurements, of no use for anything else: it knows a few dozen words, pictures of 96 x 96 pixels, and
the questions of MiniHorizon's splits.

Seed {training.seed}, {training.videos} training videos, AdamW in float32, torch {torch.__version__},
transformers {transformers.__version__}, {minutes:.0f} minutes of steps.

| stage | steps | last, cooling down | batch | tasks | units | evenly spread frames |
|---|---|---|---|---|---|---|
{chr(10).join(stages)}

One lesson in eight of the video stages is a look-up in text alone; two in five of the others have no options.

## Accuracy

On {testing.videos} videos of the test split (seed {testing.seed}), the evidence being among the frames.
*Enriched* frames are uniform with half of the slots given to the evidence; *uniform* ones are evenly
spaced over the video, and of the items those count whose every evidence window is hit. Chance is 25% with
options (RSR: 50%). Without options the first word of the answer counts. In brackets the number of items.
Floors, with options and on enriched frames: {floors}.

{chr(10).join(_table(scores))}
"""
    (folder / "README.md").write_text(text, encoding="utf-8")
    entries = [asdict(score) for score in scores]
    (folder / "scores.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


def _stage(stage: Stage) -> str:
    tasks = ", ".join(name for name, _ in stage.tasks) or "look-ups"
    units = f"{stage.units[0]} to {stage.units[1]}" if stage.tasks else "none"
    spread = f"{stage.spread:.0%}" if stage.tasks else "none"
    told = (stage.name, stage.steps, stage.cool_down, stage.batch, tasks, units, spread)
    return f"| {' | '.join(map(str, told))} |"


def _table(scores: Sequence[Score]) -> list[str]:
    """A row for each task, a column for each way to ask and to show."""
    columns = list(dict.fromkeys((score.form, score.budget, score.frames) for score in scores))
    titles = [
        f"{'options' if form == 'choice' else 'no options'}, {budget} {frames}"
        for form, budget, frames in columns
    ]
    cells = {
        (score.task, (score.form, score.budget, score.frames)): f"{score.share:.1%} ({score.n})"
        for score in scores
    }
    rows = [["task", *titles], ["---"] * (len(columns) + 1)]
    for task in dict.fromkeys(score.task for score in scores):
        rows.append([task, *(cells[task, column] for column in columns)])
    return [f"| {' | '.join(row)} |" for row in rows]
