"""What differs between runs, from their manifests; and short names for the runs, made from that."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from diagnostics.config import NOT_RESULTS
from diagnostics.store import FinishedRun, differing_keys

__all__ = ["differences", "differences_table", "from_json", "name_runs"]

_TELLING = {
    "model": "model.name",
    "data": "data.name",
    "sampling": "sampling.rule",
    "backend": "backend.name",
}
"""The key that tells a group's choice: where it differs, the group's other keys need no mention."""

_LONGEST_NAME = 60


def differences(runs: Sequence[FinishedRun]) -> dict[str, list[str]]:
    """Settings whose values are not the same in all runs, and the value in each, as JSON.

    Settings that cannot change results (`diagnostics.config.NOT_RESULTS`) are left out. Below `ran with.`
    stands what the measuring attempt found: versions, commit, machine, and what was loaded as the model.
    """
    told = [{**run.manifest.config, "ran with": _circumstances(run)} for run in runs]
    found: dict[str, list[str]] = {}
    for position, other in enumerate(told[1:], 1):
        for difference in differing_keys(told[0], other, ignore=NOT_RESULTS):
            values = found.setdefault(difference.key, [difference.old] * len(runs))
            values[position] = difference.new
    return dict(sorted(found.items(), key=lambda entry: (entry[0].startswith("ran with."), entry[0])))


def _circumstances(run: FinishedRun) -> dict[str, Any]:
    """Of the last attempt that measured something: an attempt that found all done says nothing."""
    measured = [attempt for attempt in run.attempts if attempt.counts.finished] or list(run.attempts)
    last = measured[-1]
    return {
        "versions": last.versions,
        "git": last.git,
        "platform": last.machine.platform,
        "gpus": last.machine.gpus,
        "model": run.manifest.checks.get("model"),
    }


def differences_table(names: Sequence[str], found: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """A row for each setting, a column for each run."""
    rows = [[key, *values] for key, values in found.items()]
    return pd.DataFrame(rows, columns=["setting", *names], dtype=object)


def name_runs(runs: Sequence[FinishedRun], found: Mapping[str, Sequence[str]]) -> list[str]:
    """A short name for each run: the values by which they differ (`redundant`, `budget=32`), or the
    folder's name where those would be long or leave two runs alike."""
    config = {key: values for key, values in found.items() if not key.startswith("ran with.")}
    telling = [key for key in _TELLING.values() if key in config]
    plain = [key for key in config if _TELLING.get(key.partition(".")[0]) not in telling]
    for keys in ([*telling, *plain], list(config)):
        names = [" ".join(_value(key, config[key][place]) for key in keys) for place in range(len(runs))]
        if len(set(names)) == len(runs) and max(map(len, names)) <= _LONGEST_NAME:
            return names
    folders = [run.folder.resolve().name for run in runs]
    if len(set(folders)) == len(runs):
        return folders
    return [str(run.folder) for run in runs]


def _value(key: str, value: str) -> str:
    """A word for itself (`redundant`), anything else with the last part of its key (`budget=32`)."""
    told = from_json(value)
    return told if isinstance(told, str) and told != value else f"{key.rpartition('.')[2]}={value}"


def from_json(value: str) -> Any:
    """A value of `differences` as it was set; "(not set)", which is no JSON, stays as it is."""
    try:
        return json.loads(value)
    except ValueError:
        return value
