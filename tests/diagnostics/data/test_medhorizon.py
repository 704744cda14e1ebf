from pathlib import Path

import pytest

from diagnostics.data import load_items, task_order
from diagnostics.data.build import settings
from diagnostics.data.items import Evidence, Window
from diagnostics.errors import (
    AnswerNotAnOptionError,
    ConfigError,
    DataFileError,
    EvidenceOutsideVideoError,
    PathLeavesRootError,
    RecordError,
)


def qa(task_id="Size", **changes):
    return {
        "question": f"{task_id}?",
        "options": ["A. 2 mm", "B. 5 mm", "C. 9 mm", "D. 20 mm"],
        "answer": "C",
        "task_id": task_id,
        "task_name": f"name of {task_id}",
        "lesion": 2,
        **changes,
    }


def video(key="002-010", *questions, **changes):
    return {
        "key": key,
        "dataset": "real_colon",
        "organ": "colon",
        "scene_type": "endoscopy",
        "duration_tier": "long",
        "video_path": f"real_colon/{key}.mp4",
        "num_frames": 54000,
        "fps": 30.0,
        "duration_seconds": 1800.0,
        "split": "test",
        "qa": list(questions),
        **changes,
    }


@pytest.fixture
def load(write_lines, tmp_path):
    def _load(*records, sidecar=None, **config):
        write_lines(*records, name="mlvbench_test.jsonl")
        if sidecar is not None:
            write_lines(*sidecar, name="evidence.jsonl")
            config["evidence"] = "evidence.jsonl"
        return load_items("medhorizon", {"root": str(tmp_path), **config})

    return _load


def test_tasks_are_the_papers_in_the_order_of_its_table(load):
    counts = (Path(__file__).parents[2] / "fixtures" / "medhorizon_counts.csv").read_text().splitlines()[1:]
    order = task_order("medhorizon")
    assert [task.upper() for task in order] == [line.split(",")[0] for line in counts]
    assert set(order) == set(settings.TASKS)
    loaded = load(video("a", *[qa(task.lower()) for task in order], qa("other")))
    assert [item.task for item in loaded.items] == [*order, "name of other"]


def test_one_record_a_video_becomes_one_item_a_question(load, tmp_path):
    loaded = load(
        video("002-010", qa("Size"), qa("PR")), video("us-1", qa("RSR"), video_path="us_study/01-lus.mp4")
    )
    assert [item.id for item in loaded.items] == ["002-010/0", "002-010/1", "us-1/0"]
    first, second, third = loaded.items
    assert first.video == second.video == (tmp_path / "real_colon/002-010.mp4").resolve()
    assert first.video_id == "real_colon/002-010.mp4"
    assert first.options == ("2 mm", "5 mm", "9 mm", "20 mm")
    assert first.answer == "C"
    assert first.task == "Size"
    assert first.metadata["task_name"] == "name of Size"
    assert first.metadata["dataset"] == "real_colon"
    assert first.metadata["task_id"] == "Size"
    assert first.metadata["lesion"] == 2
    assert first.evidence is None
    assert [set(item.flags) for item in loaded.items] == [
        {"order_free"},
        {"time_addressed"},
        {"order_dependent"},
    ]
    assert third.video_id == "us_study/01-lus.mp4"


def test_the_sidecar_brings_evidence(load):
    rows = [
        {
            "id": "a/0",
            "kind": "proxy",
            "seconds": [[60, 62], [30, 31]],
            "frames": [[1800, 1860], [900, 930]],
            "source": "VOC boxes",
            "rule": "lesion union",
        },
        {"id": "a/1", "kind": "global"},
        {"id": "a/2", "frames": [[5, 9]], "question": "IR?"},
    ]
    items = load(video("a", qa("Size"), qa("WR"), qa("IR"), qa("LA")), sidecar=rows).items
    assert items[0].evidence == Evidence((Window(30, 31, 900, 930), Window(60, 62, 1800, 1860)), "proxy")
    assert items[0].metadata["evidence_source"] == "VOC boxes"
    assert items[0].metadata["evidence_rule"] == "lesion union"
    assert items[1].evidence == Evidence((), "global")
    assert items[2].evidence.kind == "exact"
    assert items[3].evidence is None


