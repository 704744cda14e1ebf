"""AutoLaparo: phases of 21 laparoscopic hysterectomies (Wang et al., MICCAI 2022; autolaparo.github.io).

Layout: Task 1's `labels/label_01.txt` to `label_21.txt`: a header, then tab-separated `Frame` and `Phase`.
Time base: the owners' extractor keeps every 25th frame of the 25 fps video and counts these from 1, so
    `Frame` = k is second k - 1.
Traps: a third party's loader carries eight phases under other names: a number outside 1-7 is refused.
    Phases recur. Task 2 and 3 label short clips that no file places in the videos: they are of no use here.
Unverified: the archive was never opened; its layout is that of third parties' loaders.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from diagnostics.data.sources._files import annotation_files, integers, numbered, only, table, with_layout
from diagnostics.data.sources._source import Annotated, Clip, Source, SourceFile
from diagnostics.data.sources._tracks import LabelList, sampled, spoken
from diagnostics.errors import DataFileError

__all__ = ["SOURCE"]

_PHASES = {
    1: "Preparation",
    2: "Dividing Ligament and Peritoneum",
    3: "Dividing Uterine Vessels and Ligament",
    4: "Transecting the Vagina",
    5: "Specimen Removal",
    6: "Suturing",
    7: "Washing",
}

_ALIASES = spoken(
    _PHASES.values(),
    {
        "Dividing Ligament and Peritoneum": (
            "division of the ligament and peritoneum",
            "ligament and peritoneum division",
        ),
        "Dividing Uterine Vessels and Ligament": (
            "division of the uterine vessels and ligament",
            "uterine vessels and ligament division",
        ),
        "Transecting the Vagina": ("transection of the vagina", "vaginal transection", "vagina transection"),
        "Specimen Removal": ("removal of the specimen", "removing the specimen"),
        "Suturing": ("suture",),
        "Washing": ("irrigation and washing",),
    },
)


class _AutoLaparo(Source):
    name = "AutoLaparo"
    datasets = ("AutoLaparo", "auto_laparo")
    aliases: Mapping[str, Mapping[str, str]] = {"phases": _ALIASES}
    _labels = LabelList("AutoLaparo", "phases", _PHASES, _ALIASES)

    def stem(self, video: str) -> str | None:
        number = numbered(video, "auto_?laparo|video|label", 21)
        return None if number is None else f"{number:02d}"

    def find(self, root: Path) -> Mapping[str, tuple[Path, ...]]:
        found = defaultdict(list)
        for path in annotation_files(root):
            if match := re.fullmatch(r"label_(\d\d)\.txt", path.name):
                found[match[1]].append(path)
        return with_layout(found, root, "label_01.txt to label_21.txt of Task 1")

    def read(self, root: Path, stem: str, clip: Clip | None = None) -> Annotated:
        path = only(self.find(root).get(stem, ()), f"the phases of video {stem}", root)
        rows = table(path, ("Frame", "Phase"), whitespace=True)
        frames = integers(rows, "Frame", path)
        if frames.min() < 1:
            raise DataFileError(
                "A frame is 0.",
                remedy="The published files count from 1: this one has another time base.",
                path=path,
            )
        lines = [int(line) for line in rows.index]
        numbers = integers(rows, "Phase", path)
        known = {
            int(n): self._labels.number(int(n), path, f"line {lines[int((numbers == n).argmax())]}")
            for n in set(numbers)
        }
        track, warnings = sampled(frames - 1, [known[int(n)] for n in numbers], path, lines)
        return Annotated(
            self.name,
            stem,
            "seconds",
            "one row a second: Frame k is [k - 1, k) s",
            tracks={"phases": track},
            files=(SourceFile.of(path),),
            label_version="seven phases",
            seconds=float(frames.max()),
            fps=25.0,
            warnings=tuple(warnings),
        )


SOURCE = _AutoLaparo()
"""The reader."""
