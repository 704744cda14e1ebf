"""TMVP-SurVideo: phases and instruments of thoracoscopic mitral valvuloplasties (Lan, Yan, Si and Li, 2025;
github.com/xmed-lab/SurgFormer).

Layout: `phase_annotations/NNN.txt`, a header and `<frame> <Phase>`; `instrument_annotations/NNN.txt`, a
    header and `<frame>` with eight columns of 0 and 1. The anticipation files are not read.
Time base: not told. The owners' rows are already one a second, and `frame` names the picture. If the
    numbers go up by one, a number is a second; if the benchmark's video has as many frames as they reach,
    and not as many seconds, a number is a frame; if they go up by more and the rows are as many as its
    seconds, a row is a second. Numbers that begin at 1 are counted from 1. What was chosen is in
    `time_base`.
Traps: the owners' loader pairs files by their place in a sorted list, so that a missing one shifts all:
    here they are paired by name. Preparation recurs as the stretch between phases. One label is misspelt,
    SuturetLeftAtrium.
Unverified: all of it but the labels: the link to the full set is empty, and MedHorizon has 59 videos where
    the paper has 57.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from diagnostics.data.build.annotations import Interval, Track
from diagnostics.data.sources._files import annotation_files, integers, numbered, only, table, with_layout
from diagnostics.data.sources._source import Annotated, Base, Clip, Source, SourceFile, plain
from diagnostics.data.sources._tracks import LabelList, sampled, spoken
from diagnostics.errors import DataFileError

__all__ = ["SOURCE"]

_PHASES = (
    "Preparation", "SuspendPericardium", "DissociateVein", "SuturePerfusionNeedleSpacer",
    "InsertPerfusionNeedle", "BlockAorta", "LeftHeartDrain", "DissectLeftAtrium", "ExposeMitralValve",
    "MitralValvuloplasty", "SuturetLeftAtrium", "HemostasisPericardiumSuture",
)  # fmt: skip

_INSTRUMENTS = (
    "Needle_holder", "Aspirator", "Endotherm_knife", "Needle_holder_small", "Occlusion_forceps", "Knife",
    "Atrial_retractor", "Scissor",
)  # fmt: skip
"""In the order of the columns."""

_ALIASES: Mapping[str, Mapping[str, str]] = {
    "phases": spoken(
        _PHASES,
        {
            "Preparation": ("preparation phase", "transition"),
            "SuspendPericardium": (
                "suspend pericardium",
                "suspending the pericardium",
                "pericardial suspension",
                "pericardium suspension",
            ),
            "DissociateVein": (
                "dissociate vein",
                "dissociating the vein",
                "vein dissociation",
                "venous dissection",
            ),
            "SuturePerfusionNeedleSpacer": (
                "suture perfusion needle spacer",
                "suturing the perfusion needle spacer",
                "perfusion needle spacer suturing",
            ),
            "InsertPerfusionNeedle": (
                "insert perfusion needle",
                "inserting the perfusion needle",
                "perfusion needle insertion",
                "insertion of the perfusion needle",
            ),
            "BlockAorta": (
                "block aorta",
                "blocking the aorta",
                "aortic blocking",
                "aortic cross-clamping",
                "aorta blocking",
            ),
            "LeftHeartDrain": ("left heart drain", "left heart drainage", "draining the left heart"),
            "DissectLeftAtrium": (
                "dissect left atrium",
                "dissecting the left atrium",
                "left atrium dissection",
                "left atrial dissection",
            ),
            "ExposeMitralValve": (
                "expose mitral valve",
                "exposing the mitral valve",
                "mitral valve exposure",
            ),
            "MitralValvuloplasty": ("mitral valvuloplasty", "mitral valve repair"),
            "SuturetLeftAtrium": (
                "suture left atrium",
                "SutureLeftAtrium",
                "suturing the left atrium",
                "left atrium suturing",
                "left atrium suture",
                "left atrial suture",
                "left atrial closure",
            ),
            "HemostasisPericardiumSuture": (
                "hemostasis pericardium suture",
                "hemostasis and pericardium suture",
                "hemostasis and pericardial suture",
                "hemostasis and pericardial suturing",
                "haemostasis and pericardial suture",
            ),
        },
    ),
    "instruments": spoken(
        _INSTRUMENTS,
        {
            "Needle_holder": ("needle driver", "large needle holder"),
            "Aspirator": ("suction", "suction device"),
            "Endotherm_knife": (
                "endothermy knife",
                "electric knife",
                "electrocautery knife",
                "electrosurgical knife",
            ),
            "Needle_holder_small": ("small needle holder",),
            "Occlusion_forceps": ("occlusion clamp", "aortic occlusion forceps"),
            "Knife": ("scalpel",),
            "Scissor": ("scissors",),
        },
    ),
}


_TOLERANCE = 0.01
"""How far, beside two rows, a length may be from the benchmark's: less than any two readings differ."""


