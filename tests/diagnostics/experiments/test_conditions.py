"""From records to tables: every number again from the same answers, by pandas and by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import probes
from diagnostics.data.items import Item
from diagnostics.experiments.conditions import (
    Answers,
    baseline_table,
    measure_rows,
    metric_of,
    value_of,
)
from diagnostics.store.records import Record

FIRST: dict[str, Any] = {"order": "original"}
SECOND: dict[str, Any] = {"order": "reversed", "by": "unit"}
THIRD: dict[str, Any] = {"order": "full", "seed": 3}


def plain_table() -> pd.DataFrame:
    """40 items on 12 videos: `FIRST` has all but one, `SECOND` one task alone, `THIRD` two in three."""
    random = np.random.default_rng(0)
    rows = []
    for number in range(40):
        task = "colour" if number % 2 else "order"
        for name, condition in (("first", FIRST), ("second", SECOND), ("third", THIRD)):
            missing = {"first": number == 7, "second": task == "order", "third": number % 3 == 0}[name]
            if missing:
                continue
            right = random.random() < {"first": 0.8, "second": 0.3, "third": 0.6}[name]
            answer = "A" if right else ("B", "C", None)[int(random.integers(3))]
            odds = float("nan") if number % 5 == 0 else float(random.normal())
            rows.append(
                {
                    "item": f"q{number}", "video": f"v{number % 12}", "task": task, "name": name,
                    "condition": condition, "answer": answer, "correct": float(right), "odds": odds,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


TABLE = plain_table()


def records() -> list[Record]:
    found = []
    for row in TABLE.itertuples():
        measures = {"gold_log_odds": row.odds} | ({"only_third": 1.0} if row.name == "third" else {})
        found.append(
            Record(
                item_id=row.item, video_id=row.video, condition=row.condition, task=row.task, target="A",
                answer=None if pd.isna(row.answer) else row.answer, correct=bool(row.correct),
                measures=measures,
            )
        )  # fmt: skip
    return found


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers.of(records())


def test_a_value_is_undefined_where_it_was_not_measured() -> None:
    asked = Record(item_id="q", video_id="v", correct=True, answer="A", measures={"entropy": 0.5})
    assert [value_of(asked, name) for name in ("accuracy", "none_rate", "entropy")] == [1.0, 0.0, 0.5]
    assert np.isnan(value_of(asked, "gold_log_odds"))
    no_letter = Record(item_id="q", video_id="v", correct=False, answer=None)
    assert [value_of(no_letter, name) for name in ("accuracy", "none_rate")] == [0.0, 1.0]
    open_ended = Record(item_id="q", video_id="v")
    assert all(np.isnan(value_of(open_ended, name)) for name in ("accuracy", "none_rate"))


def test_rows_of_every_measure_condition_and_task() -> None:
    rows = {(row.measure, row.condition["order"], row.task): row for row in measure_rows(records())}
    columns = {"accuracy": "correct", "gold_log_odds": "odds"}
    for (measure, order, task), row in rows.items():
        name = {"original": "first", "reversed": "second", "full": "third"}[order]
        some = TABLE[(TABLE["name"] == name) & ((TABLE["task"] == task) | (task == "all"))]
        if measure == "none_rate":
            values = some["answer"].isna().astype(float)
        elif measure == "only_third":
            values = pd.Series(1.0, index=some.index)
        else:
            values = some[columns[measure]]
        assert row.value == pytest.approx(values.mean()), (measure, order, task)
        assert row.n == values.notna().sum()
        if values.nunique() > 1:
            assert row.ci_low < row.value < row.ci_high
    tasks = {(order, task) for measure, order, task in rows if measure == "accuracy"}
    assert tasks == {
        *((order, task) for order in ("original", "full") for task in ("all", "colour", "order")),
        ("reversed", "all"), ("reversed", "colour"),
    }  # fmt: skip
    assert {order for measure, order, _ in rows if measure == "only_third"} == {"full"}, "no row of nothing"


def test_columns_have_every_item_and_nan_where_there_is_no_record(answers: Answers) -> None:
    wide = TABLE.pivot(index="item", columns="name", values="correct").loc[list(answers.items)]
    for name, condition in (("first", FIRST), ("second", SECOND), ("third", THIRD)):
        assert np.array_equal(answers.column(condition), wide[name].to_numpy(), equal_nan=True)
    assert np.isnan(answers.column({"order": "never"})).all()
    assert len(answers.items) == 40
    assert answers.record("q7", FIRST) is None
    assert answers.record("q7", SECOND) is not None
    # A condition is the same whatever the order of its keys.
    assert answers.record("q7", {"by": "unit", "order": "reversed"}) is answers.record("q7", SECOND)


def test_letters_are_none_without_a_letter_and_without_a_record(answers: Answers) -> None:
    letters = dict(zip(answers.items, answers.letters(FIRST), strict=True))
    told = TABLE[TABLE["name"] == "first"].set_index("item")["answer"]
    assert letters["q7"] is None
    assert {item: letter for item, letter in letters.items() if letter} == told.dropna().to_dict()


def test_items_are_narrowed_with_their_videos_and_tasks(answers: Answers) -> None:
    some = answers.of_task("colour")
    first = TABLE.drop_duplicates("item").set_index("item")
    assert set(some.items) == set(first.index[first["task"] == "colour"])
    assert list(some.videos) == [first.loc[item, "video"] for item in some.items]
    assert answers.among(["q3", "q5", "elsewhere"]).items == ("q3", "q5")
    assert [name for name, _ in answers.by_task()] == ["all", "order", "colour"]
    assert [name for name, _ in some.by_task()] == ["all"], "one task is not told twice"
    assert [len(group.items) for _, group in answers.by_task()] == [40, 20, 20]


def holm_by_hand(p_values: list[float]) -> list[float]:
    """Step down: the smallest times m, the next times m - 1, ..., never falling, never above one."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, running = [0.0] * len(p_values), 0.0
    for step, place in enumerate(order):
        running = max(running, min(1.0, p_values[place] * (len(p_values) - step)))
        adjusted[place] = running
    return adjusted


