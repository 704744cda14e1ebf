"""A MedHorizon of sixteen videos, two a source, and the sources' annotation files in their published layouts.

Each film has 120 frames, two a second. Where the evidence is, worked out by hand, is `EXPECTED`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np

__all__ = ["EXPECTED", "REASONS", "write_questions", "write_sources"]

FPS, FRAMES, SECONDS = 2.0, 120, 60

_SITES = ("Cecum", "Rectum", "Sigmoid", "Ascending")
_PHASES = ("Preparation", "Suturing", "Specimen removal", "Transecting the vagina")
_TOOLS = ("Suction Instrument", "Clip Applier", "Prograsp Forceps", "Laparoscopic Grasper")

QUESTIONS: dict[str, list[tuple[str, str, Sequence[str], str]]] = {
    "autolaparo/01": [("PR", "Which phase is under way between 18 s and 24 s?", _PHASES, "A")],
    "autolaparo/02": [("PR", "Which phase is it when the cavity is rinsed?", ("Washing", *_PHASES[:3]), "A")],
    "galar/1": [
        (
            "RL",
            "Which region is seen between 0:20 and 0:30?",
            ("Small intestine", "Colon", "Esophagus", "Mouth"),
            "A",
        )
    ],
    "galar/2": [
        ("RL", "Which region is seen from 5 s to 9 s?", ("Stomach", "Colon", "Mouth", "Esophagus"), "A")
    ],
    "grasp/CASE001": [("IR", "Which instrument is in use when the phase Retzius Space begins?", _TOOLS, "A")],
    "grasp/CASE041": [("WR", "Which phase takes longest?", ("LPIL", "RPIL", "Idle", "Pedicle Control"), "C")],
    "multibypass140/BBP01": [
        (
            "SD",
            "Which step is carried out from 00:00:10 to 00:00:20?",
            ("Trocar placement", "Coagulation", "Calibration", "Ink injection"),
            "A",
        )
    ],
    "multibypass140/SBP02": [
        (
            "PR",
            "Which phase is it at 50%-60% of the video?",
            ("Omentum division", "Preparation", "Anastomosis test", "Disassembling"),
            "A",
        )
    ],
    "pitvqa/video_01": [
        (
            "PR",
            "Which phase is it between 28 and 36 seconds?",
            ("Nasal sphenoid", "Closure", "Opening", "Waiting"),
            "A",
        )
    ],
    "pitvqa/video_02": [
        (
            "SD",
            "Which step is done from 40 s to 44 s?",
            ("Sellotomy", "Durotomy", "Haemostasis", "Waiting"),
            "A",
        )
    ],
    "real_colon/001-001": [
        ("Site", "Where is lesion 001-001_1?", _SITES, "A"),
        ("BPQ", "How well is the bowel prepared?", ("Badly", "Fairly", "Well", "Not at all"), "C"),
        ("LA", "How many lesions are seen in all?", ("1", "2", "3", "4"), "B"),
    ],
    "real_colon/001-002": [("Hist", "What is the lesion?", ("AD", "HP", "SSL", "TSA"), "A")],
    "tmvp/001": [
        (
            "IR",
            "Which instrument is used right after the phase DissectLeftAtrium begins?",
            ("Scissor", "Knife", "Aspirator", "Needle holder"),
            "A",
        )
    ],
    "tmvp/002": [
        (
            "PR",
            "Which phase is under way between 1 s and 3 s?",
            ("Preparation", "LeftHeartDrain", "BlockAorta", "DissociateVein"),
            "A",
        )
    ],
    "us_study/01-lus": [("PR", "Is there a contraction?", ("Yes", "No"), "A")],
    "us_study/02-lus": [("PR", "Is there a contraction?", ("Yes", "No"), "B")],
}
"""By video: task, question, options, the right one."""

EXPECTED: dict[str, tuple[str, list[list[int]]]] = {
    "01/0": ("exact", [[36, 40]]),  # Preparation is rows 1 to 20, seconds 0 to 19
    "02/0": ("label-run", [[80, 120]]),
    "1/0": ("exact", [[50, 60]]),  # the small intestine begins with frame 50
    "2/0": ("missing", []),  # thirty rows, where the video has 120 frames
    "CASE001/0": ("approx", [[24, 26]]),  # the phase begins at 10 s, the keyframe after it is in second 12
    "CASE041/0": ("global", []),
    "BBP01/0": ("exact", [[20, 30]]),  # 10.0 to 15.0 s in milliseconds
    "SBP02/0": ("exact", [[60, 72]]),  # half of it is 30 s; out_of_body lies over it and is dropped
    "video_01/0": ("exact", [[56, 60]]),  # the step changes at 30 s, and with it the phase
    "video_02/0": ("exact", [[80, 88]]),
    "001-001/0": ("proxy", [[10, 20], [40, 70]]),
    "001-001/1": ("global", []),
    "001-001/2": ("proxy", [[10, 20], [40, 70], [100, 105]]),
    "001-002/0": ("missing", []),
    "001/0": ("exact", [[46, 50]]),  # the phase begins at 20 s, the scissor is on in seconds 23 and 24
    "002/0": ("exact", [[2, 6]]),
    "01-lus/0": ("global", []),
    "02-lus/0": ("global", []),
}
"""By item: kind, and frames."""

REASONS = {"2/0": "durations disagree", "001-002/0": "not annotated"}


def write_questions(root: Path) -> list[str]:
    """The released layout below `root`, with films; gives the arguments that make it a run's data."""
    root.mkdir(parents=True, exist_ok=True)
    film = _film(root / "film.mp4")
    records = []
    for video, questions in QUESTIONS.items():
        path = root / f"{video}.mp4"
        path.parent.mkdir(exist_ok=True)
        shutil.copy(film, path)
        records.append(_record(video, questions))
    film.unlink()
    _lines(root / "mlvbench_test.jsonl", records)
    return ["data=medhorizon", f"data.root={root}"]


