"""The record of one measurement: everything a person needs to trust or repeat that one answer.

A record is one line of JSON, strict both ways: no NaN (undefined is null), no unknown or missing
field, numbers that are numbers. `record_log` writes and reads the files of them.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from typing import Annotated, Any, NoReturn

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, StrictStr
from pydantic.dataclasses import dataclass

from diagnostics.store.canonical import Pair, canonical_json, condition_id, plain
from diagnostics.strict import STRICT
from diagnostics.video.selection import Slot

__all__ = ["VOLATILE", "Failure", "Record", "comparable", "from_json", "latest", "to_json"]

VOLATILE = frozenset({"attempt", "seconds", "shard"})
"""Fields that say how a measurement went, not what came out: they differ between an interrupted and
an undisturbed run, and `comparable` leaves them out."""


_LATER = frozenset({"earlier_replies", "extractor", "prompt_ids"})
"""Fields that came after the first runs were written: where a line lacks one, its default is what held."""


def _defined(value: object) -> object:
    """numpy scalars as Python ones, undefined numbers as None; a truth value is no number."""
    if isinstance(value := plain(value), bool):
        raise ValueError("a truth value is no number")
    return value


def _seconds(value: object) -> float:
    """A time of a slot, where null stands for the NaN of a synthetic picture."""
    value = plain(value)
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"a slot's time is a number of seconds or null, not {value!r}")
    return float(value)


def _slot(value: Any) -> Slot:
    if isinstance(value, Mapping):
        value = Slot(**value)
    if not isinstance(value.source, str):
        raise ValueError(f"a slot's source is text, not {value.source!r}")
    index = operator.index(value.frame_index)
    return Slot(value.source, index, _seconds(value.true_seconds), _seconds(value.shown_seconds))


def _slots(value: Iterable[Any]) -> tuple[Slot, ...]:
    return tuple(_slot(slot) for slot in value)


def _condition(value: object) -> object:
    canonical_json(value)  # refuses NaN, which `plain` would turn into null and so into another condition
    return plain(value)


def _tuples(value: Any) -> Any:
    """Lists and arrays as tuples, however deep, so that a record read back equals the one written."""
    value = plain(value)
    return tuple(_tuples(entry) for entry in value) if isinstance(value, list) else value


Text = Annotated[StrictStr, BeforeValidator(plain)]
Number = Annotated[float | None, Field(strict=True), BeforeValidator(_defined)]
Count = Annotated[StrictInt, BeforeValidator(plain)]
Truth = Annotated[StrictBool, BeforeValidator(plain)]
Texts = Annotated[tuple[StrictStr, ...], BeforeValidator(_tuples)]
Counts = Annotated[tuple[StrictInt, ...], BeforeValidator(_tuples)]
Grids = Annotated[tuple[tuple[StrictInt, ...], ...], BeforeValidator(_tuples)]


@dataclass(frozen=True, config=STRICT)
class Failure:
    """Why a pair has no result."""

    type: Text
    """Class name of the error."""
    message: Text
    """What was wrong, and what the person can do about it."""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The failure that an exception stands for."""
        return cls(type=type(error).__name__, message=str(error))


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Record:
    """One measurement: a pair (item, condition), finished or failed.

    A failed one holds what was known when it failed; the rest is null or empty. Numbers are given as
    Python or numpy scalars, NaN and infinities become None.

    Raises:
        ValueError: a field has the wrong type or is unknown (pydantic names it).
        TypeError: a value has no JSON form.
    """

    item_id: Text
    """The item's id in its data set."""
    video_id: Text
    """The item's video, which decides its shard."""
    condition: Annotated[dict[StrictStr, Any], BeforeValidator(_condition)] = field(default_factory=dict)
    """What was done to the item: budget, order, dose, sampler, seed... `{}` where there is only one."""
    condition_id: str = field(init=False)
    """`condition` in short; with `item_id` the key of the record."""
    config_hash: Text = ""
    """Hash of the run's configuration. Written by the run folder."""
    shard: Count = 0
    """The shard that measured it. Written by the run folder."""
    attempt: Count = 0
    """The attempt of the run, from 1. Of several records of a pair that of the last attempt counts.
    Written by the run folder."""
    item_sha256: Text = ""
    """Hash of what the item asks and of its video's size: another hash, another question, measured again."""
    task: Text = ""
    """The benchmark's task name."""
    task_family: Text = ""
    """The coarser group the task belongs to."""
    slots: Annotated[tuple[Slot, ...], BeforeValidator(_slots)] = ()
    """What was shown, in order: source, source frame index (-1 for a synthetic picture), the frame's
    true seconds and the seconds the model was told (null where a picture has no time)."""
    selection_rule: Text = ""
    """The rule that chose the slots, with its parameters."""
    reader: Text = ""
    """What decoded the video, with its version."""
    source_fps: Number = None
    """Average frame rate of the source, in frames a second."""
    source_seconds: Number = None
    """Duration of the source in seconds."""
    frame_size: Annotated[tuple[Count, Count] | None, BeforeValidator(plain)] = None
    """Height and width of the pictures that were read, before the processor resized them."""
    grid: Grids = ()
    """For each video of the prompt (time, height, width) in vision patches, before merging."""
    n_units: Count | None = None
    """Temporal units in the prompt."""
    tokens_per_unit: Count | None = None
    """Visual tokens of one unit: it shrinks as frames grow in number under a fixed pixel budget."""
    n_visual_tokens: Count | None = None
    """Visual tokens in the prompt."""
    n_prompt_tokens: Count | None = None
    """All tokens in the prompt."""
    prompt_sha256: Text | None = None
    """Hash of the prompt's token ids."""
    prompt_ids: Counts = ()
    """The prompt's token ids themselves, where an experiment is about them."""
    raw: Text | None = None
    """The model's reply, word for word."""
    earlier_replies: Texts = ()
    """Replies of earlier passes of the same measurement, in order, where there were several: the answer in
    the model's own words, before it was asked which option says the same."""
    answer: Text | None = None
    """The option's letter found in the reply; null where there is none."""
    rule: Text | None = None
    """The rule that found `answer` in `raw`."""
    extractor: Text | None = None
    """Version of the rules that `rule` is one of; null where none was read, or in older runs."""
    target: Text | None = None
    """The right answer: a letter, or the reference text of an open-ended item."""
    correct: Truth | None = None
    """Whether `answer` is `target`; null where nothing was asked. A reply without a letter is wrong."""
    option_logprobs: dict[StrictStr, Number] = field(default_factory=dict)
    """Log-probability of each option's letter as the first token of the reply."""
    seconds: dict[StrictStr, Number] = field(default_factory=dict)
    """Wall-clock seconds of `decode`, `prepare`, `generate`, `probe`."""
    measures: dict[StrictStr, Number] = field(default_factory=dict)
    """The pair's numbers by name; null where a measure is undefined."""
    axes: dict[StrictStr, Count] = field(default_factory=dict)
    """Lengths of the axes in its tensor file."""
    tensor_file: Text | None = None
    """Its tensor file, relative to the run folder; null where it has none."""
    warnings: Texts = ()
    """What a reader of the result should know, as `kind: details` (the summary counts by kind):
    fewer frames than asked, a lower resolution, a retry, positions past the trained range."""
    error: Failure | None = None
    """Null for a finished pair."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "condition_id", condition_id(self.condition))

    @property
    def pair(self) -> Pair:
        """The key: (item id, condition id)."""
        return self.item_id, self.condition_id


def to_json(record: Record) -> str:
    """The record as one line of JSON, without the line's end. ASCII, so any text in it stays one line."""
    return json.dumps(plain(record), allow_nan=False, separators=(",", ":"))


