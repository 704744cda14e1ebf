"""From the records and files of `decode_drift` to its tables and headline numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

import probes
from diagnostics.experiments.conditions import Answers, metric_of
from diagnostics.experiments.context import Context
from diagnostics.experiments.write_up import Asked
from diagnostics.scoring import statistics
from diagnostics.store.run_folder import tensor_path
from diagnostics.store.summary import Metric
from diagnostics.store.tensors import read_tensors

__all__ = [
    "MEASURED",
    "REPLY",
    "Course",
    "drift_table",
    "layer_table",
    "metrics_of",
    "read_courses",
    "row_table",
    "told_short",
]

MEASURED = ("visual_mass", "visual_log_lift", "evidence_mass", "evidence_share", "evidence_log_lift")
"""What is followed from row to row (`probes.DecodeCourse`)."""

REPLY = "reply"
"""The phase of all rows that the model wrote by its own choice."""

_PHASES = (REPLY, "reasoning", "answer", "forced")
_POINTS = 64
"""Rows of a phase are told one by one up to so many, and in as many stretches beyond."""
_HEADLINE = ("visual_mass", "evidence_log_lift")


@dataclass(frozen=True, eq=False)
class Course:
    """One item's rows, from its file.

    Attributes:
        video: of the item.
        spans: rows of each phase, first and one after the last.
        rows: each measure, the mean over the layers and heads where it is defined.
        layers: by phase and measure, in each layer: prefill and decode, means over heads.
        numbers: which layers these are: in hybrid models those that attend.
    """

    video: str
    spans: Mapping[str, tuple[int, int]]
    rows: Mapping[str, Float[np.ndarray, " row"]]
    layers: Mapping[tuple[str, str], Float[np.ndarray, "end layer"]]
    numbers: Sequence[int]


def read_courses(context: Context, asked: Asked) -> list[Course]:
    """Every finished item's rows."""
    found = []
    for record in asked.done:
        path = tensor_path(context.folder.path, record)
        kept = None if path is None else read_tensors(path)
        if kept is None or kept.decode is None:
            continue
        evidence = np.asarray(kept.units.evidence.any(axis=1))
        localised = asked.items[record.item_id].local_evidence is not None
        course = probes.decode_course(
            kept.decode.visual_mass,
            kept.decode.keys,
            len(kept.tokens.position),
            evidence_mass=kept.decode.evidence_mass if localised else None,
            evidence_units=float(evidence.sum()),
            units=len(evidence),
        ).measures()
        spans = {name: (int(span[0]), int(span[1])) for name, span in kept.definitions["phases"].items()}
        layers = {}
        for phase, span in spans.items():
            for name in MEASURED:
                one = probes.row_drift(course[name], slice(*span))
                layers[phase, name] = np.stack([_over_heads(one.prefill, 1), _over_heads(one.decode, 1)])
        rows = {name: _over_heads(course[name], (0, 1)) for name in MEASURED}
        found.append(Course(record.video_id, spans, rows, layers, kept.layer.tolist()))
    return found


def _over_heads(values: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    """Mean where it is defined; NaN where it is nowhere."""
    defined = np.isfinite(values)
    count, total = defined.sum(axis=axis), np.where(defined, values, 0.0).sum(axis=axis)
    return np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0)


