"""The evidence swap through the command: what each arm shows, its tables by another road, bad input."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from diagnostics.data.items import Item

from .conftest import Diagnose
from .odd import write_odd
from .told import clock, frames, letters_odds, lines_of, mean, shows_evidence, sources, table, under, windows

SMALL = ("+exp=evidence_swap", "data.n_videos=6", "data.questions=3", "exp.budget=15", "exp.units=[0,1,4]",
         "exp.foil_units=[2]")  # fmt: skip
UNIT = 2
ENDS = ("text", "uniform", "oracle")


@pytest.fixture(scope="module")
def items(cache: Path) -> dict[str, Item]:
    from diagnostics.data.minihorizon import Config, load

    found = load(Config(split="test", n_videos=6, questions=3, cache=str(cache))).items
    return {item.id: item for item in found}


@pytest.fixture(scope="module")
def run(diagnose: Diagnose, items: dict[str, Item], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swap") / "run"
    done = diagnose(*SMALL, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def lines(run: Path) -> list[dict]:
    return lines_of(run)


def text_of(item: Item, letter: str) -> str:
    return item.options[ord(letter) - ord("A")]


def foils_of(item: Item, items: dict[str, Item]) -> dict[str, str]:
    """Each item that could be a foil, and the letter its answer has here."""
    found = {}
    for other in items.values():
        if (other.task, other.question) == (item.task, item.question) and other.video_id != item.video_id:
            answer = text_of(other, other.answer)
            if answer in item.options and answer != text_of(item, item.answer):
                found[other.video_id] = "ABCD"[item.options.index(answer)]
    return found


def test_every_item_is_asked_once_under_every_condition_it_can_be(run, lines, items):
    expected = Counter()
    for name, item in items.items():
        arms = [*ENDS, "evidence 0", "evidence 1", "evidence 4"]
        arms += ["foil 2"] if foils_of(item, items) else []
        arms += ["alone", *(f"place {tenth}" for tenth in range(10))] if "order_free" in item.flags else []
        expected.update((name, arm) for arm in arms)
    told = Counter(
        (line["item_id"], " ".join(str(value) for value in line["condition"].values())) for line in lines
    )
    assert told == expected
    assert all(line["error"] is None for line in lines)
    without = {name for name, item in items.items() if not foils_of(item, items)}
    left_out = table(run, "left_out")
    assert set(left_out["item"]) == without
    assert set(left_out["reason"]) == {"no foil: asked under the other conditions"}
    assert without != set(items), "some have a foil"


def test_whatever_is_shown_the_tokens_and_the_clock_are_uniforms(lines):
    uniform = under(lines, arm="uniform")
    for line in lines:
        if line["condition"]["arm"] in ("text", "alone"):
            continue
        same = uniform[line["item_id"]]
        assert len(line["slots"]) == 16, "15 frames are padded to whole units"
        assert clock(line) == clock(same)
        for count in ("n_visual_tokens", "n_prompt_tokens", "grid"):
            assert line[count] == same[count]


def test_evidence_is_removed_and_put_back_in_whole_units_nearest_in_time(lines, items):
    for name, item in items.items():
        removed, uniform = under(lines, arm="evidence", units=0)[name], under(lines, arm="uniform")[name]
        assert not shows_evidence(removed, item).any()
        was = shows_evidence(uniform, item)
        kept = [old == new for old, new in zip(frames(uniform), frames(removed), strict=True)]
        assert kept == (~was).tolist(), "nothing else is touched"
        assert under(lines, arm="oracle")[name]["measures"]["evidence_slots"] == 16
        assert shows_evidence(under(lines, arm="oracle")[name], item).all()
        for dose in (1, 4):
            line = under(lines, arm="evidence", units=dose)[name]
            shown = shows_evidence(line, item).reshape(-1, UNIT)
            there = sum(max(1, (end - first) // UNIT) for first, end in windows(item))
            put_in = min(dose, there)
            assert shown.all(axis=1).sum() == shown.any(axis=1).sum() == put_in
            assert line["measures"]["units_put_in"] == put_in
            assert any(w.startswith("short_evidence") for w in line["warnings"]) == (put_in < dose)
            places = np.flatnonzero(shown.all(axis=1))
            for place in range(8):
                if place not in places:
                    both = slice(place * UNIT, place * UNIT + UNIT)
                    assert line["slots"][both] == removed["slots"][both]
            if dose == 1:
                middle = np.reshape(clock(line), (-1, UNIT)).mean(axis=1)
                first = places[0] * UNIT
                own = np.mean([slot["true_seconds"] for slot in line["slots"][first : first + UNIT]])
                assert np.abs(middle - own).min() == pytest.approx(abs(middle[places[0]] - own))


def test_a_foil_is_another_videos_evidence_where_the_items_own_would_stand(lines, items):
    foils = under(lines, arm="foil", units=2)
    assert foils
    for name, line in foils.items():
        item, possible = items[name], foils_of(items[name], items)
        assert not shows_evidence(line, item).any()
        assert line["measures"]["evidence_slots"] == 0, "another video's frame is no evidence of this one"
        (video,) = sources(line) - {item.video_id}
        letter = possible[video]
        foreign = np.array([slot["source"] == video for slot in line["slots"]]).reshape(-1, UNIT)
        assert foreign.all(axis=1).sum() == foreign.any(axis=1).sum() == line["measures"]["units_put_in"]
        spans = [
            span
            for other in items.values()
            if other.video_id == video and (other.task, other.question) == (item.task, item.question)
            for span in windows(other)
        ]
        for slot in line["slots"]:
            if slot["source"] == video:
                assert any(first <= slot["frame_index"] < end for first, end in spans)
        assert line["measures"]["foil_answered"] == float(line["answer"] == letter)
        assert line["measures"]["foil_log_odds"] == pytest.approx(letters_odds(line, letter), abs=1e-3)
        assert line["measures"]["gold_log_odds"] == pytest.approx(letters_odds(line, item.answer), abs=1e-3)
        assert line["target"] == item.answer, "scored against the right answer all the same"


def test_evidence_moves_through_the_input_as_one_run(lines, items):
    for name, item in items.items():
        if "order_free" not in item.flags:
            continue
        alone = under(lines, arm="alone")[name]
        assert shows_evidence(alone, item).all()
        firsts = []
        for tenth in range(10):
            line = under(lines, arm="place", tenth=tenth)[name]
            shown = np.flatnonzero(shows_evidence(line, item).reshape(-1, UNIT).all(axis=1))
            assert shown.tolist() == list(range(shown[0], shown[-1] + 1)), "one run"
            assert [frames(line)[p] for p in np.flatnonzero(shows_evidence(line, item))] == frames(alone)
            assert line["measures"]["first_unit"] == shown[0]
            firsts.append(int(shown[0]))
        assert firsts[0] == 0
        assert firsts[-1] + len(frames(alone)) // UNIT == 8, "from the first place to the last"
        assert np.abs(np.diff(firsts) - np.diff(firsts).mean()).max() <= 1


def test_the_doses_table_is_the_records_means(run, lines):
    rows = table(run, "doses")
    assert list(zip(rows["arm"], rows["units"].fillna(-1), strict=True)) == [
        *((arm, -1) for arm in ENDS), ("evidence", 0), ("evidence", 1), ("evidence", 4), ("foil", 2),
    ]  # fmt: skip
    for _, row in rows.iterrows():
        told = {"arm": row["arm"]} | ({} if row["arm"] in ENDS else {"units": int(row["units"])})
        some = under(lines, **told)
        assert row["n"] == len(some)
        assert row["accuracy"] == pytest.approx(mean(some))
        for measure in ("gold_log_odds", "foil_log_odds", "foil_answered", "units_put_in"):
            assert row[measure] == pytest.approx(mean(some, measure), nan_ok=True)
            if np.isfinite(row[f"{measure}_low"]):
                assert row[f"{measure}_low"] <= row[measure] <= row[f"{measure}_high"]


def test_places_and_video_levelgauge_by_the_papers_formulas(run, lines, items):
    alone = under(lines, arm="alone")
    at = [under(lines, arm="place", tenth=tenth) for tenth in range(10)]
    accuracies = [mean(some) for some in at]
    rows = table(run, "places")
    np.testing.assert_allclose(rows["accuracy"], accuracies)
    assert (rows["n"] == len(alone)).all()
    (bias,) = table(run, "position_bias").to_dict("records")
    assert bias["n"] == len(alone)
    assert bias["evidence_alone"] == pytest.approx(mean(alone))
    scores = [100 * accuracy / mean(alone) for accuracy in accuracies]
    spread, average = max(scores) - min(scores), sum(scores) / 10
    variance = sum((score - average) ** 2 for score in scores) / 10
    assert bias["range"] == pytest.approx(spread)
    assert bias["variance"] == pytest.approx(variance)
    assert bias["composite"] == pytest.approx(4 * spread + 3 * (100 - average) + 3 * variance)


def test_trend_removal_and_differences_by_another_road(run, lines, items):
    doses = [under(lines, arm="evidence", units=units) for units in (0, 1, 4)]
    trend = table(run, "trend").set_index(["task", "measure"])
    for measure, key in (("accuracy", None), ("gold_log_odds", "gold_log_odds")):
        means = [mean(some, key) for some in doses]
        slope = stats.linregress(range(3), means).slope
        assert trend.loc[("all", measure), "slope"] == pytest.approx(slope)
    removal = table(run, "removal").set_index("task")
    text, removed = under(lines, arm="text"), doses[0]
    for task in ["all", *{item.task for item in items.values()}]:
        names = [name for name, item in items.items() if task in ("all", item.task)]
        gaps = [removed[name]["correct"] - text[name]["correct"] for name in names]
        assert removal.loc[task, "difference"] == pytest.approx(np.mean(gaps))
        assert removal.loc[task, "n"] == len(names)
        assert removal.loc[task, "margin"] == 0.1
    differences = table(run, "differences")
    row = differences[(differences["arm"] == "evidence") & (differences["units"] == 4)]
    row = row[row["task"] == "all"].iloc[0]
    assert row["difference"] == pytest.approx(mean(doses[2]) - mean(removed))


def test_the_same_command_again_measures_nothing(run, diagnose):
    before = [path.read_bytes() for path in sorted(run.glob("samples.*.jsonl"))]
    done = diagnose(*SMALL, f"out={run}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.read_bytes() for path in sorted(run.glob("samples.*.jsonl"))] == before


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("exp.unit=[0,1]", "'units'"),
        ("exp.units=[1,2]", "doses ascend from 0"),
        ("exp.units=[0,2,2]", "doses ascend from 0"),
        ("exp.foil_units=[4,1]", "doses ascend, each once"),
    ],
)
def test_a_wrong_configuration_is_refused(argument, said):
    from diagnostics.errors import ConfigError
    from diagnostics.experiments.evidence_swap import Config
    from diagnostics.strict import from_mapping

    key, _, value = argument.removeprefix("exp.").partition("=")
    with pytest.raises(ConfigError, match=said.replace("[", r"\[")):
        from_mapping(Config, {key: [int(part) for part in value.strip("[]").split(",")]}, "exp")


def test_bad_input_is_named_and_counted_and_costs_nobody_else(diagnose, tmp_path):
    folder = tmp_path / "run"
    done = diagnose("+exp=evidence_swap", *write_odd(tmp_path), "exp.budget=15", "exp.units=[0,1,4]",
                    "exp.foil_units=[1]", f"out={folder}")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    left_out = table(folder, "left_out").set_index("item")["reason"].to_dict()
    assert left_out == {
        "global": "no local evidence",
        "nothing": "no local evidence",
        "open": "no options or no answer",
        "unanswered": "no options or no answer",
    }
    lines = lines_of(folder)
    failed = {
        (line["item_id"], line["condition"]["arm"]): line["error"]["type"] for line in lines if line["error"]
    }
    arms = {"evidence", "foil", "alone", "place"}
    expected = {("beyond", arm): "EvidenceOutsideVideoError" for arm in arms | set(ENDS)}
    # Nothing can stand in for evidence that is the whole video.
    expected |= {(name, arm): "NoEvidenceError" for name in ("all of it", "one frame") for arm in arms}
    for name in ("all of it", "one frame", "between frames"):
        told = {arm: error for (item, arm), error in failed.items() if item == name}
        assert set(told.values()) == {"NoEvidenceError"}, name
        assert not {"text", "uniform"} & set(told), name
    assert {key: kind for key, kind in failed.items() if key[0] not in ("between frames",)} == expected
    whole = [line for line in lines if line["item_id"] in ("good", "good foil", "short")]
    assert all(line["error"] is None for line in whole)
    short = under(lines, arm="evidence", units=4)["short"]
    assert short["measures"]["units_put_in"] == 1
    assert any("1 of 4 units put in, the evidence has no more" in warning for warning in short["warnings"])
    assert under(lines, arm="foil", units=1)["good"]["measures"]["units_put_in"] == 1
