"""Which labels the annotations make right: derived once more, from the tracks, for the filter.

This is a second road to what `evidence` found, by plain sums over rows, so that a slip in one of them
drops a question instead of shipping it.
"""

from __future__ import annotations

from diagnostics.data.build.annotations import SAME_TIME
from diagnostics.data.build.findings import Finding
from diagnostics.data.build.settings import TASKS, Config

__all__ = ["right_labels"]


def right_labels(finding: Finding, config: Config) -> set[str | float]:
    """Every label or number that answers the finding's question, also beyond those offered."""
    procedure = finding.procedure
    match finding.task:
        case "PR" | "SD" | "RL" | "IR":
            return _in_window(finding, config)
        case "Site":
            return _of_lesion(finding, "site")
        case "Hist":
            return _of_lesion(finding, "histology")
        case "Size":
            return _of_lesion(finding, "size")
        case "LLS":
            return set(finding.right)  # ranks need the space; ties were dropped before
        case "LA":
            return {float(len({lesion.name for lesion in procedure.lesions}))}
        case "BPQ":
            return {procedure.labels[finding.subject["label"]]}
        case "WR":
            return _as_long(finding, config)
        case "RSR":
            return _earliest(finding)
        case "CPR":
            return _stretches(finding)
    raise AssertionError(f"no rule for {finding.task}")


def _in_window(finding: Finding, config: Config) -> set[str | float]:
    start, end = finding.asked or (0.0, 0.0)
    rows = finding.procedure.track(TASKS[finding.task].track).intervals
    shared = (row for row in rows if min(row.end, end) - max(row.start, start) > SAME_TIME)
    return {row.label for row in shared if row.label not in config.ignored}


def _of_lesion(finding: Finding, attribute: str) -> set[str | float]:
    """The asked-for lesion's attribute, and that of every lesion in its evidence windows."""
    right = set()
    for lesion in finding.procedure.lesions:
        seen = any(lesion.visible(*window) for window in finding.windows)
        if attribute in lesion.attributes and (lesion.name == finding.subject["lesion"] or seen):
            right.add(lesion.attributes[attribute])
    return right


def _as_long(finding: Finding, config: Config) -> set[str | float]:
    totals: dict[str, float] = {}
    for row in finding.procedure.track("phases").intervals:
        totals[row.label] = totals.get(row.label, 0.0) + row.end - row.start
    least = (1 - config.margin) * totals[finding.subject["phase"]]
    return {label for label, total in totals.items() if total >= least - SAME_TIME}


def _earliest(finding: Finding) -> set[str | float]:
    """Of the named steps, those that begin when the first of them does."""
    named = [str(label) for label in (*finding.fixed, *finding.right)]
    rows = finding.procedure.track("steps").intervals
    begins = {label: min(row.start for row in rows if row.label == label) for label in named}
    return {label for label in named if begins[label] - min(begins.values()) <= SAME_TIME}


def _stretches(finding: Finding) -> set[str | float]:
    """Rows of the step that no row of the same step leads up to."""
    track = finding.procedure.track("steps")
    rows = [row for row in track.intervals if row.label == finding.subject["step"]]
    return {float(sum(all(abs(row.start - other.end) > SAME_TIME for other in rows) for row in rows))}
