"""Loaders of published benchmarks, on a handful of rows in the layout of each release, made here."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from diagnostics.data import load_items, loader, task_order
from diagnostics.data.items import Criterion, Turn, Window
from diagnostics.errors import (
    AnswerNotAnOptionError,
    ConfigError,
    DataFileError,
    DuplicateItemError,
    EvidenceOutsideVideoError,
    PathLeavesRootError,
    RecordError,
    TooFewOptionsError,
)
from diagnostics.models.prompting import question_text, template_of

CONF = Path(__file__).resolve().parents[3] / "conf" / "data"
BENCHMARKS = ("videomme", "longvideobench", "mlvu", "mvbench", "tvbench", "qvhighlights", "longshotbench")


@pytest.fixture
def write(tmp_path):
    """Write a JSON array, or JSON Lines by the suffix, below the root."""

    def _write(name, rows):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(row) for row in rows]
        text = "\n".join(lines) if path.suffix == ".jsonl" else f"[{', '.join(lines)}]"
        path.write_text(text, encoding="utf-8")
        return path

    return _write


def kinds(loaded):
    return {error.item_id: type(error) for error in loaded.rejected}


# -- Video-MME


def mme(**changes):
    return {
        "video_id": "001",
        "duration": "short",
        "domain": "Knowledge",
        "sub_category": "Humanity & History",
        "url": "https://example.org/watch?v=fFjv93ACGo8",
        "videoID": "fFjv93ACGo8",
        "question_id": "001-1",
        "task_type": "Counting Problem",
        "question": "How many candles are lit?",
        "options": ["A. Two.", "B. Three.", "C. Four.", "D. None."],
        "answer": "C",
        **changes,
    }


def test_videomme(write, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "other.mkv").touch()
    write(
        "rows.json",
        [
            mme(),
            mme(question_id="001-2", videoID="other", duration="long", task_type="OCR Problems"),
            mme(question_id="001-3", answer="E"),
            mme(question_id="001-4", options=["A. Two."]),
            mme(question_id="001-1"),
            mme(question_id="001-5", videoID="../../etc/passwd"),
            "no object",
        ],
    )
    loaded = load_items("videomme", {"root": str(tmp_path), "path": "rows.json"})
    first, second = loaded.items
    assert first.video == (tmp_path / "data" / "fFjv93ACGo8.mp4").resolve()
    assert first.video_id == "data/fFjv93ACGo8.mp4"
    assert first.options == ("Two.", "Three.", "Four.", "None.")
    assert (first.answer, first.task, first.task_family) == ("C", "Counting Problem", "short")
    assert first.metadata["domain"] == "Knowledge"
    assert "duration_seconds" not in first.metadata
    assert second.video.name == "other.mkv"
    assert kinds(loaded) == {
        "001-3": AnswerNotAnOptionError,
        "001-4": TooFewOptionsError,
        "001-1": DuplicateItemError,
        "001-5": PathLeavesRootError,
        None: RecordError,
    }
    assert "rows.json[6]" in str(loaded.rejected[-1])


def test_a_letter_decides_between_options_of_the_same_text(write, tmp_path):
    """The release has six such items, and every published number scores them by letter."""
    same = ["A. Two.", "B. Two.", "C. Four.", "D. A"]
    rows = [mme(options=same, answer="B"), mme(question_id="2", options=same, answer="A")]
    write("rows.json", rows)
    loaded = load_items("videomme", {"root": str(tmp_path), "path": "rows.json"})
    assert [item.answer for item in loaded.items] == ["B", "A"]
    assert not loaded.rejected


SRT = """1
00:00:01,000 --> 00:00:02,500
<i>Light the</i> candles.

2
00:00:02,500 --> 00:00:04,000
Light the candles.

