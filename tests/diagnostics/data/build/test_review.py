"""A person's verdicts: applied to what the person saw, never lost, never applied to anything else."""

from __future__ import annotations

import csv
from collections import Counter

import pytest

from diagnostics.data.build import Config, build
from diagnostics.data.build.review import REVIEW_COLUMNS
from diagnostics.errors import DataFileError

from .conftest import Tracks, procedure

CONFIG = Config(tasks=("PR", "Site", "CPR"))


@pytest.fixture
def project(tmp_path):
    tracks = Tracks([procedure(number) for number in range(4)])
    file = tracks.json(tmp_path / "tracks.json")

    def run(config=CONFIG, **settings):
        return build([file], tmp_path / "out", config, probe=tracks.probe, **settings)

    return run


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def fill(path, **by_id):
    """Write verdicts into the file as a person with a spreadsheet does."""
    rows = read(path)
    for row in rows:
        row.update(by_id.get(row["id"], {}))
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, REVIEW_COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def test_the_file_shows_everything_a_person_needs(project):
    built = project()
    rows = read(built.folder / "review.csv")
    assert [row["id"] for row in rows] == [item.id for item in built.items]
    for row, item in zip(rows, built.items, strict=True):
        right = item.options["ABCD".index(item.answer)]
        assert row["answer"] == f"{item.answer}. {right}"
        assert row["options"].split("\n") == [f"{a}. {b}" for a, b in zip("ABCD", item.options, strict=True)]
        assert row["question"] == item.question
        assert row["verdict"] == row["correction"] == row["note"] == ""
        assert row["evidence"] == "the whole video" or " to " in row["evidence"]


def test_a_rejected_question_goes_and_letters_stay_balanced(project):
    first = project()
    gone = [item.id for item in first.items if item.answer == "A"][:5]
    fill(
        first.folder / "review.csv",
        **{item_id: {"verdict": "Reject", "note": "blurred"} for item_id in gone},
        **{first.items[-1].id: {"verdict": "accept"}},
    )
    for _ in range(2):  # the second time too: the verdicts are kept in the file that the run writes anew
        second = project()
        assert {item.id for item in first.items} - {item.id for item in second.items} == set(gone)
        entries = [entry for entry in second.audit.entries if entry.stage == "review"]
        assert {entry.reason for entry in entries} == {"RejectedByReviewerError"}
        assert {entry.message for entry in entries} == {"blurred"}
        verdicts = {row["id"]: row["verdict"] for row in read(second.folder / "review.csv")}
        assert [item_id for item_id, verdict in verdicts.items() if verdict == "reject"] == gone
        assert verdicts[first.items[-1].id] == "accept"
        for task in CONFIG.tasks:
            counts = Counter(item.answer for item in second.items if item.task == task)
            assert max(counts.values()) - min(counts[letter] for letter in "ABCD") <= 1


def test_a_correction_replaces_the_question_and_nothing_else(project):
    first = project()
    chosen = first.items[0]
    fill(first.folder / "review.csv", **{chosen.id: {"correction": "Which phase is it, please?"}})
    for _ in range(2):
        after = {item.id: item for item in project().items}
        assert after[chosen.id].question == "Which phase is it, please?"
        assert sorted(after[chosen.id].options) == sorted(chosen.options)


def test_a_verdict_on_another_text_is_noted_kept_and_not_applied(project):
    first = project()
    chosen = first.items[0]
    fill(first.folder / "review.csv", **{chosen.id: {"verdict": "reject"}})
    reworded = Config(tasks=CONFIG.tasks, wording={"PR": "What happens from {start} to {end}?"})
    second = project(reworded)
    assert chosen.id in {item.id for item in second.items}
    (entry,) = [entry for entry in second.audit.entries if entry.reason == "StaleReviewError"]
    assert not entry.dropped
    assert entry.row == 2
    # With the old wording the old verdict holds again.
    assert chosen.id not in {item.id for item in project().items}


@pytest.mark.parametrize("change", [{"verdict": "maybe"}, {"id": None}])
def test_a_line_that_says_nothing_certain_is_noted_with_its_number(project, change):
    first = project()
    path = first.folder / "review.csv"
    rows = read(path)
    if change.get("verdict"):
        fill(path, **{rows[1]["id"]: change})
    else:  # the same line twice, with another verdict
        fill(path, **{rows[1]["id"]: {"verdict": "accept"}})
        lines = path.read_text(encoding="utf-8-sig")
        doubled = dict(rows[1], verdict="reject")
        with path.open("w", encoding="utf-8", newline="") as file:
            file.write(lines)
            csv.DictWriter(file, REVIEW_COLUMNS).writerow(doubled)
    second = project()
    assert rows[1]["id"] in {item.id for item in second.items}
    (entry,) = [entry for entry in second.audit.entries if entry.stage == "review"]
    assert entry.reason == "BadRowError"
    assert entry.row > 1


def test_a_correction_that_is_no_question_costs_the_item(project):
    first = project()
    fill(first.folder / "review.csv", **{first.items[0].id: {"correction": "Which {phase}?"}})
    second = project()
    assert first.items[0].id not in {item.id for item in second.items}
    assert [e.reason for e in second.audit.entries if e.stage == "review"] == ["MalformedTextError"]


def test_cells_cannot_become_formulas(tmp_path):
    one = procedure(0)
    for row in one["phases"]:
        row["label"] = f"={row['label']}"
    tracks = Tracks([one], spaces={})
    config = Config(tasks=("WR",), options=2, wording={"WR": "=cmd() takes how long?"})
    built = build([tracks.json(tmp_path / "t.json")], tmp_path / "out", config, probe=tracks.probe)
    assert built.items
    for row in read(built.folder / "review.csv"):
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row.values())
    assert built.items[0].question == "=cmd() takes how long?"


def test_another_file_is_refused(project, tmp_path):
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataFileError, match="'id'"):
        project(review=tmp_path / "notes.csv")
    with pytest.raises(DataFileError, match="no such review"):
        project(review=tmp_path / "review.csv")
