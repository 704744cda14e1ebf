"""Small annotation files in the layouts of MedHorizon's eight sources, from what they are to say.

Each function adds one video below the source's folder. The layouts are those the readers describe; nothing is
copied from a release.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from diagnostics.data.build.annotations import Track

__all__ = [
    "add_autolaparo",
    "add_galar",
    "add_grasp",
    "add_multibypass140",
    "add_pitvis",
    "add_real_colon",
    "add_tmvp",
    "add_us_study",
    "said",
    "voc",
]

MULTIBYPASS_PHASES = (
    "preparation", "gastric_pouch_creation", "omentum_division", "gastrojejunal_anastomosis",
    "anastomosis_test", "jejunal_separation", "closure_petersen_space", "jejunojejunal_anastomosis",
    "closure_mesenteric_defect", "cleaning_coagulation", "disassembling", "other_intervention",
    "out_of_body", "severe_index",
)  # fmt: skip

PITVIS_STEPS = (
    "nasal_corridor_creation", "anterior_sphenoidotomy", "septum_displacement",
    "sphenoid_sinus_clearance", "sellotomy", "durotomy", "tumour_excision", "haemostasis",
    "synthetic_graft_placement", "fat_graft_placement", "gasket_seal_construct", "dural_sealant",
    "nasal_packing", "debris_clearance",
)  # fmt: skip

PITVIS_INSTRUMENTS = {
    "kerrisons": 8,
    "suction": 16,
    "no_visible_instrument": 0,
    "no_secondary_instrument": -2,
}

GALAR_SECTIONS = ("mouth", "esophagus", "stomach", "small intestine", "colon")
GALAR_COLUMNS = (
    "index", "z-line", "pylorus", "ampulla of vater", "ileocecal valve", "section", "mouth", "esophagus",
    "stomach", "small intestine", "colon", "ulcer", "polyp", "active bleeding", "blood", "erythema",
    "erosion", "angiectasia", "IBD", "foreign body", "esophagitis", "varices", "hematin", "celiac",
    "cancer", "lymphangioectasis", "frame",
)  # fmt: skip
GALAR_QUALITY = ["bubbles", "dirt", "no view", "reduced view", "good view"]

TMVP_INSTRUMENTS = (
    "Needle_holder", "Aspirator", "Endotherm_knife", "Needle_holder_small", "Occlusion_forceps", "Knife",
    "Atrial_retractor", "Scissor",
)  # fmt: skip

GRASP_PHASES = (
    "Idle", "LPIL", "RPIL", "Retzius_Space", "Dorsal_Venous_Complex", "Id_Bladder_Neck",
    "Seminal_Vesicles", "Denonvilliers_Fascia", "Pedicle_Control", "Severing_Prostate_Urethra",
    "Bladder_Neck_Rec",
)  # fmt: skip

GRASP_INSTRUMENTS = ("Bipolar Forceps", "Prograsp Forceps", "Large Needle Driver")


def said(track: Track) -> list[tuple[float, float, str]]:
    """`(start, end, label)` of a track's runs."""
    return [(run.start, run.end, run.label) for run in track.runs]


def add_autolaparo(root: Path, video: int, phases: Sequence[int], first: int = 1) -> Path:
    """`labels/label_NN.txt`: a phase (1-7) for each second, frames counted from `first`."""
    rows = [f"{number}\t{phase}" for number, phase in enumerate(phases, start=first)]
    return _write(root / "labels" / f"label_{video:02d}.txt", ["Frame\tPhase", *rows])


def add_galar(
    root: Path,
    video: int,
    sections: Sequence[str],
    frames: Sequence[int] | None = None,
    *,
    landmarks: Mapping[str, Iterable[int]] | None = None,
    quality: bool = False,
    folder: str = "Galar_labels_and_metadata/Labels",
) -> Path:
    """`Labels/N.csv`: a section for each row, its frame (its place by default), landmarks by their rows."""
    columns = [*(GALAR_QUALITY if quality else []), *GALAR_COLUMNS]
    lines = [",".join(columns)]
    for row, section in enumerate(sections):
        cells = dict.fromkeys(columns, "0") | {name: "1" for name in [section] if name in GALAR_SECTIONS}
        cells |= {name: "1" for name, rows in (landmarks or {}).items() if row in rows}
        frame = row if frames is None else frames[row]
        cells |= {"index": str(row + 1000), "section": section, "frame": str(frame)}
        lines.append(",".join(cells[name] for name in columns))
    return _write(root / folder / f"{video}.csv", lines)


