"""Families whose evidence is the whole video: BPQ, WR, RSR, CPR; of RSR and CPR, where the configuration
says so, the rows of the steps that the question names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnostics.data.build.annotations import SAME_TIME, Track
from diagnostics.data.build.findings import Ask, Finding, stream
from diagnostics.data.build.settings import Config
from diagnostics.data.build.spaces import Labels, Numbers

__all__ = ["counted", "examination", "first", "longest"]

_UNKNOWN = {"steps": "..."}
"""What a candidate names that never gets a question: too few labels to ask about."""


def examination(ask: Ask) -> Iterator[Finding]:
    """BPQ: each label of the whole examination."""
    task, procedure, spaces, config = ask.task, ask.procedure, ask.spaces, ask.config
    for name, value in procedure.labels.items():
        declared = spaces.declared(procedure.source, name)
        space: Labels | Numbers = Labels(declared, ordered=True) if declared else Numbers(1.0, lowest=0.0)
        if declared is None and isinstance(value, str):
            space = spaces.of(procedure.source, name)
        yield Finding(
            task,
            procedure,
            subject={"label": name},
            right=(value,),
            space=space,
            names={"label": config.aliases.get(name, name.replace("_", " "))},
        )


def _asked_of_all(track: Track, config: Config) -> list[str]:
    return [label for label in track.labels if label not in config.ignored]


def _track_doubt(track: Track, name: str) -> str:
    return "" if track.complete else f"a row of {name} was dropped"


def longest(ask: Ask) -> Iterator[Finding]:
    """WR: one phase against shorter ones, those of the nearest totals first."""
    task, procedure, spaces, config = ask.task, ask.procedure, ask.spaces, ask.config
    track = procedure.track("phases")
    totals = {label: track.total(label) for label in _asked_of_all(track, config)}
    shorter = {
        label: sorted(
            (other for other in totals if totals[other] < (1 - config.margin) * totals[label] - SAME_TIME),
            key=lambda other: -totals[other],
        )
        for label in totals
    }
    if totals and max(map(len, shorter.values())) < config.options - 1:
        yield _too_few(
            ask, f"{len(totals)} phases, of which no {config.options - 1} are clearly shorter than one"
        )
    able = [label for label in totals if len(shorter[label]) >= config.options - 1]
    random = stream(config.seed, procedure.name, task)
    for place in sorted(random.permutation(len(able))[: config.draws]):
        label = able[place]
        as_long = frozenset(other for other in totals if other not in (*shorter[label], label))
        yield Finding(
            task,
            procedure,
            subject={"phase": label},
            right=(label,),
            space=spaces.of(procedure.source, "phases"),
            others=as_long,
            near=tuple(shorter[label]),
            doubt=_track_doubt(track, "phases"),
        )


def first(ask: Ask) -> Iterator[Finding]:
    """RSR: steps that follow each other, the first of which is the answer."""
    task, procedure, spaces, config = ask.task, ask.procedure, ask.spaces, ask.config
    track = procedure.track("steps")
    labels, size = _asked_of_all(track, config), config.named_steps
    if 0 < len(labels) < size:
        yield _too_few(ask, f"{len(labels)} steps, {size} are to be named")
    random = stream(config.seed, procedure.name, task)
    for place in sorted(random.permutation(max(0, len(labels) - size + 1))[: config.draws]):
        named = labels[place : place + size]
        onset = {label: track.first(label) for label in named}
        earliest = min(onset.values())
        listed = [config.shown(named[i]) for i in random.permutation(size)]
        yield Finding(
            task,
            procedure,
            subject={"steps": " | ".join(sorted(named))},
            right=tuple(label for label in named if onset[label] <= earliest + SAME_TIME),
            space=spaces.of(procedure.source, "steps"),
            fixed=tuple(named[1:]),
            windows=_first_runs(track, named) if config.kind(task) != "global" else (),
            doubt=_track_doubt(track, "steps"),
            names={"steps": f"{', '.join(listed[:-1])} or {listed[-1]}"},
        )


def _first_runs(track: Track, labels: Sequence[str]) -> tuple[tuple[float, float], ...]:
    """The first run of each label, in order of time: earlier than all others, whichever label is first."""
    runs: dict[str, tuple[float, float]] = {}
    for run in track.runs:
        if run.label in labels:
            runs.setdefault(run.label, (run.start, run.end))
    return tuple(sorted(runs.values()))


def _too_few(ask: Ask, told: str) -> Finding:
    return Finding(
        ask.task, ask.procedure, subject={}, right=(), space=Labels(()), too_few=told, names=_UNKNOWN
    )


def counted(ask: Ask) -> Iterator[Finding]:
    """CPR: how many uninterrupted stretches a step has."""
    task, procedure, config = ask.task, ask.procedure, ask.config
    track = procedure.track("steps")
    labels = _asked_of_all(track, config)
    random = stream(config.seed, procedure.name, task)
    for place in sorted(random.permutation(len(labels))[: config.draws]):
        label = labels[place]
        runs = [(run.start, run.end) for run in track.runs if run.label == label]
        yield Finding(
            task,
            procedure,
            subject={"step": label},
            right=(float(len(runs)),),
            windows=tuple(runs) if config.kind(task) != "global" else (),
            space=Numbers(1.0, lowest=1.0),
            doubt=_track_doubt(track, "steps"),
            names={"step": config.shown(label)},
        )
