"""The closing words of a run on the terminal."""

import io
import json
from dataclasses import asdict

import pytest
from rich.console import Console

from diagnostics.report.closing import (
    closing_table,
    errors_table,
    number,
    paths_list,
    warnings_table,
)
from diagnostics.store import Failure, Metric, Record, Summary, plain


def shown(renderable: object, soft_wrap: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=100).print(renderable, soft_wrap=soft_wrap)
    return out.getvalue()


@pytest.fixture
def summary() -> Summary:
    metrics = {
        "unit_fraction_90": Metric(0.7671, 0.7123, 0.8201, 12),
        "effective_units": Metric(41.237, 38.0, 44.5, 12),
        "evidence_log_lift": Metric(None, None, None, 0),
        "gini": Metric(0.5, None, None, 1),
        "[bold]odd": Metric(3.2e-6, -1e-5, 2e-5, 3),
    }
    records = [
        Record(item_id="a", video_id="v", warnings=("fewer frames: 3 of 8",)),
        Record(item_id="[red]b", video_id="v", error=Failure("MissingVideoError", "No file [b]x[/b].")),
        Record(item_id="c", video_id="v", error=Failure("MissingVideoError", "No other.")),
        Record(item_id="d", video_id="v", error=Failure("OutOfMemoryError", "Lower sampling.budget.")),
    ]
    return Summary.of("attention_drift", records, metrics)


def test_every_measure_has_mean_interval_and_n(summary):
    lines = shown(closing_table(summary)).splitlines()
    rows = {
        line.split("│")[1].strip(): [cell.strip() for cell in line.split("│")[2:5]]
        for line in lines
        if "│" in line
    }
    assert rows["unit_fraction_90"] == ["0.767", "0.712 to 0.820", "12"]
    assert rows["effective_units"] == ["41.2", "38.0 to 44.5", "12"]
    assert rows["evidence_log_lift"] == ["undefined (n=0)", "", ""]
    assert rows["gini"] == ["0.500", "", "1"]
    assert rows["[bold]odd"] == ["3.2e-06", "-1.0e-05 to 2.0e-05", "3"]
    assert "attention_drift: 4 items" in lines[0]


def test_measures_are_chosen_and_missing_ones_are_said(summary):
    text = shown(closing_table(summary, ["gini", "accuracy"]))
    assert text.index("gini") < text.index("accuracy")
    assert "undefined (n=0)" in text
    assert "effective_units" not in text


def test_the_summarys_file_gives_the_same_table(summary):
    read = json.loads(json.dumps(plain(asdict(summary))))
    assert shown(closing_table(read)) == shown(closing_table(summary))


def test_errors_are_counted_with_an_example_and_what_to_do(summary):
    text = shown(errors_table(summary.errors))
    assert "3 failed" in text
    missing, memory = text.index("MissingVideoError"), text.index("OutOfMemoryError")
    assert missing < memory, "most frequent first"
    assert "[red]b" in text
    assert "No file [b]x[/b]." in text
    assert "Lower sampling.budget." in text
    assert "fewer frames: 3 of 8" in shown(warnings_table(summary.warnings))


def test_nothing_wrong_gives_no_table():
    assert errors_table({}) is None
    assert warnings_table({}) is None


def test_paths_are_never_cut():
    path = "/scratch/" + "very-long/" * 20 + "[x]/summary.json"
    paths = paths_list({"summary": path, "run folder": "/r"})
    assert shown(paths, soft_wrap=True) == f"summary     {path}\nrun folder  /r\n"
    folded = shown(paths)
    assert max(map(len, folded.splitlines())) <= 100
    assert path in folded.replace("\n", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.000"), (-0.0213, "-0.021"), (9.9994, "9.999"), (10.0, "10.0"), (4e-4, "4.0e-04")],
)
def test_numbers(value, text):
    assert number(value) == text