def test_bad_questions_and_rows_cost_themselves(load):
    rows = [
        {"id": "a/0", "seconds": [[9, 3]]},
        {"id": "a/1", "seconds": [[1, 2]], "question": "another one?"},
        {"id": "a/2", "windows": [[1, 2]]},
        {"id": "a/3", "seconds": [[1, 2]]},
        {"id": "a/3", "seconds": [[3, 4]]},
    ]
    loaded = load(
        video("a", qa(), qa(), qa(), qa(), qa(answer="E"), qa(question=None), "a text", qa()),
        video("b", qa(), video_path="../b.mp4"),
        video(None, qa()),
        video("c", qa=None),
        '{"key": "d", "qa": [',
        sidecar=rows,
    )
    assert [item.id for item in loaded.items] == ["a/7"]
    kinds = [(error.item_id, type(error)) for error in loaded.rejected]
    assert kinds == [
        ("a/0", EvidenceOutsideVideoError),
        ("a/1", RecordError),
        ("a/2", RecordError),
        ("a/3", RecordError),
        ("a/4", AnswerNotAnOptionError),
        ("a/5", RecordError),
        ("a/6", RecordError),
        ("b/0", PathLeavesRootError),
        (None, RecordError),
        ("c", RecordError),
        (None, RecordError),
    ]
    assert loaded.rejected[0].path.endswith("evidence.jsonl:1")
    assert loaded.rejected[4].path.endswith("mlvbench_test.jsonl:1")


def test_a_sidecar_for_another_file_stops_the_run(load):
    with pytest.raises(DataFileError, match=r"b/0.*Did you mean 'a/0'"):
        load(video("a", qa()), sidecar=[{"id": "b/0", "seconds": [[1, 2]]}])
    with pytest.raises(DataFileError, match="names its item"):
        load(video("a", qa()), sidecar=[{"seconds": [[1, 2]]}])


def test_a_missing_file_names_what_is_there(load, write_lines, tmp_path):
    write_lines(video("a", qa()), name="mlvbench-test.jsonl")
    with pytest.raises(DataFileError, match=r"mlvbench-test\.jsonl\?"):
        load_items("medhorizon", {"root": str(tmp_path)})
    assert len(load_items("medhorizon", {"root": str(tmp_path), "path": "mlvbench-test.jsonl"}).items) == 1
    with pytest.raises(DataFileError, match="no such root"):
        load_items("medhorizon", {"root": str(tmp_path / "gone")})


def test_the_documented_sidecar_works(load):
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")
    rows = page.split("```json\n")[2].split("```")[0].splitlines()
    where = qa("Site", question="Where is the lesion?")
    loaded = load(video("002-010", where), video("case-07", qa(), qa("WR")), sidecar=rows)
    assert loaded.rejected == []
    assert [item.evidence.kind if item.evidence else None for item in loaded.items] == [
        "proxy",
        None,
        "global",
    ]


def test_the_sidecars_kinds_are_told_apart_and_taken_by_name(load):
    kinds = ["exact", "approx", "proxy", "label-run"]
    rows = [
        {"id": f"002-010/{place}", "kind": kind, "seconds": [[1.0, 2.0]]} for place, kind in enumerate(kinds)
    ]
    rows.append({"id": "002-010/4", "kind": "global"})
    rows.append({"id": "002-010/5", "kind": "missing", "reason": "no such video"})
    record = video("002-010", *(qa() for _ in rows))
    loaded = load(record, sidecar=rows)
    assert not loaded.rejected
    assert [item.evidence and item.evidence.kind for item in loaded.items] == [
        "exact", "proxy", "proxy", None, "global", None,
    ]  # fmt: skip
    assert [item.evidence_kind for item in loaded.items] == [*kinds, "global", "missing"]
    assert loaded.items[5].metadata["evidence_reason"] == "no such video"
    apart = load(record, sidecar=rows, evidence_kinds=["label-run"])
    assert [item.id for item in apart.items if item.evidence] == ["002-010/3"]
    exact = load(record, sidecar=rows, evidence_kinds=["exact", "global"])
    assert [item.id for item in exact.items if item.evidence] == ["002-010/0", "002-010/4"]


@pytest.mark.parametrize("kinds", [["exact", "label-run"], ["label-run", "global"], [], ["exakt"]])
def test_kinds_that_must_not_be_mixed_are_refused(load, kinds):
    with pytest.raises(ConfigError, match="evidence_kinds"):
        load(video("002-010", qa()), sidecar=[], evidence_kinds=kinds)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"kind": "missing", "seconds": [[1.0, 2.0]]}, "Missing evidence has windows"),
        ({"kind": "aprox", "seconds": [[1.0, 2.0]]}, "Did you mean 'approx'"),
        ({"kind": ["exact"], "seconds": [[1.0, 2.0]]}, "Evidence has the kind ['exact']"),
        ({"question": 5, "seconds": [[1.0, 2.0]]}, "'question' is 5"),
        ({"kind": "proxy", "frames": [[1, 2]], "alternatives": [[1, 2]]}, "'alternatives' is"),
        ({"kind": "proxy", "frames": [[1, 2]], "alternatives": {"all": [[2, 1]]}}, "empty, reversed"),
    ],
)
def test_a_sidecar_row_of_another_form_costs_its_item(load, row, said):
    loaded = load(video("002-010", qa(), qa()), sidecar=[{"id": "002-010/1", **row}])
    assert [item.id for item in loaded.items] == ["002-010/0"]
    assert said in str(loaded.rejected[0])
