"""The redundancy dose through the command: what is replaced by what, tables by another road, bad input."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from diagnostics.data.items import Item
from diagnostics.errors import ConfigError
from diagnostics.experiments.redundancy_dose import Config
from diagnostics.strict import from_mapping

from .conftest import Diagnose
from .odd import write_odd
from .told import clock, frames, lines_of, mean, shows_evidence, table, under

SMALL = ("+exp=redundancy_dose", "data.n_videos=4", "data.questions=3", "exp.budget=16",
         "exp.shares=[0.0,0.5,1.0]")  # fmt: skip
UNIT, UNITS, FPS = 2, 8, 4
MEASURES = ("accuracy", "gold_log_odds", "evidence_log_lift", "unit_similarity")


@pytest.fixture(scope="module")
def items(cache: Path) -> dict[str, Item]:
    from diagnostics.data.minihorizon import Config, load

    found = load(Config(split="test", n_videos=4, questions=3, cache=str(cache))).items
    return {item.id: item for item in found}


@pytest.fixture(scope="module")
def run(diagnose: Diagnose, items: dict[str, Item], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("redundancy") / "run"
    done = diagnose(*SMALL, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def lines(run: Path) -> list[dict]:
    return lines_of(run)


def by_unit(line) -> list[tuple[int, ...]]:
    numbers = frames(line)
    return [tuple(numbers[start : start + UNIT]) for start in range(0, len(numbers), UNIT)]


def test_length_evidence_budget_and_clock_are_held(lines, items):
    assert Counter(line["item_id"] for line in lines) == dict.fromkeys(items, 5)
    start = under(lines, replaced=0.0)
    for line in lines:
        assert line["error"] is None
        same, item = start[line["item_id"]], items[line["item_id"]]
        assert clock(line) == clock(same)
        for count in ("n_visual_tokens", "n_prompt_tokens", "grid"):
            assert line[count] == same[count]
        shown = shows_evidence(line, item)
        assert (shown == shows_evidence(same, item)).all(), "the same slots hold evidence"
        assert [frames(line)[p] for p in np.flatnonzero(shown)] == [
            frames(same)[p] for p in np.flatnonzero(shown)
        ]
        assert shown.sum() == UNIT * line["measures"]["units_put_in"] <= 2 * UNIT


def test_a_share_of_the_other_units_is_replaced_the_same_for_both(lines, items):
    for name, item in items.items():
        start = under(lines, replaced=0.0)[name]
        others = ~shows_evidence(start, item).reshape(-1, UNIT).any(axis=1)
        changed = {}
        for share in (0.5, 1.0):
            for by in ("near_duplicates", "distinct"):
                line = under(lines, replaced=share, by=by)[name]
                now = by_unit(line)
                moved = {p for p, old in enumerate(by_unit(start)) if old != now[p]}
                assert len(moved) <= round(share * others.sum()), "a drawn unit may be what it was"
                assert all(others[place] for place in moved)
                changed[share, by] = moved
                if share == 1.0 and by == "near_duplicates":
                    shown = [now[place] for place in np.flatnonzero(others)]
                    flat = [frame for one in shown for frame in one]
                    assert max(flat) - min(flat) < FPS, "one second"
                    assert all(one == tuple(range(one[0], one[0] + UNIT)) for one in shown), "neighbours"
                    assert shown == sorted(shown), "in order of time"
                    times = Counter(shown)
                    assert max(times.values()) - min(times.values()) <= 1
                if share == 1.0 and by == "distinct":
                    flat = [frame for place in np.flatnonzero(others) for frame in now[place]]
                    assert len(set(flat)) == len(flat), "no frame twice"
        assert changed[0.5, "near_duplicates"] <= changed[1.0, "near_duplicates"] | {
            place for place in range(UNITS) if others[place]
        }
    some = [under(lines, replaced=0.5, by="near_duplicates")[name] for name in items]
    at = set()
    for line in some:
        start = by_unit(under(lines, replaced=0.0)[line["item_id"]])
        at.add(tuple(place for place, one in enumerate(by_unit(line)) if one != start[place]))
    assert len(at) > 1, "each item has its own draw"


def test_near_duplicates_are_more_alike_than_distinct_units(run):
    rows = table(run, "contrasts").set_index(["replaced", "measure"])
    assert rows.loc[(1.0, "unit_similarity"), "difference"] > 0.1


def test_doses_and_contrasts_are_the_records_means(run, lines):
    rows = table(run, "doses")
    for _, row in rows.iterrows():
        told = {"replaced": row["replaced"]} | ({"by": row["by"]} if isinstance(row["by"], str) else {})
        some = under(lines, **told)
        assert row["n"] == len(some) > 0
        for measure in MEASURES:
            value = mean(some, None if measure == "accuracy" else measure)
            assert row[measure] == pytest.approx(value)
            assert row[f"{measure}_low"] <= row[measure] <= row[f"{measure}_high"]
    contrasts = table(run, "contrasts")
    assert len(contrasts) == 2 * len(MEASURES)
    for _, row in contrasts.iterrows():
        alike = under(lines, replaced=row["replaced"], by="near_duplicates")
        distinct = under(lines, replaced=row["replaced"], by="distinct")

        def value(line, measure=row["measure"]):
            return float(line["correct"]) if measure == "accuracy" else line["measures"][measure]

        gaps = [value(alike[name]) - value(distinct[name]) for name in alike]
        assert row["difference"] == pytest.approx(np.mean(gaps))
        assert row["p_holm"] >= row["p"]


def test_the_same_command_again_measures_nothing(run, diagnose):
    before = [path.read_bytes() for path in sorted(run.glob("samples.*.jsonl"))]
    done = diagnose(*SMALL, f"out={run}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.read_bytes() for path in sorted(run.glob("samples.*.jsonl"))] == before


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"share": [0.0, 1.0]}, "'shares'"),
        ({"shares": [0.5, 1.0]}, "shares ascend from 0"),
        ({"shares": [0.0]}, "at least two"),
        ({"shares": [0.0, 1.5]}, "less than or equal to 1"),
        ({"stretch_seconds": 0}, "greater than 0"),
    ],
)
def test_a_wrong_configuration_is_refused(values, said):
    with pytest.raises(ConfigError, match=said):
        from_mapping(Config, values, "exp")


def test_bad_input_is_named_and_counted_and_costs_nobody_else(diagnose, tmp_path):
    folder = tmp_path / "run"
    done = diagnose("+exp=redundancy_dose", *write_odd(tmp_path), "exp.budget=15", "exp.shares=[0.0,1.0]",
                    f"out={folder}")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    left_out = table(folder, "left_out").set_index("item")["reason"].to_dict()
    assert left_out == {"global": "no local evidence", "nothing": "no local evidence"}
    lines = lines_of(folder)
    failed = {line["item_id"]: line["error"]["type"] for line in lines if line["error"]}
    assert failed == {
        "between frames": "NoEvidenceError",
        "all of it": "NoEvidenceError",
        "one frame": "NoEvidenceError",
        "beyond": "EvidenceOutsideVideoError",
    }
    short = under(lines, replaced=1.0, by="near_duplicates")["short"]
    assert short["measures"]["units_put_in"] == 1
    assert any(w.startswith("short_evidence: 1 of 2 units") for w in short["warnings"])
    open_ended = under(lines, replaced=0.0)["open"]
    assert open_ended["correct"] is None
    assert open_ended["measures"]["evidence_log_lift"] is not None
