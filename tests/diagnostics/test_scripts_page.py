"""The scripts of docs/scripts.md, run as they stand there, against numbers reckoned here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from diagnostics.store import read_records, read_tensors, tensor_path

from ..finished_runs import write_run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scripts.md"
VALUES = [{"gini": number / 10, "correct": number % 3 == 0} for number in range(8)]


def run_block(heading: str, **names: Any) -> dict[str, Any]:
    """Execute the block under a heading with some names set; returns what it left."""
    section = re.split(rf"^## {re.escape(heading)}", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1]
    code = re.search(r"```python\n(.*?)```", section, flags=re.DOTALL)
    assert code is not None
    exec(compile(code[1], f"{PAGE.name}: {heading}", "exec"), names)
    return names


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", VALUES)


def tensors_of(run: Path) -> list[Any]:
    return [read_tensors(path) for record in read_records(run) if (path := tensor_path(run, record))]


def test_figure_9(run: Path, tmp_path: Path) -> None:
    left = run_block("Draw Figure 9 again from the files", RUN=run, OUT=tmp_path)
    assert (tmp_path / "figure9.pdf").read_bytes().startswith(b"%PDF")
    left["plt"].close("all")
    tops = []
    for tensors in tensors_of(run):
        mass = tensors.attention.unit_mass[:, :, tensors.role.index("question")].mean(axis=(0, 1))
        tops.append(np.sort(mass)[::-1][:3].sum() / mass.sum())
    assert np.mean(left["curves"], axis=0)[50] == pytest.approx(np.mean(tops), rel=1e-5)


def test_lift_and_accuracy(run: Path, tmp_path: Path) -> None:
    left = run_block(
        "In which layers does attention to the evidence go with being right?", RUN=run, OUT=tmp_path
    )
    lifts, right = [], []
    for tensors, record in zip(tensors_of(run), read_records(run), strict=True):
        mass = tensors.attention.unit_mass[1, :, tensors.role.index("last")].mean(axis=0)
        evidence = tensors.units.evidence.any(axis=1)
        lifts.append(np.log(mass[evidence].sum() / mass.sum() / evidence.mean()))
        right.append(record.correct)
    found = left["table"].set_index("layer")
    assert found.loc[1, "rho"] == pytest.approx(spearmanr(lifts, right).statistic)
    assert found.loc[1, "items"] == len(VALUES)
    assert (tmp_path / "lift_and_accuracy.csv").exists()


def test_a_sweep(tmp_path: Path) -> None:
    for name, budget, wrong in (("tiny", 8, 0), ("tiny", 64, 1), ("other", 8, 2), ("other", 64, 3)):
        values = [{"gini": 0.1, "correct": number >= wrong} for number in range(4)]
        write_run(tmp_path / "sweep" / f"{name}-{budget}", values, model__name=name, sampling__budget=budget)
    run_block("Put the runs of a SLURM sweep together", SWEEP=tmp_path / "sweep", OUT=tmp_path)
    table = pd.read_csv(tmp_path / "sweep.csv", index_col="model")
    assert table.loc["tiny"].tolist() == [1.0, 0.75]
    assert table.loc["other"].tolist() == [0.5, 0.25]
