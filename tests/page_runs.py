"""A finished run with everything its page can show, hostile texts among it; no model takes part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from diagnostics.data.items import Evidence, Item, Window
from diagnostics.store import Failure, Metric, Record, RunFolder, Summary, config_hash
from diagnostics.store.asked import write_items
from diagnostics.video.selection import Slot

from .finished_runs import CONFIG, attention_tensors, finished_record

__all__ = ["HOSTILE", "PICTURED_SLOTS", "TASKS", "write_long_run", "write_page_run"]

HOSTILE = {
    "markup": '</script><script>window.hacked = 1</script><img src="x" onerror="window.hacked = 2">',
    "entity": "&lt;b&gt; & <b>bold</b> <!-- comment",
    "long": "unbroken" * 60,
    "right to left": "ما هو لون الآفة؟ \u202eright to left",
    "emoji": "👩🏽‍⚕️ 🏴‍☠️ 🫀 shown?",
    "template": "{{ 7 * 7 }} {% for %} ${7 * 7}",
    "lines": "two\nlines\u2028and\u2029more\x00\x1b[31m",
    "open comment": "<!-- <script never closed </script ",
}
"""Questions, each of which is also part of the id, an option and the task of its item."""

TASKS = ("order", "colour", "count")
PICTURED_SLOTS = (0, 1, 4, 6, 8)


def _item(number: int, hostile: Sequence[str]) -> Item:
    text = hostile[number] if number < len(hostile) else f"What is shown in {number}?"
    return Item(
        id=f"item-{number}" if number >= len(hostile) else f"{number} {text}",
        video=Path("video.mp4"),
        video_id=f"video-{number // 2}",
        question=text,
        options=("first", text, "third"),
        answer="C",
        task=TASKS[number % 3],
        evidence=Evidence((Window(6.0, 7.5),)),
    )


def write_page_run(folder: Path, n_items: int = 12, *, failed: int = 1, pictures: bool = True) -> Path:
    """Items of three tasks: every third is right, the fifth's reply has no letter, the last `failed` fail.

    `evidence_log_lift` rises with the number from -1 on, undefined for every fourth; thumbnails are
    plain grey, slot by slot lighter.
    """
    items = [_item(number, list(HOSTILE.values())) for number in range(n_items)]
    with RunFolder.open(folder, CONFIG, config_hash(CONFIG), experiment="attention_drift") as run:
        run.expect(n_items)
        for number, item in enumerate(items):
            tensors = attention_tensors(item.id, number)
            record = finished_record(
                item.id,
                item.video_id,
                tensors,
                task=item.task,
                answer=None if number == 4 else "C" if number % 3 == 0 else "B",
                correct=number % 3 == 0,
                raw=f"The answer: {item.question}",
                option_logprobs={"A": -2.0, "B": -0.5, "C": -1.5},
                measures={
                    "evidence_log_lift": None if number % 4 == 3 else number / 4 - 1,
                    "gini": (number * 7 % 11) / 11,
                    "gini@role=last": 0.25,
                },
                warnings=(f"fewer_frames: 11 shown of 12 asked for, {item.question}",) if number == 2 else (),
            )
            if pictures:
                levels = np.array([20 * slot for slot in PICTURED_SLOTS], np.uint8)
                frames = np.broadcast_to(levels[:, None, None, None], (len(levels), 40, 60, 3))
                run.save_thumbnails(item.id, record.condition_id, frames, PICTURED_SLOTS)
            if number >= n_items - failed:
                error = Failure("OutOfMemoryError", f"Out of memory with 12 frames: {HOSTILE['markup']}")
                run.append(_failed(record, error))
            else:
                run.save(record, tensors)
        run.write_summary(_summary(run.records()))
        run.write_table(
            "left_out", pd.DataFrame({"item": ["left-1", "left-2"], "reason": ["no evidence"] * 2})
        )
    write_items(folder, items)
    (folder / "figures").mkdir()
    ramp = np.tile(np.linspace(40, 250, 700).astype(np.uint8), (300, 1))
    Image.fromarray(ramp).save(folder / "figures" / "attention_drift.png")
    return folder


def write_long_run(folder: Path, n_slots: int = 200, every: int = 20) -> Path:
    """One failed item, shown so many frames half a second apart, told from 100 s on; every so manieth has a
    picture, slots 41 to 44 show evidence, slot 0 is a blank one."""
    item = replace(_item(99, ()), id="long item", video_id="video", evidence=Evidence((Window(20.5, 22.5),)))
    slots = [Slot("video", slot, slot / 2, 100 + slot / 2) for slot in range(n_slots)]
    slots[0] = Slot("blank", -1, float("nan"), 100.0)
    record = Record(
        item_id=item.id,
        video_id="video",
        slots=tuple(slots),
        error=Failure("ObservationError", "It failed."),
    )
    with RunFolder.open(folder, CONFIG, config_hash(CONFIG), experiment="attention_drift") as run:
        pictured = list(range(0, n_slots, every))
        run.save_thumbnails(
            item.id, record.condition_id, np.zeros((len(pictured), 40, 60, 3), np.uint8), pictured
        )
        run.append(record)
        run.write_summary(_summary(run.records()))
    write_items(folder, [item])
    return folder


def _failed(record: Record, error: Failure) -> Record:
    return replace(record, error=error, answer=None, correct=None, raw=None, measures={}, axes={}, slots=())


def _summary(records: Sequence[Record]) -> Summary:
    metrics = {
        "accuracy": Metric(0.25, 0.1, 0.4, 11),
        "evidence_log_lift": Metric(0.375, 0.21, 0.5, 9),
        "undefined_one": Metric(None, None, None, 0),
        "gini": Metric(0.4321, None, None, 11),
    }
    return Summary.of("attention_drift", records, metrics)
