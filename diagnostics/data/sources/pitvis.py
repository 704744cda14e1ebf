"""PitVQA, that is PitVis: steps and instruments of 25 endoscopic pituitary operations (arXiv 2409.01184;
github.com/mobarakol/PitVQA_Annotations).

Layout: `steps_csv/steps_NN.csv` (int_video, int_time, str_step, int_step) and
    `instruments_csv/instruments_NN.csv` (int_video, int_time, str_instrument1 and 2, int_instrument1 and 2,
    positions), of `video_NN.mp4`.
Time base: seconds from 0. A step's row is a change point: it lasts until the next row. Instruments have one
    row a second, [t, t + 1), without a gap in any of the 25: their number is the video's length in seconds.
Phases: derived by the owners' table from the steps: 1-4 nasal_sphenoid, 5-7 sellar, 8-14 closure.
    Haemostasis is always closure, in the middle of the operation too.
Traps: -1 (operation_not_started, operation_ended, out_of_patient) is no step: a hole. Instruments 0, -1 and
    -2 are none. Rows out of order in time (video 16), a name beside another's number (video 20; instruments
    of 16) and another video's number (22) are in the public files. Chinese text in map_instruments.csv is
    broken: no label is read from it.
Unverified: the licence; which 10 of the 25 MedHorizon uses.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from diagnostics.data.build.annotations import Interval, Place, Track
from diagnostics.data.sources._files import annotation_files, integers, numbered, only, table, with_layout
from diagnostics.data.sources._source import Annotated, Clip, Source, SourceFile
from diagnostics.data.sources._tracks import LabelList, cut, named, sampled, several, spoken
from diagnostics.errors import DataFileError

__all__ = ["SOURCE"]

_STEPS = (
    "nasal_corridor_creation", "anterior_sphenoidotomy", "septum_displacement", "sphenoid_sinus_clearance",
    "sellotomy", "durotomy", "tumour_excision", "haemostasis", "synthetic_graft_placement",
    "fat_graft_placement", "gasket_seal_construct", "dural_sealant", "nasal_packing", "debris_clearance",
)  # fmt: skip
"""1 to 14."""

_NO_STEPS = ("operation_not_started", "operation_ended", "out_of_patient")
"""-1."""

_PHASES = ("nasal_sphenoid", "sellar", "closure")
_PHASE_OF = {step: _PHASES[0 if n < 4 else 1 if n < 7 else 2] for n, step in enumerate(_STEPS)}

_INSTRUMENTS = (
    "bipolar_forceps", "cottle", "cup_forceps", "dural_scissors", "freer_elevator", "haemostatic_foam",
    "irrigation_syringe", "kerrisons", "micro_doppler", "nasal_cutting_forceps", "pituitary_rongeurs",
    "retractable_knife", "ring_curette", "spatula_dissector", "stealth_pointer", "suction",
    "surgical_drill", "tissue_glue",
)  # fmt: skip
"""1 to 18."""

_NO_INSTRUMENTS = {
    "no_visible_instrument": 0,
    "occluded_image_inside_patient": 0,
    "out_of_patient": -1,
    "no_secondary_instrument": -2,
}

_ALIASES: Mapping[str, Mapping[str, str]] = {
    "phases": spoken(
        _PHASES,
        {
            "nasal_sphenoid": ("nasal", "nasal and sphenoid", "nasal/sphenoid", "nasosphenoid"),
            "closure": ("closing",),
        },
    ),
    "steps": spoken(
        _STEPS,
        {
            "tumour_excision": ("tumor excision",),
            "haemostasis": ("hemostasis",),
            "gasket_seal_construct": ("gasket seal construction",),
            "septum_displacement": ("septal displacement",),
            "dural_sealant": ("dural sealant application",),
        },
    ),
    "instruments": spoken(
        _INSTRUMENTS,
        {
            "cottle": ("cottle elevator",),
            "haemostatic_foam": ("hemostatic foam",),
            "kerrisons": ("kerrison", "kerrison rongeur", "kerrison rongeurs"),
            "micro_doppler": ("microdoppler", "micro-doppler probe"),
            "pituitary_rongeurs": ("pituitary rongeur",),
            "ring_curette": ("ring curettes",),
            "suction": ("suction tube", "sucker"),
            "surgical_drill": ("drill",),
            "dural_scissors": ("dura scissors",),
        },
    ),
}


class _PitVis(Source):
    name = "PitVQA"
    datasets = ("PitVQA", "PitVis", "pit_vqa", "pit_vis")
    aliases = _ALIASES

    def stem(self, video: str) -> str | None:
        number = numbered(video, "pit_?vqa|pit_?vis|video", 25)
        return None if number is None else f"video_{number:02d}"

    def find(self, root: Path) -> Mapping[str, tuple[Path, ...]]:
        found = defaultdict(list)
        for path in annotation_files(root):
            if match := re.fullmatch(r"(?:steps|instruments)_(\d\d)\.csv", path.name):
                found[f"video_{match[1]}"].append(path)
        return with_layout(found, root, "steps_csv/steps_NN.csv and instruments_csv/instruments_NN.csv")

    def read(self, root: Path, stem: str, clip: Clip | None = None) -> Annotated:
        paths = self.find(root).get(stem, ())
        steps_path = only([p for p in paths if p.name.startswith("steps")], f"the steps of {stem}", root)
        tools = [p for p in paths if p.name.startswith("instruments")]
        warnings: list[str] = []
        tracks: dict[str, Track] = {}
        seconds = None
        if tools:
            tools_path = only(tools, f"the instruments of {stem}", root)
            tracks["instruments"], seconds = _instruments(tools_path, stem, warnings)
        steps, last = _steps(steps_path, stem, seconds, warnings)
        tracks["steps"] = steps
        if seconds is not None and last > seconds:
            warnings.append(f"steps reach {last:g} s, instruments {seconds:g} s: {steps_path}")
            seconds = last
        tracks["phases"] = Track(
            tuple(Interval(i.start, i.end, _PHASE_OF[i.label], i.place) for i in steps.intervals),
            steps.doubts,
            steps.lost,
        )
        return Annotated(
            self.name,
            stem,
            "seconds",
            "steps last from their row's second to the next row's; an instrument's row at t is [t, t + 1) s",
            tracks=tracks,
            files=tuple(SourceFile.of(path) for path in (steps_path, *tools)),
            label_version="14 steps, 18 instruments; phases derived from steps",
            seconds=last if seconds is None else seconds,
            whole=seconds is not None,
            warnings=tuple(warnings),
        )


def _steps(path: Path, stem: str, seconds: float | None, warnings: list[str]) -> tuple[Track, float]:
    """The steps, and where the last row is.

    Args:
        seconds: of the video, where the instruments tell.
    """
    rows = table(path, ("int_video", "int_time", "str_step", "int_step"))
    lines = [int(line) for line in rows.index]
    _other_video(rows["int_video"], stem, path, lines, warnings)
    times = [int(time) for time in integers(rows, "int_time", path)]
    numbers = _codes(rows["int_step"], "int_step", path)
    labels = LabelList(
        "PitVis",
        "steps",
        dict(enumerate(_STEPS, start=1)) | {-1: _NO_STEPS[0]},
        dict(_ALIASES["steps"]) | dict.fromkeys(_NO_STEPS[1:], _NO_STEPS[0]),
    )
    names, unsure = named(numbers, list(rows["str_step"]), labels, path, lines)
    kept = _ascending(times)
    doubts = []
    for place in sorted(set(range(len(times))) - set(kept)):
        # it may belong where its time says or where it stands: between these two nothing is sure
        before = max((times[k] for k in kept if k < place and times[k] <= times[place]), default=0)
        after = min((times[k] for k in kept if k > place and times[k] > times[place]), default=None)
        doubts.append((float(before), float(max(times) if after is None else after)))
        warnings.append(
            f"{names[place]!r} at {times[place]} s is out of order, {doubts[-1][0]:g}-{doubts[-1][1]:g} s "
            f"in doubt: {Place(str(path), lines[place])}"
        )
    intervals = []
    ends = [times[k] for k in kept[1:]] + [
        times[kept[-1]] if seconds is None else max(seconds, times[kept[-1]])
    ]
    for place, end in zip(kept, ends, strict=True):
        where = Place(str(path), lines[place])
        if place in unsure:
            warnings.append(f"{names[place]!r} has another step's number, {numbers[place]}: {where}")
            doubts.append((float(times[place]), float(end)))
        elif names[place] in _STEPS:
            intervals.append(Interval(float(times[place]), float(end), names[place], where))
    lost = 0
    if intervals and intervals[-1].end <= intervals[-1].start:
        lost = 1
        warnings.append(f"nothing says when {intervals[-1].label!r} ends: {intervals[-1].place}")
        intervals.pop()
    track = cut(intervals, doubts)
    return Track(track.intervals, track.doubts, lost), float(max(times))


def _ascending(times: Sequence[int]) -> list[int]:
    """Places of a longest series of rows whose times rise: the fewest others are out of order."""
    best: list[list[int]] = []
    for place, time in enumerate(times):
        before = [run for run in best if times[run[-1]] < time]
        best.append([*max(before, key=len, default=[]), place])
    return max(best, key=len)


def _instruments(path: Path, stem: str, warnings: list[str]) -> tuple[Track, float]:
    """The instruments, and how many seconds have a row."""
    columns = ("str_instrument1", "str_instrument2", "int_instrument1", "int_instrument2")
    rows = table(path, ("int_video", "int_time", *columns))
    lines = [int(line) for line in rows.index]
    _other_video(rows["int_video"], stem, path, lines, warnings)
    times = integers(rows, "int_time", path)
    present: dict[str, list[int]] = {}
    doubted: set[int] = set()
    labels = LabelList(
        "PitVis",
        "instruments",
        dict(enumerate(_INSTRUMENTS, start=1))
        | {0: "no_visible_instrument", -1: "out_of_patient", -2: "no_secondary_instrument"},
        dict(_ALIASES["instruments"]) | {"occluded_image_inside_patient": "no_visible_instrument"},
    )
    for which in ("1", "2"):
        numbers = _codes(rows[f"int_instrument{which}"], f"int_instrument{which}", path)
        names, unsure = named(numbers, list(rows[f"str_instrument{which}"]), labels, path, lines)
        doubted |= set(unsure)
        for place, name in enumerate(names):
            if name not in _NO_INSTRUMENTS:
                present.setdefault(name, []).append(place)
    if doubted:
        wrong = [Place(str(path), lines[place]) for place in sorted(doubted)]
        warnings.append(several(wrong, "an instrument has another's number"))
    found: list[Interval] = []
    for name, places in present.items():
        sure = sorted(set(places) - doubted)
        track, _ = sampled(times[sure], [name] * len(sure), path, [lines[place] for place in sure])
        found += track.intervals
    if len(set(times.tolist())) < len(times) or int(times.max()) + 1 != len(times):
        warnings.append(f"{len(times)} rows do not make one a second from 0 to {times.max()}: {path}")
    unsure_times = [(float(times[place]), float(times[place]) + 1) for place in doubted]
    return cut(found, unsure_times), float(times.max()) + 1


def _codes(cells: Iterable[str], column: str, path: Path) -> list[int]:
    try:
        return [int(cell) for cell in cells]
    except ValueError as error:
        raise DataFileError(f"{column!r}: {error}.", remedy="Download the file again.", path=path) from error


def _other_video(
    cells: Iterable[str], stem: str, path: Path, lines: Sequence[int], warnings: list[str]
) -> None:
    """Rows that carry another video's number: kept, since the file's name and their order speak for them."""
    own = int(stem.removeprefix("video_"))
    numbers = _codes(cells, "int_video", path)
    others = [line for line, number in zip(lines, numbers, strict=True) if number != own]
    if len(others) == len(lines):
        raise DataFileError(f"All rows are of video {numbers[0]}.", remedy="The file is misnamed.", path=path)
    if others:
        warnings.append(
            f"{len(others)} rows kept that name another video (first {Place(str(path), others[0])})"
        )


SOURCE = _PitVis()
"""The reader."""
