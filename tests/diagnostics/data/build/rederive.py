"""The right answer and the evidence of a question, from its text and the tracks alone.

An independent road: it reads the English question and the JSON annotations second by second (in steps of
one frame), and shares no code with the pipeline.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from .conftest import FPS, SIZES

ORDINALS = ["first", "second", "third", "fourth", "fifth"]


def seconds(clock: str) -> float:
    hours, minutes, rest = clock.split(":")
    return 3600 * int(hours) + 60 * int(minutes) + float(rest)


def frames_in(case: dict[str, Any], windows: list[tuple[float, float]]) -> set[int]:
    return {f for f in range(case["frames"]) if any(low <= f / FPS < high for low, high in windows)}


def labels_at(case: dict[str, Any], track: str, frame: int) -> set[str]:
    return {row["label"] for row in case[track] if row["start"] <= frame / FPS < row["end"]}


def lesions_in_order(case: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(case["lesions"], key=lambda lesion: min(start for start, _ in lesion["windows"]))


def right(
    case: dict[str, Any], task: str, question: str, options: tuple[str, ...]
) -> tuple[set[str], set[int]]:
    """Right options among those offered, and the frames of the evidence (none for the whole video)."""
    return {
        **dict.fromkeys(("PR", "SD", "RL"), _window),
        **dict.fromkeys(("Site", "Hist", "Size"), _lesion),
    }.get(task, RULES.get(task))(case, task, question, options)


def _window(case, task, question, options):
    low, high = (seconds(written) for written in re.findall(r"\d+:\d\d:\d\d(?:\.\d+)?", question))
    asked = frames_in(case, [(low, high)])
    track = {"PR": "phases", "SD": "steps", "RL": "regions"}[task]
    seen = Counter(label for frame in asked for label in labels_at(case, track, frame))
    # One label, in every frame of the window.
    assert list(seen.values()) == [len(asked)], (question, seen)
    return set(seen) & set(options), asked


def _instrument(case, task, question, options):
    phase = re.search(r"the phase (.+) first begins", question)[1]
    onset = min(row["start"] for row in case["phases"] if row["label"] == phase)
    rows = [
        (max(row["start"], onset), min(row["end"], onset + 10), row["label"]) for row in case["instruments"]
    ]
    rows = [row for row in rows if row[0] < row[1]]
    return {label for _, _, label in rows} & set(options), frames_in(case, [row[:2] for row in rows])


def _lesion(case, task, question, options):
    lesions = lesions_in_order(case)
    named = re.search(r"the (\w+) lesion to come", question)
    lesion = lesions[ORDINALS.index(named[1])] if named else lesions[0]
    assert bool(named) == (len(lesions) > 1)
    key = {"Site": "site", "Hist": "histology", "Size": "size"}[task]
    return {lesion[key]} & set(options), frames_in(case, lesion["windows"])


def _largest(case, task, question, options):
    biggest = max(SIZES.index(lesion["size"]) for lesion in case["lesions"])
    sites = {lesion["site"] for lesion in case["lesions"] if SIZES.index(lesion["size"]) == biggest}
    return sites & set(options), _all_lesions(case)


def _how_many(case, task, question, options):
    return {str(len(case["lesions"]))} & set(options), _all_lesions(case)


def _all_lesions(case):
    return frames_in(case, [window for lesion in case["lesions"] for window in lesion["windows"]])


def _score(case, task, question, options):
    return {case["labels"]["bowel_preparation"]} & set(options), set()


def _longest(case, task, question, options):
    frames = Counter(label for f in range(case["frames"]) for label in labels_at(case, "phases", f))
    assert len({frames[option] for option in options}) == len(options)
    return {max(options, key=lambda option: frames[option])}, set()


def _first(case, task, question, options):
    assert all(option in question for option in options)
    for frame in range(case["frames"]):
        if seen := labels_at(case, "steps", frame) & set(options):
            return seen, set()
    raise AssertionError("none of the steps happens")


def _times(case, task, question, options):
    step = re.search(r"the step (.+) carried out", question)[1]
    on = [step in labels_at(case, "steps", frame) for frame in range(case["frames"])]
    begins = sum(now and not before for before, now in zip([False, *on], on, strict=False))
    return {str(begins)} & set(options), set()


RULES = {
    "IR": _instrument,
    "LLS": _largest,
    "LA": _how_many,
    "BPQ": _score,
    "WR": _longest,
    "RSR": _first,
    "CPR": _times,
}
