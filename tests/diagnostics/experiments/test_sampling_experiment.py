"""Every sampler through the command: frames, recall, coverage and tables by another road, bad input."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml

from diagnostics.data.items import Item
from diagnostics.errors import ConfigError
from diagnostics.experiments.sampling import Config
from diagnostics.strict import from_mapping

from .conftest import Diagnose
from .odd import write_odd
from .told import Line, frames, lines_of, mean, shows_evidence, table, under, windows

CONF = Path(__file__).resolve().parents[3] / "conf" / "exp" / "sampling.yaml"
LABELS = tuple(yaml.safe_load(CONF.read_text())["exp"]["samplers"])
SMALL = ("+exp=sampling", "data.split=test", "data.n_videos=3", "data.questions=3", "exp.budgets=[4,9]")
BUDGETS = (4, 9)


@pytest.fixture(scope="module")
def items(cache: Path) -> dict[str, Item]:
    from diagnostics.data.minihorizon import Config, load

    found = load(Config(split="test", n_videos=3, questions=3, cache=str(cache))).items
    return {item.id: item for item in found}


@pytest.fixture(scope="module")
def run(diagnose: Diagnose, items: dict[str, Item], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sampling") / "run"
    done = diagnose(*SMALL, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def lines(run: Path) -> list[dict]:
    return lines_of(run)


def test_every_sampler_of_the_issue_gives_its_budget_of_frames_in_order(lines, items):
    assert {
        "uniform",
        "fps_cap",
        "random",
        "differential",
        "hybrid",
        "oracle",
        "aks",
        "dks",
        "wfs_sb",
    } <= set(LABELS)
    pairs = Counter(
        (line["item_id"], line["condition"]["sampler"], line["condition"]["budget"]) for line in lines
    )
    assert pairs == {(name, label, budget): 1 for name in items for label in LABELS for budget in BUDGETS}
    for line in lines:
        assert line["error"] is None
        assert len(frames(line)) == line["condition"]["budget"]
        assert frames(line) == sorted(set(frames(line))), "in order of time, none twice"
        assert all(slot["true_seconds"] == slot["shown_seconds"] for slot in line["slots"])


def recall(line: Line, item: Item) -> dict[str, float]:
    """By the definitions: of windows, how many got a frame; of stretches of time, how many did."""
    counts = [sum(first <= frame < end for frame in frames(line)) for first, end in windows(item)]
    hit = [count > 0 for count in counts]
    budget = len(frames(line))
    share = [slot["true_seconds"] / line["source_seconds"] for slot in line["slots"]]
    stretches = {min(budget - 1, int(part * budget)) for part in share}
    return {
        "any_window_hit": float(any(hit)),
        "all_windows_hit": float(all(hit)),
        "windows_hit": sum(hit) / len(hit),
        "evidence_slots": float(shows_evidence(line, item).sum()),
        "evidence_slots_per_window": sum(counts) / len(counts),
        "temporal_coverage": len(stretches) / budget,
    }


def test_recall_and_coverage_are_recounted_from_the_slots(lines, items):
    for line in lines:
        for name, value in recall(line, items[line["item_id"]]).items():
            assert line["measures"][name] == pytest.approx(value), (name, line["condition"])
    assert mean(under(lines, sampler="uniform", budget=9), "temporal_coverage") == 1
    oracle = under(lines, sampler="oracle", budget=9)
    assert mean(oracle, "any_window_hit") == mean(oracle, "all_windows_hit") == 1


def test_the_table_is_the_records_means_and_the_time_is_in_seconds(run, lines):
    rows = table(run, "samplers").set_index(["sampler", "budget"])
    assert len(rows) == len(LABELS) * len(BUDGETS)
    for (label, budget), row in rows.iterrows():
        some = under(lines, sampler=label, budget=budget)
        assert row["n"] == len(some)
        assert row["accuracy"] == pytest.approx(mean(some))
        for measure in ("any_window_hit", "evidence_slots_per_window", "temporal_coverage"):
            assert row[measure] == pytest.approx(mean(some, measure))
        spent = [line["seconds"]["choose"] for line in some.values()]
        assert row["choose_seconds_median"] == pytest.approx(np.median(spent))
        assert row["choose_seconds_max"] == pytest.approx(max(spent))
        assert all("choose" not in line["measures"] for line in some.values()), "time is no result"
    tasks = table(run, "tasks")
    for row in tasks[tasks["sampler"] == "oracle"].to_dict("records"):
        some = under(lines, sampler="oracle", budget=row["budget"]).values()
        right = [line["correct"] for line in some if row["task"] in ("all", line["task"])]
        assert (row["n"], row["accuracy"]) == (len(right), pytest.approx(np.mean(right))), row
    assert (run / "figures" / "sampling_by_task.png").exists()
    differences = table(run, "differences")
    assert set(differences["sampler"]) == set(LABELS) - {"uniform"}
    one = differences[(differences["sampler"] == "oracle") & (differences["budget"] == 4)]
    one = one[(one["task"] == "all") & (one["measure"] == "any_window_hit")].iloc[0]
    gap = mean(under(lines, sampler="oracle", budget=4), "any_window_hit")
    gap -= mean(under(lines, sampler="uniform", budget=4), "any_window_hit")
    assert one["difference"] == pytest.approx(gap)


def test_the_same_command_again_measures_nothing(run, diagnose):
    before = [path.read_bytes() for path in sorted(run.glob("samples.*.jsonl"))]
    done = diagnose(*SMALL, f"out={run}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.read_bytes() for path in sorted(run.glob("samples.*.jsonl"))] == before


def test_a_scorer_that_is_not_here_is_told_before_anything_is_asked(diagnose, tmp_path):
    folder = tmp_path / "run"
    done = diagnose(
        *SMALL, f"out={folder}", "+exp.samplers.aks.scorer.name=clip",
        "+exp.samplers.aks.scorer.path=/nowhere/clip", "+exp.samplers.aks.scorer.local_files_only=true",
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    told = " ".join(done.stderr.split())
    assert "The relevance scorer 'clip' cannot be loaded from '/nowhere/clip'" in told
    for way_out in ("exp.samplers.aks.scorer.path", "scorer.name=file", "scorer.name=novelty", "uniform"):
        assert way_out in told
    assert all(not path.read_bytes() for path in folder.glob("samples.*.jsonl")), "nothing was asked"


def test_wrong_parameters_are_told_before_anything_is_asked(diagnose, tmp_path):
    done = diagnose(*SMALL, "+exp.samplers.uniform.candidate=1", f"out={tmp_path / 'run'}")
    assert done.returncode == 2
    assert "exp.samplers.uniform.candidate" in " ".join(done.stderr.split())
    done = diagnose(*SMALL, "exp.reference=unifrom", f"out={tmp_path / 'run'}")
    assert done.returncode == 2
    assert "exp.reference=unifrom" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"sampler": {}}, "'samplers'"),
        ({"samplers": {"mine": {"budget": 3}}}, "names its rule"),
        ({"samplers": {"mine": {"rule": "uniform", "budget": 3}}}, "its budget is that of exp.budgets"),
        ({"budgets": [0]}, "greater than 0"),
    ],
)
def test_a_wrong_configuration_is_refused(values, said):
    with pytest.raises(ConfigError, match=said):
        from_mapping(Config, values, "exp")


def test_bad_input_is_named_and_counted_and_costs_nobody_else(diagnose, tmp_path):
    folder = tmp_path / "run"
    scores = tmp_path / "scores.json"
    scores.write_text('{"good": [0.1, 0.9]}')
    done = diagnose(
        "+exp=sampling", *write_odd(tmp_path), "exp.budgets=[15]", f"out={folder}",
        "exp.samplers={uniform:{rule:uniform},oracle:{rule:oracle},filed:{rule:aks,scorer:{name:file,"
        f"path:{scores}" "}}}",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    left_out = table(folder, "left_out").set_index("item")["reason"].to_dict()
    assert left_out == {
        "global": "no local evidence: not asked with oracle",
        "nothing": "no local evidence: not asked with oracle",
    }
    lines = lines_of(folder)
    failed = {
        (line["item_id"], line["condition"]["sampler"]): line["error"]["type"]
        for line in lines
        if line["error"]
    }
    assert {name for name, sampler in failed if sampler in ("uniform", "oracle")} == {"beyond"}
    assert failed["good", "filed"] == "ScoresError", "scores of the wrong length"
    short = under(lines, sampler="uniform", budget=15)["short"]
    assert frames(short) == list(range(12))
    assert any(warning.startswith("fewer_frames: 12 shown of 15") for warning in short["warnings"])
    one = under(lines, sampler="oracle", budget=15)["one frame"]
    assert frames(one) == [0]
    assert one["measures"]["temporal_coverage"] == 1
