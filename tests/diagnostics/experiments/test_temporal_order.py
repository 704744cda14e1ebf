"""Temporal order: what each order shows, by its definition; every number of its tables, from the records."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from diagnostics.data import load_items
from diagnostics.report.order import order_figure

from ...checkpoints import qwen2_5_checkpoint
from ..report.test_drift import by_gid, overlapping, texts
from .conftest import Diagnose
from .odd_videos import write_odd_questions
from .told import lines_of as lines

BUDGET, BLOCKS, WINDOW, SEEDS = 13, 3, 4, 2
COMMAND = (
    "+exp=temporal_order", "data.n_videos=3", "data.tasks=[RSR,Hist,PR]", f"sampling.budget={BUDGET}",
    f"exp.blocks={BLOCKS}", f"exp.window={WINDOW}", f"exp.seeds={SEEDS}", "backend.max_new_tokens=4",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "order"
    finished = diagnose(*COMMAND, f"out={folder}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return folder


@pytest.fixture(scope="module")
def records(run: Path) -> list[dict]:
    found = lines(run)
    assert all(record["error"] is None for record in found)
    return found


@pytest.fixture(scope="module")
def flags(cache: Path) -> dict[str, frozenset[str]]:
    """Those of each item, from the data set."""
    parameters = {"split": "test", "n_videos": 3, "cache": str(cache)}
    return {item.id: item.flags for item in load_items("minihorizon", parameters).items}


@pytest.fixture(scope="module")
def orders(run: Path) -> pd.DataFrame:
    return pd.read_csv(run / "tables" / "orders.csv", keep_default_na=False, na_values=[""]).fillna(
        {"by": "", "timestamps": ""}
    )


def frames(record: dict) -> list[int]:
    return [slot["frame_index"] for slot in record["slots"]]


def test_every_item_is_asked_in_every_order_once(records: list[dict]) -> None:
    ids = list(dict.fromkeys(record["item_id"] for record in records))
    per_item = 2 + 2 * 2 * (1 + 3 * SEEDS)
    assert len(ids) >= 6
    assert len({(r["item_id"], r["condition_id"]) for r in records}) == len(records) == len(ids) * per_item


def test_slots_are_those_of_the_order(records: list[dict]) -> None:
    seen: dict[tuple, list[int]] = {}
    for record in records:
        n = round(record["source_fps"] * record["source_seconds"])
        own = np.rint(np.linspace(0, n - 1, BUDGET)).astype(int).tolist()
        own.append(own[-1])  # an odd number: the last frame fills the last unit
        assert "repeated_frame: the last frame fills the last unit" in record["warnings"]
        condition, shown = record["condition"], frames(record)
        clock = [slot["shown_seconds"] for slot in record["slots"]]
        true = [slot["true_seconds"] for slot in record["slots"]]
        np.testing.assert_allclose(true, np.array(shown) / record["source_fps"], atol=1e-6)
        if condition["order"] == "original":
            assert shown == own
            assert clock == true
            continue
        expected_clock = sorted(true) if condition["timestamps"] == "slot" else true
        np.testing.assert_allclose(clock, expected_clock)
        unit = 2 if condition["by"] == "unit" else 1
        pieces = [tuple(own[start : start + unit]) for start in range(0, len(own), unit)]
        moved = [tuple(shown[start : start + unit]) for start in range(0, len(own), unit)]
        assert sorted(moved) == sorted(pieces)
        assert moved != pieces
        if condition["order"] == "reversed":
            assert moved == pieces[::-1]
        if condition["order"] == "blocks":
            blocks = [list(map(tuple, block)) for block in np.array_split(np.array(pieces), BLOCKS)]
            assert is_chain(moved, blocks)
        if condition["order"] == "local":
            window = WINDOW // unit
            for start in range(0, len(pieces), window):
                assert sorted(moved[start : start + window]) == sorted(pieces[start : start + window])
        key = (record["item_id"], condition["order"], condition["by"], condition.get("seed"))
        assert seen.setdefault(key, shown) == shown, "the clock does not change what is drawn"
    drawn = {key: shown for key, shown in seen.items() if key[1] == "full" and key[2] == "frame"}
    first, second = ([s for k, s in drawn.items() if k[3] == seed] for seed in range(SEEDS))
    assert first != second


def is_chain(moved: list, blocks: list[list]) -> bool:
    """Whether `moved` is the blocks one after another, each in its own order, in some order of them."""
    if not moved:
        return not any(blocks)
    return any(
        moved[: len(block)] == block and is_chain(moved[len(block) :], [b for b in blocks if b is not block])
        for block in blocks
    )


def test_the_floor_shows_the_same_frames(records: list[dict]) -> None:
    floor = [record for record in records if "reencoded" in record["condition"]]
    plain = {r["item_id"]: r for r in records if r["condition"] == {"order": "original"}}
    assert len(floor) == len(plain)
    for record in floor:
        one = plain[record["item_id"]]
        assert record["slots"] == one["slots"]
        assert record["prompt_sha256"] == one["prompt_sha256"]
    logits = [(r["option_logprobs"], plain[r["item_id"]]["option_logprobs"]) for r in floor]
    assert any(a != b for a, b in logits), "the pictures went through JPEG"


def members(group: str, flags: dict[str, frozenset[str]]) -> set[str]:
    if group == "all":
        return set(flags)
    return {item for item, own in flags.items() if (group in own if own else group == "unflagged")}


def test_the_order_table_is_the_records(
    orders: pd.DataFrame, records: list[dict], flags: dict[str, frozenset[str]]
) -> None:
    assert {"all", "order_dependent", "order_free", "time_addressed"} <= set(orders["items"])
    plain = {r["item_id"]: r for r in records if r["condition"] == {"order": "original"}}
    floor = {r["item_id"]: r for r in records if "reencoded" in r["condition"]}
    for row in orders.to_dict("records"):
        told = {"order": row["order"], "by": row["by"], "timestamps": row["timestamps"]}
        own = members(row["items"], flags) & set(plain)
        same: dict[str, list[dict]] = {}
        for record in records:
            condition = {"by": "", "timestamps": "", **record["condition"]}
            meant = all(condition[key] == value for key, value in told.items())
            if meant and record["item_id"] in own and "reencoded" not in condition:
                same.setdefault(record["item_id"], []).append(record)
        assert row["n"] == len(same) == len(own) > 0
        assert {len(seeds) for seeds in same.values()} == {
            1 if row["order"] in ("original", "reversed") else SEEDS
        }
        correct = [np.mean([r["correct"] for r in seeds]) for seeds in same.values()]
        assert row["accuracy"] == pytest.approx(np.mean(correct))
        change = np.mean(correct) - np.mean([plain[item]["correct"] for item in same])
        assert row["change"] == pytest.approx(change, abs=1e-9)
        flips = [
            np.mean([r["answer"] != plain[item]["answer"] for r in seeds]) for item, seeds in same.items()
        ]
        at_rest = [floor[item]["answer"] != plain[item]["answer"] for item in same]
        assert row["flip_rate"] == pytest.approx(np.mean(flips))
        assert row["flip_floor"] == pytest.approx(np.mean(at_rest))
        assert row["flips_beyond_floor"] == pytest.approx(np.mean(flips) - np.mean(at_rest), abs=1e-9)
        two = [
            [r["answer"] is not None and r["answer"] != r["target"] for r in seeds]
            for item, seeds in same.items()
            if "order_dependent" in flags[item] and len(seeds[0]["option_logprobs"]) == 2
        ]
        assert row["mirrored_n"] == len(two)
        expected = np.mean([np.mean(seeds) for seeds in two]) if two else np.nan
        assert row["mirrored"] == pytest.approx(expected, nan_ok=True)


def test_p_is_adjusted_over_the_orders_of_a_group(orders: pd.DataFrame) -> None:
    for _, rows in orders.groupby("items"):
        assert rows[rows["order"] == "original"]["p_holm"].isna().all()
        moved = rows[rows["order"] != "original"].sort_values("p")
        steps = [min(1.0, (len(moved) - rank) * p) for rank, p in enumerate(moved["p"])]
        np.testing.assert_allclose(moved["p_holm"], np.maximum.accumulate(steps))


def test_the_summary_tells_units_under_a_normal_clock(run: Path, orders: pd.DataFrame) -> None:
    metrics = json.loads((run / "summary.json").read_text())["metrics"]
    rows = orders[(orders["items"] == "all") & (orders["by"] == "unit") & (orders["timestamps"] == "slot")]
    assert len(rows) == 4
    for row in rows.to_dict("records"):
        assert metrics[f"accuracy_{row['order']}"]["mean"] == pytest.approx(row["accuracy"])
        assert metrics[f"flips_beyond_floor_{row['order']}"]["mean"] == pytest.approx(
            row["flips_beyond_floor"]
        )


def test_called_again_it_measures_nothing(run: Path, diagnose: Diagnose) -> None:
    before = (run / "samples.0.jsonl").read_bytes(), (run / "summary.json").read_bytes()
    again = diagnose(*COMMAND, f"out={run}")
    assert again.returncode == 0, again.stderr
    assert ((run / "samples.0.jsonl").read_bytes(), (run / "summary.json").read_bytes()) == before


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_5_vl"])
def test_one_frame_and_odd_numbers_of_frames(family: str, diagnose: Diagnose, tmp_path: Path) -> None:
    arguments = write_odd_questions(tmp_path)
    if family == "qwen2_5_vl":
        arguments.append(f"model.path={qwen2_5_checkpoint(tmp_path / 'checkpoint')}")
    finished = diagnose(
        *arguments, "+exp=temporal_order", "sampling.budget=7", "exp.seeds=1", "exp.orders=[reversed,full]",
        f"out={tmp_path / 'run'}", "backend.max_new_tokens=2",
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    found = lines(tmp_path / "run")
    errors = {record["item_id"]: record["error"]["type"] for record in found if record["error"]}
    assert errors == {"missing": "MissingVideoError", "one option": "TooFewOptionsError"}
    for record in found:
        moved = record["condition"].get("order") in ("reversed", "full")
        told = any(warning.startswith("unmoved") for warning in record["warnings"])
        if record["item_id"] == "one frame":
            assert frames(record) == [0, 0]
            assert told == moved
            assert "fewer_frames: 1 shown of 7 asked for" in record["warnings"]
        elif record["item_id"] == "five frames":
            assert sorted(frames(record)) == [0, 1, 2, 3, 4, 4]
            assert not told
        elif record["error"] is None:
            assert len(frames(record)) == 8
    table = pd.read_csv(tmp_path / "run" / "tables" / "orders.csv")
    whole = table[table["items"] == "all"]
    assert set(whole["n"]) == {6}, "the open-ended item has no accuracy"
    assert set(whole["flips_n"]) == {6}, "and no letter that could flip"
    assert set(whole["mirrored_n"]) == {1}
    assert set(table["items"]) == {"all", "order_dependent", "unflagged"}


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("+exp.timestamp=[slot]", "timestamps"),
        ("exp.blocks=1", "greater than or equal to 2"),
        ("exp.jpeg=0", "greater than or equal to 1"),
        ("exp.by=[pixel]", "unit"),
        ("exp.orders=[sorted]", "reversed"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_to_do(
    argument: str, told: str, diagnose: Diagnose, tmp_path: Path
) -> None:
    finished = diagnose("+exp=temporal_order", "data.n_videos=1", argument, f"out={tmp_path}")
    assert finished.returncode == 2, finished.stdout + finished.stderr
    assert told in finished.stderr


def test_bars_and_whiskers_are_the_table(orders: pd.DataFrame) -> None:
    figure = order_figure(orders)
    groups = ["all", "order_dependent", "order_free", "time_addressed"]
    names = ["all items", "depends on the order", "does not depend on it", "names a time"]
    assert len(figure.axes) == 4
    for axes, group, name in zip(figure.axes, groups, names, strict=True):
        rows = orders[orders["items"] == group]
        assert axes.get_title(loc="left") + axes.get_title() == f"{name} (n = {rows['n'].max()})"
        told = [label.get_text() for label in axes.get_xticklabels()]
        assert told == ["reversed", "blocks", "local", "full"]
        (line,) = [line for line in axes.lines if line.get_gid() == "original"]
        assert line.get_ydata()[0] == rows[rows["order"] == "original"]["accuracy"].item()
        for bars, clock in zip(
            (c for c in axes.containers if hasattr(c, "patches")), ("slot", "carry"), strict=True
        ):
            own = rows[(rows["by"] == "unit") & (rows["timestamps"] == clock)].set_index("order").loc[told]
            np.testing.assert_allclose([patch.get_height() for patch in bars.patches], own["accuracy"])
            (whiskers,) = bars.errorbar.lines[2]
            ends = [segment[:, 1] for segment in whiskers.get_segments() if len(segment)]
            told_ends = own[["ci_low", "ci_high"]].dropna()  # a group of one video has no interval
            np.testing.assert_allclose(np.reshape(ends, (-1, 2)), told_ends, atol=1e-9)
            (flips,) = [line for line in axes.lines if line.get_gid() == f"flips:{clock}"]
            np.testing.assert_allclose(flips.get_ydata(), own["flips_beyond_floor"])
    assert by_gid(figure, "caption")
    assert any("shown times travel with the pictures" in text for text in texts(figure))
    assert overlapping(figure) == []


def test_single_frames_are_drawn_where_no_units_were_moved(orders: pd.DataFrame) -> None:
    figure = order_figure(orders[orders["by"] != "unit"])
    assert any("Moved: single frames" in text for text in texts(figure))


def test_the_figure_is_written(run: Path) -> None:
    path = run / "figures" / "temporal_order.png"
    assert np.asarray(Image.open(path).convert("RGB")).std() > 10
    assert path.with_suffix(".pdf").exists()
