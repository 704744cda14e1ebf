"""Galar: sections and landmarks in 80 capsule endoscopies (Le Floch et al., Sci Data 2025,
10.1038/s41597-025-05112-7).

Layout: `Galar_labels_and_metadata/Labels/1.csv` to `80.csv` (also `labels/`), one row a frame: `index`,
    one-hot columns, `section` as text, `frame`. 74 files have 27 columns, 6 have five more (bubbles, dirt,
    no view, reduced view, good view).
Time base: `frame`, not `index`. There is no time, and capsules change their rate: all is in frames. Videos
    may have been built from the numbered pictures, or from those that exist: where numbers are missing, the
    benchmark's frame count decides between the number and the place of the row.
Traps: gaps in `frame`; files without a colon; rows of two sections; two releases (the revised labels lie in
    `20251215_Labels_Updated`): keep one, which is named in `label_version`.
Unverified: which release and which 44 videos MedHorizon uses, whether frames count from 0 or 1 (a file
    whose least is 1 is taken to count from 1), whether the licence is CC BY 4.0.
Findings (ulcer, polyp, blood...) are not read: no question of MedHorizon is about them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

from diagnostics.data.build.annotations import Interval, Place, Track
from diagnostics.data.sources._files import annotation_files, integers, numbered, only, table, with_layout
from diagnostics.data.sources._source import Annotated, Clip, Source, SourceFile
from diagnostics.data.sources._tracks import LabelList, sampled, several, spoken
from diagnostics.errors import DataFileError

__all__ = ["SOURCE"]

_SECTIONS = ("mouth", "esophagus", "stomach", "small intestine", "colon")
_LANDMARKS = ("z-line", "pylorus", "ampulla of vater", "ileocecal valve")

_ALIASES: Mapping[str, Mapping[str, str]] = {
    "regions": spoken(
        _SECTIONS,
        {
            "mouth": ("oral cavity",),
            "esophagus": ("oesophagus",),
            "stomach": ("gastric",),
            "small intestine": ("small bowel", "small_intestine"),
            "colon": ("large intestine", "large bowel"),
        },
    ),
    "landmarks": spoken(
        _LANDMARKS,
        {
            "z-line": ("gastroesophageal junction", "gastro-oesophageal junction"),
            "ampulla of vater": ("major duodenal papilla",),
            "ileocecal valve": ("ileocaecal valve",),
        },
    ),
}


class _Galar(Source):
    name = "Galar"
    datasets = ("Galar",)
    aliases = _ALIASES
    _sections = LabelList("Galar", "sections", dict(enumerate(_SECTIONS)), _ALIASES["regions"])

    def stem(self, video: str) -> str | None:
        number = numbered(video, "galar|recording|video|capsule", 80)
        return None if number is None else str(number)

    def find(self, root: Path) -> Mapping[str, tuple[Path, ...]]:
        found = defaultdict(list)
        for path in annotation_files(root):
            if match := re.fullmatch(r"([1-9]\d?)\.csv", path.name):
                found[match[1]].append(path)
        return with_layout(found, root, "Labels/1.csv to Labels/80.csv")

    def read(self, root: Path, stem: str, clip: Clip | None = None) -> Annotated:
        path = only(self.find(root).get(stem, ()), f"the labels of video {stem}", root)
        rows = table(path, ("section", "frame", *_SECTIONS, *_LANDMARKS))
        lines = [int(line) for line in rows.index]
        warnings: list[str] = []
        ticks, n_frames, time_base = _ticks(integers(rows, "frame", path), clip, warnings, path)
        regions = self._regions(rows, ticks, path, lines, warnings)
        landmarks: list[Interval] = []
        doubts: set[tuple[float, float]] = set()
        for name in _LANDMARKS:
            track, found = sampled(ticks, np.where(_bits(rows, name, path), name, "").tolist(), path, lines)
            landmarks += track.intervals
            doubts |= set(track.doubts)
            warnings += [f"{name}: {warning}" for warning in found[:1] if track.doubts]  # of two labels
        landmarks.sort(key=lambda interval: interval.start)
        return Annotated(
            self.name,
            stem,
            "frames",
            time_base,
            tracks={"regions": regions, "landmarks": Track(tuple(landmarks), tuple(sorted(doubts)))},
            files=(SourceFile.of(path),),
            label_version=_version(path.relative_to(root.parent), len(rows.columns)),
            n_frames=n_frames,
            warnings=tuple(warnings),
        )

    def _regions(
        self,
        rows: pd.DataFrame,
        ticks: Int[np.ndarray, " row"],
        path: Path,
        lines: list[int],
        warnings: list[str],
    ) -> Track:
        hot = np.stack([_bits(rows, name, path) for name in _SECTIONS], axis=1)
        texts = rows["section"].to_numpy(dtype=object)
        meant = {
            text: self._sections.name(text, path, f"line {lines[int(np.argmax(texts == text))]}")
            if text
            else ""
            for text in dict.fromkeys(texts)
        }
        by_text = np.array([meant[text] for text in texts], dtype=object)
        by_bit = np.array(["", *_SECTIONS], dtype=object)[
            np.where(hot.any(axis=1), hot.argmax(axis=1) + 1, 0)
        ]
        bad = (hot.sum(axis=1) > 1) | ((by_text != "") & (by_text != by_bit))
        if bad.any():
            places = [Place(str(path), lines[place]) for place in np.flatnonzero(bad)]
            warnings.append(several(places, "two sections, or `section` names another than the columns"))
        track, found = sampled(ticks, list(by_bit), path, lines, doubted=np.flatnonzero(bad).tolist())
        warnings += found
        return track


def _bits(rows: pd.DataFrame, column: str, path: Path) -> Bool[np.ndarray, " row"]:
    """A one-hot column; an empty cell is a 0."""
    numbers = pd.to_numeric(rows[column].replace("", "0"), errors="coerce").to_numpy(dtype=float)
    bad = ~np.isin(numbers, (0.0, 1.0))
    if bad.any():
        place = int(np.argmax(bad))
        raise DataFileError(
            f"Line {rows.index[place]}: {column!r} is {rows[column].iloc[place]!r}, not 0 or 1.",
            remedy="Download the file again.",
            path=path,
        )
    return numbers == 1.0


def _ticks(
    frames: Int[np.ndarray, " row"], clip: Clip | None, warnings: list[str], path: Path
) -> tuple[Int[np.ndarray, " row"], int, str]:
    """Where in the video each row is, how long the video is, and how that was decided."""
    least = int(frames.min())
    offset = 1 if least == 1 else 0
    if least > 1:
        warnings.append(f"the first frame is {least}, so 0 or 1 cannot be told apart; 0 is taken: {path}")
    by_number = int(frames.max()) - offset + 1
    n_rows = len(np.unique(frames))
    if clip is not None and abs(clip.n_frames - n_rows) < abs(clip.n_frames - by_number):
        _, ranks = np.unique(frames, return_inverse=True)
        return (
            ranks.reshape(-1),
            n_rows,
            f"place of the row by `frame`: the benchmark has {n_rows} frames, the numbers reach {by_number}",
        )
    return frames - offset, by_number, f"`frame`, counted from {offset}"


def _version(path: Path, columns: int) -> str:
    """Which release, by the folders from the source's own downwards."""
    revised = any(re.search(r"updated|2025\d{4}", part, re.IGNORECASE) for part in path.parts)
    return f"{'revised labels (by the folder)' if revised else 'labels as published'}, {columns} columns"


SOURCE = _Galar()
"""The reader."""
