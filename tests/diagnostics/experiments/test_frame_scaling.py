"""Frame scaling: what each rung shows, by its definition; every number of its tables, from the records."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from diagnostics.experiments.frame_scaling import nested
from diagnostics.report.scaling import scaling_figure

from ...checkpoints import qwen2_5_checkpoint, qwen3_checkpoint
from ..models.conftest import a_question, load
from ..models.conftest import uniform as spread
from ..report.test_drift import by_gid, overlapping, texts
from .conftest import Diagnose
from .odd_videos import FRAMES, write_odd_questions
from .told import lines_of as lines

BUDGETS = (3, 8, 24)
COMMAND = (
    "+exp=frame_scaling", "data.n_videos=3", "data.tasks=[RSR,Hist,LLS,Site]", "exp.budgets=[3,8,24]",
    "backend.max_new_tokens=4",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "scaling"
    finished = diagnose(*COMMAND, f"out={folder}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return folder


@pytest.fixture(scope="module")
def records(run: Path) -> list[dict]:
    found = lines(run)
    assert all(record["error"] is None for record in found)
    return found


@pytest.fixture(scope="module")
def odd(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("odd")
    arguments = write_odd_questions(root)
    finished = diagnose(*arguments, "+exp=frame_scaling", "exp.budgets=[1,4,7,64]", f"out={root / 'run'}")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return root / "run"


def test_every_item_is_asked_at_every_rung_once(records: list[dict]) -> None:
    ids = {record["item_id"] for record in records}
    assert len(ids) >= 6
    expected = {
        (item, budget, frames, resolution)
        for item in ids
        for budget in BUDGETS
        for frames in ("uniform", "nested")
        for resolution in ("budget", "fixed")
    }
    told = [
        (r["item_id"], r["condition"]["budget"], r["condition"]["frames"], r["condition"]["resolution"])
        for r in records
    ]
    assert len(told) == len(expected)
    assert set(told) == expected


def test_uniform_rungs_are_evenly_spaced_and_nested_ones_are_subsets(records: list[dict]) -> None:
    by: dict[tuple, list[int]] = {}
    for record in records:
        condition, slots = record["condition"], record["slots"]
        shown = [slot["frame_index"] for slot in slots]
        assert [slot["shown_seconds"] for slot in slots] == [slot["true_seconds"] for slot in slots]
        if condition["resolution"] == "fixed" and condition["budget"] % 2:
            assert shown[-1] == shown[-2], "the last frame fills the last unit"
            assert any(warning.startswith("repeated_frame") for warning in record["warnings"])
            shown = shown[:-1]
        by[record["item_id"], condition["frames"], condition["resolution"], condition["budget"]] = shown
        if condition["frames"] == "uniform":
            n = round(record["source_fps"] * record["source_seconds"])
            expected = np.rint(np.linspace(0, n - 1, condition["budget"])).astype(int)
            assert shown == expected.tolist()
    for item in {record["item_id"] for record in records}:
        for resolution in ("budget", "fixed"):
            small, middle, large = (by[item, "nested", resolution, budget] for budget in BUDGETS)
            assert [len(small), len(middle), len(large)] == list(BUDGETS)
            assert set(small) < set(middle) < set(large)
            assert large == by[item, "uniform", resolution, 24]
            assert by[item, "uniform", "budget", 8] == by[item, "uniform", "fixed", 8]
            # Evenly spaced over the larger rung: a neighbour's place off at most.
            gaps = np.diff(middle)
            assert gaps.max() - gaps.min() <= 3 * np.diff(large).max()
            assert (small[0], small[-1]) == (large[0], large[-1])


def test_nested_of_fewer_frames_than_asked_is_all_of_them() -> None:
    rungs = nested((2, 5, 8), 5)
    assert rungs[8].tolist() == rungs[5].tolist() == [0, 1, 2, 3, 4]
    assert rungs[2].tolist() == [0, 4]
    assert nested((1, 4), 1)[1].tolist() == [0]


def of_task(records: list[dict], task: str, **condition: object) -> list[dict]:
    return [
        record
        for record in records
        if (task == "all" or record["task"] == task)
        and all(record["condition"][key] == value for key, value in condition.items())
    ]


def test_the_ladder_table_is_the_records(run: Path, records: list[dict]) -> None:
    table = pd.read_csv(run / "tables" / "ladders.csv")
    tasks = {record["task"] for record in records}
    assert set(table["task"]) == {"all", *tasks}
    assert len(table) == (1 + len(tasks)) * 2 * 2 * len(BUDGETS)
    for row in table.to_dict("records"):
        condition = {key: row[key] for key in ("budget", "frames", "resolution")}
        some = of_task(records, row["task"], **condition)
        assert row["n"] == len(some) > 0
        assert row["accuracy"] == pytest.approx(np.mean([record["correct"] for record in some]))
        hits = [r["measures"]["any_window_hit"] for r in some if "any_window_hit" in r["measures"]]
        assert row["evidence_n"] == len(hits)
        assert row["evidence_shown"] == pytest.approx(np.mean(hits) if hits else np.nan, nan_ok=True)
        assert row["tokens_per_unit"] == np.mean([record["tokens_per_unit"] for record in some])
        assert row["frames_shown"] == row["budget"]
        if len({record["video_id"] for record in some}) > 1:
            assert row["ci_low"] <= row["accuracy"] <= row["ci_high"]
        else:
            assert np.isnan([row["ci_low"], row["ci_high"]]).all(), "one video has no interval"


def test_the_trend_table_is_the_records(run: Path, records: list[dict]) -> None:
    table = pd.read_csv(run / "tables" / "trends.csv")
    for row in table.to_dict("records"):
        told = {key: row[key] for key in ("frames", "resolution")}
        at = {
            budget: {r["item_id"]: r for r in of_task(records, row["task"], budget=budget, **told)}
            for budget in BUDGETS
        }
        means = [np.mean([r["correct"] for r in at[budget].values()]) for budget in BUDGETS]
        assert row["slope"] == pytest.approx(np.polyfit([0, 1, 2], means, 1)[0], abs=1e-12)
        assert row["best_budget"] == BUDGETS[int(np.argmax(means))]
        assert row["best_low"] <= row["best_high"] or row["videos"] == 1
        both = [(at[3][item], at[24][item]) for item in at[3]]
        seen = [pair for pair in both if "any_window_hit" in pair[0]["measures"]]
        gains = [float(after["correct"]) - float(before["correct"]) for before, after in seen]
        more = [
            after["measures"]["any_window_hit"] - before["measures"]["any_window_hit"]
            for before, after in seen
        ]
        assert row["conversion_n"] == len(seen)
        expected = np.sum(gains) / np.sum(more) if np.sum(more) > 0 else np.nan
        assert row["conversion"] == pytest.approx(expected, nan_ok=True)
        newly = [gain for gain, change in zip(gains, more, strict=True) if change > 0]
        assert row["newly_shown"] == len(newly)
        assert row["gain_newly_shown"] == pytest.approx(np.mean(newly) if newly else np.nan, nan_ok=True)


def test_p_is_adjusted_over_the_ladders_of_a_task(run: Path) -> None:
    table = pd.read_csv(run / "tables" / "trends.csv")
    for _, rows in table.groupby("task"):
        ordered = rows.sort_values("p_rising")
        steps = [min(1.0, (len(rows) - rank) * p) for rank, p in enumerate(ordered["p_rising"])]
        np.testing.assert_allclose(ordered["p_holm"], np.maximum.accumulate(steps))


def test_the_summary_is_the_papers_ladder(run: Path, records: list[dict]) -> None:
    metrics = json.loads((run / "summary.json").read_text())["metrics"]
    for budget in BUDGETS:
        some = of_task(records, "all", budget=budget, frames="uniform", resolution="budget")
        assert metrics[f"accuracy_{budget}"]["mean"] == pytest.approx(np.mean([r["correct"] for r in some]))
    baselines = pd.read_csv(run / "tables" / "baselines.csv").set_index("of")
    assert {"chance", "best constant letter", "commonest option text", "text-only classifier"} < set(
        baselines.index
    )


def test_called_again_it_measures_nothing(run: Path, diagnose: Diagnose) -> None:
    before = (run / "samples.0.jsonl").read_bytes(), (run / "summary.json").read_bytes()
    again = diagnose(*COMMAND, f"out={run}")
    assert again.returncode == 0, again.stderr
    assert ((run / "samples.0.jsonl").read_bytes(), (run / "summary.json").read_bytes()) == before


# -- resolution


def test_a_budget_over_time_shrinks_frames_and_fixed_holds_them(diagnose: Diagnose, tmp_path: Path) -> None:
    """24 frames of 96 x 96 within 60,000 pixels: 2,500 each, one row of patches."""
    finished = diagnose(
        "+exp=frame_scaling", "model=tiny_random", "model.max_pixels=60000", "data.n_videos=1",
        "data.tasks=[RSR]", "exp.budgets=[3,8,24]", f"out={tmp_path}", "backend.max_new_tokens=2",
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    tokens: dict[tuple[str, int], set[int]] = {}
    for record in lines(tmp_path):
        condition = record["condition"]
        tokens.setdefault((condition["resolution"], condition["budget"]), set()).add(
            record["tokens_per_unit"]
        )
    held = tokens["fixed", 24]
    assert len(held) == 1
    assert tokens["fixed", 3] == tokens["fixed", 8] == held == tokens["budget", 24]
    assert max(tokens["budget", 3]) > max(tokens["budget", 8]) > max(held)
    prompts = {
        (r["item_id"], r["condition"]["frames"]): [
            s["prompt_sha256"]
            for s in lines(tmp_path)
            if s["item_id"] == r["item_id"]
            and (s["condition"]["frames"], s["condition"]["budget"]) == (r["condition"]["frames"], 24)
        ]
        for r in lines(tmp_path)
    }
    assert all(len(set(same)) == 1 for same in prompts.values()), "the largest rung is the same in both"


@pytest.mark.parametrize("size", [(180, 320), (56, 84)])
def test_tokens_of_a_unit_are_held_whatever_the_number_of_frames(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    from diagnostics.models.prompting import prepare_inputs
    from diagnostics.video.order import whole_units
    from diagnostics.video.selection import Frames

    loaded = load(qwen3_checkpoint(tmp_path / "qwen3"), max_pixels=300_000, min_pixels=131_072)
    pixels = loaded.family.pixels_left(32, dict(loaded.processor.video_processor.size))
    assert pixels == 300_000 // 32
    grids = set()
    for n in (1, 2, 3, 4, 5, 7, 8, 31, 32):
        frames = spread(n, fps=8.0, source_frames=400, size=size)
        even, _ = whole_units(frames.selection, 2)
        shown = Frames(frames.pixels[[*range(n), *[n - 1] * (len(even) - n)]], even)
        prompt = prepare_inputs(
            loaded, a_question(), shown, instruction="", max_new_tokens=1, frame_pixels=pixels
        )
        units, rows, cols = prompt.inputs["video_grid_thw"][0].tolist()
        assert units == -(-n // 2)
        grids.add((rows, cols))
    assert len(grids) == 1
    (grid,) = grids
    assert grid[0] * grid[1] * 16 * 16 <= pixels


def test_a_budget_of_each_frame_needs_no_holding(tmp_path: Path) -> None:
    from diagnostics.models.prompting import prepare_inputs

    loaded = load(qwen2_5_checkpoint(tmp_path / "qwen2_5"))
    assert loaded.family.pixels_left(32, dict(loaded.processor.video_processor.size)) is None
    grids = set()
    for n in (2, 3, 9, 32):
        frames = spread(n, fps=8.0, source_frames=400, size=(180, 320))
        prompt = prepare_inputs(loaded, a_question(), frames, instruction="", max_new_tokens=1)
        grids.add(tuple(prompt.inputs["video_grid_thw"][0, 1:].tolist()))
    assert len(grids) == 1


# -- bad input


def test_more_frames_than_there_are(odd: Path) -> None:
    """A video of one frame, of five, of forty; budgets 1, 4, 7, 64."""
    videos = {"one frame": "one.mp4", "five frames": "five.mp4", "no evidence": "plain.mp4"}
    for record in lines(odd):
        if record["item_id"] in videos:
            available, budget = FRAMES[videos[record["item_id"]]], record["condition"]["budget"]
            shown = {slot["frame_index"] for slot in record["slots"]}
            assert record["error"] is None
            assert len(shown) == min(budget, available)
            short = [w for w in record["warnings"] if w.startswith("fewer_frames")]
            expected = f"fewer_frames: {available} shown of {budget} asked for"
            assert short == ([expected] if available < budget else [])
    table = pd.read_csv(odd / "tables" / "ladders.csv")
    top = table[table["budget"] == 64]
    counts = [FRAMES[name] for name in ("one.mp4", "five.mp4", *["plain.mp4"] * 5)]
    np.testing.assert_allclose(top["frames_shown"], np.mean(counts))


def test_what_cannot_be_used_is_recorded_and_the_rest_measured(odd: Path) -> None:
    found = lines(odd)
    errors = {record["item_id"]: record["error"]["type"] for record in found if record["error"]}
    assert errors == {"missing": "MissingVideoError", "one option": "TooFewOptionsError"}
    by = {record["item_id"]: record for record in found}
    assert by["open"]["correct"] is None
    assert "any_window_hit" not in by["no evidence"]["measures"]
    assert {r["measures"]["any_window_hit"] for r in found if r["item_id"] == "short window"} == {0.0}
    table = pd.read_csv(odd / "tables" / "ladders.csv")
    assert set(table["n"]) == {6}, "the open-ended item has no accuracy"
    assert set(table["evidence_n"]) == {3}


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("exp.budgetts=[4,8]", "budgets"),
        ("exp.budgets=[8,4]", "ascending"),
        ("exp.budgets=[8]", "ascending"),
        ("exp.budgets=[0,8]", "greater than 0"),
        ("exp.frames=[random]", "uniform"),
        ("sampling=differential", "Leave sampling at uniform"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_to_do(
    argument: str, told: str, diagnose: Diagnose, tmp_path: Path
) -> None:
    plus = "+" if "budgetts" in argument else ""
    finished = diagnose("+exp=frame_scaling", "data.n_videos=1", f"{plus}{argument}", f"out={tmp_path}")
    assert finished.returncode == 2, finished.stdout + finished.stderr
    assert told in finished.stderr


# -- the figure


def test_lines_are_the_table_and_bands_its_intervals(run: Path) -> None:
    ladders = pd.read_csv(run / "tables" / "ladders.csv")
    figure = scaling_figure(ladders, pd.read_csv(run / "tables" / "trends.csv"))
    whole = ladders[ladders["task"] == "all"]
    place = 0
    for frames in ("uniform", "nested"):
        for resolution in ("budget", "fixed"):
            rows = whole[(whole["frames"] == frames) & (whole["resolution"] == resolution)]
            for column in ("accuracy", "evidence_shown", "tokens_per_unit"):
                (drawn,) = by_gid(figure, f"{column}:{place}")
                np.testing.assert_array_equal(drawn.get_xdata(), BUDGETS)
                np.testing.assert_array_equal(drawn.get_ydata(), rows[column])
            (band,) = by_gid(figure, f"accuracy-interval:{place}")
            corners = {tuple(np.round(p, 9)) for p in band.get_paths()[0].vertices}
            for low_high in ("ci_low", "ci_high"):
                ends = zip(np.array(BUDGETS, float), rows[low_high], strict=True)
                assert {tuple(np.round(p, 9)) for p in ends} <= corners
            place += 1
    assert [axes.get_xlabel() for axes in figure.axes] == ["frames"] * 3
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "accuracy (%)", "items with evidence shown (%)", "tokens of a temporal unit",
    ]  # fmt: skip
    told = " ".join(" ".join(texts(figure)).split())
    assert "points a rung" in told
    assert "uniform frames, the checkpoint's pixel budget" in told
    assert "held and own resolution are the same" in told
    assert overlapping(figure) == []
    shrunk = ladders.assign(tokens_per_unit=ladders["tokens_per_unit"] / np.log2(ladders["budget"]))
    changed = ladders.where(ladders["resolution"] == "fixed", shrunk)
    other = scaling_figure(changed, pd.read_csv(run / "tables" / "trends.csv"))
    assert "held and own" not in " ".join(" ".join(texts(other)).split())


def test_the_figure_is_written(run: Path) -> None:
    path = run / "figures" / "frame_scaling.png"
    assert np.asarray(Image.open(path).convert("RGB")).std() > 10
    assert path.with_suffix(".pdf").exists()