3
00:01:00,000 --> 00:01:01,000
Now four
are lit.
"""


def test_videomme_subtitles_stand_before_the_question(write, tmp_path):
    (tmp_path / "subtitle").mkdir()
    (tmp_path / "subtitle" / "fFjv93ACGo8.srt").write_text(SRT, encoding="utf-8")
    write("rows.json", [mme(), mme(question_id="002-1", videoID="silent")])
    config = {"root": str(tmp_path), "path": "rows.json", "subtitles": True}
    first, second = load_items("videomme", config).items
    assert first.question.splitlines()[1:] == [
        "Light the candles.",
        "Now four are lit.",
        "How many candles are lit?",
    ]
    assert first.metadata["subtitles"] == 3
    assert second.question == "How many candles are lit?"
    assert second.metadata["subtitles"] == 0


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "videomme" / "test-00000-of-00001.parquet"
    path.parent.mkdir()
    path.write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match=r"\[datasets\]"):
        load_items("videomme", {"root": str(tmp_path)})


PARQUET = """
import sys
import pandas as pd
from pathlib import Path
from diagnostics.data import load_items
root = Path(sys.argv[1])
for folder in ("videomme", "postvalid_v1"):
    (root / folder).mkdir()
name = "test-00000-of-00001.parquet"
mme = {"question_id": "001-1", "videoID": "x", "duration": "short", "task_type": "OCR Problems",
       "question": "What?", "options": ["A. one", "B. two"], "answer": "B"}
pd.DataFrame([mme]).to_parquet(root / "videomme" / name)
shot = {"sample_id": "s", "video_id": "v", "duration": 61.5, "task": "summarization", "conversations": [
    {"role": "user", "content": "What?", "modalities": ["speech"], "difficulty": 3, "criteria": None},
    {"role": "assistant", "content": "That.", "modalities": None, "difficulty": None,
     "criteria": [{"name": "n", "description": "says that", "weight": 5.0, "is_penalty": False}]}]}
pd.DataFrame([shot]).to_parquet(root / "postvalid_v1" / name)
(item,) = load_items("videomme", {"root": str(root)}).items
assert (item.options, item.answer) == (("one", "two"), "B"), item
loaded = load_items("longshotbench", {"root": str(root)})
(item,) = loaded.items
assert item.rubric[0].points == 5.0 and item.metadata["modalities"] == ["speech"], item
assert item.metadata["duration_seconds"] == 61.5
(root / "videomme" / name).write_bytes(b"no parquet")
try:
    load_items("videomme", {"root": str(root)})
except Exception as error:
    assert type(error).__name__ == "DataFileError", error
else:
    raise AssertionError