def _film(path: Path) -> Path:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=int(FPS))
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for number in range(FRAMES):
            frame = av.VideoFrame.from_ndarray(np.roll(noise, number, axis=1), format="rgb24")
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


def _record(video: str, questions: Sequence[tuple[str, str, Sequence[str], str]]) -> dict[str, Any]:
    folder, _, stem = video.partition("/")
    return {
        "key": stem,
        "dataset": folder,
        "organ": "any",
        "scene_type": "any",
        "duration_tier": "short",
        "video_path": f"{video}.mp4",
        "num_frames": FRAMES,
        "fps": FPS,
        "duration_seconds": float(SECONDS),
        "split": "test",
        "qa": [
            {
                "question": question,
                "options": list(options),
                "answer": answer,
                "task_id": task,
                "task_name": task,
                "category": "any",
            }
            for task, question, options, answer in questions
        ],
    }


def _lines(path: Path, records: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


# -- the sources


def write_sources(root: Path) -> Path:
    """Seven of the eight sources below `root`: US-Study's folder is missing."""
    _autolaparo(root / "AutoLaparo")
    _galar(root / "galar")
    _grasp(root / "GraSP")
    _multibypass(root / "MultiBypass140")
    _pitvis(root / "PitVis")
    _real_colon(root / "REAL-Colon")
    _tmvp(root / "TMVP-SurVideo")
    return root


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _autolaparo(root: Path) -> None:
    for name in ("01", "02"):
        rows = [f"{second + 1}\t{1 if second < 20 else 2 if second < 40 else 7}" for second in range(SECONDS)]
        _write(root / "labels" / f"label_{name}.txt", "\n".join(["Frame\tPhase", *rows]) + "\n")


_GALAR = (
    "index", "z-line", "pylorus", "ampulla of vater", "ileocecal valve", "section", "mouth", "esophagus",
    "stomach", "small intestine", "colon", "ulcer", "polyp", "active bleeding", "blood", "erythema",
    "erosion", "angiectasia", "IBD", "foreign body", "esophagitis", "varices", "hematin", "celiac", "cancer",
    "lymphangioectasis", "frame",
)  # fmt: skip


def _galar(root: Path) -> None:
    for name, n_rows in (("1", FRAMES), ("2", 30)):
        lines = [",".join(_GALAR)]
        for frame in range(n_rows):
            section = "stomach" if frame < 50 else "small intestine"
            told = {"index": frame, "section": section, section: 1, "frame": frame}
            lines.append(",".join(str(told.get(column, 0)) for column in _GALAR))
        _write(root / "Galar_labels_and_metadata" / "Labels" / f"{name}.csv", "\n".join(lines) + "\n")


def _grasp(root: Path) -> None:
    phases = ["Idle", "LPIL", "RPIL", "Retzius_Space"]
    steps = ["Idle", "Id_Illiac_Vein_Artery"]
    tools = ["Bipolar Forceps", "Prograsp Forceps", "Large Needle Driver"]
    tools += ["Monopolar Curved Scissors", "Suction Instrument"]
    named = {
        f"{what}_categories": [{"id": number + base, "name": name} for number, name in enumerate(names)]
        for what, names, base in (("phases", phases, 0), ("steps", steps, 0), ("instruments", tools, 1))
    }
    for split, case, fps in (("train", "CASE001", 45), ("test", "CASE041", 30)):
        images = [
            {"id": second, "file_name": f"{case}/{second * fps + fps // 2:09d}.jpg", "video_name": case}
            for second in range(SECONDS)
        ]
        long = [
            {"id": second, "image_id": second, "phases": 0 if second < 10 else 3, "steps": 0}
            for second in range(SECONDS)
        ]
        short = [{"id": 0, "image_id": 12, "category_id": 5, "bbox": [1, 2, 3, 4]}]
        for length, labels in (("long", long), ("short", short)):
            whole = {"images": images, "annotations": labels, **named}
            _write(root / "annotations" / f"grasp_{length}-term_{split}.json", json.dumps(whole))


def _multibypass(root: Path) -> None:
    def rows(*told: tuple[int, int, str, int]) -> list[dict[str, Any]]:
        return [{"start": a, "end": b, "label_name": name, "label_id": code} for a, b, name, code in told]

    bern = {
        "phases": rows((0, 60_000, "preparation", 0)),
        "steps": rows((0, 15_000, "s2_trocar_placement", 2), (15_000, 60_000, "s0_null_step", 0)),
    }
    strasbourg = {
        "phases": rows(
            (0, 20_000, "preparation", 0),
            (20_000, 60_000, "omentum_division", 2),
            (31_000, 33_000, "out_of_body", 12),
        ),
        "steps": rows((0, 60_000, "s0_null_step", 0), (40_000, 35_000, "s39_coagulation", 39)),  # reversed
    }
    _write(root / "labels" / "bern" / "labels_by70" / "BBP01.mp4.json", json.dumps(bern))
    _write(root / "labels" / "strasbourg" / "labels_by70" / "SBP02.mp4.json", json.dumps(strasbourg))


def _pitvis(root: Path) -> None:
    for number in (1, 2):
        changes = [(0, "nasal_corridor_creation", 1), (30, "sellotomy", 5), (59, "operation_ended", -1)]
        steps = [f"{number},{second},{name},{code}" for second, name, code in changes]
        header = "int_video,int_time,str_step,int_step"
        _write(root / "steps_csv" / f"steps_{number:02d}.csv", "\n".join([header, *steps]) + "\n")
        tools = [f"{number},{second},suction,no_secondary_instrument,16,-2,3,-2" for second in range(SECONDS)]
        header = (
            "int_video,int_time,str_instrument1,str_instrument2,int_instrument1,int_instrument2,"
            "pos_instrument1,pos_instrument2"
        )
        _write(root / "instruments_csv" / f"instruments_{number:02d}.csv", "\n".join([header, *tools]) + "\n")


_BOXES = {"001-001_1": (*range(10, 20), *range(40, 70)), "001-001_2": range(100, 105)}


def _real_colon(root: Path) -> None:
    box = "<bndbox><xmin>1</xmin><xmax>9</xmax><ymin>1</ymin><ymax>9</ymax></bndbox>"
    for frame in range(FRAMES):
        objects = "".join(
            f"<object><name>lesion</name><unique_id>{name}</unique_id><box_id>{frame}</box_id>{box}</object>"
            for name, frames in _BOXES.items()
            if frame in frames
        )
        _write(
            root / "001-001_annotations" / f"001-001_{frame}.xml",
            f"<annotation><filename>001-001_{frame}.jpg</filename><size><width>64</width><height>64</height>"
            f"<depth>3</depth></size>{objects}</annotation>",
        )
    header = "unique_video_name,age,sex,endoscope_brand,fps,num_frames,num_lesions,bbps\n"
    _write(root / "video_info.csv", header + f"001-001,60,f,Fuji,{FPS},{FRAMES},2,8\n")
    header = "unique_object_id,unique_video_name,size [mm],site,histology_extended,histology_class\n"
    lesions = "001-001_1,001-001,4,cecum,tubular,AD\n001-001_2,001-001,9,rectum,tubular,AD\n"
    _write(root / "lesion_info.csv", header + lesions)


def _tmvp(root: Path) -> None:
    columns = (
        "Needle_holder Aspirator Endotherm_knife Needle_holder_small Occlusion_forceps Knife "
        "Atrial_retractor Scissor"
    )
    for name in ("001", "002"):
        phases = [
            f"{second} {'Preparation' if second < 20 else 'DissectLeftAtrium'}" for second in range(SECONDS)
        ]
        _write(root / "phase_annotations" / f"{name}.txt", "\n".join(["Frame Phase", *phases]) + "\n")
        bits = [f"{second} 0 0 0 0 0 0 1 {int(second in (5, 23, 24, 50))}" for second in range(SECONDS)]
        _write(root / "instrument_annotations" / f"{name}.txt", "\n".join([f"Frame {columns}", *bits]) + "\n")
