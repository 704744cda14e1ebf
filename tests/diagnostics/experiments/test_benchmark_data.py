"""A published benchmark's layout through a whole run: its template, its clips, its folders of pictures."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import yaml
from PIL import Image

from diagnostics.catalogue import config_folder
from diagnostics.data.mvbench import FILES
from diagnostics.store.record_log import read_records


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """MVBench with one question, about seconds 2 to 6 of a folder of thirty pictures at 3 a second."""
    root = tmp_path_factory.mktemp("mvbench")
    (root / "json").mkdir()
    for entry in FILES:
        (root / "json" / f"{entry.stem}.json").write_text("[]", encoding="utf-8")
    row = {
        "video": "castle_s01e02_seg02_clip_12",
        "question": "What is shown?",
        "candidates": ["noise", "a cat"],
        "answer": "noise",
        "start": 2.0,
        "end": 6.0,
    }
    (root / "json" / "episodic_reasoning.json").write_text(json.dumps([row]), encoding="utf-8")
    folder = root / "video" / "tvqa" / "frames_fps3_hq" / row["video"]
    folder.mkdir(parents=True)
    for number in range(1, 31):
        noise = np.random.default_rng(number).integers(0, 256, (96, 96, 3), np.uint8)
        Image.fromarray(noise).save(folder / f"{number:05d}.jpg")
    return root


def test_the_model_is_shown_the_clip_and_asked_by_the_published_template(root, diagnose, tmp_path):
    run = tmp_path / "run"
    done = diagnose(
        "+exp=attention_drift",
        "data=mvbench",
        f"data.root={root}",
        "sampling.budget=8",
        "backend.max_new_tokens=2",
        "exp.item_figures=0",
        f"out={run}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = read_records(run)
    times = [slot.true_seconds for slot in record.slots]
    assert len(times) == 8
    assert times[0] == 2.0
    assert times[-1] == pytest.approx(17 / 3)
    assert record.frame_size == (96, 96)
    assert record.target == "A"
    written = yaml.safe_load((config_folder() / "data" / "mvbench.yaml").read_text())["instruction"]
    told = json.loads((run / "manifest.json").read_text())["checks"]["prompt_template"]
    assert told == {"text": written, "sha256": hashlib.sha256(written.encode()).hexdigest()}


def test_check_reads_the_folder_of_pictures_and_the_clip(root, diagnose, tmp_path):
    done = diagnose("+exp=check", "data=mvbench", f"data.root={root}", f"out={tmp_path / 'run'}")
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = read_records(tmp_path / "run")
    assert record.source_seconds == 10.0
    assert record.measures["decoded"] == 4
