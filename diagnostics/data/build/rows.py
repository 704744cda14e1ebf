"""From rows to procedures: what a row may say, and what is dropped with its number and reason.

A dropped row leaves a doubt in its track (`annotations.Track`). Of two rows that overlap in a track of
one label at a time neither can be believed, so both are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnostics.data.build.annotations import (
    EXCLUSIVE,
    TRACKS,
    Interval,
    Lesion,
    Procedure,
    Track,
    overlapping,
)
from diagnostics.data.build.audit import Audit
from diagnostics.data.build.reasons import (
    BadRowError,
    ConflictingRowError,
    OverlappingRowsError,
    PastEndError,
    Rejection,
    ReversedIntervalError,
    UnknownLabelError,
)
from diagnostics.data.build.tracks import FACTS, Row, Unread, read_rows
from diagnostics.data.paths import inside_root
from diagnostics.errors import DataFileError, ItemError
from diagnostics.strict import near_match

__all__ = ["Annotations", "judge_rows", "read_annotations"]

_ATTRIBUTE_SPACES = {"site": "sites", "size": "sizes", "histology": "histologies"}


@dataclass(frozen=True)
class Annotations:
    """What the track files say.

    Attributes:
        procedures: by first appearance.
        spaces: declared label spaces, by source and name, in the order of declaration.
    """

    procedures: list[Procedure]
    spaces: Mapping[tuple[str, str], tuple[str, ...]]


@dataclass
class _Gathered:
    """The rows of one procedure, sorted by what they are about."""

    name: str
    facts: dict[str, list[Row]] = field(default_factory=dict)
    tracks: dict[str, list[Row]] = field(default_factory=dict)
    attributes: list[Row] = field(default_factory=list)
    labels: list[Row] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    lost: bool = False


def read_annotations(files: Iterable[Path], root: Path | None, audit: Audit) -> Annotations:
    """The procedures of the track files; each row that cannot be used goes to `audit`.

    Args:
        files: from `tracks.track_files`.
        root: what video paths start from; each file's own folder where None.
        audit: takes the dropped rows and procedures.

    Raises:
        DataFileError: a file is not of its form, or two declarations of one label space differ.
    """
    return judge_rows((row for path in files for row in read_rows(path)), root, audit)


def judge_rows(rows: Iterable[Row | Unread], root: Path | None, audit: Audit) -> Annotations:
    """The procedures that the rows speak of; see `read_annotations`."""
    gathered: dict[str, _Gathered] = {}
    spaces: list[Row] = []
    unread: list[Unread] = []
    n_rows = 0
    for n_rows, row in enumerate(rows, start=1):  # noqa: B007 - counted
        if isinstance(row, Unread):
            unread.append(row)
            audit.drop("rows", row.error, procedure=row.procedure or None, place=row.place)
        elif row.track.startswith("space."):
            spaces.append(row)
        else:
            _gather(gathered.setdefault(row.procedure, _Gathered(row.procedure)), row)
    for bad in unread:
        for procedure in gathered.values():
            touched = bad.procedure == "" and bad.place.file in procedure.files
            procedure.lost = procedure.lost or touched or bad.procedure == procedure.name
    sources = {name: _source(rows) for name, rows in gathered.items()}
    declared = _declared(spaces, sources)
    procedures = []
    for own in gathered.values():
        try:
            procedures.append(_Judge(own, sources[own.name], declared, root, audit).procedure())
        except ItemError as error:
            video = next(iter(own.facts.get("video", [])), None)
            audit.drop("procedures", error, procedure=own.name, place=video.place if video else None)
    audit.count("rows", entered=n_rows)
    audit.count("procedures", entered=len(gathered))
    return Annotations(procedures, declared)


def _gather(rows: _Gathered, row: Row) -> None:
    rows.files.add(row.place.file)
    if row.track in FACTS:
        rows.facts.setdefault(row.track, []).append(row)
    elif row.track.startswith("lesion."):
        rows.attributes.append(row)
    elif row.track == "labels":
        rows.labels.append(row)
    else:
        rows.tracks.setdefault(row.track, []).append(row)


def _source(rows: _Gathered) -> str:
    written = [row.value for row in rows.facts.get("source", []) if isinstance(row.value, str)]
    return written[0].strip() if written else ""


def _declared(rows: list[Row], sources: Mapping[str, str]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Label spaces by source and name; a space declared by several files or procedures must be the same."""
    said: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in rows:
        source = row.source if row.source is not None else sources.get(row.procedure, "")
        if not isinstance(row.label, str) or not row.label.strip():
            raise DataFileError(
                f"{row.track} holds {row.label!r}, not a label.", remedy="Write texts.", path=str(row.place)
            )
        # Rows of one procedure are one declaration; a procedure in two files declares in each.
        declaration = said.setdefault((source, row.track.partition(".")[2]), {})
        declaration.setdefault(f"{row.procedure}\0{row.place.file}", []).append(row.label.strip())
    spaces = {}
    for key, declarations in said.items():
        first, *others = (tuple(labels) for labels in declarations.values())
        for other in others:
            if other != first:
                raise DataFileError(
                    f"The space {key[1]!r} of source {key[0]!r} is declared twice: {first} and {other}.",
                    remedy="Declare it once, or the same everywhere.",
                )
        if len(set(first)) < len(first):
            raise DataFileError(f"The space {key[1]!r} holds a label twice: {first}.", remedy="Keep one.")
        spaces[key] = first
    return spaces


