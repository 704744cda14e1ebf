"""`+exp=check`: every planted fault is found, named and counted; a sound data set passes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pandas as pd
import pytest

from diagnostics.store.record_log import read_records


def film(path: Path, seconds: float = 6.0, fps: int = 10, seed: int = 0) -> Path:
    """A short H.264 film of moving noise, so that its data are most of its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 256, (64, 96, 3), np.uint8)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=fps, options={"g": "10"})
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for number in range(round(seconds * fps)):
            frame = av.VideoFrame.from_ndarray(np.roll(noise, number, axis=1), format="rgb24")
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


def row(name: str, video: str = "good.mp4", **changes) -> dict:
    return {
        "id": name,
        "video": video,
        "question": "What?",
        "options": ["one", "two"],
        "answer": "A",
        **changes,
    }


def write(folder: Path, *rows: dict) -> Path:
    path = folder / "q.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set with one fault of each kind."""
    folder = tmp_path_factory.mktemp("broken")
    for name in ("good", "short", "long", "damaged", "cut"):
        film(folder / f"{name}.mp4", seed=len(name))
    whole = (folder / "cut.mp4").read_bytes()
    (folder / "cut.mp4").write_bytes(whole[: len(whole) * 2 // 3])
    data = bytearray((folder / "damaged.mp4").read_bytes())
    place = data.index(b"mdat") + 4
    data[place + 10_000 : place + 35_000] = bytes(25_000)  # in the middle; the header stays whole
    (folder / "damaged.mp4").write_bytes(data)
    (folder / "empty.mp4").touch()
    (folder / "page.mp4").write_text("<html>not found</html>")
    write(
        folder,
        row("fine", evidence=[[1.0, 2.0]], metadata={"duration_seconds": 6.0}),
        row("edge", evidence=[[5.0, 6.4]]),
        row("late", evidence=[[1.0, 2.0], [7.0, 8.0]]),
        row("rate", evidence={"frames": [[1, 2]]}, metadata={"num_frames": 600}),
        row("clip", clip=[1.0, 9.0]),
        row("within", clip=[1.0, 6.0]),
        row("answer", answer="C"),
        row("answer", answer="A"),
        row("short", "short.mp4", metadata={"duration_seconds": 60.0}),
        row("short again", "short.mp4", metadata={"duration_seconds": 60.0}),
        row("long", "long.mp4", metadata={"duration_seconds": 3.0}),
        row("bounded", "good.mp4", clip=[0.0, 2.0], metadata={"duration_seconds": 2.0}),
        row("cut", "cut.mp4"),
        row("damaged", "damaged.mp4"),
        row("gone", "gone.mp4"),
        row("empty", "empty.mp4"),
        row("page", "page.mp4"),
        row("sound", audio="sound.wav"),
    )
    return folder


EXPECTED = {
    ("evidence outside video", "late"),
    ("clip outside video", "clip"),
    ("answer not an option", "answer"),
    ("duplicate item", "answer"),
    ("wrong duration", "short"),
    ("wrong duration", "long"),
    ("truncated video", ""),
    ("damaged video", ""),
    ("missing video", ""),
    ("empty video", ""),
    ("missing audio", "sound"),
    ("wrong frame count", "rate"),
}


def problems(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "tables" / "problems.csv", keep_default_na=False)


@pytest.fixture(scope="module")
def run(diagnose, broken, tmp_path_factory):
    folder = tmp_path_factory.mktemp("check") / "run"
    done = diagnose("+exp=check", "data=jsonl", f"data.path={broken / 'q.jsonl'}", f"out={folder}")
    return folder, done


def test_every_fault_is_found_and_nothing_else(run):
    folder, done = run
    assert done.returncode == 1, done.stdout + done.stderr
    table = problems(folder)
    found = set(zip(table["problem"], table["item"], strict=True))
    page = {pair for pair in found if table[table["problem"] == pair[0]]["file"].eq("page.mp4").all()}
    assert len(page) == 1  # not a video: which of the errors it is, is the reader's to say
    assert found - page == EXPECTED
    assert len(table) == len(EXPECTED) + 1
    files = dict(zip(table["problem"], table["file"], strict=True))
    assert files["truncated video"] == "cut.mp4"
    assert files["damaged video"] == "damaged.mp4"
    assert files["missing video"] == "gone.mp4"
    assert files["answer not an option"].endswith("q.jsonl:7")


def test_counts_are_on_the_screen_and_in_the_tables(run):
    folder, done = run
    counts = pd.read_csv(folder / "tables" / "problem_counts.csv").set_index("problem")
    assert counts["count"].sum() == len(problems(folder))
    assert counts.loc["wrong duration", "count"] == 2
    assert counts.loc["wrong duration", "files"] == 2
    assert "13 problems in" in done.stderr
    assert "evidence outside video" in done.stdout
    assert "damaged.mp4" in done.stdout
    for name in ("problems", "problem_counts", "videos"):
        assert (folder / "tables" / f"{name}.md").stat().st_size > 0
    videos = pd.read_csv(folder / "tables" / "videos.csv").set_index("video")
    assert videos.loc["good.mp4", ["frames", "seconds", "decoded", "width"]].tolist() == [60, 6.0, 4, 96]
    assert videos.loc["short.mp4", "stated_seconds"] == 60.0
    assert videos.loc["gone.mp4", "decoded"] == 0
    metrics = json.loads((folder / "summary.json").read_text())["metrics"]
    assert metrics["problems"]["mean"] == 13
    assert metrics["videos"]["mean"] == 8


def test_a_sound_data_set_passes_and_is_not_checked_twice(diagnose, tmp_path):
    film(tmp_path / "a.mp4")
    film(tmp_path / "b.mp4", seconds=3)
    path = write(tmp_path, row("a", "a.mp4", evidence=[[0, 6]]), row("b", "b.mp4"))
    arguments = ("+exp=check", "data=jsonl", f"data.path={path}", f"out={tmp_path / 'run'}")
    done = diagnose(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing wrong" in done.stdout
    assert len(problems(tmp_path / "run")) == 0
    again = diagnose(*arguments)
    assert again.returncode == 0
    assert [record.attempt for record in read_records(tmp_path / "run")] == [1, 1]


def test_what_had_a_problem_or_changed_is_checked_again(diagnose, tmp_path):
    film(tmp_path / "a.mp4")
    film(tmp_path / "b.mp4")
    path = write(tmp_path, row("a", "a.mp4"), row("b", "b.mp4"), row("c", "c.mp4"))
    arguments = ("+exp=check", "data=jsonl", f"data.path={path}", f"out={tmp_path / 'run'}")
    first = diagnose(*arguments)
    assert first.returncode == 1
    film(tmp_path / "c.mp4")
    (tmp_path / "b.mp4").write_bytes((tmp_path / "b.mp4").read_bytes()[:3000])
    second = diagnose(*arguments)
    assert second.returncode == 1
    assert "2 videos had a problem or are not what they were" in second.stdout
    attempts = {record.item_id: record.attempt for record in read_records(tmp_path / "run")}
    assert attempts == {"a.mp4": 1, "b.mp4": 2, "c.mp4": 2}
    assert problems(tmp_path / "run")["file"].tolist() == ["b.mp4"]


def test_a_pipe_is_no_video_and_nobody_waits_for_it(diagnose, tmp_path):
    film(tmp_path / "a.mp4")
    os.mkfifo(tmp_path / "pipe.mp4")
    path = write(tmp_path, row("a", "a.mp4"), row("pipe", "pipe.mp4"))
    done = diagnose("+exp=check", "data=jsonl", f"data.path={path}", f"out={tmp_path / 'run'}")
    assert done.returncode == 1
    assert problems(tmp_path / "run")["file"].tolist() == ["pipe.mp4"]


def test_a_data_set_without_one_usable_item(diagnose, tmp_path):
    path = write(tmp_path, row("a", answer="Z"))
    done = diagnose("+exp=check", "data=jsonl", f"data.path={path}", f"out={tmp_path / 'run'}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert problems(tmp_path / "run")["problem"].tolist() == ["answer not an option"]


NO_TORCH = """
import sys
from diagnostics.__main__ import main
try:
    main()
finally:
    loaded = {"torch", "transformers"} & set(sys.modules)
    print("LOADED", sorted(loaded))
"""


def test_no_model_is_loaded_and_torch_is_not_imported(cache, tmp_path):
    film(tmp_path / "a.mp4")
    path = write(tmp_path, row("a", "a.mp4"))
    command = [sys.executable, "-c", NO_TORCH, "+exp=check", "data=jsonl", f"data.path={path}"]
    done = subprocess.run(
        [*command, f"out={tmp_path / 'run'}"],
        env={**os.environ, "DIAGNOSTICS_CACHE": str(cache), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "LOADED []" in done.stdout
    assert "model" not in json.loads((tmp_path / "run" / "manifest.json").read_text())["config"]
