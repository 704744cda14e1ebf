"""Right answers and evidence of MiniHorizon's questions, from their words and the annotation tracks alone.

An independent road: it reads the English question and the JSON of `tracks.json` frame by frame, and shares
no code with generator or pipeline.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

SIZES = ["tiny", "small", "medium", "large"]
ORDINALS = ["first", "second", "third", "fourth"]
ATTRIBUTES = {"Site": "site", "Hist": "histology", "Size": "size"}


def seconds(clock: str) -> int:
    hours, minutes, rest = map(int, clock.split(":"))
    return 3600 * hours + 60 * minutes + rest


class Case:
    """One procedure of the tracks, as labels by frame."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told, self.frames = told, range(told["frames"])

    def lit(self, start: float, end: float) -> set[int]:
        """Frames shown in [start, end)."""
        return {f for f in self.frames if start - 1e-9 <= f / self.told["fps"] < end - 1e-9}

    def rows(self, track: str, label: str | None = None) -> list[set[int]]:
        """Frames of each row, in order of time."""
        rows = sorted(self.told[track], key=lambda row: row["start"])
        return [self.lit(row["start"], row["end"]) for row in rows if label in (None, row["label"])]

    def lesions(self) -> list[tuple[dict[str, Any], set[int]]]:
        """Each with its frames, in order of time."""
        ordered = sorted(self.told["lesions"], key=lambda lesion: lesion["windows"][0][0])
        return [(one, set().union(*(self.lit(*window) for window in one["windows"]))) for one in ordered]


def retell(task: str, question: str, options: tuple[str, ...], case: Case) -> tuple[set[str], set[int]]:
    """The options that are right, and the frames that show why."""
    lesions = case.lesions()
    everywhere = set().union(*(frames for _, frames in lesions)) if lesions else set()
    if task in ATTRIBUTES:
        named = re.search(r"the (\w+) lesion to come into view", question)
        assert bool(named) == (len(lesions) > 1), question
        lesion, frames = lesions[ORDINALS.index(named[1])] if named else lesions[0]
        return {lesion[ATTRIBUTES[task]]} & set(options), frames
    if task == "LLS":
        assert question == "What is the colour of the largest lesion?"
        assert len(lesions) > 1
        largest = max(SIZES.index(lesion["size"]) for lesion, _ in lesions)
        right = {lesion["histology"] for lesion, _ in lesions if SIZES.index(lesion["size"]) == largest}
        return right & set(options), everywhere
    if task == "LA":
        return {str(len(lesions))} & set(options), everywhere
    if task == "PR":
        start, end = (seconds(clock) for clock in re.findall(r"\d+:\d\d:\d\d", question))
        asked = case.lit(start, end)
        rows = Counter()
        for row in case.told["phases"]:
            rows[row["label"]] += len(asked & case.lit(row["start"], row["end"]))
        return {label for label, count in rows.items() if count} & set(options), asked
    if task == "IR":
        phase = re.search(r"the phase (.+) first begins", question)[1]
        onset = min(case.rows("phases", phase)[0])
        labels = {row["label"] for row in case.told["instruments"]}
        right = {label for label in labels if any(onset in row for row in case.rows("instruments", label))}
        (label,) = right
        return right & set(options), next(row for row in case.rows("instruments", label) if onset in row)
    if task == "RSR":
        named = re.search(r"first: (.+) or (.+)\?", question).groups()
        assert set(named) == set(options)
        begins = {step: min(case.rows("steps", step)[0]) for step in named}
        first = min(begins.values())
        frames = set().union(*(case.rows("steps", step)[0] for step in named))
        return {step for step in named if begins[step] == first}, frames
    assert task == "CPR"
    step = re.search(r"the step (.+) carried out", question)[1]
    on = set().union(*case.rows("steps", step))
    return {str(sum(frame - 1 not in on for frame in on))} & set(options), on


def shown(item: Any) -> set[int]:
    """The frames of an item's evidence windows."""
    return {f for window in item.evidence.windows for f in range(window.start_frame, window.end_frame)}


def truth(item: Any) -> str:
    return item.options[item.letters.index(item.answer)]