class _Judge:
    """Judges the rows of one procedure."""

    def __init__(
        self,
        rows: _Gathered,
        source: str,
        spaces: Mapping[tuple[str, str], tuple[str, ...]],
        root: Path | None,
        audit: Audit,
    ) -> None:
        self.rows, self.source, self.spaces, self.root, self.audit = rows, source, spaces, root, audit

    def procedure(self) -> Procedure:
        """The procedure.

        Raises:
            ItemError: it cannot be used as a whole: no video, or two.
        """
        facts = {fact: self._fact(fact) for fact in FACTS}
        video = facts["video"]
        if video is None:
            raise BadRowError("There is no 'video'.", remedy="Name the procedure's video file.")
        if facts["source"] is not None and not isinstance(facts["source"].value, str):
            raise BadRowError(f"'source' is {facts['source'].value!r}.", remedy="Write a text.")
        stated = {}
        for name in ("fps", "frames", "duration"):
            row = facts[name]
            if row is not None:
                stated[name] = self._positive(row)
        root = self.root or Path(video.place.file).parent
        if not isinstance(video.value, str):
            raise BadRowError(f"'video' is {video.value!r}, not a path.", remedy="Write a path as text.")
        lesions, lesions_doubted = self._lesions()
        return Procedure(
            name=self.rows.name,
            source=self.source,
            video=inside_root(root, video.value, where=str(video.place), item_id=self.rows.name),
            video_place=video.place,
            stated=stated,
            tracks={name: track for name in TRACKS if (track := self._track(name)) != Track()},
            lesions=lesions,
            lesions_doubted=lesions_doubted,
            labels=self._labels(),
        )

    def _drop(self, error: Rejection, row: Row) -> None:
        error.path = str(row.place)
        self.audit.drop("rows", error, procedure=self.rows.name, place=row.place, track=row.track)

    def _fact(self, name: str) -> Row | None:
        rows = self.rows.facts.get(name, [])
        values = {float(row.value) if _is_number(row.value) else str(row.value) for row in rows}
        if len(values) > 1:
            told = " and ".join(sorted(map(str, values)))
            raise ConflictingRowError(f"'{name}' is said twice: {told}.", remedy="Keep the right one.")
        return rows[0] if rows else None

    def _positive(self, row: Row) -> float:
        if not _is_number(row.value) or row.value <= 0:
            raise BadRowError(
                f"'{row.track}' is {row.value!r}, not a positive number.",
                remedy="Correct it, or leave it out.",
            )
        return float(row.value)

    # -- tracks of intervals

    def _track(self, name: str) -> Track:
        good: list[Interval] = []
        doubts: list[tuple[float, float]] = []
        lost = int(self.rows.lost)
        for row in self.rows.tracks.get(name, []):
            try:
                start, end = _edges(row)
            except Rejection as error:
                self._drop(error, row)
                lost += 1
                continue
            try:
                good.append(Interval(start, end, self._label(row, name), row.place))
            except Rejection as error:
                self._drop(error, row)
                doubts.append((start, end))
        by_label: dict[str, list[Interval]] = {}
        for interval in good:
            by_label.setdefault("" if name in EXCLUSIVE else interval.label, []).append(interval)
        kept: list[Interval] = []
        for group in by_label.values():
            bad = overlapping(group)
            kept += [interval for place, interval in enumerate(group) if place not in bad]
            for place in sorted(bad):
                self._drop_overlap(group[place], name)
                doubts.append((group[place].start, group[place].end))
        kept.sort(key=lambda interval: (interval.start, interval.end))
        return Track(tuple(kept), tuple(doubts), lost)

    def _drop_overlap(self, interval: Interval, track: str) -> None:
        error = OverlappingRowsError(
            f"{interval.label!r}, {interval.start:g} to {interval.end:g} s, overlaps another row of {track}.",
            remedy="Correct the times: one of the rows is wrong, so none is used.",
            path=str(interval.place),
        )
        self.audit.drop("rows", error, procedure=self.rows.name, place=interval.place, track=track)

    def _label(self, row: Row, space: str) -> str:
        label = _text(row.label)
        if not label:
            raise BadRowError(f"The label is {row.label!r}, not a text.", remedy="Write the label as a text.")
        return self._known(label, space)

    def _known(self, label: str, space: str) -> str:
        declared = self.spaces.get((self.source, space))
        if declared is not None and label not in declared:
            raise UnknownLabelError(
                f"{label!r} is none of the declared {space}.", remedy=near_match(label, list(declared))
            )
        return label

    # -- lesions and labels

    def _lesions(self) -> tuple[tuple[Lesion, ...], bool]:
        """Lesions by appearance, and whether a row about them was dropped."""
        windows: dict[str, list[Interval]] = {}
        doubted = self.rows.lost
        bad: set[str] = set()
        for row in self.rows.tracks.get("lesions", []):
            try:
                start, end = _edges(row)
                name = _text(row.label)
                if not name:
                    raise BadRowError(
                        f"The lesion's id is {row.label!r}, not a text.", remedy="Name the lesion."
                    )
                windows.setdefault(name, []).append(Interval(start, end, name, row.place))
            except Rejection as error:
                self._drop(error, row)
                bad.add(_text(row.label))
        for name, group in windows.items():
            for place in sorted(overlapping(group)):
                self._drop_overlap(group[place], "lesions")
                bad.add(name)
        attributes = self._attributes(windows, bad)
        lesions = [
            Lesion(name, tuple(sorted(group, key=lambda row: row.start)), attributes.get(name, {}))
            for name, group in windows.items()
            if name not in bad
        ]
        lesions.sort(key=lambda lesion: (lesion.appears, lesion.name))
        return tuple(lesions), doubted or bool(bad)

    def _attributes(self, known: Mapping[str, Any], bad: set[str]) -> dict[str, dict[str, str | float]]:
        """Attributes by lesion; a lesion of which one cannot be used joins `bad`."""
        found: dict[str, dict[str, str | float]] = {}
        for row in self.rows.attributes:
            name = _text(row.label)
            attribute = row.track.partition(".")[2]
            try:
                if name not in known:
                    raise BadRowError(
                        f"The lesion {name!r} has no window.",
                        remedy="Say when it is visible, or remove the row.",
                    )
                value = self._value(row, _ATTRIBUTE_SPACES.get(attribute))
                if found.setdefault(name, {}).setdefault(attribute, value) != value:
                    raise ConflictingRowError(
                        f"The {attribute} of lesion {name!r} is {found[name][attribute]!r} and {value!r}.",
                        remedy="Keep the right one.",
                    )
            except Rejection as error:
                self._drop(error, row)
                bad.add(name)
        return found

    def _value(self, row: Row, space: str | None) -> str | float:
        """A text of a declared space, any text, or a number where no space is declared."""
        value = row.value
        declared = None if space is None else self.spaces.get((self.source, space))
        if _is_number(value):
            text = f"{value:g}"
            return self._known(text, space) if declared and space else float(value)
        if not isinstance(value, str) or not value.strip():
            raise BadRowError(f"The value is {value!r}.", remedy="Write a text or a number.")
        return value.strip() if space is None else self._known(value.strip(), space)

    def _labels(self) -> dict[str, str | float]:
        found: dict[str, str | float] = {}
        bad = set()
        for row in self.rows.labels:
            try:
                name = _text(row.label)
                if not name:
                    raise BadRowError(f"The name of the label is {row.label!r}.", remedy="Name it.")
                value = self._value(row, name)
                if found.setdefault(name, value) != value:
                    bad.add(name)
                    raise ConflictingRowError(
                        f"{name!r} is {found[name]!r} and {value!r}.", remedy="Keep the right one."
                    )
            except Rejection as error:
                self._drop(error, row)
        return {name: value for name, value in found.items() if name not in bad}


def _text(value: object) -> str:
    """A text without the space around it; the empty text for whatever is no text."""
    return value.strip() if isinstance(value, str) else ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _edges(row: Row) -> tuple[float, float]:
    """Start and end of a row, in seconds."""
    if not _is_number(row.start) or not _is_number(row.end):
        raise BadRowError(
            f"The row lasts from {row.start!r} to {row.end!r}.",
            remedy="Write both times as numbers of seconds.",
        )
    start, end = float(row.start), float(row.end)
    if end <= start:
        raise ReversedIntervalError(
            f"The row lasts from {start:g} to {end:g} s.", remedy="A row is [start, end) with start < end."
        )
    if start < 0:
        raise PastEndError(f"The row begins at {start:g} s.", remedy="Times count from the first frame, 0.")
    return start, end
