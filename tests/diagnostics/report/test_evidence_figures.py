"""Figures of grounding, swap, redundancy and samplers: what is drawn equals the table; nothing is covered."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from diagnostics.report.grounding import grounding_figure
from diagnostics.report.redundancy import redundancy_figure
from diagnostics.report.samplers import samplers_figure
from diagnostics.report.style import save_figure
from diagnostics.report.swap import swap_figure

from .test_drift import overlapping, texts


def with_interval(row: dict, measure: str, value: float, half: float = 0.05) -> dict:
    return row | {measure: value, f"{measure}_low": value - half, f"{measure}_high": value + half * 2}


def drawn(figure: Figure, gid: str) -> tuple[np.ndarray, np.ndarray]:
    """Points of an error-bar line, and the ends of its bars, both along the axis of the values."""
    (container,) = [
        one for axes in figure.axes for one in axes.containers if one.lines and one.lines[0].get_gid() == gid
    ]
    (bars,) = container.lines[2]
    data = container.lines[0].get_xydata()
    ends = np.array(bars.get_segments())
    along = int(not np.allclose(ends[:, 0, 0], ends[:, 1, 0])) ^ 1
    return data, np.sort(ends[:, :, along], axis=1)


def bars_equal(figure: Figure, gid: str, rows: pd.DataFrame, measure: str, axis: int = 1) -> None:
    data, ends = drawn(figure, gid)
    np.testing.assert_allclose(data[:, axis], rows[measure])
    np.testing.assert_allclose(ends, rows[[f"{measure}_low", f"{measure}_high"]])


@pytest.fixture
def levels() -> pd.DataFrame:
    shown = ["chance", "text", "blank", "uniform", "swapped", "oracle_matched", "oracle_images"]
    values = [0.29, 0.35, 0.3, 0.61, 0.7, 0.66, 0.72]
    every = {"of": "all", "group": "all", "n": 40}
    rows = [
        every | {"shown": name, "accuracy": value, "ci_low": value - 0.05, "ci_high": value + 0.1}
        for name, value in zip(shown, values, strict=True)
    ]  # fmt: skip
    return pd.DataFrame([*rows, {**rows[0], "of": "task", "group": "Hist", "accuracy": 0.9}])


@pytest.fixture
def steps() -> pd.DataFrame:
    names = ["language prior", "video", "sampling", "distraction and length", "interpretation"]
    gaps = [0.06, 0.26, 0.09, -0.04, 0.34]
    every = {"of": "all", "group": "all", "n": 38}
    rows = [
        every | {"step": name, "difference": gap, "ci_low": gap - 0.02, "ci_high": gap + 0.03}
        for name, gap in zip(names, gaps, strict=True)
    ]  # fmt: skip
    return pd.DataFrame([*rows, {**rows[0], "of": "task", "group": "Hist", "difference": 0.5}])


def test_grounding_draws_every_level_and_a_waterfall_that_closes(levels, steps):
    figure = grounding_figure(levels, steps)
    left, right = figure.axes
    every, chain = levels[levels["of"] == "all"], steps[steps["of"] == "all"]
    np.testing.assert_allclose([bar.get_width() for bar in left.patches], every["accuracy"])
    (bars,) = left.collections
    np.testing.assert_allclose(np.array(bars.get_segments())[:, :, 0], every[["ci_low", "ci_high"]])
    tops = [0.29]
    for bar, gap in zip(right.patches, chain["difference"], strict=True):
        assert bar.get_x() == pytest.approx(tops[-1]), "each step begins where the last one ended"
        assert bar.get_width() == pytest.approx(gap)
        tops.append(bar.get_x() + bar.get_width())
    assert tops[-1] == pytest.approx(1), "the chain closes at all right"
    spans = [bars.get_segments()[0][:, 0] for bars in right.collections]
    shifts = np.array(tops[:-1])[:, None]
    np.testing.assert_allclose(np.array(spans) - shifts, chain[["ci_low", "ci_high"]], atol=1e-12)
    assert [label.get_text() for label in right.get_yticklabels()] == chain["step"].tolist()
    assert {"+6", "+26", "+9", "\N{MINUS SIGN}4", "+34"} <= set(texts(figure))
    assert any("from chance (29%)" in text and "38 items" in text for text in texts(figure))
    assert not overlapping(figure)


@pytest.fixture
def doses() -> pd.DataFrame:
    rows = []
    for arm, units, level in [
        ("text", None, 0.3), ("uniform", None, 0.6), ("oracle", None, 0.9),
        ("evidence", 0, 0.31), ("evidence", 1, 0.55), ("evidence", 4, 0.7),
        ("foil", 1, 0.2), ("foil", 4, 0.1),
    ]:  # fmt: skip
        row = {"arm": arm, "units": units, "n": 30 if arm == "foil" else 40}
        for measure, value in (("accuracy", level), ("gold_log_odds", 4 * level - 2)):
            row = with_interval(row, measure, value)
        for measure in ("foil_log_odds", "foil_answered"):
            value = 0.9 - level if arm == "foil" else np.nan
            row = with_interval(row, measure, value)
        rows.append(row)
    return pd.DataFrame(rows)


@pytest.fixture
def places() -> pd.DataFrame:
    values = np.linspace(0.5, 0.68, 10)
    return pd.DataFrame(
        {"tenth": range(10), "accuracy": values, "accuracy_low": values - 0.1, "accuracy_high": values + 0.2,
         "ci_low": values - 0.1, "ci_high": values + 0.2, "n": 20}
    )  # fmt: skip


BIAS = {"evidence_alone": 0.72, "range": 25.0, "variance": 60.0, "mean": 82.0, "composite": 334.0,
        "shape": "u_shaped", "n": 20}  # fmt: skip


def test_the_swap_draws_doses_ends_and_places(doses, places):
    figure = swap_figure(doses, places, pd.DataFrame([BIAS]))
    for arm, place in (("evidence", 0), ("foil", 1)):
        for measure in ("accuracy", "gold_log_odds"):
            rows = doses[doses["arm"] == arm]
            bars_equal(figure, f"{measure}:{place}", rows, measure)
            np.testing.assert_allclose(
                drawn(figure, f"{measure}:{place}")[0][:, 0], rows["units"].astype(float)
            )
    for measure in ("foil_answered", "foil_log_odds"):
        bars_equal(figure, f"{measure}:2", doses[doses["arm"] == "foil"], measure)
    bars_equal(figure, "places", places, "accuracy")
    np.testing.assert_array_equal(drawn(figure, "places")[0][:, 0], range(1, 11))
    for arm in ("text", "uniform", "oracle"):
        (line,) = figure.findobj(lambda artist, gid=f"accuracy:{arm}": artist.get_gid() == gid)
        assert set(line.get_ydata()) == {doses.loc[doses["arm"] == arm, "accuracy"].item()}
    caption = " ".join(" ".join(texts(figure)).split())
    for said in ("40 items, 30 with a foil", "20 order-free items", "alone (72%)", "25%", "334", "u-shaped"):
        assert said in caption, said
    labels = [axes.get_ylabel() for axes in figure.axes[:2]], [axes.get_xlabel() for axes in figure.axes]
    assert labels == (
        ["items (%)", "log-odds among the options (nats)"],
        ["evidence put in (units)", "evidence put in (units)", "place in the input (tenths)"],
    )
    assert not overlapping(figure)


def test_a_swap_without_foils_or_places_says_so(doses, places):
    nothing = {
        **BIAS,
        "n": 0,
        "evidence_alone": np.nan,
        "range": np.nan,
        "composite": np.nan,
        "shape": "undefined",
    }
    empty = places.assign(accuracy=np.nan, ci_low=np.nan, ci_high=np.nan, n=0)
    figure = swap_figure(doses[doses["arm"] != "foil"], empty, pd.DataFrame([nothing]))
    caption = " ".join(" ".join(texts(figure)).split())
    assert "0 with a foil" in caption
    assert "no order-free item was answered in every place" in caption
    assert not overlapping(figure)


def test_redundancy_draws_both_kinds_from_the_same_start():
    measures = ("accuracy", "gold_log_odds", "evidence_log_lift", "unit_similarity")
    rows = []
    for share, by, level in [(0.0, "", 0.6), (0.5, "near_duplicates", 0.5), (1.0, "near_duplicates", 0.4),
                             (0.5, "distinct", 0.58), (1.0, "distinct", 0.61)]:  # fmt: skip
        row = {"replaced": share, "by": by, "n": 40}
        for place, measure in enumerate(measures):
            row = with_interval(row, measure, level + place * 0.1)
        rows.append(row)
    doses = pd.DataFrame(rows)
    contrasts = pd.DataFrame(
        [{"replaced": share, "measure": measure, "difference": -0.21, "ci_low": -0.3, "ci_high": -0.1}
         for share in (0.5, 1.0) for measure in measures]
    )  # fmt: skip
    figure = redundancy_figure(doses, contrasts)
    for by in ("near_duplicates", "distinct"):
        some = doses[doses["by"].isin(["", by])].sort_values("replaced")
        for measure in measures:
            bars_equal(figure, f"{measure}:{by}", some, measure)
            np.testing.assert_allclose(drawn(figure, f"{measure}:{by}")[0][:, 0], some["replaced"], atol=0.01)
    caption = " ".join(" ".join(texts(figure)).split())
    assert "log-odds by -0.21 (-0.30 to -0.10)" in caption
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "Accuracy", "Right option", "Attention on the evidence", "Redundancy",
    ]  # fmt: skip
    assert not overlapping(figure)


@pytest.mark.parametrize("labels", [["uniform"], [f"sampler_{n}" for n in range(12)]])
def test_samplers_are_drawn_by_name_a_colour_a_budget(labels, tmp_path):
    rows = []
    for budget in (32, 64):
        for place, label in enumerate(labels):
            row = {"sampler": label, "budget": budget, "n": 40}
            for measure in ("accuracy", "any_window_hit", "temporal_coverage"):
                row = with_interval(row, measure, 0.2 + place * 0.05 + budget / 640)
            rows.append(row | {"choose_seconds_max": 0.1 * (place + 1)})
    samplers = pd.DataFrame(rows)
    figure = samplers_figure(samplers)
    for budget in (32, 64):
        some = samplers[samplers["budget"] == budget]
        for measure in ("accuracy", "any_window_hit", "temporal_coverage"):
            bars_equal(figure, f"{measure}:{budget}", some, measure, axis=0)
            heights = drawn(figure, f"{measure}:{budget}")[0][:, 1]
            assert np.rint(heights).tolist() == list(range(len(labels))), "each in its own row"
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == labels
    assert not overlapping(figure)
    save_figure(figure, tmp_path / "figure")
