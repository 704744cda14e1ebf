"""Do two engines ask the same question and get the same answer?

Every item is asked twice, with the frames the run's sampler chooses: by the engine that `backend` names, and
by `other`. Compared are the frames and the times they are told at, the prompts' token ids, the option
log-probabilities and the answers. One engine is closed before the next is opened, so that both need not fit
the memory together. The command fails where anything differs beyond `tolerance`; the tables say what, and the
screen what is first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd
from pydantic import NonNegativeFloat
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.experiments.answering import answer_pairs
from diagnostics.experiments.conditions import metric_of
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome, record_rejected, records_of_run
from diagnostics.experiments.pairs import Pair
from diagnostics.models.backends import engine_settings, open_engine
from diagnostics.models.config import BackendConfig
from diagnostics.store.records import Record
from diagnostics.store.summary import Metric, Summary
from diagnostics.strict import STRICT

__all__ = ["ANY_ENGINE", "WHOLE", "Compared", "Config", "compare", "run"]

ANY_ENGINE = True
"""It asks for answers only."""

WHOLE = True
"""It is not cut into shards: it asks twice."""


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of the experiment.

    Attributes:
        other: the engine that is compared with the one `backend` names.
        other_settings: its own parameters, where not its defaults. Instruction and length of the reply are
            those of `backend`.
        tolerance: largest difference of an option's log-probability, in nats. float32 through other kernels
            stays far below 1e-3; bfloat16 does not.
    """

    other: str = "hf"
    other_settings: Mapping[str, Any] = field(default_factory=dict)
    tolerance: NonNegativeFloat = 1e-3


@plain_dataclass(frozen=True)
class Compared:
    """One item by two engines. None and NaN where an engine does not tell, or an item has no options.

    Attributes:
        same_frames: the same frames told at the same times.
        same_ids: the same token ids of the prompt, and the same grid of patches.
        same_answer: the same letter, or for an item without options the same words.
        largest_difference: of the options' log-probabilities, in nats.
        difference: the first difference in words; empty where there is none.
    """

    item: str
    task: str
    video: str
    same_frames: bool | None
    same_ids: bool | None
    same_answer: bool | None
    largest_difference: float
    difference: str


def run(context: Context, config: Config) -> Outcome:
    """Ask every item of both engines, then write tables and summary."""
    backend = context.config.backend
    other = replace(backend, name=config.other, parameters=config.other_settings)
    engine_settings(other)  # misspelt parameters are told before the first engine has worked for hours
    sides = {"backend": backend, "other": other}
    pairs = {side: _pairs(context.items, side, engine.name) for side, engine in sides.items()}
    for side, engine in sides.items():
        _ask(context, side, engine, pairs[side])
    context.folder.expect(sum(map(len, pairs.values())) + len(context.rejected))
    record_rejected(context)
    records = records_of_run(context, [pair for side in pairs.values() for pair in side])
    known = {record.pair: record for record in records}
    found = [
        compare(known[one.key], known[two.key], config.tolerance)
        for one, two in zip(pairs["backend"], pairs["other"], strict=True)
    ]
    return _outcome(context, (backend.name, other.name), records, found)


def _pairs(items: Sequence[Item], side: str, engine: str) -> list[Pair]:
    """The side is told too: an engine may be compared with itself under other settings."""
    return [Pair(item, {"side": side, "engine": engine}) for item in items]


def _ask(context: Context, side: str, backend: BackendConfig, pairs: Sequence[Pair]) -> None:
    engine = open_engine(
        lambda: context.model,
        context.config.model,
        backend,
        lambda name, finding: context.folder.note(f"{side}_{name}", finding),
    )
    answer_pairs(context, pairs, engine, f"Asking {backend.name}", prompt_ids=True)


# -- one item


def compare(one: Record, other: Record, tolerance: float) -> Compared:
    """Two records of an item, the first difference in the order frames, prompt, log-probabilities, answer."""
    told: dict[str, Any] = {"item": one.item_id, "task": one.task, "video": one.video_id}
    for name, record in (("the first", one), ("the other", other)):
        if record.error is not None:
            failed = f"{name} engine failed: {record.error.type}: {record.error.message}"
            return Compared(**told, **_UNKNOWN, difference=failed)
    largest, option = _largest_difference(one, other)
    frames, ids, answer = _frames(one, other), _prompts(one, other), _answers(one, other)
    logprobs = ""
    if largest > tolerance:
        letters = (one.option_logprobs[option], other.option_logprobs[option])
        logprobs = "log-probability of {}: {:.6f} against {:.6f}".format(option, *letters)
    return Compared(
        **told,
        same_frames=not frames,
        same_ids=None if ids is None else not ids,
        same_answer=not answer,
        largest_difference=largest,
        difference=frames or ids or logprobs or answer,
    )