@dataclass(frozen=True)
class _Ticks:
    """What a row's number means: `(number - offset) / stride`, to the nearest whole, held for `step`."""

    base: Base
    offset: int
    stride: float
    step: int
    words: str

    def of(self, numbers: Int[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
        return np.rint((numbers - self.offset) / self.stride).astype(int)


class _Tmvp(Source):
    name = "TMVP"
    datasets = ("TMVP", "TMVP-SurVideo", "tmvp_survideo")
    aliases = _ALIASES
    _phases = LabelList("TMVP-SurVideo", "phases", dict(enumerate(_PHASES)), _ALIASES["phases"])
    _instruments = LabelList(
        "TMVP-SurVideo", "instruments", dict(enumerate(_INSTRUMENTS)), _ALIASES["instruments"]
    )

    def stem(self, video: str) -> str | None:
        number = numbered(video, "tmvp|survideo|video|case", 999)
        return None if number is None else f"{number:03d}"

    def find(self, root: Path) -> Mapping[str, tuple[Path, ...]]:
        found = defaultdict(list)
        for path in annotation_files(root, crowded=re.compile(r"^\.|^\d{1,3}$|frames|anti", re.IGNORECASE)):
            kind = path.parent.name.casefold()
            if re.fullmatch(r"\d{3}\.txt", path.name) and kind in (
                "phase_annotations",
                "instrument_annotations",
            ):
                found[path.stem].append(path)
        return with_layout(found, root, "phase_annotations/NNN.txt and instrument_annotations/NNN.txt")

    def read(self, root: Path, stem: str, clip: Clip | None = None) -> Annotated:
        by_kind = defaultdict(list)
        for path in self.find(root).get(stem, ()):
            by_kind[path.parent.name.casefold()].append(path)
        files = [only(by_kind["phase_annotations"], f"the phases of video {stem}", root)]
        warnings: list[str] = []
        _header(files[0])
        rows = table(files[0], ("frame", "phase"), whitespace=True, named=False)
        lines = [int(line) for line in rows.index]
        numbers = integers(rows, "frame", files[0])
        ticks = _time_base(numbers, clip)
        if numbers.min() > 1:
            first = f"the first number is {numbers.min()}, so where the video begins cannot be told"
            warnings.append(f"{first}; {ticks.offset} is taken: {files[0]}")
        texts = list(rows["phase"])
        known = {
            text: self._phases.name(text, files[0], f"line {lines[texts.index(text)]}")
            for text in dict.fromkeys(texts)
        }
        phases, found = sampled(
            ticks.of(numbers), [known[text] for text in texts], files[0], lines, step=ticks.step
        )
        warnings += found
        tracks = {"phases": phases}
        if by_kind["instrument_annotations"]:
            files.append(only(by_kind["instrument_annotations"], f"the instruments of video {stem}", root))
            tracks["instruments"] = self._instrument_track(files[1], ticks, ticks.of(numbers), warnings)
        length = int(ticks.of(numbers).max()) + ticks.step
        return Annotated(
            self.name,
            stem,
            ticks.base,
            ticks.words,
            tracks=tracks,
            files=tuple(SourceFile.of(path) for path in files),
            label_version="12 phases, 8 instruments",
            seconds=float(length) if ticks.base == "seconds" else None,
            n_frames=length if ticks.base == "frames" else None,
            warnings=tuple(warnings),
        )

    def _instrument_track(
        self, path: Path, ticks: _Ticks, phases: Int[np.ndarray, " row"], warnings: list[str]
    ) -> Track:
        """The instruments.

        Args:
            phases: the moments that have a phase: the instruments' should be the same.
        """
        columns = self._columns(_header(path), path, warnings)
        rows = table(path, ("frame", *columns), whitespace=True, named=False)
        lines = [int(line) for line in rows.index]
        times = ticks.of(integers(rows, "frame", path))
        own, others = np.unique(times), np.unique(phases)
        if not np.array_equal(own, others):
            warnings.append(
                f"instruments are of {len(own)} moments from {own[0]} to {own[-1]}, "
                f"phases of {len(others)} from {others[0]} to {others[-1]} {ticks.base}: {path}"
            )
        found: list[Interval] = []
        doubts: set[tuple[float, float]] = set()
        for name in columns:
            bits = integers(rows, name, path)
            if bits.max() > 1:
                line = lines[int(bits.argmax())]
                raise DataFileError(
                    f"Line {line}: {name} is {bits.max()}, not 0 or 1.",
                    remedy="Download the file again.",
                    path=path,
                )
            track, told = sampled(times, np.where(bits == 1, name, "").tolist(), path, lines, step=ticks.step)
            found += track.intervals
            doubts |= set(track.doubts)
            warnings += [f"{name}: {warning}" for warning in told[:1] if track.doubts]  # of two labels
        return Track(tuple(sorted(found, key=lambda interval: interval.start)), tuple(sorted(doubts)))

    def _columns(self, header: Sequence[str], path: Path, warnings: list[str]) -> tuple[str, ...]:
        """The instruments by column: in the header's order where it names them, else in the owners'."""
        known = {plain(name) for name in (*_INSTRUMENTS, *_ALIASES["instruments"])}
        if len(header) == len(_INSTRUMENTS) + 1 and any(plain(name) in known for name in header[1:]):
            names = tuple(self._instruments.name(name, path, "header") for name in header[1:])
            if len(set(names)) < len(names):
                raise DataFileError(
                    f"Two columns are of one instrument: {', '.join(header[1:])}.",
                    remedy="Download the file again.",
                    path=path,
                )
            return names
        warnings.append(f"the header names no instruments: the owners' order of columns is taken: {path}")
        return _INSTRUMENTS


def _header(path: Path) -> list[str]:
    """The words of the first line.

    Raises:
        DataFileError: it is a row: skipping it would lose one.
    """
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        words = file.readline().split()
    if words and words[0].isdecimal():
        raise DataFileError("The first line is no header.", remedy="Download the file again.", path=path)
    return words


def _time_base(numbers: Int[np.ndarray, " row"], clip: Clip | None) -> _Ticks:
    """What the numbers are, by how they go up and what fits the benchmark's video."""
    distinct = np.unique(numbers)
    steps = np.diff(distinct)
    widths, counts = np.unique(steps, return_counts=True)
    stride = int(widths[counts.argmax()]) if len(steps) else 1
    offset = 1 if int(distinct[0]) == 1 else 0
    reach = int(distinct[-1]) - offset + 1
    # as rates of 29.97 and the like want it, numbers may go up by 30, 30, 29: by what on average?
    rows = int(np.rint(steps / stride).sum()) + 1
    pace = stride if rows == 1 else (int(distinct[-1]) - int(distinct[0])) / (rows - 1)
    seconds = _Ticks("seconds", offset, 1, stride, f"the number is a second, counted from {offset}")
    rank = _Ticks("seconds", int(distinct[0]), pace, 1, f"a row is a second: numbers go up by {pace:.6g}")
    if clip is None:
        return seconds if stride == 1 else rank
    frames = _Ticks("frames", offset, 1, stride, f"the number is a frame, counted from {offset}")
    candidates = [(seconds, reach, clip.seconds, stride), (frames, reach, clip.n_frames, stride)]
    if stride > 1:
        candidates.insert(0, (rank, rows, clip.seconds, 1))
    for ticks, length, wanted, step in candidates:
        if abs(length - wanted) <= 2 * step + _TOLERANCE * wanted:
            return ticks
    return candidates[0][0]


SOURCE = _Tmvp()
"""The reader."""
