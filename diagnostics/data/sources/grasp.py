"""GraSP: phases and steps each second, instruments each 35 s, of 13 prostatectomies (arXiv 2401.11174;
github.com/BCV-Uniandes/GraSP).

Layout: COCO-like `grasp_long-term_{train,test}.json` and `grasp_short-term_{train,test}.json` (`fold1` and
    `fold2` are the two halves of train, and are read where train is missing): `images` with `id`,
    `file_name`, `video_name`; `annotations` with `image_id` and numbers in `phases` and `steps`, or
    `category_id`; lists of categories.
Time base: pictures of five digits are seconds. Those of nine digits are frames of the original video: 30 a
    second in cases 021, 041, 047, 050, 051, 053, 45 in the others, and irregular in 014, whose seconds are
    looked up in `1fps_to_30fps_association.json`. The published masks lie half a second inside their second
    (68 and 1642 at 45 a second are 1.5 and 36.5), as pictures taken at one a second do: a picture speaks
    for the whole second it lies in.
Traps: -1 is no label. Instruments are known in one second of 35 (`spacing`). Labels of phases and steps
    were revised in December 2024, which no file tells.
Unverified: the archive was never opened; how the association file is laid out (a table of names, or one a
    case, in either direction, is taken); its licence.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from diagnostics.data.build.annotations import Interval, Track
from diagnostics.data.sources._files import annotation_files, only, with_layout
from diagnostics.data.sources._grasp_labels import ALIASES, INSTRUMENTS, PHASES, STEPS
from diagnostics.data.sources._source import Annotated, Clip, Source, SourceFile, plain
from diagnostics.data.sources._tracks import LabelList, sampled
from diagnostics.errors import DataFileError

__all__ = ["SOURCE"]

_THIRTY = frozenset({"CASE021", "CASE041", "CASE047", "CASE050", "CASE051", "CASE053"})
"""Originals of 30 frames a second, by the owners' loader."""

_IRREGULAR = frozenset({"CASE014"})

_FILE = re.compile(r"grasp_(long|short)-term_(fold1|fold2|train|test)\.json")
_ASSOCIATION = "1fps_to_30fps_association.json"
_SPACING = 35.0


@dataclass(frozen=True)
class _Whole:
    """A file: by case `(place of the annotation, its picture, annotation)`, and its lists of categories."""

    cases: Mapping[str, Sequence[tuple[int, str, Mapping[str, Any]]]]
    categories: Mapping[str, Mapping[int, tuple[str, ...]]]