print("read")
"""


@pytest.mark.system
def test_parquet_as_released(tmp_path):
    """With pyarrow in a folder of its own: the machine need not have it."""
    extra = tmp_path / "extra"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(extra),
        "pyarrow",
    ]
    subprocess.run(install, check=True, timeout=600)
    code = f"import sys; sys.path.append({str(extra)!r})\n{PARQUET}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "read\n", done.stderr


# -- LongVideoBench


def lvb(**changes):
    return {
        "video_id": "86CxyhFV9MI",
        "question": "In the video, which subtitles appear with the man in black?",
        "question_wo_referring_query": "Which subtitles appear?",
        "candidates": ["promisc has come", "run boy by", "everybody's goal", "stick to the wall", "promise"],
        "correct_choice": 1,
        "position": [854, 900],
        "topic_category": "NP-News-Programs",
        "question_category": "TOS",
        "level": "L2-Relation",
        "id": "86CxyhFV9MI_0",
        "video_path": "86CxyhFV9MI.mp4",
        "subtitle_path": "86CxyhFV9MI_en.json",
        "duration_group": 600,
        "starting_timestamp_for_subtitles": 10,
        "duration": 190.16,
        "view_count": 259852,
        **changes,
    }


def test_longvideobench(write, tmp_path):
    without = lvb(id="test_0")
    del without["correct_choice"]
    write("lvb_val.json", [lvb(), without, lvb(id="far", correct_choice=5), lvb(id="bad", duration=-1)])
    loaded = load_items("longvideobench", {"root": str(tmp_path)})
    first, second = loaded.items
    assert first.video_id == "videos/86CxyhFV9MI.mp4"
    assert (first.answer, len(first.options)) == ("B", 5)
    assert (first.task, first.task_family) == ("TOS", "L2-Relation")
    assert first.clip == (0.0, 190.16)
    assert first.metadata["duration_seconds"] == 190.16
    assert first.evidence is None
    assert first.metadata["position"] == [854, 900]
    assert second.answer is None
    assert kinds(loaded) == {"far": AnswerNotAnOptionError, "bad": RecordError}


def test_longvideobench_positions_become_proxy_evidence_on_request(write, tmp_path):
    write("lvb_val.json", [lvb(), lvb(id="outlier", position=[3, 60000]), lvb(id="odd", position="854")])
    loaded = load_items("longvideobench", {"root": str(tmp_path), "position_frames": 12})
    first, outlier = loaded.items
    assert first.evidence.kind == "proxy"
    assert [(w.start_frame, w.end_frame) for w in first.evidence.windows] == [(842, 855), (888, 901)]
    assert [(w.start_frame, w.end_frame) for w in outlier.evidence.windows] == [(0, 4)]
    assert outlier.metadata["evidence_left_out"] == [60000]
    assert kinds(loaded) == {"odd": RecordError}


def test_longvideobench_subtitles_of_the_shown_part(write, tmp_path):
    write("lvb_val.json", [lvb(duration=5.0), lvb(id="none", subtitle_path="gone.json")])
    lines = [
        {"start": "00:00:08.000", "end": "00:00:09.500", "line": "before"},
        {"start": "00:00:09.000", "end": "00:00:11.000", "line": "on the edge"},
        {"timestamp": [12.0, None], "text": "inside"},
        {"start": "00:00:15.000", "end": "00:00:16.000", "line": "after"},
    ]
    write("subtitles/86CxyhFV9MI_en.json", lines)
    loaded = load_items("longvideobench", {"root": str(tmp_path), "subtitles": True})
    (item,) = loaded.items
    assert item.question.splitlines()[1:-1] == ["on the edge", "inside"]
    assert kinds(loaded) == {"none": RecordError}


# -- MLVU


def mlvu(**changes):
    return {
        "video": "movie101_66.mp4",
        "duration": 480.0,
        "question": "What colour is the coat?",
        "candidates": ["Yellow", "Red", "Green", "Blue"],
        "answer": "Green",
        "question_type": "plotQA",
        **changes,
    }


STEMS = ("1_plotQA", "2_needle", "3_ego", "4_count", "5_order", "6_anomaly_reco", "7_topic_reasoning")


def test_mlvu_dev(write, tmp_path):
    for stem in STEMS:
        write(f"json/{stem}.json", [])
    write("json/1_plotQA.json", [mlvu(), mlvu(answer="Purple"), mlvu(candidates=["Red", "Red", "Green"])])
    write("json/2_needle.json", [mlvu(video="needle_1.mp4", question_type="findNeedle")])
    write("json/4_count.json", [mlvu(question_type="count", candidates=[1, 2, 3, 4], answer="3")])
    (tmp_path / "video" / "1_plotQA").mkdir(parents=True)
    (tmp_path / "video" / "needle").mkdir()
    loaded = load_items("mlvu", {"root": str(tmp_path)})
    plot, twice, needle, count = loaded.items
    assert plot.id == "1_plotQA/0"
    assert plot.video_id == "video/1_plotQA/movie101_66.mp4"
    assert (plot.answer, plot.task, plot.task_family) == ("C", "plotQA", "single detail")
    assert plot.metadata["duration_seconds"] == 480.0
    assert twice.answer == "C"
    assert needle.video_id == "video/needle/needle_1.mp4"
    assert count.video_id == "video/movie101_66.mp4"
    assert (count.options, count.answer, count.task_family) == (("1", "2", "3", "4"), "C", "multi detail")
    assert kinds(loaded) == {"1_plotQA/1": AnswerNotAnOptionError}


def test_mlvu_open_ended_tasks(write, tmp_path):
    for stem in STEMS:
        write(f"json/{stem}.json", [])
    write("json/8_sub_scene.json", [{"video": "a.mp4", "question": "Describe it.", "answer": "A man.",
                                     "question_type": "subPlot", "scoring_points": "man"}])  # fmt: skip
    write("json/9_summary.json", [])
    (item,) = load_items("mlvu", {"root": str(tmp_path), "open_ended": True}).items
    assert (item.options, item.answer, item.task) == ((), "A man.", "subPlot")
    assert item.metadata["scoring_points"] == "man"
    (tmp_path / "json" / "3_ego.json").unlink()
    with pytest.raises(DataFileError, match="3_ego"):
        load_items("mlvu", {"root": str(tmp_path)})


def test_mlvu_dev_in_one_file(write, tmp_path):
    row = {
        "video_name": "surveil_8.mp4",
        "duration": 480.0,
        "question": "Does the video hold anything odd?\n(A) Abuse\n(B) Arson\n(C) None\n(D) Fighting",
        "candidates": ["Abuse", "Arson", "None", "Fighting"],
        "answer": "B",
        "task_type": "anomaly_reco",
        "question_id": "AR_0",
    }
    write("mlvu_dev.json", [row])
    (item,) = load_items("mlvu", {"root": str(tmp_path), "path": "mlvu_dev.json"}).items
    assert item.id == "AR_0"
    assert item.question == "Does the video hold anything odd?"
    assert (item.answer, item.task, item.task_family) == ("B", "anomaly_reco", "holistic")


# -- MVBench and TVBench


def mv(**changes):
    return {
        "video": "v.mp4",
        "question": "What happened?",
        "candidates": ["c", "b", "a"],
        "answer": "c",
        **changes,
    }


def task_files(write, name):
    for entry in loader(name).FILES:
        write(f"json/{entry.stem}.json", [mv(**({"start": 1.5, "end": 4} if entry.bounded else {}))])


def test_mvbench(write, tmp_path):
    task_files(write, "mvbench")
    rows = [
        mv(video="ZS9XR.mp4", start=11.1, end=19.6, extra=1),
        mv(start=5.0, end=5.0),
        mv(),
        mv(start=1, end=2, answer="d"),
    ]
    write("json/action_sequence.json", rows)
    loaded = load_items("mvbench", {"root": str(tmp_path), "folders": {"Fine-grained Pose": "ntu"}})
    assert tuple(dict.fromkeys(item.task for item in loaded.items)) == loader("mvbench").TASKS
    by_id = {item.id: item for item in loaded.items}
    first = by_id["action_sequence/0"]
    assert first.video_id == "video/star/Charades_v1_480/ZS9XR.mp4"
    assert first.clip == (11.1, 19.6)
    assert first.evidence is None
    assert first.metadata["extra"] == 1
    assert (first.answer, first.task_family) == ("A", "Action")
    assert by_id["fine_grained_pose/0"].video_id == "video/ntu/v.mp4"
    assert by_id["object_existence/0"].clip is None
    assert by_id["episodic_reasoning/0"].video_id == "video/tvqa/frames_fps3_hq/v.mp4"
    assert sum(item.clip is not None for item in loaded.items) == 5
    assert kinds(loaded) == {
        "action_sequence/1": RecordError,
        "action_sequence/2": RecordError,
        "action_sequence/3": AnswerNotAnOptionError,
    }
    with pytest.raises(ConfigError, match="'Fine-grained Pose'"):
        load_items("mvbench", {"root": str(tmp_path), "folders": {"Fine-grained Poses": "ntu"}})


def test_tvbench(write, tmp_path):
    task_files(write, "tvbench")
    loaded = load_items("tvbench", {"root": str(tmp_path)})
    assert not loaded.rejected
    assert [item.task for item in loaded.items] == list(loader("tvbench").TASKS)
    clips = {item.task: item.clip for item in loaded.items if item.clip is not None}
    assert clips == {"Action Sequence": (1.5, 4.0), "Action Localization": (1.5, 4.0)}
    assert loaded.items[0].video_id == "video/action_count/v.mp4"
    (tmp_path / "json" / "object_count.json").unlink()
    with pytest.raises(DataFileError, match="Object Count"):
        load_items("tvbench", {"root": str(tmp_path)})


# -- QVHighlights


def qvh(**changes):
    return {
        "qid": 8737,
        "query": "A family is playing basketball together.",
        "duration": 126,
        "vid": "bP5KfdFJzC4_660.0_810.0",
        "relevant_windows": [[0, 16], [40, 44]],
        "relevant_clip_ids": [0, 1, 2, 3, 20],
        "saliency_scores": [[4, 1, 1], [4, 3, 3], [4, 4, 4], [1, 1, 1], [3, 3, 4]],
        **changes,
    }


def test_qvhighlights(write, tmp_path):
    hidden = {key: qvh()[key] for key in ("query", "duration", "vid")}
    rows = [qvh(), {"qid": 2, **hidden}, qvh(qid=3, relevant_windows=[[16, 4]])]
    write("highlight_val_release.jsonl", rows)
    loaded = load_items("qvhighlights", {"root": str(tmp_path)})
    first, hidden = loaded.items
    assert first.id == "8737"
    assert first.video_id == "videos/bP5KfdFJzC4_660.0_810.0.mp4"
    assert first.question.endswith("A family is playing basketball together.")
    assert first.evidence.kind == "exact"
    assert first.evidence.windows == (Window(0.0, 16.0), Window(40.0, 44.0))
    assert first.metadata["duration_seconds"] == 126.0
    assert first.metadata["saliency_scores"][0] == [4, 1, 1]
    assert (first.options, first.answer) == ((), None)
    assert hidden.evidence is None
    assert kinds(loaded) == {"3": EvidenceOutsideVideoError}


def test_qvhighlights_by_saliency(write, tmp_path):
    bad = qvh(qid=2, saliency_scores=[[4, 1, 1]])
    write("highlight_val_release.jsonl", [qvh(), bad])
    loaded = load_items("qvhighlights", {"root": str(tmp_path), "saliency": 3.3})
    (item,) = loaded.items
    # Means 2, 10/3, 4, 1, 10/3: clips 1 and 2 touch and are one window, clip 20 is another.
    assert item.evidence.windows == (Window(2.0, 6.0), Window(40.0, 42.0))
    assert kinds(loaded) == {"2": RecordError}
    with pytest.raises(ConfigError, match="query"):
        load_items("qvhighlights", {"root": str(tmp_path), "question": "When?"})


# -- LongShOTBench


def shot(**changes):
    def criterion(text, weight, penalty=False):
        return {"name": text, "description": text, "category": "c", "weight": weight, "is_penalty": penalty}

    return {
        "sample_id": "s1",
        "video_id": "vid",
        "title": "A film",
        "duration": 2712.4,
        "sample_type": "multi_turn",
        "task": "ocr_text_extraction",
        "conversations": [
            {"role": "user", "content": "What is written?", "modalities": ["visual"], "difficulty": 2},
            {
                "role": "assistant",
                "content": "STOP",
                "criteria": [criterion("says STOP", 5), criterion("invents a word", 5, True)],
            },
            {"role": "user", "content": "Where?", "modalities": ["visual", "speech"], "difficulty": 4},
            {"role": "assistant", "content": "On a sign.", "criteria": [criterion("wrong place", -3, True)]},
        ],
        **changes,
    }


def test_longshotbench(write, tmp_path):
    turns = shot()["conversations"]
    rows = [
        shot(),
        shot(sample_id="s2", conversations=turns[:3]),
        shot(sample_id="s3", conversations=[turns[0], {**turns[1], "criteria": [{"description": "x"}]}]),
        shot(sample_id=None),
    ]
    write("test.jsonl", rows)
    loaded = load_items("longshotbench", {"root": str(tmp_path), "path": "test.jsonl"})
    first, second = loaded.items
    assert (first.id, first.video_id) == ("s1/0", "videos/vid.mp4")
    assert (first.task, first.task_family) == ("entity_recognition", "core perception")
    assert first.metadata["raw_task"] == "ocr_text_extraction"
    assert (first.options, first.answer, first.turns) == ((), "STOP", ())
    assert first.rubric == (Criterion("says STOP", 5.0), Criterion("invents a word", -5.0))
    assert first.metadata["duration_seconds"] == 2712.4
    assert second.turns == (Turn("user", "What is written?"), Turn("assistant", "STOP"))
    assert second.question == "Where?"
    assert second.metadata["modalities"] == ["visual", "speech"]
    assert second.rubric == (Criterion("wrong place", -3.0),)
    assert kinds(loaded) == {"s2": RecordError, "s3/0": RecordError, None: RecordError}


# -- all


def test_every_task_is_named_once_in_the_papers_order():
    sizes = {"videomme": 12, "longvideobench": 17, "mvbench": 20, "tvbench": 10, "longshotbench": 16}
    assert {name: len(set(task_order(name))) for name in sizes} == sizes
    assert task_order("jsonl") == ()
    for name in BENCHMARKS:
        assert len(set(loader(name).TASKS)) == len(loader(name).TASKS)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_configuration_file_is_the_loaders(name):
    values = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    subset = {"ids", "tasks", "limit", "pilot", "pilot_seed"}
    assert subset <= set(values)
    own = {field for field in values if field not in subset | {"name", "loader", "instruction"}}
    config = loader(name).Config
    assert own == set(config.__dataclass_fields__)
    given = config(root="x")
    assert {field: values[field] for field in own - {"root"}} == {
        field: getattr(given, field) for field in own - {"root"}
    }


@pytest.mark.parametrize("name", ["videomme", "longvideobench", "mlvu", "mvbench", "tvbench"])
def test_the_published_template_holds_question_and_options(name, write, tmp_path):
    instruction = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))["instruction"]
    write("rows.json", [mme(question="What stands for {options} here?")])
    (item,) = load_items("videomme", {"root": str(tmp_path), "path": "rows.json"}).items
    question, options, text = question_text(item, instruction)
    assert text.count(question) == 1
    assert text.count(options) == 1
    assert options == "A. Two.\nB. Three.\nC. Four.\nD. None."
    assert text.index(question) < text.index(options)
    assert template_of(instruction)["text"] == instruction
    assert len(template_of(instruction)["sha256"]) == 64


def test_a_line_is_a_template_too():
    told = template_of("Answer with the letter.")
    assert told["text"] == "{question}\n{options}\nAnswer with the letter."
    assert told == template_of(told["text"])
    assert told["sha256"] != template_of("Answer.")["sha256"]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_root_that_is_missing_stops_the_run(name, tmp_path):
    with pytest.raises(DataFileError, match="root of"):
        load_items(name, {"root": str(tmp_path / "gone")})


def test_an_array_with_undefined_numbers_and_other_files(tmp_path, write):
    path = write("lvb_val.json", [lvb(view_count=math.nan)])
    assert "NaN" in path.read_text(encoding="utf-8")
    (item,) = load_items("longvideobench", {"root": str(tmp_path)}).items
    assert "view_count" not in item.metadata
    path.write_text('{"a": 1}', encoding="utf-8")
    with pytest.raises(DataFileError, match="a dict, not an array"):
        load_items("longvideobench", {"root": str(tmp_path)})
    path.write_text("[1, ", encoding="utf-8")
    with pytest.raises(DataFileError, match="not JSON"):
        load_items("longvideobench", {"root": str(tmp_path)})
    (tmp_path / "rows.csv").touch()
    with pytest.raises(DataFileError, match=r"'\.csv'"):
        load_items("videomme", {"root": str(tmp_path), "path": "rows.csv"})
