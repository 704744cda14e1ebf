"""MultiBypass140: phases and steps of 140 gastric bypasses (Lavanchy et al., arXiv 2312.11250;
github.com/CAMMA-public/MultiBypass140).

Layout: `labels/{bern,strasbourg}/labels_by70/{BBP,SBP}nn.mp4.json`: lists `phases` and `steps` of `start`,
    `end`, `label_name`, `label_id`.
Time base: milliseconds of the video (not frames, as users have read them). The owners' per-second pickles
    are derived: their `Original_frame_id` k has the label of second k + 1 here. They are not read:
    unpickling runs code.
Traps: out_of_body (12) and severe_index (13) lie over other phases, and are left out. Labels begin up to
    162 s into the video, and may end before it does: the length of the labelled part is no length of the
    video. Strasbourg's labels ran about 1.58 times as long as their videos, or the other way, from swapped
    ids until the owners' commit b3368e0 (issue 5): compare durations.
Verified on the public files: in all 140, phases 0-11 tile their span without gap or overlap, and so do the
    steps. In the 90 videos whose pickles could be had, all 943,802 labels are those of second k + 1, an end
    counted with what it ends: 3 lie just on a border, 16 on the last one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diagnostics.data.build.annotations import Interval, Place, Track
from diagnostics.data.lines import parse_object
from diagnostics.data.sources._files import annotation_files, only, with_layout
from diagnostics.data.sources._source import Annotated, Clip, Source, SourceFile
from diagnostics.data.sources._tracks import LabelList, intervals, spoken
from diagnostics.errors import DataFileError, RecordError

__all__ = ["OVERLAYS", "SOURCE"]

_PHASES = (
    "preparation", "gastric_pouch_creation", "omentum_division", "gastrojejunal_anastomosis",
    "anastomosis_test", "jejunal_separation", "closure_petersen_space", "jejunojejunal_anastomosis",
    "closure_mesenteric_defect", "cleaning_coagulation", "disassembling", "other_intervention",
    "out_of_body", "severe_index",
)  # fmt: skip

OVERLAYS = ("out_of_body", "severe_index")
"""What lies over the phases: no phases themselves."""

_STEPS = (
    "null_step", "cavity_exploration", "trocar_placement", "retractor_placement", "crura_dissection",
    "his_angle_dissection", "horizontal_stapling", "retrogastric_dissection", "vertical_stapling",
    "gastric_remnant_reinforcement", "gastric_pouch_reinforcement", "gastric_opening", "omental_lifting",
    "omental_section", "adhesiolysis", "treitz_angle_identification", "biliary_limb_measurement",
    "jejunum_opening", "gastrojejunal_stapling", "gastrojejunal_defect_closing", "mesenteric_opening",
    "jejunal_section", "gastric_tube_placement", "jejunal_clamping", "ink_injection", "visual_assessment",
    "gastrojejunal_anastomosis_reinforcement", "petersen_space_exposure", "petersen_space_closing",
    "biliary_limb_opening", "alimentary_limb_measurement", "alimentary_limb_opening",
    "jejunojejunal_stapling", "jejunojejunal_defect_closing", "jejunojejunal_anastomosis_reinforcement",
    "staple_line_reinforcement", "mesenteric_defect_exposure", "mesenteric_defect_closing",
    "anastomosis_fixation", "coagulation", "irrigation_aspiration", "parietal_closure", "trocar_removal",
    "calibration", "drainage_insertion", "specimen_retrieval",
)  # fmt: skip
"""By number; the files write `s0_null_step` and so on."""

_PHASE_ALIASES = spoken(
    (phase for phase in _PHASES if phase not in OVERLAYS),
    {
        "gastric_pouch_creation": ("creation of the gastric pouch",),
        "omentum_division": ("division of the omentum", "omental division"),
        "gastrojejunal_anastomosis": ("gastrojejunostomy",),
        "anastomosis_test": ("testing of the anastomosis", "anastomosis testing", "leak test"),
        "jejunal_separation": ("separation of the jejunum",),
        "closure_petersen_space": (
            "closure of petersen space",
            "closure of petersen's space",
            "petersen space closure",
        ),
        "jejunojejunal_anastomosis": ("jejunojejunostomy",),
        "closure_mesenteric_defect": (
            "closure of mesenteric defect",
            "closure of the mesenteric defect",
            "mesenteric defect closure",
        ),
        "cleaning_coagulation": ("cleaning and coagulation",),
        "disassembling": ("disassembly",),
        "other_intervention": ("other interventions",),
    },
)

_STEP_ALIASES = spoken(
    (f"s{number}_{name}" for number, name in enumerate(_STEPS)),
    {f"s{number}_{name}": (name.replace("_", " "),) for number, name in enumerate(_STEPS)}
    | {
        "s5_his_angle_dissection": (
            "his angle dissection",
            "angle of his dissection",
            "dissection of the angle of his",
        ),
        "s15_treitz_angle_identification": (
            "treitz angle identification",
            "identification of the angle of treitz",
            "ligament of treitz identification",
        ),
        "s40_irrigation_aspiration": ("irrigation aspiration", "irrigation and aspiration"),
        "s28_petersen_space_closing": ("petersen space closing", "closing of petersen space"),
    },
)


class _MultiBypass140(Source):
    name = "MultiBypass140"
    datasets = ("MultiBypass140", "MultiBypass", "multi_bypass")
    aliases: Mapping[str, Mapping[str, str]] = {"phases": _PHASE_ALIASES, "steps": _STEP_ALIASES}
    _lists: Mapping[str, LabelList] = {
        "phases": LabelList("MultiBypass140", "phases", dict(enumerate(_PHASES)), _PHASE_ALIASES),
        "steps": LabelList(
            "MultiBypass140", "steps", {n: f"s{n}_{name}" for n, name in enumerate(_STEPS)}, _STEP_ALIASES
        ),
    }

    def stem(self, video: str) -> str | None:
        match = re.search(r"(?<![a-z])([bs]bp)[\W_]?(\d\d)(?!\d)", video, re.IGNORECASE)
        return None if match is None else f"{match[1].upper()}{match[2]}"

    def find(self, root: Path) -> Mapping[str, tuple[Path, ...]]:
        found = defaultdict(list)
        for path in annotation_files(root):
            if match := re.fullmatch(r"([BS]BP\d\d)(?:\.mp4)?\.json", path.name):
                found[match[1]].append(path)
        return with_layout(
            found, root, "labels/{bern,strasbourg}/labels_by70/BBPnn.mp4.json of the owners' repository"
        )

    def read(self, root: Path, stem: str, clip: Clip | None = None) -> Annotated:
        path = only(self.find(root).get(stem, ()), f"the labels of {stem}", root)
        whole = parse_object(path.read_bytes(), str(path))
        if isinstance(whole, RecordError):
            raise DataFileError(
                whole.problem.replace("This line", "The file"), remedy="Download it again.", path=path
            )
        entries = {what: _entries(what, whole, path, stem) for what in self._lists}
        warnings: list[str] = []
        tracks = {what: self._track(what, rows, path, warnings) for what, rows in entries.items()}
        strasbourg = "; before the owners' commit b3368e0 Strasbourg's did not fit their videos (issue 5)"
        return Annotated(
            self.name,
            stem,
            "seconds",
            "milliseconds / 1000",
            tracks=tracks,
            files=(SourceFile.of(path),),
            label_version="phases 0-11, steps 0-45" + (strasbourg if stem.startswith("S") else ""),
            seconds=max((row.end for rows in entries.values() for row, _ in rows), default=None),
            whole=False,
            warnings=tuple(warnings),
        )

    def _track(
        self, what: str, entries: Sequence[tuple[Interval, int]], path: Path, warnings: list[str]
    ) -> Track:
        labels = self._lists[what]
        rows: list[Interval] = []
        doubts: list[tuple[float, float]] = []
        for row, code in entries:
            where = f"{what}, row {row.place.row}"
            label, by_code = labels.name(row.label, path, where), labels.number(code, path, where)
            if label != by_code:
                warnings.append(f"{label!r} has the number of {by_code!r}: {row.place}")
                doubts.append((min(row.start, row.end), max(row.start, row.end)))
            elif label not in OVERLAYS:
                rows.append(Interval(row.start, row.end, label, row.place))
        track, dropped = intervals(rows, doubts)
        warnings += dropped
        return track


def _entries(what: str, whole: Mapping[str, Any], path: Path, stem: str) -> list[tuple[Interval, int]]:
    """A list's rows in seconds under their written names, each with its number.

    Raises:
        DataFileError: it is no list of such rows.
    """
    written = whole.get(what)
    if not isinstance(written, list):
        raise DataFileError(
            f"{what!r} is {written!r}, not a list.", remedy="Download the file again.", path=path
        )
    return [
        _entry(entry, Place(str(path), number, f"{stem} {what}"))
        for number, entry in enumerate(written, start=1)
    ]


_LONGEST = 10**9
"""Milliseconds: eleven days."""


def _entry(entry: Any, place: Place) -> tuple[Interval, int]:
    keys = {"start": int | float, "end": int | float, "label_name": str, "label_id": int}
    if (
        not isinstance(entry, dict)
        or any(
            not isinstance(entry.get(key), kind) or isinstance(entry[key], bool) for key, kind in keys.items()
        )
        or not all(0 <= entry[key] < _LONGEST for key in ("start", "end"))
    ):
        raise DataFileError(
            f"An entry is {entry!r}.",
            remedy='It must be {"start": ms, "end": ms, "label_name": "...", "label_id": n}.',
            path=str(place),
        )
    row = Interval(entry["start"] / 1000, entry["end"] / 1000, entry["label_name"], place)
    return row, entry["label_id"]


SOURCE = _MultiBypass140()
"""The reader."""