def from_json(line: str | bytes) -> Record:
    """The record that `to_json` wrote.

    Raises:
        ValueError: not JSON, NaN in it, a field unknown, missing or of the wrong type, or a
            `condition_id` that is not that of its `condition`.
    """
    values = json.loads(line, parse_constant=_no_constant)
    if not isinstance(values, dict):
        raise ValueError("the line is no JSON object")
    expected = {entry.name for entry in fields(Record)} - _LATER
    if missing := sorted(expected - set(values)):
        raise ValueError(f"fields are missing: {', '.join(missing)}")
    told = values.pop("condition_id")
    try:
        record = Record(**values)
    except TypeError as error:
        raise ValueError(str(error)) from error
    if told != record.condition_id:
        raise ValueError(f"condition_id is {told!r}, but its condition has the id {record.condition_id!r}")
    return record


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON; undefined is null")


def comparable(record: Record) -> dict[str, Any]:
    """The record as JSON values without the `VOLATILE` fields: equal for equal results."""
    return {name: value for name, value in plain(record).items() if name not in VOLATILE}


def latest(records: Iterable[Record]) -> dict[Pair, Record]:
    """The record that counts for each pair: of the last attempt, and in that the last one given."""
    chosen: dict[Pair, Record] = {}
    for record in records:
        if record.pair not in chosen or record.attempt >= chosen[record.pair].attempt:
            chosen[record.pair] = record
    return chosen
