"""Option robustness: what each form asks, by its definition; every number of its tables, from the records."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from diagnostics.data import load_items
from diagnostics.data.items import Item
from diagnostics.experiments.mcq_robustness import reordered, with_added
from diagnostics.report.robustness import robustness_figure
from diagnostics.store.record_log import read_records
from diagnostics.store.records import comparable

from ..report.test_drift import by_gid, overlapping, texts
from .conftest import Diagnose, environment
from .odd_videos import write_odd_questions
from .told import lines_of as lines

SHUFFLES = 2
FORMS = {"standard": 1, "shuffled": SHUFFLES, "open_ended": 1, "none_of_the_above": 1, "all_of_the_above": 1}
COMMAND = (
    "+exp=mcq_robustness", "data.n_videos=3", "data.tasks=[RSR,Hist,LLS,Site]", "sampling.budget=8",
    f"exp.shuffles={SHUFFLES}", "backend.max_new_tokens=4",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "forms"
    finished = diagnose(*COMMAND, f"out={folder}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return folder


@pytest.fixture(scope="module")
def records(run: Path) -> list[dict]:
    found = lines(run)
    assert all(record["error"] is None for record in found)
    return found


@pytest.fixture(scope="module")
def items(cache: Path) -> dict[str, Item]:
    parameters = {"split": "test", "n_videos": 3, "cache": str(cache)}
    return {item.id: item for item in load_items("minihorizon", parameters).items}


def of(records: list[dict], form: str) -> list[dict]:
    return [record for record in records if record["condition"]["asked"] == form]


def test_every_item_is_asked_in_every_form(records: list[dict]) -> None:
    ids = {record["item_id"] for record in records}
    assert len(ids) >= 6
    for form, times in FORMS.items():
        assert Counter(r["item_id"] for r in of(records, form)) == dict.fromkeys(ids, times)


def test_every_form_shows_the_same_frames(records: list[dict]) -> None:
    shown: dict[str, set[str]] = {}
    for record in records:
        shown.setdefault(record["item_id"], set()).add(json.dumps(record["slots"]))
        assert record["n_visual_tokens"] == record["tokens_per_unit"] * 4
    assert {len(one) for one in shown.values()} == {1}


def test_the_right_option_stays_right(records: list[dict], items: dict[str, Item]) -> None:
    for record in records:
        item, form = items[record["item_id"]], record["condition"]["asked"]
        if form == "shuffled":
            shuffled = reordered(item, record["condition"]["seed"])
            assert sorted(shuffled.options) == sorted(item.options)
            assert shuffled.options != item.options
            place = shuffled.options.index(item.options["ABCD".index(item.answer)])
            assert record["target"] == "ABCD"[place]
        else:
            assert record["target"] == item.answer, "gold unchanged"
        more = form in ("none_of_the_above", "all_of_the_above")
        expected = "ABCDE"[: len(item.options) + more]
        assert "".join(record["option_logprobs"]) == expected
        assert record["correct"] == (record["answer"] == record["target"])


@pytest.mark.parametrize("n", [2, 3, 4, 26])
def test_shuffles_reach_every_place_and_depend_on_seed_and_item(n: int) -> None:
    options = tuple(f"option {place}" for place in range(n))
    places = Counter()
    for seed in range(200):
        item = Item(f"q{seed % 7}", Path("v.mp4"), "v", "?", options, "B")
        again = reordered(item, seed)
        assert again == reordered(item, seed)
        assert sorted(again.options) == sorted(options)
        assert again.options != options
        assert again.options[again.letters.index(again.answer)] == "option 1"
        places[again.letters.index(again.answer)] += 1
    assert len(places) >= min(n - 1, 20)
    added = with_added(item, "None of the above")
    assert added.options == (*options, "None of the above")
    assert added.answer == "B"


def test_an_added_letter_beyond_those_known_is_scored_as_any_other(records: list[dict]) -> None:
    """Letters the tiny model was never taught: no letter is wrong, and counted."""
    some = of(records, "none_of_the_above") + of(records, "all_of_the_above")
    for record in some:
        assert record["answer"] is None or record["answer"] in record["option_logprobs"]
        if record["answer"] is None:
            assert record["correct"] is False
            assert record["rule"]


def test_the_open_ended_form_keeps_both_replies(records: list[dict], items: dict[str, Item]) -> None:
    mapped = []
    for record in of(records, "open_ended"):
        (said,) = record["earlier_replies"]
        item = items[record["item_id"]]
        assert "\n" not in record["raw"]
        assert record["answer"] is None or record["answer"] in record["raw"]
        if said in item.options:
            mapped.append(record["answer"] == item.letters[item.options.index(said)])
        assert "any_window_hit" in record["measures"], "what the first pass was shown"
    assert len(mapped) >= 4, "the trained model answers in the options' words"
    assert np.mean(mapped) >= 0.75, "and maps them to their letters"
    for form in FORMS.keys() - {"open_ended"}:
        assert all(record["earlier_replies"] == [] for record in of(records, form))


def test_the_form_table_is_the_records(run: Path, records: list[dict]) -> None:
    table = pd.read_csv(run / "tables" / "forms.csv").set_index("asked")
    assert list(table.index) == list(FORMS)
    plain = {r["item_id"]: float(r["correct"]) for r in of(records, "standard")}
    for form, row in table.iterrows():
        some = of(records, form)
        averaged = pd.DataFrame(some).groupby("item_id")["correct"].mean()
        assert row["n"] == len(averaged) == len(plain)
        assert row["accuracy"] == pytest.approx(averaged.mean())
        assert row["change"] == pytest.approx((averaged - pd.Series(plain)).mean(), abs=1e-9)
        assert row["change_low"] <= row["change"] <= row["change_high"]
        assert row["none_rate"] == pytest.approx(np.mean([r["answer"] is None for r in some]))
        letters = {letter for r in some for letter in r["option_logprobs"]}
        for column, field in (("letter_entropy", "answer"), ("key_entropy", "target")):
            counts = np.array(list(Counter(r[field] for r in some if r[field]).values()))
            shares = counts / counts.sum()
            expected = -(shares * np.log2(shares)).sum() / np.log2(len(letters))
            assert row[column] == pytest.approx(expected, abs=1e-9)
    assert np.isnan(table.loc["standard", "p_holm"])
    changed = table.drop("standard").sort_values("p")
    steps = [min(1.0, (len(changed) - rank) * p) for rank, p in enumerate(changed["p"])]
    np.testing.assert_allclose(changed["p_holm"], np.maximum.accumulate(steps))


def test_the_position_table_is_the_records(run: Path, records: list[dict]) -> None:
    table = pd.read_csv(run / "tables" / "positions.csv")
    for row in table.to_dict("records"):
        some = of(records, row["asked"])
        right = [r for r in some if r["target"] == row["letter"]]
        assert row["right"] == pytest.approx(len(right) / len(some))
        assert row["answered"] == pytest.approx(np.mean([r["answer"] == row["letter"] for r in some]))
        assert row["n"] == len(right)
        expected = np.mean([r["correct"] for r in right]) if right else np.nan
        assert row["accuracy_where_right"] == pytest.approx(expected, nan_ok=True)
    assert table.groupby("asked")["right"].sum().to_numpy() == pytest.approx(1)


def test_called_again_it_measures_nothing(run: Path, diagnose: Diagnose) -> None:
    before = (run / "samples.0.jsonl").read_bytes(), (run / "summary.json").read_bytes()
    again = diagnose(*COMMAND, f"out={run}")
    assert again.returncode == 0, again.stderr
    assert ((run / "samples.0.jsonl").read_bytes(), (run / "summary.json").read_bytes()) == before


def test_killed_in_the_middle_it_comes_to_the_same(run: Path, cache: Path, tmp_path: Path) -> None:
    whole, source, kills = len(lines(run)), random.Random(4), 0
    samples = tmp_path / "samples.0.jsonl"

    def written() -> int:
        return samples.read_bytes().count(b"\n") if samples.exists() else 0

    while kills < 2:
        before = written()
        process = subprocess.Popen(
            [sys.executable, "-m", "diagnostics", *COMMAND, f"out={tmp_path}"],
            env=environment(cache), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + 300
        while written() == before and process.poll() is None:
            assert time.monotonic() < deadline, "no record appeared"
            time.sleep(0.005)
        time.sleep(source.uniform(0, 0.1))
        assert process.poll() is None, "the run ended before it was killed"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert 0 < written() < whole
    done = subprocess.run(
        [sys.executable, "-m", "diagnostics", *COMMAND, f"out={tmp_path}"],
        env=environment(cache), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    once, again = ({r.pair: comparable(r) for r in read_records(folder)} for folder in (run, tmp_path))
    assert once == again
    assert written() == whole, "nothing finished was measured twice"
    for name in ("summary.json", "tables/forms.csv", "tables/positions.csv"):
        assert (run / name).read_bytes() == (tmp_path / name).read_bytes()


# -- bad input


@pytest.fixture(scope="module")
def odd(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    root = tmp_path_factory.mktemp("odd")
    finished = diagnose(
        *write_odd_questions(root), "+exp=mcq_robustness", "sampling.budget=7", "exp.shuffles=1",
        "exp.reply_tokens=5", f"out={root / 'run'}",
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return root / "run", finished.stdout


def test_what_cannot_be_asked_is_left_out_by_name(odd: tuple[Path, str]) -> None:
    folder, printed = odd
    left_out = pd.read_csv(folder / "tables" / "left_out.csv", keep_default_na=False).set_index("item")
    assert dict(left_out["reason"]) == {
        "open": "no options or no answer",
        "none": 'has "None of the above" among its options',
    }
    assert "Left out: " in printed
    found = lines(folder)
    errors = {record["item_id"]: record["error"]["type"] for record in found if record["error"]}
    assert errors == {"missing": "MissingVideoError", "one option": "TooFewOptionsError"}
    asked = Counter(record["condition"].get("asked") for record in found if record["item_id"] == "none")
    assert asked == {"standard": 1, "shuffled": 1, "open_ended": 1, "all_of_the_above": 1}
    forms = pd.read_csv(folder / "tables" / "forms.csv").set_index("asked")
    assert forms["n"].to_dict() == {form: 5 if form == "none_of_the_above" else 6 for form in FORMS}


def test_an_answer_that_goes_on_is_told(odd: tuple[Path, str]) -> None:
    """A model of random weights does not stop by itself."""
    some = of([r for r in lines(odd[0]) if not r["error"]], "open_ended")
    cut = [
        r for r in some if any(w.startswith("cut_reply: the reply goes on after 5") for w in r["warnings"])
    ]
    assert cut
    shorter = [r for r in some if r not in cut]
    assert all(len(r["earlier_replies"][0]) <= 40 for r in shorter)


def test_with_nothing_to_ask_the_run_says_so(diagnose: Diagnose, tmp_path: Path) -> None:
    arguments = write_odd_questions(tmp_path)
    finished = diagnose(*arguments, "data.ids=[open]", "+exp=mcq_robustness", f"out={tmp_path / 'run'}")
    assert finished.returncode == 1, finished.stdout + finished.stderr
    assert "None of the items could be asked: 1 were left out" in finished.stderr
    assert "Left out: 1 (no options or no answer)" in finished.stdout


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("+exp.shuffle=2", "shuffles"),
        ("exp.shuffles=0", "greater than 0"),
        ("exp.mapping=answer", "{question} and {answer}"),
        ('exp.mapping="{question} {answer} {more}"', "{question} and {answer}"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_to_do(
    argument: str, told: str, diagnose: Diagnose, tmp_path: Path
) -> None:
    finished = diagnose("+exp=mcq_robustness", "data.n_videos=1", argument, f"out={tmp_path}")
    assert finished.returncode == 2, finished.stdout + finished.stderr
    assert told in finished.stderr


# -- the figure


def test_bars_are_the_tables(run: Path) -> None:
    forms, positions = (pd.read_csv(run / "tables" / f"{name}.csv") for name in ("forms", "positions"))
    figure = robustness_figure(forms, positions)
    left, right = figure.axes
    (bars,) = [container for container in left.containers if hasattr(container, "patches")]
    np.testing.assert_allclose([patch.get_height() for patch in bars.patches], forms["accuracy"])
    (whiskers,) = bars.errorbar.lines[2]
    ends = np.array([segment[:, 1] for segment in whiskers.get_segments()])
    np.testing.assert_allclose(ends, forms[["ci_low", "ci_high"]], atol=1e-9)
    standard = positions[positions["asked"] == "standard"]
    for column in ("right", "answered"):
        drawn = [patch.get_height() for patch in by_gid(figure, column)]
        np.testing.assert_allclose(drawn, standard[column])
    assert [label.get_text() for label in right.get_xticklabels()] == standard["letter"].tolist()
    assert (left.get_ylabel(), right.get_ylabel()) == ("accuracy (%)", "items (%)")
    assert [text.get_text() for text in right.get_legend().get_texts()] == ["right", "answered"]
    told = " ".join(texts(figure)).replace("\n", " ")
    for row in forms[forms["asked"] != "standard"].to_dict("records"):
        assert f"{100 * row['change']:+.1f} points" in told
    assert overlapping(figure) == []


def test_the_figure_is_written(run: Path) -> None:
    path = run / "figures" / "mcq_robustness.png"
    assert np.asarray(Image.open(path).convert("RGB")).std() > 10
    assert path.with_suffix(".pdf").exists()
