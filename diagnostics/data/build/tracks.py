"""Track files, CSV and JSON, as rows. The format is in docs/build.md.

Both forms come to the same rows, each with its place; what a row means is judged in `rows`. A row that
is no row is dropped here with its place and reason; a file that cannot be used as a whole is an error.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnostics.data.build.annotations import Place
from diagnostics.data.build.reasons import BadRowError
from diagnostics.data.lines import parse_object, read_lines
from diagnostics.data.paths import existing_file
from diagnostics.errors import DataFileError, RecordError
from diagnostics.strict import near_match

__all__ = ["COLUMNS", "FACTS", "Row", "Unread", "object_rows", "read_rows", "track_files"]

COLUMNS = ("procedure", "track", "label", "start", "end", "value")
"""Header of the CSV form, in any order."""

FACTS = ("video", "source", "fps", "frames", "duration")
"""What is said once of a procedure."""

_SINGULAR = {"phase": "phases", "step": "steps", "region": "regions", "instrument": "instruments"}
_LISTS = tuple(_SINGULAR.values())
_SUFFIXES = (".csv", ".json", ".jsonl")


@dataclass(frozen=True, slots=True)
class Row:
    """One statement about a procedure.

    Attributes:
        procedure: its name; of a space row of a whole file the empty text.
        track: `phases`..., `lesions`, `lesion.ATTRIBUTE`, `labels`, `space.NAME`, or one of `FACTS`.
        label: the label, the lesion's id, the examination label's name, or the fact.
        start, end: as written: numbers, or text where a CSV cell is no number; None where empty.
        value: of an attribute or an examination label.
        source: of a space row of a whole file, the source it belongs to.
    """

    procedure: str
    track: str
    label: Any
    start: Any
    end: Any
    value: Any
    place: Place
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Unread:
    """A row that says nothing certain.

    Attributes:
        error: why.
        procedure: the one whose tracks may lack something because of it; the empty text for every
            procedure of the file; None where nothing else is touched.
        place: where it is.
    """

    error: BadRowError
    procedure: str | None
    place: Place


def track_files(paths: Sequence[Path]) -> list[Path]:
    """The files, and of a folder those in it that have a track file's suffix, sorted by name.

    Raises:
        DataFileError: one is missing, has another suffix, or a folder holds none.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = sorted(entry for entry in path.iterdir() if entry.suffix.lower() in _SUFFIXES)
            if not found:
                raise DataFileError(
                    "The folder holds no track file.",
                    remedy="Track files end in .csv, .json, .jsonl.",
                    path=path,
                )
            files += found
            continue
        path = existing_file(path, what="track file")
        if path.suffix.lower() not in _SUFFIXES:
            raise DataFileError(
                f"A track file does not end in {path.suffix!r}.",
                remedy=f"Name it {', '.join(_SUFFIXES)}, by its form.",
                path=path,
            )
        files.append(path)
    return list(dict.fromkeys(files))


def read_rows(path: Path) -> Iterator[Row | Unread]:
    """The rows of a track file, and an error with its place for each that is none.

    Raises:
        DataFileError: the file is missing or not of its form.
    """
    if path.suffix.lower() == ".csv":
        yield from _csv_rows(path)
    elif path.suffix.lower() == ".jsonl":
        for where, record in read_lines(path):
            place = Place(str(path), int(where.rpartition(":")[2]))
            if isinstance(record, RecordError):
                yield _bad(record.problem, place, None, record.remedy)
            else:
                yield from _procedure_rows(record, place, None)
    else:
        yield from _json_rows(path)


def _bad(
    problem: str, place: Place, procedure: str | None, remedy: str = "Correct or remove the row."
) -> Unread:
    return Unread(BadRowError(problem, remedy=remedy, path=str(place)), procedure, place)


# -- CSV


def _csv_rows(path: Path) -> Iterator[Row | Unread]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataFileError("The file is not UTF-8.", remedy="Save it as UTF-8.", path=path) from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    while True:
        line = reader.line_num + 1  # where the row begins; quoted cells may run over several lines
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            yield _bad(f"The row is not CSV: {error}.", Place(str(path), line), "")
            continue
        if not any(cell.strip() for cell in cells):
            continue
        if header is None:
            header = _header(path, cells)
        elif len(cells) != len(header):
            problem = f"The row has {len(cells)} cells, the header {len(header)}."
            named = dict(zip(header, cells, strict=False)).get("procedure", "").strip()
            yield _bad(problem, Place(str(path), line), named)
        else:
            yield _csv_row(dict(zip(header, (cell.strip() for cell in cells), strict=True)), path, line)
    if header is None:
        raise DataFileError("The file is empty.", remedy=f"Its header is {','.join(COLUMNS)}.", path=path)


def _header(path: Path, cells: list[str]) -> list[str]:
    header = [cell.strip().lower() for cell in cells]
    unknown = [name for name in header if name not in COLUMNS]
    missing = [name for name in COLUMNS if name not in header]
    if unknown or missing or len(set(header)) < len(header):
        hint = near_match(unknown[0], COLUMNS) if unknown else ""
        raise DataFileError(
            f"The header is {','.join(cells)}.",
            remedy=f"It must be {','.join(COLUMNS)}. {hint}".strip(),
            path=path,
        )
    return header