def test_differences_are_of_the_items_that_both_have(answers: Answers) -> None:
    found = answers.differences(FIRST, [SECOND, THIRD])
    assert list(found["task"]) == ["all", "all", "order", "order", "colour", "colour"]
    for row in found.itertuples():
        name = {"reversed": "second", "full": "third"}[row.order]
        some = TABLE[(TABLE["task"] == row.task) | (row.task == "all")]
        wide = some.pivot(index="item", columns="name", values="correct").reindex(columns=["first", name])
        both = wide.dropna()
        assert row.n == len(both)
        if both.empty:
            assert np.isnan(row.difference)
            assert np.isnan(row.p)
            assert np.isnan(row.p_holm)
            continue
        assert row.reference == pytest.approx(both["first"].mean())
        assert row.value == pytest.approx(both[name].mean())
        assert row.difference == pytest.approx((both[name] - both["first"]).mean())
        gained = int((both[name] > both["first"]).sum())
        lost = int((both[name] < both["first"]).sum())
        assert (row.gained, row.lost) == (gained, lost)
        assert row.p_mcnemar == pytest.approx(stats.binomtest(gained, gained + lost).pvalue)
        videos = some.drop_duplicates("item").set_index("item")["video"]
        assert row.videos == videos.loc[both.index].nunique()
    assert {(row.order, row.task) for row in found.itertuples() if row.n == 0} == {("reversed", "order")}


def test_a_family_is_the_conditions_of_a_task(answers: Answers) -> None:
    """An undefined test makes no family larger."""
    found = answers.differences(FIRST, [SECOND, THIRD])
    for _, family in found.groupby("task"):
        defined = family.dropna(subset="p")
        assert defined["p_holm"].tolist() == pytest.approx(holm_by_hand(defined["p"].tolist()))
    alone = found[(found["task"] == "order") & found["p"].notna()]
    assert alone["p_holm"].tolist() == alone["p"].tolist()
    assert (found["p_holm"].dropna() >= found["p"].dropna()).all()
    assert (found["p_holm"] > found["p"]).any()