class _Grasp(Source):
    name = "GraSP"
    datasets = ("GraSP",)
    aliases = ALIASES
    _lists: Mapping[str, LabelList] = {
        "phases": LabelList("GraSP", "phases", dict(enumerate(PHASES)), ALIASES["phases"]),
        "steps": LabelList("GraSP", "steps", dict(enumerate(STEPS)), ALIASES["steps"]),
        "instruments": LabelList(
            "GraSP", "instruments", dict(enumerate(INSTRUMENTS)), ALIASES["instruments"]
        ),
    }

    def stem(self, video: str) -> str | None:
        match = re.fullmatch(
            r"(?:surgery[\W_]*)?(?:grasp[\W_]*)?(?:case[\W_]*)?(\d{1,3})", video.strip(), re.IGNORECASE
        )
        return None if match is None else f"CASE{int(match[1]):03d}"

    def find(self, root: Path) -> Mapping[str, tuple[Path, ...]]:
        found = defaultdict(list)
        for path in _used(root):
            for case in _load(path, *_stamp(path)).cases:
                found[case].append(path)
        return with_layout(found, root, "grasp_long-term_train.json, _test.json and the short-term ones")

    def read(self, root: Path, stem: str, clip: Clip | None = None) -> Annotated:
        paths = self.find(root).get(stem, ())
        long = only([p for p in paths if "_long-" in p.name], f"the phases and steps of {stem}", root)
        short = [p for p in paths if "_short-" in p.name]
        seconds = _Seconds(root, stem)
        warnings: list[str] = []
        tracks = {what: self._stages(what, long, stem, seconds, warnings) for what in ("phases", "steps")}
        if short:
            tracks["instruments"] = self._tools(
                only(short, f"the instruments of {stem}", root), stem, seconds
            )
        last = max((i.end for track in tracks.values() for i in track.intervals), default=None)
        return Annotated(
            self.name,
            stem,
            "seconds",
            seconds.words,
            tracks=tracks,
            files=tuple(SourceFile.of(path) for path in (long, *short, *seconds.files)),
            label_version="11 phases, 21 steps, 7 instruments; of before or after December 2024: not told",
            seconds=last,
            whole=False,
            spacing={"instruments": _SPACING} if short else {},
            warnings=tuple(warnings),
        )

    def _stages(self, what: str, path: Path, stem: str, seconds: _Seconds, warnings: list[str]) -> Track:
        whole = _load(path, *_stamp(path))
        listed = whole.categories.get(what)
        names = dict(self._lists[what].by_number)
        if listed is not None:
            names = {number: self._of(what, texts, path) for number, texts in listed.items()}
        own = LabelList(self.name, what, names, {})
        known: dict[int, str] = {-1: ""}
        times, labels, rows = [], [], []
        for row, picture, annotation in whole.cases[stem]:
            code = annotation.get(what)
            if isinstance(code, bool) or not isinstance(code, int):
                raise DataFileError(
                    f"Annotation {row}: {what!r} is {code!r}.", remedy="Download it again.", path=path
                )
            if code not in known:
                known[code] = own.number(code, path, f"annotation {row}")
            times.append(seconds.of(picture, path))
            labels.append(known[code])
            rows.append(row)
        track, found = sampled(np.array(times), labels, path, rows)
        warnings += [f"{what}: {warning}" for warning in found]
        return track

    def _tools(self, path: Path, stem: str, seconds: _Seconds) -> Track:
        whole = _load(path, *_stamp(path))
        listed = whole.categories.get("instruments") or whole.categories.get("")
        if listed is None:
            raise DataFileError(
                "The file lists no instruments.",
                remedy="Published files have `instruments_categories`.",
                path=path,
            )
        names = {number: self._of("instruments", texts, path) for number, texts in listed.items()}
        own = LabelList(self.name, "instruments", names, {})
        seen: dict[str, dict[int, int]] = defaultdict(dict)
        for row, picture, annotation in whole.cases[stem]:
            code = annotation.get("category_id", annotation.get("instruments"))
            if isinstance(code, bool) or not isinstance(code, int):
                raise DataFileError(
                    f"Annotation {row}: its category is {code!r}.", remedy="Download it again.", path=path
                )
            if code != -1:
                seen[own.number(code, path, f"annotation {row}")].setdefault(seconds.of(picture, path), row)
        found: list[Interval] = []
        for name, times in seen.items():
            track, _ = sampled(np.array(list(times)), [name] * len(times), path, list(times.values()))
            found += track.intervals
        return Track(tuple(sorted(found, key=lambda interval: interval.start)))

    def _of(self, what: str, texts: Sequence[str], path: Path) -> str:
        """The label of a category by its name, or else by its description."""
        wordings = {plain(label) for label in self._lists[what].by_number.values()}
        wordings |= {plain(alias) for alias in ALIASES[what]}
        if not texts:
            raise DataFileError(f"A category of {what} has no name.", remedy="Download it again.", path=path)
        text = next((text for text in texts if plain(text) in wordings), texts[0])
        return self._lists[what].name(text, path, f"category of {what}")