_UNKNOWN: dict[str, Any] = {
    "same_frames": None,
    "same_ids": None,
    "same_answer": None,
    "largest_difference": float("nan"),
}


def _frames(one: Record, other: Record) -> str:
    if len(one.slots) != len(other.slots):
        return f"{len(one.slots)} frames against {len(other.slots)}"
    for number, (slot, against) in enumerate(zip(one.slots, other.slots, strict=True)):
        if slot != against:
            shown = [f"{each.frame_index} at {each.shown_seconds} s" for each in (slot, against)]
            return f"frame {number}: {shown[0]} against {shown[1]}"
    return ""


def _prompts(one: Record, other: Record) -> str | None:
    """How the prompts differ; None where an engine does not tell its token ids."""
    if not one.prompt_ids or not other.prompt_ids:
        return None
    for place, (token, against) in enumerate(zip_longest(one.prompt_ids, other.prompt_ids)):
        if token != against:
            lengths = f"{len(one.prompt_ids)} and {len(other.prompt_ids)} tokens"
            return f"prompt token {place}: {token} against {against} ({lengths})"
    if one.grid != other.grid:
        return f"grid of patches: {one.grid} against {other.grid}"
    return ""


def _largest_difference(one: Record, other: Record) -> tuple[float, str]:
    """Of the options' log-probabilities, and at which letter; NaN where an engine does not tell."""
    found = {
        letter: abs(logprob - against)
        for letter, logprob in one.option_logprobs.items()
        if logprob is not None and (against := other.option_logprobs.get(letter)) is not None
    }
    if not found:
        return float("nan"), ""
    letter = max(found, key=lambda each: found[each])
    return found[letter], letter


def _answers(one: Record, other: Record) -> str:
    asked_for_letter = bool(one.rule or other.rule)
    if asked_for_letter and one.answer == other.answer:
        return ""
    if one.raw == other.raw:
        return ""
    return f"answer: {one.raw!r} against {other.raw!r}"


# -- what came out


def _outcome(
    context: Context, names: tuple[str, str], records: Sequence[Record], found: Sequence[Compared]
) -> Outcome:
    metrics = {
        "same_frames": _share(found, [each.same_frames for each in found]),
        "same_ids": _share(found, [each.same_ids for each in found]),
        "same_answer": _share(found, [each.same_answer for each in found]),
    }
    metrics["largest_difference"] = _largest(found)
    summary = Summary.of(context.config.experiment, records, metrics)
    folder = context.folder
    table = _table(found)
    paths = {"summary": folder.write_summary(summary), "parity": folder.write_table("parity", table)[0]}
    differing = [each for each in found if each.difference]
    against = f"{names[0]} and {names[1]}"
    if not differing:
        context.say(f"{against}: {len(found)} items, no difference.")
        return Outcome(summary, paths, tuple(metrics))
    first = f"{differing[0].item}: {differing[0].difference}"
    failure = f"{against} differ in {len(differing)} of {len(found)} items. First, {first}"
    return Outcome(summary, paths, tuple(metrics), failure)


def _table(found: Sequence[Compared]) -> pd.DataFrame:
    """One row an item, in the order of the data set."""
    rows = [
        (
            *(each.item, each.task, not each.difference),
            *(each.same_frames, each.same_ids, each.same_answer),
            *(each.largest_difference, each.difference),
        )
        for each in found
    ]
    names = ("item", "task", "equal", "same_frames", "same_ids", "same_answer")
    return pd.DataFrame(rows, columns=[*names, "largest_difference", "first_difference"])


def _share(found: Sequence[Compared], told: Sequence[bool | None]) -> Metric:
    values = [float("nan") if same is None else float(same) for same in told]
    return metric_of(values, [each.video for each in found])


def _largest(found: Sequence[Compared]) -> Metric:
    """The largest of all items; an interval has no meaning here."""
    told = np.array([each.largest_difference for each in found])
    told = told[np.isfinite(told)]
    return Metric(float(told.max()) if told.size else None, None, None, int(told.size))