def row_table(courses: Sequence[Course]) -> pd.DataFrame:
    """Each measure from row to row, with intervals: the prefill's last row, then each phase from its first.

    `from`, `to`: rows of the phase, counted from 1; of a long one, several at a time. `change`: from the
    prefill's row, on the items that have both. Replies differ in length: `n` says how many get so far.
    """
    rows: list[dict[str, Any]] = []
    videos = [one.video for one in courses]
    for name in MEASURED:
        prefill = np.array([one.rows[name][0] for one in courses])
        rows.append(
            {"phase": "prefill", "from": 0, "to": 0, "measure": name} | _told(prefill, prefill, videos)
        )
        for phase in _PHASES:
            spans = [one.spans.get(phase, (0, 0)) for one in courses]
            longest = max((end - first for first, end in spans), default=0)
            width = max(1, -(-longest // _POINTS))
            for start in range(0, longest, width):
                values = np.array(
                    [
                        _stretch(one.rows[name], first + start, min(end, first + start + width))
                        for one, (first, end) in zip(courses, spans, strict=True)
                    ]
                )
                told = {"phase": phase, "from": start + 1, "to": min(longest, start + width), "measure": name}
                rows.append(told | _told(values, prefill, videos))
    return pd.DataFrame(rows)


def _stretch(values: Float[np.ndarray, " row"], first: int, end: int) -> float:
    own = values[first:end] if first < end else values[:0]
    own = own[np.isfinite(own)]
    return float(own.mean()) if own.size else float("nan")


def _told(values: np.ndarray, prefill: np.ndarray, videos: Sequence[str]) -> dict[str, Any]:
    value, change = metric_of(values, videos), metric_of(values - prefill, videos)
    return {
        "value": value.mean,
        "ci_low": value.ci_low,
        "ci_high": value.ci_high,
        "n": value.n,
        "change": change.mean,
        "change_low": change.ci_low,
        "change_high": change.ci_high,
    }


def layer_table(courses: Sequence[Course]) -> pd.DataFrame:
    """Each measure in the prefill's last row and in the rows of a phase, layer by layer."""
    rows: list[dict[str, Any]] = []
    for phase in _PHASES:
        own = [one for one in courses if phase in one.spans]
        videos = [one.video for one in own]
        for name in MEASURED if own else ():
            ends = np.stack([one.layers[phase, name] for one in own])  # [item, end, layer]
            for place, layer in enumerate(own[0].numbers):
                before, after = ends[:, 0, place], ends[:, 1, place]
                drift = metric_of(after - before, videos)
                told = {"phase": phase, "layer": layer, "measure": name}
                told |= {"prefill": metric_of(before, videos).mean, "decode": metric_of(after, videos).mean}
                numbers = {"drift": drift.mean, "ci_low": drift.ci_low, "ci_high": drift.ci_high}
                rows.append(told | numbers | {"n": drift.n})
    columns = ["phase", "layer", "measure", "prefill", "decode", "drift", "ci_low", "ci_high", "n"]
    return pd.DataFrame(rows, columns=columns)


def drift_table(answers: Answers) -> pd.DataFrame:
    """Each measure in the prefill's last row and in the rows of a phase, paired by item, and its slope.

    One row a phase, measure and task. `p` flips signs over videos; `p_holm` is adjusted over the measures.
    """
    rows: list[dict[str, Any]] = []
    for task, some in answers.by_task() if answers.items else ():
        for phase in _PHASES:
            if not np.isfinite(some.column({}, f"reply_rows@phase={phase}")).any():
                continue
            found = []
            for name in MEASURED:
                decode = some.column({}, f"{name}@phase={phase}")
                # Not `@row=prefill`: over the heads in which both are defined.
                prefill = decode - some.column({}, f"decode_drift@of={name},phase={phase}")
                found.append(statistics.paired_difference(prefill, decode, some.videos))
            adjusted = statistics.holm([one.p for one in found]).adjusted
            for name, one, p_holm in zip(MEASURED, found, adjusted, strict=True):
                slope = metric_of(some.column({}, f"decode_slope@of={name},phase={phase}"), some.videos)
                rows.append(
                    {
                        "phase": phase,
                        "measure": name,
                        "task": task,
                        "prefill": one.mean_a,
                        "decode": one.mean_b,
                        "drift": one.difference,
                        "ci_low": one.ci_low,
                        "ci_high": one.ci_high,
                        "p": one.p,
                        "p_holm": p_holm,
                        "n": one.n,
                        "videos": one.n_clusters,
                        "slope": slope.mean,
                        "slope_low": slope.ci_low,
                        "slope_high": slope.ci_high,
                        "n_slope": slope.n,
                    }
                )
    return pd.DataFrame(rows)


def metrics_of(answers: Answers) -> dict[str, Metric]:
    """The headline: the model's own rows; those it had to write by their side, where there are any."""

    def metric(measure: str) -> Metric:
        return metric_of(answers.column({}, measure), answers.videos)

    found = {"reply_rows": metric(f"reply_rows@phase={REPLY}")}
    for name in _HEADLINE:
        found[f"{name}_prefill"] = metric(f"{name}@row=prefill")
    for phase in (REPLY, "forced") if answers.items else ():
        ending = "" if phase == REPLY else f"_{phase}"
        if phase != REPLY and not metric(f"reply_rows@phase={phase}").n:
            continue
        for name in _HEADLINE:
            found[f"{name}_decode{ending}"] = metric(f"{name}@phase={phase}")
            found[f"{name}_drift{ending}"] = metric(f"decode_drift@of={name},phase={phase}")
            found[f"{name}_slope{ending}"] = metric(f"decode_slope@of={name},phase={phase}")
        found[f"visual_loss{ending}"] = metric(f"visual_loss@phase={phase}")
    return found


def told_short(answers: Answers, least: int) -> str:
    """What to do where replies are too short for a slope; empty where none is."""
    rows = answers.column({}, f"reply_rows@phase={REPLY}") if answers.items else np.empty(0)
    short = int((rows < least).sum())
    if not short:
        return ""
    return (
        f"{short} of {len(rows)} replies are too short for a slope (under {least} rows after the first "
        "token). exp.instruction=... asks for longer ones, exp.open=true for words in place of a letter; "
        "exp.min_new_tokens=N makes them go on, told apart as `forced`."
    )
