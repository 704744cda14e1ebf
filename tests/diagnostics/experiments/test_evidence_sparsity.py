"""Evidence sparsity on files whose evidence is known to the frame."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from diagnostics.data import load_items
from diagnostics.data.items import Evidence, Item, Window
from diagnostics.experiments.evidence_sparsity import evidence_frames
from diagnostics.report.sparsity import sparsity_figure
from diagnostics.store.record_log import read_records
from diagnostics.store.summary import read_summary
from diagnostics.video.index import open_index

from .conftest import Diagnose, environment


@pytest.fixture(scope="session")
def procedures(cache: Path) -> dict[str, Path]:
    """Two rendered videos of 30 s at 8 fps, 240 frames."""
    from diagnostics.data.minihorizon import Config, load

    items = load(Config(n_videos=2, seconds=30, fps=8, cache=str(cache))).items
    return dict(zip("ab", dict.fromkeys(item.video for item in items), strict=True))


QUESTIONS = [
    # id, video, task, source, evidence, frames of it
    ("1", "a", "PR", "GraSP", {"seconds": [[1.0, 4.0]]}, 24),
    ("2", "a", "PR", "GraSP", {"frames": [[0, 12]]}, 12),
    ("3", "a", "Site", "REAL-Colon", {"seconds": [[0.0, 1.0], [2.0, 2.5]], "kind": "proxy"}, 12),
    ("4", "b", "LLS", "REAL-Colon", {"seconds": [[0.0, 15.0]], "kind": "proxy"}, None),
    ("5", "b", "BPQ", "REAL-Colon", {"kind": "global"}, None),
    ("6", "b", "IR", "US-Study", {"seconds": [[0.0, 1.0]]}, None),
    ("7", "b", "IR", "TMVP", None, None),
    ("8", "b", "IR", "TMVP", {"seconds": [[1.01, 1.1]]}, 0),
    ("9", "b", "IR", "TMVP", {"seconds": [[100.0, 110.0]]}, "error"),
]


@pytest.fixture(scope="session")
def run(procedures: dict[str, Path], diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("sparsity")
    lines = [
        {
            "id": name,
            "video": procedures[video].name,
            "question": f"Question {name}?",
            "options": ["red", "blue", "green"],
            "answer": "ABC"[place % 3],
            "task": task,
            "source": source,
            **({} if evidence is None else {"evidence": evidence}),
        }
        for place, (name, video, task, source, evidence, _) in enumerate(QUESTIONS)
    ]
    lines.append({**lines[0], "id": "missing", "video": "nowhere.mp4"})
    lines.append({**lines[0], "id": "bad", "answer": "E"})
    (folder / "q.jsonl").write_text("\n".join(map(json.dumps, lines)))
    root = procedures["a"].parent
    done = diagnose(
        "+exp=evidence_sparsity", "data=jsonl", f"data.path={folder / 'q.jsonl'}", f"data.root={root}",
        f"out={folder / 'run'}",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "run", done.stdout


def test_ratios_are_frames_of_evidence_over_frames_of_the_video(run):
    records = {record.item_id: record for record in read_records(run[0])}
    for name, _, _, _, _, frames in QUESTIONS:
        record = records[name]
        if frames == "error":
            assert record.error.type == "EvidenceOutsideVideoError"
        elif frames is None:
            assert record.measures["evidence_ratio"] is None
        else:
            assert record.measures["evidence_ratio"] == frames / 240
            assert record.measures["evidence_seconds"] == pytest.approx(frames / 8)
    assert records["4"].measures["window_ratio"] == 0.5, "oracle evidence that the audit does not count"
    assert records["missing"].error.type == "MissingVideoError"
    assert records["bad"].error.type == "AnswerNotAnOptionError"
    assert records["7"].warnings[0].startswith("no_evidence:")
    assert records["8"].warnings[0].startswith("no_evidence_frame:")


def test_the_summary_is_the_mean_and_the_median_of_the_counted(run):
    summary = read_summary(run[0])
    ratios = [24 / 240, 12 / 240, 12 / 240, 0.0]
    assert summary.metrics["evidence_ratio"].mean == pytest.approx(np.mean(ratios))
    assert summary.metrics["evidence_ratio_median"].mean == pytest.approx(np.median(ratios))
    assert summary.metrics["evidence_ratio"].n == 4
    table = pd.read_csv(run[0] / "tables" / "evidence_ratio.csv").set_index(["task", "measure"])
    assert table.loc[("PR", "evidence_ratio"), "value"] == pytest.approx(18 / 240)
    assert table.loc[("LLS", "window_ratio"), "value"] == 0.5
    assert table.loc[("LLS", "evidence_ratio"), "n"] == 0
    counts = {
        name: summary.metrics[name].mean for name in ("items", "exact", "proxy", "excluded", "localisable")
    }
    assert counts == {"items": 10, "exact": 6, "proxy": 1, "excluded": 3, "localisable": 7}


def test_the_benchmark_card_counts_what_is_there(run):
    card = pd.read_csv(run[0] / "tables" / "benchmark_card.csv", keep_default_na=False)
    card = card.set_index(["group", "name"])
    assert card.loc[("all", ""), "items"] == 10
    assert card.loc[("all", ""), "videos"] == 3
    assert card.loc[("all", ""), "hours"] == pytest.approx(60 / 3600)
    assert card.loc[("source", "REAL-Colon"), "items"] == 3
    assert card.loc[("source", "GraSP"), "hours"] == pytest.approx(30 / 3600)
    assert card.loc[("task", "IR"), "items"] == 4
    for group in ("source", "task", "answer", "evidence", "counted as"):
        assert card.loc[group, "items"].sum() == 10, group
    letters = pd.read_csv(run[0] / "tables" / "answer_letters.csv").set_index("task")
    assert letters.to_numpy().sum() == 10
    assert list(letters.columns) == ["A", "B", "C"]


def test_the_figure_is_drawn(run):
    path = run[0] / "figures" / "evidence_sparsity.png"
    pixels = np.asarray(Image.open(path).convert("RGB"))
    assert pixels.std() > 10
    assert path.with_suffix(".pdf").exists()


@pytest.mark.parametrize("ratios", [{"exact": [0.01]}, {"exact": [0.5, 1e-5, 0.0], "proxy": [0.02] * 4}])
def test_every_positive_ratio_is_in_the_histogram(ratios):
    figure = sparsity_figure(ratios, n_items=9, bins=7)
    (axes,) = figure.axes
    positive = [value for values in ratios.values() for value in values if value > 0]
    assert sum(patch.get_height() for group in axes.containers for patch in group.patches) == len(positive)
    every = [value for values in ratios.values() for value in values]
    lines = {line.get_gid(): line.get_xdata()[0] for line in axes.lines}
    assert lines == {"mean": pytest.approx(np.mean(every)), "median": pytest.approx(np.median(every))}


def test_frames_by_time_are_those_that_the_index_shows_then(procedures):
    index = open_index(procedures["a"])
    for start, end in ((0.0, 0.1), (0.3, 7.77), (29.0, 30.0)):
        item = Item("q", procedures["a"], "a", "?", evidence=Evidence((Window(start, end),)))
        assert evidence_frames(item, index) == sum(start <= t < end for t in index.seconds)


def test_the_run_resumes_and_loads_no_model(run, procedures, cache):
    """The same in one process that must not import torch."""
    code = (
        "import sys\n"
        "given = ['+exp=evidence_sparsity', 'data.n_videos=2', 'data.seconds=30', 'out=' + sys.argv[1]]\n"
        "sys.argv = ['diagnostics', *given]\n"
        "from diagnostics.__main__ import main\n"
        "main()\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
        "assert 'transformers' not in sys.modules\n"
    )
    out = run[0].parent / "again"
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code, str(out)],
            cwd=run[0].parent, env=environment(cache), capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    assert len(read_records(out)) == len(
        load_items("minihorizon", {"n_videos": 2, "seconds": 30, "cache": str(cache)}).items
    )


@pytest.mark.parametrize("ratios", [[0.0167] * 6, [5e-4, 1e-3, 0.02, 0.4]])
def test_the_axis_is_told_in_percent_and_nothing_else(ratios: list[float]) -> None:
    figure = sparsity_figure({"exact": ratios}, n_items=len(ratios), bins=10)
    figure.draw_without_rendering()
    (axes,) = [axes for axes in figure.axes if axes.get_xscale() == "log"]
    labels = [label.get_text() for label in axes.get_xticklabels(which="both") if label.get_text()]
    assert labels
    assert all(label.endswith("%") for label in labels), labels
