"""`python -m diagnostics.data.build` on real files, as a person starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from diagnostics.data import load_items
from diagnostics.data.build.__main__ import main

FPS, FRAMES = 5, 60


def write_video(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=Fraction(FPS))
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for number in range(FRAMES):
            picture = np.full((64, 64, 3), 4 * number, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


def case(name: str, **changes):
    return {
        "procedure": name,
        "video": f"videos/{name}.mp4",
        "frames": FRAMES,
        "phases": [
            {"start": 0, "end": 4, "label": "access"},
            {"start": 4, "end": 8, "label": "resection"},
            {"start": 8, "end": 12, "label": "closure"},
        ],
        **changes,
    }


@pytest.fixture
def folder(tmp_path):
    """Two sound procedures; three whose video is missing, no video, or too short."""
    for name in ("a", "b", "short"):
        write_video(tmp_path / "videos" / f"{name}.mp4")
    (tmp_path / "videos" / "page.mp4").write_text("<html>404</html>")
    cases = [case("a"), case("b"), case("gone"), case("page"), case("short", frames=600)]
    (tmp_path / "tracks.json").write_text(json.dumps({"source": "here", "procedures": cases}))
    return tmp_path


SETTINGS = ["--set", "window_seconds=2", "--set", "options=3", "--set", "tasks=[PR]"]


def test_the_command_builds_a_loadable_benchmark(folder):
    command = [sys.executable, "-m", "diagnostics.data.build", "tracks.json", "--out", "out", *SETTINGS]
    run = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, env={**os.environ, "COLUMNS": "120"}
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "source normalisation" in run.stdout
    for reason in ("MissingVideoError", "LengthMismatchError"):
        assert reason in run.stdout
    loaded = load_items("jsonl", {"path": str(folder / "out" / "questions.jsonl"), "root": str(folder)})
    assert {item.video.name for item in loaded.items} == {"a.mp4", "b.mp4"}
    assert not loaded.rejected
    for item in loaded.items:
        (window,) = item.evidence.windows
        assert (window.start_frame, window.end_frame) == (
            FPS * window.start_seconds,
            FPS * window.end_seconds,
        )
    audit = [json.loads(line) for line in (folder / "out" / "audit.jsonl").read_text().splitlines()]
    refused = {line["procedure"]: line["reason"] for line in audit if line["stage"] == "procedures"}
    assert refused["gone"] == "MissingVideoError"
    assert refused["short"] == "LengthMismatchError"
    assert refused["page"].endswith("Error")
    told = json.loads((folder / "out" / "build.json").read_text())
    assert told["config"]["window_seconds"] == 2
    assert told["items"] == len(loaded.items)


def test_settings_come_from_a_file_and_the_command_line_wins(folder, capsys):
    (folder / "build.yaml").write_text("window_seconds: 3\noptions: 3\ntasks: [PR]\n")
    arguments = [str(folder / "tracks.json"), "--out", str(folder / "out")]
    status = main([*arguments, "--config", str(folder / "build.yaml"), "--set", "seed=4"])
    assert status == 0, capsys.readouterr().err
    config = json.loads((folder / "out" / "build.json").read_text())["config"]
    assert (config["window_seconds"], config["seed"]) == (3, 4)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--set", "window_second=2"], "window_seconds"),
        (["--set", "tasks=[PRX]"], "'PR'"),
        (["--set", "seed"], "no '='"),
        (["--set", "options=one"], "options"),
        (["--config", "nowhere.yaml"], "no file"),
        (["--rewrite-url", "http://x/v1"], "go together"),
        (["--root", "/nowhere/at/all"], "no such root"),
        (["--review", "nowhere.csv"], "no such review"),
    ],
)
def test_what_cannot_start_says_why_and_exits_with_two(folder, capsys, arguments, told):
    status = main([str(folder / "tracks.json"), "--out", str(folder / "out"), *arguments])
    assert status == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_missing_tracks_name_the_near_match(folder, capsys):
    assert main([str(folder / "track.json"), "--out", str(folder / "out")]) == 2
    assert "tracks.json" in "".join(capsys.readouterr().err.split())
    assert main([str(folder / "videos"), "--out", str(folder / "out")]) == 2
    assert "holds no track file" in " ".join(capsys.readouterr().err.split())


def test_a_file_is_no_folder_to_write_into(folder, capsys):
    assert main([str(folder / "tracks.json"), "--out", str(folder / "tracks.json")]) == 2
    assert "is a file" in " ".join(capsys.readouterr().err.split())


def test_nothing_built_exits_with_one(folder, capsys):
    status = main([str(folder / "tracks.json"), "--out", str(folder / "out"), "--set", "tasks=[LLS]"])
    assert status == 1
    assert "No question" in capsys.readouterr().err


def test_building_needs_no_torch():
    code = "import sys, diagnostics.data.build.__main__ as m; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