def add_grasp(
    root: Path,
    case: str,
    stages: Sequence[tuple[str, int, int]],
    tools: Sequence[tuple[str, str]] = (),
    split: str = "train",
) -> Path:
    """`annotations/grasp_{long,short}-term_SPLIT.json`, each with the case's rows added.

    Args:
        case: `CASE001`.
        stages: (picture's name without folder, phase, step), one a second; -1 for none.
        tools: (picture, instrument), several a picture.
    """
    phases = [{"id": number, "name": name} for number, name in enumerate(GRASP_PHASES)]
    instruments = [{"id": number, "name": name} for number, name in enumerate(GRASP_INSTRUMENTS, start=1)]
    long = root / "annotations" / f"grasp_long-term_{split}.json"
    rows = [(picture, {"phases": phase, "steps": step}) for picture, phase, step in stages]
    _coco(long, case, rows, phases_categories=phases)
    if tools:
        short = root / "annotations" / f"grasp_short-term_{split}.json"
        seen = [
            (p, {"category_id": GRASP_INSTRUMENTS.index(name) + 1, "bbox": [1, 2, 3, 4]}) for p, name in tools
        ]
        _coco(short, case, seen, instruments_categories=instruments)
    return long


def _coco(path: Path, case: str, rows: Sequence[tuple[str, Mapping[str, Any]]], **categories: Any) -> None:
    whole = {"images": [], "annotations": [], **categories}
    if path.exists():
        whole = json.loads(path.read_text())
    ids = {image["file_name"]: image["id"] for image in whole["images"]}
    for picture, told in rows:
        name = f"{case}/{picture}.jpg"
        if name not in ids:
            ids[name] = len(ids) + 1
            image = {"id": ids[name], "file_name": name, "video_name": case, "frame_num": int(picture)}
            whole["images"].append(image)
        whole["annotations"].append({"id": len(whole["annotations"]) + 1, "image_id": ids[name], **told})
    _write(path, [json.dumps(whole)])


def add_multibypass140(
    root: Path,
    video: str,
    phases: Sequence[tuple[int, int, str]],
    steps: Sequence[tuple[int, int, int, str]] = (),
) -> Path:
    """`labels/{bern,strasbourg}/labels_by70/VIDEO.mp4.json`: rows in milliseconds.

    Args:
        phases: (start, end, name).
        steps: (start, end, number, name as published).
    """
    stages = [(start, end, MULTIBYPASS_PHASES.index(name), name) for start, end, name in phases]
    keys = ("start", "end", "label_id", "label_name")
    whole = {
        "phases": [dict(zip(keys, row, strict=True)) for row in stages],
        "steps": [dict(zip(keys, row, strict=True)) for row in steps],
    }
    hospital = "bern" if video.startswith("B") else "strasbourg"
    return _write(root / "labels" / hospital / "labels_by70" / f"{video}.mp4.json", [json.dumps(whole)])


def add_pitvis(
    root: Path,
    video: int,
    steps: Sequence[tuple[int, str]],
    instruments: Sequence[tuple[str, ...]] | None = None,
) -> Path:
    """`steps_csv/steps_NN.csv` and, where they are given, `instruments_csv/instruments_NN.csv`.

    Args:
        steps: change points (second, name).
        instruments: of each second none, one or two names.
    """
    numbers = {name: number for number, name in enumerate(PITVIS_STEPS, start=1)}
    lines = [f"{video},{time},{name},{numbers.get(name, -1)}" for time, name in steps]
    header = "int_video,int_time,str_step,int_step"
    path = _write(root / "steps_csv" / f"steps_{video:02d}.csv", [header, *lines])
    if instruments is not None:
        header = "int_video,int_time,str_instrument1,str_instrument2,int_instrument1,int_instrument2"
        lines = [f"{header},pos_instrument1,pos_instrument2"]
        for time, names in enumerate(instruments):
            one = names[0] if names else "no_visible_instrument"
            two = names[1] if len(names) > 1 else "no_secondary_instrument"
            lines.append(f"{video},{time},{one},{two},{PITVIS_INSTRUMENTS[one]},{PITVIS_INSTRUMENTS[two]},3,")
        _write(root / "instruments_csv" / f"instruments_{video:02d}.csv", lines)
    return path


