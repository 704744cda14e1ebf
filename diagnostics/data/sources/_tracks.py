"""From an annotation file's rows to tracks: what contradicts itself is dropped, named, and left in doubt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from diagnostics.data.build.annotations import SAME_TIME, Interval, Place, Track, overlapping
from diagnostics.data.sources._source import plain
from diagnostics.errors import UnknownLabelError
from diagnostics.strict import near_match

__all__ = ["LabelList", "cut", "intervals", "named", "sampled", "several", "spoken"]


def spoken(labels: Iterable[str], others: Mapping[str, Sequence[str]] | None = None) -> dict[str, str]:
    """Wordings and the label each means: every label with spaces for its underscores, and `others` by label.

    Raises:
        ValueError: two labels share a wording, or `others` has a label of its own.
    """
    labels = list(labels)
    found: dict[str, str] = {}
    for label in [*labels, *(others or {})]:
        if label not in labels:
            raise ValueError(f"{label!r} is no label")
        for wording in (label.replace("_", " "), *(others or {}).get(label, ())):
            if found.setdefault(wording, label) != label:
                raise ValueError(f"{wording!r} means {found[wording]!r} and {label!r}")
    return found


def several(places: Sequence[object], problem: str) -> str:
    """A warning about rows: how many, what, and where the first is."""
    rows = "1 row" if len(places) == 1 else f"{len(places)} rows"
    return f"{rows} dropped: {problem} (first {places[0]})"


@dataclass(frozen=True)
class LabelList:
    """A source's labels of one track.

    Attributes:
        source, what: for the message: `PitVQA`, `steps`.
        by_number: the labels by their number in the files.
        aliases: other wordings (compared by `plain`).
    """

    source: str
    what: str
    by_number: Mapping[int, str]
    aliases: Mapping[str, str]

    def number(self, number: int, path: Path, row: object) -> str:
        """The label with this number.

        Raises:
            UnknownLabelError: there is none.
        """
        if number not in self.by_number:
            raise self._unknown(number, f"Known: {sorted(self.by_number)}.", path, row)
        return self.by_number[number]

    def name(self, name: str, path: Path, row: object) -> str:
        """The label that `name` writes.

        Raises:
            UnknownLabelError: there is none; the nearest is named.
        """
        known = {plain(label): label for label in self.by_number.values()}
        known |= {plain(alias): label for alias, label in self.aliases.items()}
        if plain(name) not in known:
            raise self._unknown(name, near_match(name, list(self.by_number.values())), path, row)
        return known[plain(name)]

    def _unknown(self, written: object, hint: str, path: Path, row: object) -> UnknownLabelError:
        return UnknownLabelError(
            f"{written!r} ({row}) is none of the {self.what} of {self.source}.",
            remedy=f"{hint} The file may be of another version of the labels.",
            path=path,
        )


def named(
    numbers: Sequence[int], names: Sequence[str], labels: LabelList, path: Path, rows: Sequence[int]
) -> tuple[list[str], list[int]]:
    """Each row's label, and which rows' number and name disagree (their label is the name's).

    Raises:
        UnknownLabelError: a number or a name is none of the labels.
    """
    pairs = {}  # files repeat few pairs over thousands of rows
    found, bad = [], []
    for place, pair in enumerate(zip(numbers, names, strict=True)):
        if pair not in pairs:
            where = f"row {rows[place]}"
            pairs[pair] = labels.number(pair[0], path, where), labels.name(pair[1], path, where)
        by_number, by_name = pairs[pair]
        found.append(by_name)
        if by_number != by_name:
            bad.append(place)
    return found, bad


def intervals(
    rows: Sequence[Interval], doubts: Iterable[tuple[float, float]] = ()
) -> tuple[Track, list[str]]:
    """An exclusive track of rows that state both ends.

    A row that ends where it starts or before is dropped, and so are all that share time; what they spanned is
    in doubt.

    Args:
        doubts: stretches that are in doubt for another reason.

    Returns:
        the track, and a warning for each dropped row.
    """
    warnings: list[str] = []
    unsure = list(doubts)
    forward: list[Interval] = []
    for row in rows:
        if row.end - row.start > SAME_TIME:
            forward.append(row)
        else:
            warnings.append(
                f"{row.label!r} ends at {row.end:g}, not after its start {row.start:g}: {row.place}"
            )
            unsure.append((row.end, row.start))
    bad = overlapping(forward)
    for place in sorted(bad):
        row = forward[place]
        warnings.append(f"{row.label!r} {row.start:g}-{row.end:g} shares time with another: {row.place}")
        unsure.append((row.start, row.end))
    kept = [row for place, row in enumerate(forward) if place not in bad]
    return cut(kept, unsure), warnings


def cut(rows: Iterable[Interval], doubts: Iterable[tuple[float, float]]) -> Track:
    """A track of the rows without what lies in a stretch in doubt."""
    unsure = tuple(sorted({(low, high) for low, high in doubts if high - low > SAME_TIME}))
    pieces = sorted(rows, key=lambda row: (row.start, row.end))
    for low, high in unsure:
        pieces = [piece for row in pieces for piece in _outside(row, low, high)]
    return Track(tuple(pieces), unsure)


def _outside(row: Interval, low: float, high: float) -> list[Interval]:
    """What of a row lies outside `[low, high)`: one piece, two or none."""
    sides = ((row.start, min(row.end, low)), (max(row.start, high), row.end))
    return [Interval(a, b, row.label, row.place) for a, b in sides if b - a > SAME_TIME]


def sampled(
    ticks: Int[np.ndarray, " row"],
    labels: Sequence[str],
    path: Path,
    rows: Sequence[int],
    *,
    step: int = 1,
    doubted: Iterable[int] = (),
) -> tuple[Track, list[str]]:
    """A track of labelled moments: a label holds from its tick up to the next moment, `step` ticks later, and
    no further where rows are missing.

    A tick with two labels has none, and is in doubt; so is one whose row is in doubt.

    Args:
        ticks: seconds or frames, in any order.
        labels: by row; the empty text for none.
        rows: the rows' lines.
        doubted: places of rows that contradict themselves.

    Returns:
        the track of joined moments, and warnings.
    """
    warnings: list[str] = []
    order = np.argsort(ticks, kind="stable")
    codes, names = _coded(labels)
    times, values, lines = ticks[order], codes[order], np.asarray(rows)[order]
    unsure = np.isin(order, np.fromiter(doubted, dtype=int))
    same = np.flatnonzero(np.diff(times) == 0)
    if len(same):
        clash = times[same[values[same] != values[same + 1]]]
        if len(clash):
            places = lines[np.isin(times, clash)]
            warnings.append(several([Place(str(path), int(p)) for p in places], "one moment has two labels"))
            unsure |= np.isin(times, clash)
        if len(same) > len(clash):
            warnings.append(f"{len(same) - len(clash)} moments are written twice, with one label: {path}")
        first = np.r_[True, np.diff(times) > 0]
        unsure = np.isin(times, times[unsure])
        times, values, lines, unsure = times[first], values[first], lines[first], unsure[first]
    doubts = [
        (float(start), float(end)) for start, end, _, _ in _runs(times, unsure.astype(int), lines, step, 1)
    ]
    values = np.where(unsure, -1, values)
    found = [
        Interval(float(start), float(end), names[value], Place(str(path), int(line)))
        for start, end, value, line in _runs(times, values, lines, step)
        if value >= 0 and names[value]
    ]
    gaps = np.flatnonzero(np.diff(times) > step)
    if len(gaps):
        missing = int((np.diff(times)[gaps] - step).sum()) // step
        at = int(times[gaps[0]]) + step
        warnings.append(f"{missing} moments have no row (first {at}), and no label: {path}")
    return Track(tuple(found), tuple(doubts)), warnings


def _coded(labels: Sequence[str]) -> tuple[Int[np.ndarray, " row"], list[str]]:
    names, codes = np.unique(np.asarray(labels, dtype=object).astype(str), return_inverse=True)
    return codes.reshape(-1), [str(name) for name in names]


def _runs(
    times: Int[np.ndarray, " tick"],
    values: Int[np.ndarray, " tick"],
    lines: Int[np.ndarray, " tick"],
    step: int,
    wanted: int | None = None,
) -> list[tuple[int, int, int, int]]:
    """`(start, end, value, first line)` of runs of one value over moments `step` apart."""
    if not len(times):
        return []
    starts = np.r_[True, (np.diff(values) != 0) | (np.diff(times) > step)]
    firsts = np.flatnonzero(starts)
    lasts = np.r_[firsts[1:], len(times)] - 1
    # between moments closer than a step a label gives way to the next
    nexts = np.r_[times[1:], times[-1] + step]
    ends = np.minimum(times[lasts] + step, nexts[lasts])
    runs = zip(times[firsts], ends, values[firsts], lines[firsts], strict=True)
    return [
        (int(a), int(b), int(v), int(line)) for a, b, v, line in runs if wanted is None or int(v) == wanted
    ]
