"""A small MedHorizon in the released layout: one record a video, real H.264 files, evidence in a sidecar."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diagnostics.data.items import Item
from diagnostics.data.minihorizon import files
from diagnostics.data.minihorizon.settings import Config

__all__ = ["LEFT_OUT", "NO_EVIDENCE", "write_medhorizon"]

NO_EVIDENCE = ("real_colon-000/1", "us_study-000/7")
"""Questions that the sidecar has no row for."""

LEFT_OUT = (*NO_EVIDENCE, "real_colon-000/5")
"""Those, and one whose evidence is the whole video: an evidence experiment cannot ask them."""

_SETS = (
    # key, length in seconds, frames a second, height, width
    ("real_colon-000", 24.0, 4.0, 96, 128),
    ("us_study-000", 75.0, 8.0, 64, 96),
)
"""One video of fewer frames than most budgets have, one of more (600) than any; sizes and rates differ."""


def write_medhorizon(root: Path, questions: int = 9) -> list[str]:
    """Write question file, sidecar and videos below `root`; gives the arguments that make them a run's data.

    Beside good questions there are those of `LEFT_OUT`, one whose answer is no option, and a record whose
    video is missing.

    Args:
        questions: on each video, at most; 3 or more.
    """
    records: list[dict[str, Any]] = []
    sidecar: list[dict[str, Any]] = []
    for seed, (key, seconds, fps, height, width) in enumerate(_SETS):
        config = Config(
            split="test", n_videos=1, seconds=seconds, fps=fps, height=height, width=width,
            evidence_ratio=0.05, questions=questions, seed=40 + seed,
        )  # fmt: skip
        (procedure,), items = files.content(config, root)
        folder = key.split("-")[0]
        (root / folder).mkdir(parents=True, exist_ok=True)
        files.write_video(config.of_video(0), procedure, root / folder / f"{key}.mp4")
        records.append(_record(key, seconds, fps, [_question(item) for item in items]))
        sidecar += [_evidence(f"{key}/{place}", item) for place, item in enumerate(items)]
    records[0]["qa"].append({**records[0]["qa"][0], "answer": "E"})
    records.append({**_record("gone-000", 60.0, 30.0, records[0]["qa"][:1]), "organ": "lung"})
    rows = [row for row in sidecar if row["id"] not in LEFT_OUT]
    rows += [{"id": LEFT_OUT[-1], "kind": "global"}]
    rows += [{"id": "gone-000/0", "kind": "proxy", "seconds": [[3.0, 5.0]]}]
    _write(root / "mlvbench_test.jsonl", records)
    _write(root / "evidence.jsonl", rows)
    return ["data=medhorizon", f"data.root={root}", "data.evidence=evidence.jsonl"]


def _record(key: str, seconds: float, fps: float, qa: Sequence[dict[str, Any]]) -> dict[str, Any]:
    folder = key.split("-")[0]
    return {
        "key": key,
        "dataset": folder,
        "organ": "colon",
        "scene_type": "endoscopy",
        "duration_tier": "long",
        "video_path": f"{folder}/{key}.mp4",
        "num_frames": round(seconds * fps),
        "fps": fps,
        "duration_seconds": seconds,
        "split": "test",
        "qa": list(qa),
    }


def _question(item: Item) -> dict[str, Any]:
    return {
        "question": item.question,
        "options": [f"{letter}. {text}" for letter, text in zip(item.letters, item.options, strict=True)],
        "answer": item.answer,
        "task_id": item.task,
        "task_name": f"name of {item.task}",
        "category": item.task_family,
    }


def _evidence(item_id: str, item: Item) -> dict[str, Any]:
    assert item.evidence is not None
    windows = item.evidence.windows
    return {
        "id": item_id,
        "kind": "proxy",
        "seconds": [[window.start_seconds, window.end_seconds] for window in windows],
        "frames": [[window.start_frame, window.end_frame] for window in windows],
        "source": "tracks of MiniHorizon",
        "rule": "as built",
        "question": item.question,
    }


def _write(path: Path, records: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