class _Seconds:
    """The second that a picture of one case lies in."""

    def __init__(self, root: Path, case: str) -> None:
        self._root, self._case = root, case
        self._fps = 30 if case in _THIRTY else 45
        self._table: Mapping[str, int] | None = None
        self._told: dict[str, None] = {}
        self.files: list[Path] = []

    @property
    def words(self) -> str:
        """How names became seconds: the files of one case may be of both copies."""
        return "; ".join(self._told)

    def of(self, picture: str, path: Path) -> int:
        name = picture.rpartition("/")[2].rpartition(".")[0]
        if not re.fullmatch(r"\d{5}|\d{9}", name):
            raise DataFileError(
                f"Picture {picture!r} has neither five nor nine digits.",
                remedy="Download the file again.",
                path=path,
            )
        if len(name) == 5:
            self._told["five digits are the second"] = None
            return int(name)
        if self._case not in _IRREGULAR:
            self._told[f"nine digits: frame of the original // {self._fps}"] = None
            return int(name) // self._fps
        if self._table is None:
            found = [p for p in annotation_files(self._root) if p.name == _ASSOCIATION]
            self.files = [only(found, f"the seconds of {self._case} ({_ASSOCIATION})", self._root)]
            self._table = _association(self.files[0], self._case)
            self._told[f"nine digits: second of the frame in {_ASSOCIATION}"] = None
        if name not in self._table:
            raise DataFileError(
                f"It has no second of {picture!r}.",
                remedy="Take it from the same release.",
                path=self.files[0],
            )
        return self._table[name]


def _association(path: Path, case: str) -> dict[str, int]:
    """The second of each nine-digit name of a case."""
    whole = _json(path)
    table = whole.get(case, whole)
    if not isinstance(table, dict):
        raise DataFileError(f"{case} is no table of names.", remedy="Download it again.", path=path)
    found = {}
    for pair in table.items():
        names = [str(name) for name in pair]
        if any("/" in name and case not in name.split("/") for name in names):
            continue
        digits = {len(digit): digit for name in names if (digit := Path(name).stem).isdecimal()}
        if set(digits) != {5, 9}:
            raise DataFileError(
                f"{pair[0]!r}: {pair[1]!r} does not pair a picture of five digits with one of nine.",
                remedy="Compare it with the released file.",
                path=path,
            )
        found[digits[9]] = int(digits[5])
    return found


def _used(root: Path) -> Iterator[Path]:
    """The label files to read: folds only where train is missing, whose halves they are."""
    found = {path: match for path in annotation_files(root) if (match := _FILE.fullmatch(path.name))}
    for path, match in found.items():
        length, split = match.groups()
        halves = split.startswith("fold")
        if not (halves and any(other.name == f"grasp_{length}-term_train.json" for other in found)):
            yield path


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=8)
def _load(path: Path, _modified: int, _size: int) -> _Whole:
    """A label file; kept, since each holds many cases. Its time and size say whether it is still the same."""
    whole = _json(path)
    images, annotations = whole.get("images"), whole.get("annotations")
    if not isinstance(images, list) or not isinstance(annotations, list):
        raise DataFileError(
            "It has no lists `images` and `annotations`.", remedy="Download it again.", path=path
        )
    try:
        pictures = {image["id"]: (_case(image, path), str(image["file_name"])) for image in images}
        cases = defaultdict(list)
        for row, annotation in enumerate(annotations):
            case, picture = pictures[annotation["image_id"]]
            cases[case].append((row, picture, annotation))
        categories = {
            key.removesuffix("categories").removesuffix("_"): {
                int(entry["id"]): tuple(
                    str(entry[word]) for word in ("name", "description") if entry.get(word)
                )
                for entry in entries
            }
            for key, entries in whole.items()
            if key.endswith("categories")
        }
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise DataFileError(
            f"It is not COCO-like: {error!r}.", remedy="Download it again.", path=path
        ) from error
    return _Whole(cases, categories)


def _case(image: Mapping[str, Any], path: Path) -> str:
    match = re.search(r"CASE(\d{3})", str(image.get("video_name") or image["file_name"]), re.IGNORECASE)
    if match is None:
        raise DataFileError(f"Image {image['id']} names no case.", remedy="Download it again.", path=path)
    return f"CASE{match[1]}"


def _json(path: Path) -> dict[str, Any]:
    try:
        whole = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataFileError(
            f"The file is not JSON: {error}.", remedy="Download it again.", path=path
        ) from error
    if not isinstance(whole, dict):
        raise DataFileError("The file is no JSON object.", remedy="Download it again.", path=path)
    return whole


SOURCE = _Grasp()
"""The reader."""