def _csv_row(cells: Mapping[str, str], path: Path, line: int) -> Row | Unread:
    place = Place(str(path), line)
    written = cells["track"]
    track = {**_SINGULAR, "lesion": "lesions", "label": "labels"}.get(written, written)
    if not cells["procedure"]:
        return _bad("The row names no procedure.", place, "")
    known = (*_LISTS, "lesions", "labels", *FACTS)
    if track not in known and not track.startswith(("lesion.", "space.")):
        hint = near_match(written, [*_SINGULAR, "lesion", "label", *FACTS])
        return _bad(f"There is no track {written!r}.", place, cells["procedure"], hint)
    value: Any = cells["value"] or None
    if track in FACTS:  # `video` and `source` fill the label's cell, numbers the value's: either is taken
        value = cells["value"] or cells["label"] or None
    start, end = (_number(cells[edge]) for edge in ("start", "end"))
    if track in ("labels", *FACTS, "lesion.size"):
        value = _number(value)
    return Row(cells["procedure"], track, cells["label"], start, end, value, place)


def _number(text: str | None) -> Any:
    """The number that `text` writes; the text itself where it writes none, which `rows` refuses."""
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        return text


# -- JSON


def _json_rows(path: Path) -> Iterator[Row | Unread]:
    whole = parse_object(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), str(path))
    if isinstance(whole, RecordError):
        raise DataFileError(
            whole.problem.replace("This line", "The file"),
            remedy='Write one object: a procedure, or {"procedures": [...]}.',
            path=path,
        )
    yield from object_rows(whole, str(path))


def object_rows(whole: Mapping[str, Any], file: str) -> Iterator[Row | Unread]:
    """The rows of one JSON object: a procedure, or a set of them.

    Args:
        whole: as read from a `.json` file, or made in memory.
        file: what the places of its rows name.

    Raises:
        DataFileError: it is not of its form.
    """
    if "procedures" not in whole:
        yield from _procedure_rows(whole, Place(file), None)
        return
    known = ("source", "spaces", "procedures")
    for key in whole:
        if key not in known:
            raise DataFileError(f"Unknown key {key!r}.", remedy=near_match(key, known), path=file)
    source = whole.get("source", "")
    if not isinstance(source, str):
        raise DataFileError(f"The source is {source!r}, not a text.", remedy="Write a text.", path=file)
    yield from _space_rows(whole.get("spaces", {}), "", Place(file, None, "spaces"), source)
    if not isinstance(whole["procedures"], list):
        raise DataFileError("'procedures' is no list.", remedy="Write [{...}, ...].", path=file)
    for number, record in enumerate(whole["procedures"], start=1):
        place = Place(file, number, "procedures")
        if isinstance(record, dict):
            yield from _procedure_rows(record, place, source)
        else:
            yield _bad(f"A procedure is {record!r}, not an object.", place, None)


def _procedure_rows(record: Mapping[str, Any], place: Place, source: str | None) -> Iterator[Row | Unread]:
    """Every row of one procedure."""
    name = record.get("procedure")
    if not isinstance(name, str) or not name.strip():
        yield _bad(f"'procedure' is {name!r}, not a name.", place, None, "Name the procedure.")
        return
    name = name.strip()
    known = ("procedure", *FACTS, *_LISTS, "lesions", "labels", "spaces")
    facts = {"source": source, **record} if source else record
    for key in record:
        if key not in known:
            yield _bad(f"{name}: unknown key {key!r}.", place, name, near_match(key, known))
    for fact in FACTS:
        if facts.get(fact) is not None:
            yield Row(name, fact, "", None, None, facts[fact], place)
    yield from _space_rows(
        record.get("spaces", {}), name, Place(place.file, place.row, f"{name} spaces"), None
    )
    for track in (*_LISTS, "lesions"):
        entries = record.get(track, [])
        if not isinstance(entries, list):
            yield Row(name, track, None, "?", "?", None, Place(place.file, None, f"{name} {track}"))
            continue
        for number, entry in enumerate(entries, start=1):
            where = Place(place.file, number, f"{name} {track}")
            yield from (
                _lesion_rows(name, entry, where)
                if track == "lesions"
                else _interval_row(name, track, entry, where)
            )
    labels = record.get("labels", {})
    where = Place(place.file, place.row, f"{name} labels")
    if isinstance(labels, dict):
        for key, value in labels.items():
            yield Row(name, "labels", key, None, None, value, where)
    else:
        yield _bad(f"'labels' is {labels!r}, not an object.", where, name)


def _interval_row(name: str, track: str, entry: Any, place: Place) -> Iterator[Row | Unread]:
    """A row; one that cannot be read keeps its track, so that the track is known to lack something."""
    if isinstance(entry, dict) and set(entry) == {"start", "end", "label"}:
        yield Row(name, track, entry["label"], entry["start"], entry["end"], None, place)
    else:
        yield Row(name, track, None, entry, None, None, place)


def _lesion_rows(name: str, entry: Any, place: Place) -> Iterator[Row | Unread]:
    windows = entry.get("windows") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(windows, list) or not windows:
        yield Row(name, "lesions", None, entry, None, None, place)
        return
    for window in windows:
        start, end = window if isinstance(window, list) and len(window) == 2 else (window, None)
        yield Row(name, "lesions", entry.get("lesion"), start, end, None, place)
    for key, value in entry.items():
        if key not in ("lesion", "windows") and value is not None:
            yield Row(name, f"lesion.{key}", entry.get("lesion"), None, None, value, place)


def _space_rows(spaces: Any, name: str, place: Place, source: str | None) -> Iterator[Row]:
    if not isinstance(spaces, dict) or not all(isinstance(labels, list) for labels in spaces.values()):
        raise DataFileError(
            "'spaces' is not an object of lists.", remedy='Write {"phases": ["a", "b"]}.', path=place.file
        )
    for space, labels in spaces.items():
        for label in labels:
            yield Row(name, f"space.{space}", label, None, None, None, place, source)
