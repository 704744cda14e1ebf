"""REAL-Colon: lesions boxed in every frame of 60 colonoscopies (Biffi et al., Sci Data 11:539; doi
10.25452/figshare.plus.22202866; github.com/cosmoimd/real-colon-dataset).

Layout: `SSS-VVV_annotations/` (`_annotation` in the README) with one VOC XML a frame, `SSS-VVV_t.xml`, also
    for frames without a lesion; `video_info.csv`; `lesion_info.csv`. If `SSS-VVV.csv` of the temporal
    segmentation (10.6084/m9.figshare.26472913) is there too, its `GT` gives the regions.
Time base: t is the frame. A video whose least t is 1 is counted from 1. All stays in frames: the rate
    differs by video.
Traps: t is sorted as a number. A frame may have several lesions, a lesion no box at all. Boxes of an id
    that lesion_info.csv lacks are kept, without attributes, and named. `ceacum` is misspelt in the
    segmentation.
Unverified: how sites are written; whether t counts from 0 or 1.

A video has some 46,000 files. They are read in one pass and hashed as one folder (`SourceFile.of_folder`).
A file with a document type is refused, since only such a file can define entities: nothing is ever
expanded.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

import numpy as np
import pandas as pd

from diagnostics.data.build.annotations import Interval, Lesion, Place, Track
from diagnostics.data.paths import existing_folder
from diagnostics.data.sources._files import annotation_files, integers, only, table, unlisted, with_layout
from diagnostics.data.sources._source import Annotated, Clip, Source, SourceFile
from diagnostics.data.sources._tracks import LabelList, sampled, several, spoken
from diagnostics.errors import DataFileError

__all__ = ["SOURCE"]

_REGIONS = (
    "outside", "insertion", "ceacum", "ileum", "ascending", "transverse", "descending", "sigmoid",
    "rectum", "n.a.", "uncertain",
)  # fmt: skip
_NO_REGIONS = ("n.a.", "uncertain")

_CLASSES = ("AD", "HP", "SSL", "TSA", "OTHER", "NO POLYP")

_ALIASES: Mapping[str, Mapping[str, str]] = {
    "regions": spoken(
        _REGIONS,
        {
            "ceacum": ("caecum", "cecum"),
            "ileum": ("terminal ileum",),
            "ascending": ("ascending colon",),
            "transverse": ("transverse colon",),
            "descending": ("descending colon",),
            "sigmoid": ("sigmoid colon",),
        },
    ),
    "histology": spoken(
        _CLASSES,
        {
            "AD": ("adenoma",),
            "HP": ("hyperplastic polyp", "hyperplastic"),
            "SSL": ("sessile serrated lesion",),
            "TSA": ("traditional serrated adenoma",),
            "NO POLYP": ("not a polyp",),
        },
    ),
}

_STEM = re.compile(r"(\d{3})-(\d{3})")
_FOLDER = re.compile(r"(\d{3}-\d{3})_annotations?")
_DEEPEST = 4


class _RealColon(Source):
    name = "REAL-Colon"
    datasets = ("REAL-Colon", "real_colon")
    aliases = _ALIASES
    _regions = LabelList("REAL-Colon", "regions", dict(enumerate(_REGIONS)), _ALIASES["regions"])

    def stem(self, video: str) -> str | None:
        match = re.search(r"(?<!\d)(\d{3}-\d{3})(?!\d)", video)
        return None if match is None else match[1]

    def find(self, root: Path) -> Mapping[str, tuple[Path, ...]]:
        root = existing_folder(root, what="folder of the annotations")
        found: dict[str, list[Path]] = defaultdict(list)
        for folder, inside, _ in os.walk(root, onerror=unlisted):
            here = Path(folder)
            # an archive may hold a second folder of its own name: the one with the files counts
            boxed = {name for name in inside if _FOLDER.fullmatch(name) and _holds_xml(here / name)}
            for name in boxed:
                found[name[:7]].append(here / name)
            deep = len(here.relative_to(root).parts) >= _DEEPEST
            closed = {name for name in inside if name in boxed or name.endswith("_frames") or name[0] == "."}
            inside[:] = [] if deep else sorted(set(inside) - closed)
        for path in annotation_files(root):
            if re.fullmatch(r"\d{3}-\d{3}\.csv", path.name) and path.stem in found:
                found[path.stem].append(path)
        return with_layout(found, root, "the folders SSS-VVV_annotations, video_info.csv and lesion_info.csv")

    def read(self, root: Path, stem: str, clip: Clip | None = None) -> Annotated:
        paths = self.find(root).get(stem, ())
        folder = only([p for p in paths if p.is_dir()], f"the boxes of {stem}", root)
        known = list(annotation_files(root))
        video_path = only(
            [p for p in known if p.name == "video_info.csv"], "the videos (video_info.csv)", root
        )
        lesion_path = only(
            [p for p in known if p.name == "lesion_info.csv"], "the lesions (lesion_info.csv)", root
        )
        warnings: list[str] = []
        info = _video_info(video_path, stem)
        boxes, hashed = _read_folder(folder, stem, warnings)
        offset = 1 if min(boxes) == 1 else 0
        if min(boxes) > 1:
            warnings.append(
                f"the first frame is {min(boxes)}, so 0 or 1 cannot be told apart; 0 is taken: {folder}"
            )
        reach = max(boxes) - offset + 1
        if not len(boxes) == info.n_frames == reach:
            warnings.append(
                f"{len(boxes)} files reach frame {reach}, and num_frames is {info.n_frames}: {folder}"
            )
        attributes = _attributes(lesion_path, stem)
        lesions = _lesions(boxes, offset, stem, folder, attributes, warnings)
        if info.n_lesions not in (None, len(attributes)):
            warnings.append(
                f"num_lesions is {info.n_lesions}, and {len(attributes)} have a row in {lesion_path}"
            )
        files = [hashed, SourceFile.of(video_path), SourceFile.of(lesion_path)]
        tracks: dict[str, Track] = {}
        segmentation = [p for p in paths if p.is_file()]
        if segmentation:
            path = only(segmentation, f"the regions of {stem}", root)
            tracks["regions"] = self._region_track(path, stem, offset, warnings)
            files.append(SourceFile.of(path))
        return Annotated(
            self.name,
            stem,
            "frames",
            f"the frame in the file's name, counted from {offset}",
            tracks=tracks,
            lesions=lesions,
            unseen=tuple(sorted(attributes.keys() - {one.name for one in lesions})),
            labels=info.labels,
            files=tuple(files),
            label_version="release as written in the files: "
            + (", ".join(sorted(_releases(boxes))) or "none"),
            n_frames=info.n_frames,
            fps=info.fps,
            seconds=info.n_frames / info.fps,
            warnings=tuple(warnings),
        )

    def _region_track(self, path: Path, stem: str, offset: int, warnings: list[str]) -> Track:
        rows = table(path, ("frame_filename", "GT"))
        lines = [int(line) for line in rows.index]
        frames = []
        for line, name in zip(lines, rows["frame_filename"], strict=True):
            match = re.fullmatch(rf"(?:.*/)?{re.escape(stem)}_(\d+)\.\w+", name)
            if match is None:
                raise DataFileError(
                    f"Line {line}: {name!r} is no frame of {stem}.", remedy="The file is misnamed.", path=path
                )
            frames.append(int(match[1]) - offset)
        texts = list(rows["GT"])
        meant = {
            text: self._regions.name(text, path, f"line {lines[texts.index(text)]}")
            for text in dict.fromkeys(texts)
        }
        labels = ["" if meant[text] in _NO_REGIONS else meant[text] for text in texts]
        track, found = sampled(np.array(frames), labels, path, lines)
        warnings += found
        return track


def _holds_xml(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return any(entry.name.endswith(".xml") and entry.name[0] != "." for entry in entries)


# -- the tables


@dataclass(frozen=True)
class _Info:
    n_frames: int
    fps: float
    n_lesions: int | None
    labels: Mapping[str, str | float]


def _video_info(path: Path, stem: str) -> _Info:
    rows = table(path, ("unique_video_name", "fps", "num_frames", "num_lesions", "bbps"))
    own = rows[rows["unique_video_name"] == stem]
    if len(own) != 1:
        raise DataFileError(
            f"{len(own)} rows are of {stem}, not one.", remedy="Download the file again.", path=path
        )
    fps = float(pd.to_numeric(own["fps"], errors="coerce").iloc[0])
    if not (np.isfinite(fps) and fps > 0):
        raise DataFileError(
            f"fps of {stem} is {own['fps'].iloc[0]!r}.", remedy="Download the file again.", path=path
        )
    bbps = own["bbps"].iloc[0]
    number = pd.to_numeric(bbps, errors="coerce")
    labels: dict[str, str | float] = {} if not bbps else {"bbps": bbps if np.isnan(number) else float(number)}
    counted = own["num_lesions"].iloc[0]
    return _Info(
        int(integers(own, "num_frames", path)[0]),
        fps,
        int(integers(own, "num_lesions", path)[0]) if counted else None,
        labels,
    )


def _lesions(
    boxes: Mapping[int, _Frame],
    offset: int,
    stem: str,
    folder: Path,
    attributes: Mapping[str, Mapping[str, str | float]],
    warnings: list[str],
) -> tuple[Lesion, ...]:
    """Lesions with a box, by first appearance, each with the runs of frames that show one."""
    seen: dict[str, list[int]] = defaultdict(list)
    for frame in sorted(boxes):
        for name in boxes[frame].lesions:
            seen[name].append(frame - offset)
    warnings += [f"lesion {name} has no box in any frame" for name in attributes if name not in seen]
    warnings += [
        f"lesion {name} has boxes, and no row in lesion_info.csv" for name in seen if name not in attributes
    ]
    found = []
    for name, frames in seen.items():
        track, _ = sampled(
            np.array(frames), [name] * len(frames), folder, [frame + offset for frame in frames]
        )
        rows = tuple(
            Interval(row.start, row.end, name, Place(str(folder / f"{stem}_{row.place.row}.xml")))
            for row in track.intervals
        )
        found.append(Lesion(name, rows, attributes.get(name, {})))
    return tuple(sorted(found, key=lambda lesion: (lesion.appears, lesion.name)))


def _attributes(path: Path, stem: str) -> dict[str, dict[str, str | float]]:
    columns = {
        "size": "size [mm]",
        "site": "site",
        "histology": "histology_class",
        "histology_extended": "histology_extended",
    }
    rows = table(path, ("unique_object_id", "unique_video_name", *columns.values()))
    found: dict[str, dict[str, str | float]] = {}
    for line, row in rows[rows["unique_video_name"] == stem].iterrows():
        name = row["unique_object_id"]
        if name in found:
            raise DataFileError(
                f"Line {line}: lesion {name} is there twice.", remedy="Download the file again.", path=path
            )
        found[name] = {}
        for attribute, column in columns.items():
            if row[column]:
                number = pd.to_numeric(row[column], errors="coerce") if attribute == "size" else np.nan
                found[name][attribute] = row[column] if np.isnan(number) else float(number)
    return found


# -- the XML files


@dataclass
class _Frame:
    """What one file says: its picture, and the lesions boxed in it."""

    picture: str = ""
    release: str = ""
    lesions: list[str] = field(default_factory=list)


def _read_folder(folder: Path, stem: str, warnings: list[str]) -> tuple[dict[int, _Frame], SourceFile]:
    """Every frame of the folder by its t.

    Raises:
        DataFileError: a file is no VOC XML, or is named for another video.
    """
    boxes: dict[int, _Frame] = {}
    hashes: dict[str, str] = {}
    strays = []
    for path in folder.iterdir():
        name = path.name
        if not name.endswith(".xml") or name.startswith("."):
            continue
        match = re.fullmatch(rf"{stem}_(\d+)\.xml", name)
        if match is None:
            raise DataFileError(f"{name!r} is no frame of {stem}.", remedy="Remove it.", path=folder)
        raw = path.read_bytes()
        hashes[name] = hashlib.sha256(raw).hexdigest()
        frame = _parse(raw, str(path))
        time = int(match[1])
        if time in boxes:
            raise DataFileError(
                f"Two files are of frame {time}.", remedy="Download the folder again.", path=folder
            )
        if frame.picture.rpartition("/")[2].rpartition(".")[0] != name.removesuffix(".xml"):
            strays.append((time, frame.picture))
            frame.lesions = []
        boxes[time] = frame
    if strays:
        places = [f"frame {time} names {picture!r} in {folder}" for time, picture in sorted(strays)]
        warnings.append(several(places, "the picture in the file is not the one in its name"))
    return boxes, SourceFile.of_folder(folder, hashes)


def _parse(raw: bytes, path: str) -> _Frame:
    """One VOC file, by the parser below ElementTree, which tells a document type before anything is expanded.

    Raises:
        DataFileError: it is not well-formed, has a document type, or a box without its lesion's id.
    """
    frame = _Frame()
    within: list[str] = []
    text: list[str] = []
    ids: list[str] = []

    def start(name: str, _attributes: Mapping[str, str]) -> None:
        within.append(name)
        text.clear()
        if name == "object":
            ids.clear()

    def end(name: str) -> None:
        within.pop()
        written = "".join(text).strip()
        text.clear()
        if name == "filename":
            frame.picture = written
        elif name == "release":
            frame.release = written
        elif name == "unique_id" and within[-1:] == ["object"] and written:
            ids.append(written)
        elif name == "object":
            if len(ids) != 1:
                raise DataFileError(
                    "A box has no unique_id of its lesion.", remedy="Download it again.", path=path
                )
            frame.lesions.append(ids[0])

    def doctype(*_declared: object) -> None:
        raise DataFileError(
            "The file has a document type.", remedy="Published files have none: remove it.", path=path
        )

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = text.append
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(raw, True)
    except (expat.ExpatError, ValueError, LookupError) as error:  # the latter of an encoding it cannot read
        raise DataFileError(
            f"The file is not XML: {error}.", remedy="Download it again.", path=path
        ) from error
    return frame


def _releases(boxes: Mapping[int, _Frame]) -> set[str]:
    return {frame.release for frame in boxes.values() if frame.release}


SOURCE = _RealColon()
"""The reader."""