def test_differences_of_a_measure_that_is_no_outcome(answers: Answers) -> None:
    found = answers.differences(FIRST, [THIRD], "gold_log_odds", by_task=False)
    wide = TABLE.pivot(index="item", columns="name", values="odds")[["first", "third"]].dropna()
    (row,) = found.itertuples()
    assert (row.n, row.measure) == (len(wide), "gold_log_odds")
    assert row.difference == pytest.approx((wide["third"] - wide["first"]).mean())
    assert np.isnan(row.p_mcnemar)


def test_nothing_to_compare_is_an_empty_table_or_an_undefined_row(answers: Answers) -> None:
    assert answers.differences(FIRST, []).empty
    none = Answers.of([])
    assert none.items == ()
    assert [name for name, _ in none.by_task()] == ["all"]
    (row,) = none.differences(FIRST, [SECOND]).itertuples()
    assert row.n == 0
    assert np.isnan(row.difference)
    assert measure_rows([]) == []


def test_a_metric_is_the_clustered_mean() -> None:
    values, videos = [1.0, 0.0, np.nan, 1.0], ["a", "a", "b", "c"]
    metric, estimate = metric_of(values, videos), probes.clustered_mean(values, videos)
    assert (metric.mean, metric.n) == (pytest.approx(2 / 3), 3)
    assert (metric.ci_low, metric.ci_high) == (estimate.ci_low, estimate.ci_high)


def questions(n_options: int = 3) -> list[Item]:
    first = TABLE.drop_duplicates("item")
    options = ("red", "blue", "green")[:n_options]
    return [
        Item(row.item, Path("v.mp4"), row.video, f"{row.task}?", options, "A", task=row.task)
        for row in first.itertuples()
    ]


def test_baselines_stand_beside_every_condition(answers: Answers) -> None:
    items = questions()
    table = baseline_table(items, answers, [FIRST, SECOND]).set_index("of")
    assert table.loc["chance", "accuracy"] == pytest.approx(1 / 3)
    assert table.loc["best constant letter", "accuracy"] == 1.0, "all answers are A"
    assert table.loc["commonest option text", "accuracy"] == 1.0
    assert table.loc["text-only classifier", "accuracy"] == 1.0
    told = table.loc["order=original"]
    own = TABLE[TABLE["name"] == "first"]["correct"]
    assert (told["accuracy"], told["n"]) == (pytest.approx(own.mean()), own.size)
    assert told["chance"] == pytest.approx(1 / 3)
    by_video = TABLE[TABLE["name"] == "first"].groupby("video")["correct"].agg(lambda c: (c - 1 / 3).sum())
    flips = np.array(np.meshgrid(*[[-1, 1]] * len(by_video))).reshape(len(by_video), -1).T
    extreme = np.abs(flips @ by_video.to_numpy()) >= abs(by_video.sum()) - 1e-9
    assert told["p_against_chance"] == pytest.approx(extreme.mean())
    assert table.loc["order=reversed, by=unit", "n"] == (TABLE["name"] == "second").sum()


def test_baselines_of_next_to_nothing() -> None:
    """One item, none with options, none at all: undefined, not an error and not zero."""
    one = questions()[:1]
    finished = Answers.of([record for record in records() if record.item_id == one[0].id])
    table = baseline_table(one, finished, [FIRST]).set_index("of")
    assert table.loc["chance", "n"] == 1
    assert table.loc["text-only classifier", "n"] == 0
    open_ended = [Item("q", Path("v.mp4"), "v", "Describe it.")]
    told = Answers.of([Record(item_id="q", video_id="v", condition=FIRST)])
    table = baseline_table(open_ended, told, [FIRST]).set_index("of")
    assert table.loc["order=original", "n"] == 0
    assert pd.isna(table.loc["order=original", "accuracy"])
    assert baseline_table([], Answers.of([]), [FIRST]).set_index("of").loc["chance", "n"] == 0
