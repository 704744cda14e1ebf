"""US-Study: a contraction label for each of 30 ultrasound studies. Its publication was not found.

Layout: ours, since none is published: a CSV file with the columns `video` and `label`, one row a study.
    Videos are `NN-lus`, as in MedHorizon's `us_study/01-lus.mp4`.
Time base: none. The label is of the whole study, so the evidence is the whole video.
Unverified: everything about the source.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from diagnostics.data.sources._files import annotation_files, only, table, with_layout
from diagnostics.data.sources._source import Annotated, Clip, Source, SourceFile, plain
from diagnostics.errors import DataFileError

__all__ = ["SOURCE"]


class _UsStudy(Source):
    name = "US-Study"
    datasets = ("US-Study", "us_study", "ultrasound study")
    aliases: Mapping[str, Mapping[str, str]] = {}

    def stem(self, video: str) -> str | None:
        known = r"(?:ultrasound[\W_]*)?(us_study[\W_]*)?(\d{2,})([-_]lus)?"
        match = re.fullmatch(known, video.strip(), re.IGNORECASE)
        return f"{match[2]}-lus" if match and (match[1] or match[3]) else None

    def find(self, root: Path) -> Mapping[str, tuple[Path, ...]]:
        found: dict[str, list[Path]] = defaultdict(list)
        for path in annotation_files(root):
            if path.suffix.lower() != ".csv" or not {"video", "label"} <= _header(path):
                continue
            stems = (self.stem(Path(video).stem) for video in table(path, ("video", "label"))["video"])
            for stem in dict.fromkeys(stems):
                if stem is not None:
                    found[stem].append(path)
        return with_layout(found, root, "a CSV file with the columns video,label and videos named NN-lus")

    def read(self, root: Path, stem: str, clip: Clip | None = None) -> Annotated:
        path = only(self.find(root).get(stem, ()), f"the label of {stem}", root)
        rows = table(path, ("video", "label"))
        own = rows[[self.stem(Path(video).stem) == stem for video in rows["video"]]]
        if len(own) > 1:
            raise DataFileError(
                f"Lines {own.index[0]} and {own.index[1]} both claim {stem}.",
                remedy="Keep one row a study.",
                path=path,
            )
        return Annotated(
            self.name,
            stem,
            "seconds",
            "no times: the label is of the whole study",
            labels={"contraction": str(own["label"].iloc[0])},
            files=(SourceFile.of(path),),
            label_version="a table of the user's own: no release is known",
        )


def _header(path: Path) -> set[str]:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return {plain(name) for name in file.readline().split(",")}


SOURCE = _UsStudy()
"""The reader."""