def add_real_colon(
    root: Path,
    video: str,
    n_frames: int,
    fps: float,
    lesions: Mapping[str, tuple[Iterable[int], str, str, str]],
    *,
    first: int = 0,
    folder: str = "annotations",
) -> Path:
    """`VIDEO_annotations/` with an XML for each frame, and rows in both tables.

    Args:
        lesions: by number (`1` gives `VIDEO_1`): its frames counted from 0, size, site, histology.
        first: what the first file is counted as.
    """
    boxed: dict[int, list[str]] = {}
    for number, (frames, *_) in lesions.items():
        for frame in frames:
            boxed.setdefault(frame, []).append(f"{video}_{number}")
    inside = root / f"{video}_{folder}"
    inside.mkdir(parents=True, exist_ok=True)
    for frame in range(n_frames):
        name = f"{video}_{frame + first}"
        (inside / f"{name}.xml").write_text(voc(name, boxed.get(frame, [])))
    videos = "unique_video_name,age,sex,endoscope_brand,fps,num_frames,num_lesions,bbps"
    _append(root / "video_info.csv", videos, [f"{video},60,F,Olympus,{fps},{n_frames},{len(lesions)},7"])
    header = "unique_object_id,unique_video_name,size [mm],site,histology_extended,histology_class"
    rows = [
        f"{video}_{number},{video},{size},{site},some words,{histology}"
        for number, (_, size, site, histology) in lesions.items()
    ]
    _append(root / "lesion_info.csv", header, rows)
    return inside


def voc(name: str, lesions: Sequence[str]) -> str:
    """One frame's VOC file."""
    objects = "".join(
        f"<object><name>lesion</name><unique_id>{lesion}</unique_id><box_id>{place}</box_id><bndbox>"
        "<xmin>5</xmin><xmax>50</xmax><ymin>8</ymin><ymax>40</ymax></bndbox></object>\n"
        for place, lesion in enumerate(lesions, start=1)
    )
    return (
        f"<annotation>\n<version_fmt>1.0</version_fmt>\n<folder>string</folder>\n<filename>{name}.jpg</filename>"
        "\n<source><database>cosmoimd</database><release>v1.0_20230228</release></source>\n<size>"
        f"<width>1240</width><height>1080</height><depth>3</depth></size>\n{objects}</annotation>\n"
    )


def add_tmvp(
    root: Path,
    video: int,
    phases: Sequence[str],
    instruments: Sequence[Iterable[str]] | None = None,
    frames: Sequence[int] | None = None,
    header: Sequence[str] = TMVP_INSTRUMENTS,
) -> Path:
    """`phase_annotations/NNN.txt` and `instrument_annotations/NNN.txt`: a row a second.

    Args:
        instruments: of each row, those in view.
        frames: what the rows are counted as; from 0 by default.
        header: of the columns of instruments, which are written in its order where it names them.
    """
    frames = range(len(phases)) if frames is None else frames
    rows = [f"{frame} {phase}" for frame, phase in zip(frames, phases, strict=True)]
    path = _write(root / "phase_annotations" / f"{video:03d}.txt", ["Frame Phase", *rows])
    if instruments is not None:
        columns = header if set(header) == set(TMVP_INSTRUMENTS) else TMVP_INSTRUMENTS
        rows = [
            f"{frame} " + " ".join(str(int(name in seen)) for name in columns)
            for frame, seen in zip(frames, map(set, instruments), strict=True)
        ]
        _write(root / "instrument_annotations" / f"{video:03d}.txt", [" ".join(["Frame", *header]), *rows])
    return path


def add_us_study(root: Path, video: str, label: str) -> Path:
    """A row of `us_study.csv`."""
    path = root / "us_study.csv"
    _append(path, "video,label", [f"{video},{label}"])
    return path


def _append(path: Path, header: str, rows: Sequence[str]) -> None:
    old = path.read_text().splitlines() if path.exists() else [header]
    _write(path, [*old, *rows])


def _write(path: Path, lines: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
