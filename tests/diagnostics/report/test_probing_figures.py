"""Figures of probing and faithfulness: what is drawn equals the table; nothing is covered."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from diagnostics.report.faithfulness import faithfulness_figure
from diagnostics.report.probing import probing_figure
from diagnostics.report.style import save_figure

from .test_drift import overlapping, texts

NAMES = ("score", "shuffled", "position_only")


@pytest.fixture
def probes() -> pd.DataFrame:
    random = np.random.default_rng(0)
    rows = []
    for target in ("evidence", "time", "order", "direction", "coin"):
        for layer in range(5):
            row = {"target": target, "layer": layer, "chance": 0.0 if target == "time" else 0.5}
            for name in NAMES:
                value = random.uniform(0.4, 0.9)
                row |= {name: value, f"{name}_low": value - 0.1, f"{name}_high": value + 0.1}
            rows.append(row)
    return pd.DataFrame(rows)


@pytest.fixture
def faithful() -> tuple[pd.DataFrame, pd.DataFrame]:
    maps = ["attention", "value_weighted", "relevancy", "occlusion", "random", "oracle"]
    curves = [
        {"map": name, "direction": direction, "fraction": x, "outcome": place - x, "ci_low": place - x - 0.2,
         "ci_high": place - x + 0.1}
        for place, name in enumerate(maps)
        for direction in ("deletion", "insertion")
        for x in (0.0, 0.5, 1.0)
    ]  # fmt: skip
    areas = [
        {"task": task, "direction": direction, "map": name, "normalised": 0.1 * place, "n": 12,
         "ci_low": 0.1 * place - 0.05, "ci_high": 0.1 * place + 0.1}
        for task in ("all", "Hist")
        for direction in ("deletion", "insertion")
        for place, name in enumerate(maps)
    ]  # fmt: skip
    return pd.DataFrame(curves), pd.DataFrame(areas)


def line(figure, gid: str) -> np.ndarray:
    (found,) = [one for axes in figure.axes for one in axes.lines if one.get_gid() == gid]
    return found.get_xydata()


def test_probing_draws_each_target_with_its_controls(probes, tmp_path):
    figure = probing_figure(probes.sample(frac=1, random_state=1))  # in whatever order
    for target, rows in probes.groupby("target"):
        for name in NAMES:
            np.testing.assert_allclose(line(figure, f"{target}:{name}"), rows[["layer", name]])
    assert {"evidence", "time", "order", "direction", "coin"} <= set(texts(figure))
    save_figure(figure, tmp_path / "probing")
    assert not overlapping(figure)


def test_probing_without_a_fit_says_where_to_look(tmp_path):
    figure = probing_figure(pd.DataFrame())
    save_figure(figure, tmp_path / "probing")
    assert any("tables/unfit.csv" in text for text in texts(figure))


def test_faithfulness_draws_both_curves_and_every_map(faithful, tmp_path):
    curves, areas = faithful
    figure = faithfulness_figure(curves, areas)
    for direction in ("deletion", "insertion"):
        for name in ("attention", "relevancy", "occlusion"):
            rows = curves[(curves["map"] == name) & (curves["direction"] == direction)]
            np.testing.assert_allclose(line(figure, f"{direction}:{name}"), rows[["fraction", "outcome"]])
    containers = figure.axes[2].containers
    for container, direction in zip(containers, ("deletion", "insertion"), strict=True):
        own = areas[(areas["task"] == "all") & (areas["direction"] == direction)]
        own = own[~own["map"].isin(["random", "oracle"])]
        np.testing.assert_allclose(container.lines[0].get_xdata(), own["normalised"])
    assert "value weighted" in texts(figure)
    save_figure(figure, tmp_path / "faithfulness")
    assert not overlapping(figure)
