"""Table 2's layout. The counts are those of MedHorizon (arXiv 2605.06537); the scores are made up here."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from diagnostics.report.table2 import overall, table2

COUNTS = pd.read_csv(Path(__file__).parents[2] / "fixtures" / "medhorizon_counts.csv")


def run(seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A run's table by task, made from items, and the items."""
    rng = np.random.default_rng(seed)
    right = [rng.integers(0, 2, n) for n in COUNTS["items"]]
    rows = [(task, some.mean(), len(some)) for task, some in zip(COUNTS["task"], right, strict=True)]
    every = np.concatenate(right)
    table = pd.DataFrame([*rows, ("all", every.mean(), len(every))], columns=["task", "accuracy", "items"])
    return table.assign(accuracy_low=table["accuracy"] - 0.05, accuracy_high=table["accuracy"] + 0.05), every


def test_the_counts_are_the_papers_and_rebuild_an_overall_accuracy():
    assert COUNTS["items"].sum() == 1253
    assert COUNTS.set_index("task").loc[["PR", "SD", "RL", "IR"], "items"].sum() == 894 + 30
    table, every = run(0)
    tasks = table.set_index("task").drop("all")
    rebuilt = overall(tasks["accuracy"].to_dict(), tasks["items"].to_dict())
    assert rebuilt == pytest.approx(every.mean())
    assert rebuilt != pytest.approx(tasks["accuracy"].mean(), abs=1e-4), "no plain mean over tasks"


def test_runs_are_rows_tasks_are_columns_in_order_and_the_best_is_bold():
    (one, _), (two, _) = run(1), run(2)
    chance = dict.fromkeys(one["task"], 0.99)
    made = table2(
        {"first_model": one, "second": two}, order=list(COUNTS["task"]), baselines={"chance": chance}
    )
    assert list(made.numbers.columns) == ["run", *COUNTS["task"], "all"]
    assert made.numbers["run"].tolist() == ["chance", "first_model", "second"]
    read = pd.read_csv(io.StringIO(made.csv()))
    assert read.iloc[0, 1:].astype(int).tolist() == [*COUNTS["items"], 1253]
    assert read.iloc[2:, 1:].to_numpy(dtype=float) == pytest.approx(
        np.array([one["accuracy"], two["accuracy"]])
    )
    lines = made.markdown().splitlines()
    assert "PR (517)" in lines[0]
    assert lines[0].rstrip(" |").endswith("Overall (1253)")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    for column, task in enumerate([*COUNTS["task"], "all"], start=1):
        percents = [round(100 * float(t.set_index("task").loc[task, "accuracy"]), 1) for t in (one, two)]
        for row, percent in zip(cells[1:], percents, strict=True):
            assert row[column] == (f"**{percent:.1f}**" if percent == max(percents) else f"{percent:.1f}"), (
                task
            )
        assert cells[0][column] == "99.0", "a baseline is never the best"
    latex = made.latex()
    assert latex.count(r"\textbf{") == made.markdown().count("**") / 2
    assert r"first\_model" in latex
    assert r"\toprule" in latex


def test_intervals_stand_behind_the_numbers_where_asked(tmp_path):
    table, _ = run(3)
    assert "[" not in table2({"m": table}).markdown()
    value = 100 * float(table.set_index("task").loc["PR", "accuracy"])
    assert (
        f"**{value:.1f}** \\[{value - 5:.1f}, {value + 5:.1f}\\]"
        in table2({"m": table}, intervals=True).markdown()
    )
    paths = table2({"m": table}).write(tmp_path / "tables")
    assert [path.name for path in paths] == ["table2.csv", "table2.md", "table2.tex"]


def test_runs_on_other_items_and_wrong_overalls_are_refused():
    (one, _), (two, _) = run(1), run(2)
    fewer = two.assign(items=two["items"].where(two["task"] != "PR", 516))
    with pytest.raises(ValueError, match="PR 516 and 517"):
        table2({"one": one, "two": fewer})
    with pytest.raises(ValueError, match="mean over the items"):
        table2({"one": one.assign(accuracy=one["accuracy"].where(one["task"] != "all", 0.5))})
    with pytest.raises(ValueError, match="no run"):
        table2({})
