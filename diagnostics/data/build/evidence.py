"""Evidence retrieval by the rules of MedHorizon's Table 5 (arXiv 2605.06537).

| Families | Evidence |
|---|---|
| PR, SD, RL | the label's intervals inside the window that is asked about |
| IR | the instrument's intervals inside a short window after the phase begins |
| Site, Hist, Size | the lesion's windows (a proxy: its attribute need not show in all of them) |
| LLS, LA | the union of all lesions' windows |
| BPQ, WR, RSR, CPR | the whole video (RSR, CPR: the named steps' rows where `Config.kinds` says so) |

A `Finding` says what the annotations hold, also where that is no good question: two labels in a window,
a tie, a row in doubt. Judging it is the filter's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from diagnostics.data.build.annotations import SAME_TIME, Interval, Procedure, Track
from diagnostics.data.build.findings import Ask, Finding, clock, stream
from diagnostics.data.build.lesion_evidence import attributes, largest, lesion_count
from diagnostics.data.build.reasons import NearBorderError
from diagnostics.data.build.settings import TASKS, Config
from diagnostics.data.build.spaces import Spaces
from diagnostics.data.build.workflow_evidence import counted, examination, first, longest

__all__ = ["retrieve"]


def retrieve(procedures: Sequence[Procedure], spaces: Spaces, config: Config) -> list[Finding]:
    """Everything the annotations offer to ask about, by family, procedure and time."""
    rules: Mapping[str, Callable[[Ask], Iterator[Finding]]] = {
        **dict.fromkeys(("PR", "SD", "RL"), _windows),
        "IR": _onsets,
        **dict.fromkeys(("Site", "Hist", "Size"), attributes),
        "LLS": largest,
        "LA": lesion_count,
        "BPQ": examination,
        "WR": longest,
        "RSR": first,
        "CPR": counted,
    }
    return [
        finding
        for task in TASKS
        if task in config.tasks
        for procedure in procedures
        for finding in rules[task](Ask(task, procedure, spaces, config))
    ]


# -- PR, SD, RL


def _windows(ask: Ask) -> Iterator[Finding]:
    task, procedure, spaces, config = ask.task, ask.procedure, ask.spaces, ask.config
    name = TASKS[task].track
    track = procedure.track(name)
    space = spaces.of(procedure.source, name)
    for number, run in enumerate(track.runs):
        for draw in range(config.windows_per_run):
            random = stream(config.seed, procedure.name, task, number, draw)
            start, end = _draw_window(run, config, random)
            found = track.within(start, end)
            covered = sum(high - low for stretches in found.values() for low, high in stretches)
            one = next(iter(found.values())) if len(found) == 1 else []
            before, after = _neighbours(track, start, end)
            doubt = "a dropped row touches the window" if track.in_doubt(start, end) else ""
            if track.lost and covered < end - start - SAME_TIME:
                doubt = "a row of unknown time was dropped, and the window is not wholly labelled"
            yield Finding(
                task,
                procedure,
                subject={"start": f"{start:.3f}", "end": f"{end:.3f}"},
                right=tuple(found),
                space=space,
                windows=tuple(one),
                asked=(start, end),
                coverage=covered / (end - start) if len(found) == 1 else 0.0,
                before=before,
                after=after,
                doubt=doubt,
                excluded=_near_border(run, start, end, config),
                names={"start": clock(start), "end": clock(end)},
            )


def _near_border(run: Interval, start: float, end: float, config: Config) -> NearBorderError | None:
    """Why a window inside the run comes too near to an end of it; None where it does not."""
    inside = start >= run.start - SAME_TIME and end <= run.end + SAME_TIME
    wanted, left = config.border_share * (run.end - run.start), min(start - run.start, run.end - end)
    if not inside or left >= wanted - SAME_TIME:  # one that leaves its run is refused for what it shows
        return None
    return NearBorderError(
        f"The window keeps {left:g} s from where {run.label!r} begins or ends, {wanted:g} are wanted.",
        remedy="Nothing to do; more windows_per_run try more often.",
    )


def _draw_window(run: Interval, config: Config, random: np.random.Generator) -> tuple[float, float]:
    """A window on the grid whose middle lies in the run; it may reach beyond the run, or the video."""
    grid, half = config.grid_seconds, config.window_seconds / 2
    low, high = np.ceil((run.start - half) / grid), np.floor((run.end - half) / grid)
    if low > high:  # a run shorter than the grid
        low = high = round(((run.start + run.end) / 2 - half) / grid)
    start = round(float(random.integers(int(low), int(high) + 1)) * grid, 3)
    return start, round(start + config.window_seconds, 3)


def _neighbours(track: Track, start: float, end: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labels outside `[start, end)`, each on the side where it is nearest, nearest first."""
    distances: dict[str, tuple[float, bool]] = {}
    for interval in track.intervals:
        if interval.overlap(start, end) > SAME_TIME:
            continue
        earlier = interval.end <= start + SAME_TIME
        distance = start - interval.end if earlier else interval.start - end
        if interval.label not in distances or distance < distances[interval.label][0]:
            distances[interval.label] = (distance, earlier)
    ordered = sorted(distances, key=lambda label: distances[label][0])
    return (
        tuple(label for label in ordered if distances[label][1]),
        tuple(label for label in ordered if not distances[label][1]),
    )


# -- IR


def _onsets(ask: Ask) -> Iterator[Finding]:
    task, procedure, spaces, config = ask.task, ask.procedure, ask.spaces, ask.config
    phases, instruments = procedure.track("phases"), procedure.track("instruments")
    if not instruments.intervals and instruments.complete:
        return
    for phase in phases.labels:
        if phase in config.ignored:
            continue
        start = phases.first(phase)
        end = start + config.onset_seconds
        found = {k: v for k, v in instruments.within(start, end).items() if k not in config.ignored}
        one = next(iter(found.values())) if len(found) == 1 else []
        if config.onset_evidence == "whole" and len(found) == 1:
            one = _whole_runs(instruments, next(iter(found)), one)
        before, after = _neighbours(instruments, start, end)
        doubt = "" if phases.complete else "a row of phases was dropped, so an earlier one may begin it"
        if instruments.lost or instruments.in_doubt(start, end):
            doubt = "a row of instruments was dropped"
        yield Finding(
            task,
            procedure,
            subject={"phase": phase},
            right=tuple(found),
            space=spaces.of(procedure.source, "instruments"),
            windows=tuple(one),
            asked=(start, end),
            before=before,
            after=after,
            doubt=doubt,
            order_dependent=sum(run.label == phase for run in phases.runs) > 1,
            names={"phase": config.shown(phase)},
        )


def _whole_runs(
    track: Track, label: str, stretches: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """The runs of a label that these stretches are parts of."""
    return [
        (run.start, run.end)
        for run in track.runs
        if run.label == label and any(run.overlap(*stretch) > SAME_TIME for stretch in stretches)
    ]
